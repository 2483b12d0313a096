/**
 * The part of the demo about everyday work: a new folder goes live with `berth deploy`, and a push
 * replaces it under load.
 */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { IdentityProvider } from '@berth/testbed/identity-provider';
import type { Platform } from '@berth/testbed/platform';
import { type Prober, startProber } from '@berth/testbed/prober';
import { waitFor } from '@berth/testbed/wait';
import type { Forge } from './lib/forge.ts';
import type { Person, RunLine } from './lib/person.ts';

export const SHOP = {
  name: 'shop',
  title: 'a new folder: deployed with the command line, then by a push',
  path: '/',
} as const;

export type PushDemo = {
  berth: Platform;
  people: IdentityProvider;
  forge: Forge;
  person: Person;
  printLine: (text: string) => void;
  printHeading: (text: string) => void;
};
/**
 * Requests per second of the visitors, if the machine answers that many; and how many of them wait
 * for an answer at most.
 */
const VISITORS = { perSecond: 50, mostOpen: 10, timeoutMs: 30_000 };

const page = (version: number): string => `Hello from Berth, version ${version}\n`;
const versionOf = (body: string): number => Number(/version (\d+)/.exec(body)?.[1] ?? Number.NaN);
/** The application of docs/get-started.md. */
export const shopFiles = {
  Dockerfile:
    'FROM busybox:stable\nCOPY index.html /www/\nCMD ["httpd", "-f", "-p", "8080", "-h", "/www"]\n',
  'index.html': page(1),
};

export async function demonstratePush(
  demo: PushDemo,
): Promise<{ deployed: boolean; switched: boolean }> {
  const { id, deployed } = await deployFolder(demo);
  return {
    deployed,
    switched: deployed && (await underLoad(demo, (visitors) => pushNewVersion(demo, id, visitors))),
  };
}

/** Runs a line as a person would, and prints it with its output. */
async function runLine(
  { person, printLine }: PushDemo,
  line: string,
  options: RunLine & { quiet?: boolean } = {},
): Promise<string> {
  printLine(`$ ${line}`);
  const { code, output } = await person.run(line, {
    folder: SHOP.name,
    ...options,
    ...(options.quiet === true ? {} : { onOutput: byLine((text) => printLine(`  ${text}`)) }),
  });
  if (code !== 0)
    throw new Error(`${line}: exit ${code}${options.quiet === true ? `\n${output}` : ''}`);
  return output;
}

const PROGRESS_OF_GITEA = /^remote: .*Process(ing|ed) \d+ references/;

function byLine(print: (text: string) => void): (chunk: string) => void {
  let rest = '';
  return (chunk) => {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines)
      if (line.trim() !== '' && !PROGRESS_OF_GITEA.test(line)) print(line.trimEnd());
  };
}

async function deployFolder(demo: PushDemo): Promise<{ id: string; deployed: boolean }> {
  const { berth, forge, people, person, printLine, printHeading } = demo;
  printHeading('A new folder goes live with the command line');
  printLine(`$ berth login ${berth.publicUrl}`);
  const login = await person.login(berth.publicUrl, people, {
    onOutput: byLine((text) => printLine(`  ${text}`)),
    onConfirmed: () => printLine('  (Ada confirms the code in her browser)'),
  });
  if (login !== 0) throw new Error(`berth login: exit ${login}`);
  await person.createFolder(SHOP.name, shopFiles, forge);
  printLine(
    `${SHOP.name}: a new folder with a Dockerfile and index.html; it is pushed to ${forge.title}`,
  );
  await runLine(
    demo,
    "git add . && git commit --quiet -m 'first version' && git push --quiet --set-upstream " +
      'origin main',
  );
  const created = await runLine(
    demo,
    'berth project create --drain-seconds 1 --stop-grace-seconds 3 --json',
    { quiet: true },
  );
  const { id, url } = JSON.parse(created) as { id: string; url: string };
  printLine(`  its address will be ${url}`);
  const access = await forge.giveAccess(berth, id, SHOP.name);
  if (access !== undefined) printLine(`  ${access}`);
  await runLine(demo, 'berth deploy');
  return { id, deployed: versionOf((await berth.get(SHOP.name)).body) === 1 };
}

/** Sends requests while `act` runs. Returns whether each one got the right answer. */
async function underLoad(
  { berth, printLine }: PushDemo,
  act: (visitors: Prober) => Promise<void>,
): Promise<boolean> {
  const visitors = startProber({
    entry: berth.entry,
    host: `${SHOP.name}.${berth.baseDomain}`,
    ...VISITORS,
    versionOf,
  });
  const acted = act(visitors);
  // Its failure is thrown below, after the report.
  await acted.catch(() => undefined);
  const report = await visitors.stop();
  printLine(
    `visitors: ${report.sent} requests, ${report.failed} failed, ${report.stale} from the old ` +
      'version after the new one, ' +
      `slowest answer ${(report.slowest / 1000).toFixed(2)} s`,
  );
  for (const failure of report.failures) console.error(`        ${failure}`);
  await acted;
  return report.failed === 0 && report.stale === 0 && report.versions.at(-1) === 2;
}

async function pushNewVersion(demo: PushDemo, id: string, visitors: Prober): Promise<void> {
  const { berth, forge, person, printLine, printHeading } = demo;
  printHeading('A push replaces it, while visitors send requests');
  const answer = await runLine(demo, `berth hook create --forge ${forge.kind} --json`, {
    quiet: true,
  });
  const { url, secret } = JSON.parse(answer) as { url: string; secret: string };
  // The address on loopback: a forge need not resolve *.localhost.
  await forge.addHook(SHOP.name, { url: `${berth.url}${new URL(url).pathname}`, secret });
  printLine('  its address and secret are entered at the git server');
  await waitFor('the visitors see version 1', () => visitors.latest() === 1, {
    deadlineMs: 60_000,
  });
  printLine(`visitors send up to ${VISITORS.perSecond} requests per second`);
  await writeFile(join(person.home, SHOP.name, 'index.html'), page(2));
  const from = performance.now();
  await runLine(demo, "git commit --quiet --all -m 'version 2' && git push --quiet");
  const deployment = await waitFor(
    'the push deploys',
    async () => {
      const { items } = await berth.api.call('projectDeployments', {
        params: { id },
        query: { limit: 10 },
      });
      return items.find(({ trigger }) => trigger === 'hook');
    },
    { deadlineMs: 120_000 },
  );
  await runLine(demo, `berth deployment watch ${deployment.id}`);
  await waitFor('the visitors see version 2', () => visitors.latest() === 2, {
    deadlineMs: 60_000,
  });
  printLine(
    `${SHOP.name}: version 2 is live and version 1 is gone, ` +
      `${((performance.now() - from) / 1000).toFixed(1)} s after the push began`,
  );
  const status = await forge.success(SHOP.name, deployment.commit ?? '');
  if (status !== undefined) printLine(`the git server shows the commit as successful: “${status}”`);
}
