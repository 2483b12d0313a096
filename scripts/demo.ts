/**
 * npm run demo: every part of Berth on this machine, from a git repository to addresses that open
 * in a browser. Stays until Ctrl-C; with `--exit` it checks each address from outside, prints a
 * summary and ends with 0 or 1. Leaves nothing behind.
 */
import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { messageOf } from '@berth/kit/message-of';
import type { Deployment } from '@berth/wire/deployment';
import type { ProjectCreate } from '@berth/wire/project';
import { ensureBaseImages } from '@berth/testbed/base-images';
import { repositoryRoot, toolsDir, userDockerHost } from '@berth/testbed/config';
import { startEngine, whyNoOwnEngine } from '@berth/testbed/engine';
import { type Engine, engineAnswers } from '@berth/testbed/engine-handle';
import { type GitServer, startGitServer } from '@berth/testbed/git-server';
import { type IdentityProvider, startIdentityProvider } from '@berth/testbed/identity-provider';
import { PlainBrowser } from '@berth/testbed/plain-browser';
import { type Platform, startPlatform } from '@berth/testbed/platform';
import { isFree } from '@berth/testbed/ports';
import { registryProgram, startRegistry } from '@berth/testbed/registry';
import { waitFor } from '@berth/testbed/wait';
import { APP, demonstrateApp } from './demo-app.ts';
import { COPY_BANDWIDTH, DATA_PROJECTS, demonstrateData, writeShare } from './demo-data.ts';
import { demonstratePush, SHOP } from './demo-push.ts';
import { bareForge, type Forge, startGiteaForge, whyNoGitea } from './lib/forge.ts';
import { buildDashboard } from './lib/dashboard.ts';
import { createPerson } from './lib/person.ts';

const PREFERRED_PORT = 8000;
/**
 * Records what this run created on an engine that is not its own. When the run is killed, the next
 * one removes it.
 */
const LEFT = join(repositoryRoot, '.berth', 'demo-left.json');
type Left = { nodes: string[]; registry: string };

const EXAMPLES = [
  { name: 'static-site', title: 'a static site', path: '/' },
  {
    name: 'node-api',
    title: 'a Node service, built and tested from source',
    path: '/healthz',
    health_path: '/healthz',
  },
  { name: 'chat', title: 'a multi-stage build with a WebSocket', path: '/' },
  {
    name: 'who',
    title: 'behind a login: shows who is signed in',
    path: '/me.json',
    health_path: '/healthz',
    auth_required: true,
  },
] as const;
/** Four stories at once are hard to read: this one is told, the others only end. */
const STORY_OF = 'static-site';
/** Accounts of the local identity provider. */
const PEOPLE = [
  {
    email: 'ada@example.org',
    password: 'ada',
    name: 'Ada Lovelace',
    picture: null,
    emailVerified: true,
  },
  {
    email: 'grace@example.org',
    password: 'grace',
    name: 'Grace Hopper',
    picture: null,
    emailVerified: true,
  },
] as const;
type Example =
  | (typeof EXAMPLES)[number]
  | (typeof DATA_PROJECTS)[number]
  | typeof APP
  | typeof SHOP;
const ADDRESSES: readonly Example[] = [...EXAMPLES, ...DATA_PROJECTS, APP, SHOP];

const started = performance.now();
const elapsed = (): string => `${((performance.now() - started) / 1000).toFixed(1).padStart(5)} s`;
const printLine = (text: string): void => console.log(`${elapsed()}  ${text}`);
const printHeading = (text: string): void => console.log(`\n${text}`);
/** Parts that this machine cannot show, with the reason. */
const skipped: string[] = [];

/** The demo waits for this until Ctrl-C ends the process from its handler. */
const ended = Promise.withResolvers<void>();
const undo: { what: string; run: () => Promise<unknown> }[] = [];
let ending: Promise<void> | undefined;

/** Undoes everything in reverse order. A part that cannot be undone does not stop the others. */
function end(): Promise<void> {
  ending ??= (async () => {
    for (const { what, run } of undo.toReversed()) {
      try {
        await run();
      } catch (error) {
        console.error(`${elapsed()}  could not clean up ${what}: ` + messageOf(error));
        process.exitCode = 1;
      }
    }
  })();
  return ending;
}

async function main(exitAfter: boolean): Promise<void> {
  const dir = join(repositoryRoot, '.berth', 'demo');
  rmSync(dir, { recursive: true, force: true });
  mkdirSync(dir, { recursive: true, mode: 0o700 });
  if (!process.argv.includes('--keep'))
    undo.push({ what: dir, run: async () => rmSync(dir, { recursive: true, force: true }) });

  const reason =
    registryProgram() === undefined
      ? 'the registry program is missing'
      : (await engineAnswers(userDockerHost()))
        ? undefined
        : whyNoOwnEngine();
  if (reason !== undefined)
    throw new Error(
      `the demo builds and runs real containers, and this machine cannot run them: ${reason}. ` +
        `\`npm run setup\` lists what is missing and how to get it.`,
    );

  // It starts beside the other parts; its failure is thrown where it is needed.
  const forgeStarts = startForge(dir);
  undo.push({
    what: 'the forge',
    run: () =>
      forgeStarts.then(
        (forge) => forge?.stop(),
        () => undefined,
      ),
  });

  const engine = await startEngine({ dir: join(toolsDir, 'testbed') });
  undo.push({ what: 'the container engine', run: () => engine.stop() });
  printLine(
    engine.owned
      ? 'container engine started (in its own network namespace; it ends with the demo)'
      : `container engine: yours, at ${engine.host}`,
  );
  if (existsSync(LEFT)) await removeLeft(engine);
  await ensureBaseImages(engine, ['busybox:stable', 'node:24-slim']);
  printLine('base images ready');

  const registry = await startRegistry({
    dir: join(toolsDir, 'testbed', 'registry'),
    address: engine.gatewayIp,
    user: 'berth',
    password: randomBytes(12).toString('hex'),
  });
  undo.push({ what: 'the registry', run: () => registry.stop() });
  const git = await startGitServer({ root: join(dir, 'git'), push: true });
  undo.push({ what: 'the git server', run: () => git.stop() });
  printLine(`registry at ${registry.address}, git server at ${git.url}`);

  // For development only: the accounts and passwords of this provider are printed.
  const people = await startIdentityProvider({ accounts: PEOPLE });
  undo.push({ what: 'the identity provider', run: () => people.stop() });
  printLine(`OpenID provider with two accounts at ${people.issuer}`);

  const share = join(dir, 'share');
  await writeShare(share);
  const onNode = { DATASET_NFS_BASE_PATH: share, COPY_BANDWIDTH, ALLOW_EXEC: 'true' };

  const berth = await startPlatform({
    dir,
    gateway: {
      env: (publicUrl) => {
        people.allowRedirect(`${publicUrl}/_oauth/callback/oidc`);
        return {
          OIDC_ISSUER: people.issuer,
          OIDC_CLIENT_ID: people.clientId,
          OIDC_CLIENT_SECRET: people.clientSecret,
        };
      },
    },
    // Berth sends commit statuses to loopback only if an operator names the host.
    env: {
      DASHBOARD_DIR: await buildDashboard(),
      DEFAULT_ROLE: 'developer',
      DATASET_NFS_BASE_PATH: share,
      ALLOWED_GIT_HOSTS: '127.0.0.1',
    },
    registry,
    proxy: 'built-in',
    ...((await isFree(PREFERRED_PORT)) ? { proxyPort: PREFERRED_PORT } : {}),
    agents: [
      { name: 'builder-1', role: 'builder', engine },
      { name: 'node-1', role: 'deploy', engine, env: onNode },
      { name: 'node-2', role: 'deploy', engine, env: onNode },
    ],
  });
  const nodes = (await berth.api.call('listNodes', { query: {} })).items.map((node) => node.id);
  writeFileSync(LEFT, JSON.stringify({ nodes, registry: registry.address } satisfies Left));
  undo.push({ what: 'containers', run: () => removeLeft(engine) });
  undo.push({ what: 'Berth’s processes', run: () => berth.stop() });
  printLine('control plane, gateway, builder, two deploy nodes and proxy are ready');

  printHeading('Eight projects: the first four, from a git repository to an address');
  await deployExamples(berth, git);
  printHeading('Two projects that read a dataset on shared storage');
  const placed = await demonstrateData({
    berth,
    git,
    share,
    printLine,
    follow: (name, asked, also) => follow(berth, name, asked, { also }),
  });
  printHeading('A whole application: web, worker, migration and nightly job');
  const applied = await demonstrateApp({
    berth,
    git,
    printLine,
    follow: (name, asked) => follow(berth, name, asked, {}),
  });
  const person = await createPerson(join(dir, 'home'), PEOPLE[0]);
  const forge = (await forgeStarts) ?? bareForge(git, join(dir, 'git'));
  const { deployed, switched } = await demonstratePush({
    berth,
    people,
    forge,
    person,
    printLine,
    printHeading,
  });
  printHeading('Each address, asked from outside');
  const checks = await Promise.all(ADDRESSES.map((example) => check(berth, example, people)));
  const ok = checks.every((c) => c) && deployed && switched && placed && applied;

  printAddresses(berth, people, join(person.home, SHOP.name));
  for (const what of skipped) console.log(`\n  skipped: ${what}`);
  if (exitAfter) {
    console.log(
      `\n${ok ? 'The main job works' : 'The main job FAILED'}: ` +
        `${checks.filter(Boolean).length} of ${ADDRESSES.length} addresses answered from ` +
        'outside, ' +
        'a push ' +
        `${switched ? 'replaced a version without a failed request' : 'FAILED OR LOST REQUESTS'}, ` +
        `data ${placed ? 'copied once' : 'COPIED TWICE'}, ` +
        `worker and job ${applied ? 'worked' : 'FAILED'}, ${elapsed().trim()} in total.`,
    );
    if (!ok) process.exitCode = 1;
    return;
  }
  console.log('\nCtrl-C ends it and cleans up.');
  await ended.promise;
}

/** Starts the real Gitea if this machine has it. */
async function startForge(dir: string): Promise<Forge | undefined> {
  const reason = whyNoGitea();
  if (reason === undefined) return startGiteaForge(dir);
  skipped.push(`the real Gitea (${reason}); a repository with a post-receive hook took its place`);
  return undefined;
}

async function deployExamples(berth: Platform, git: GitServer): Promise<void> {
  await Promise.all(
    EXAMPLES.map(async (example) => {
      const { url } = await git.createRepo(
        example.name,
        join(repositoryRoot, 'examples', example.name),
      );
      const body: ProjectCreate = {
        name: example.name,
        git_url: url,
        domain_prefix: example.name,
        drain_seconds: 1,
        stop_grace_seconds: 3,
        ...('health_path' in example ? { health_path: example.health_path } : {}),
        ...('auth_required' in example
          ? { auth_required: true, env: { AUTH_URL: berth.publicUrl } }
          : {}),
      };
      const project = await berth.createProject(body);
      const from = performance.now();
      const asked = await berth.deploy(project, { note: 'the demo' });
      printLine(`${example.name}: deployment requested (${example.title})`);
      const done = await follow(berth, example.name, asked, { story: example.name === STORY_OF });
      printLine(
        `${example.name}: ` +
          `${done.status === 'running' ? `live at ${berth.address(example.name)}` : 'FAILED'} ` +
          `after ${((performance.now() - from) / 1000).toFixed(1)} s`,
      );
    }),
  );
}

type Following = { story?: boolean; also?: ((now: Deployment) => void) | undefined };

/**
 * Waits for the end of a deployment. Prints each new line of its story, and the end of the log when
 * it fails.
 */
async function follow(
  berth: Platform,
  name: string,
  asked: Deployment,
  { story = true, also }: Following,
): Promise<Deployment> {
  let printed = 1;
  const done = await waitFor(
    `${name} is settled`,
    async () => {
      const now = await berth.api.call('getDeployment', { params: { id: asked.id } });
      if (story)
        for (const event of now.events.slice(printed)) printLine(`${name}: ${event.message}`);
      printed = Math.max(printed, now.events.length);
      also?.(now);
      return now.finished_at !== null && now;
    },
    { deadlineMs: 300_000, intervalMs: 100 },
  );
  if (done.status !== 'running') {
    console.error(
      `\n${name}: ${done.error?.code ?? done.status}: ` +
        `${done.error?.message ?? ''}\n${(await berth.logs(done)).slice(-15).join('\n')}\n`,
    );
    process.exitCode = 1;
  }
  return done;
}

async function check(
  berth: Platform,
  example: Example,
  people: IdentityProvider,
): Promise<boolean> {
  if ('auth_required' in example) return checkLogin(berth, example, people);
  const answer = await berth
    .get(example.name, example.path)
    .catch((error: unknown) => ({ status: 0, body: String(error) }));
  printLine(
    `checked ${berth.address(example.name)}${example.path}: ` +
      `${answer.status}${answer.status === 200 ? '' : ` ${answer.body.slice(0, 100)}`}`,
  );
  return answer.status === 200;
}

/**
 * Checks that a script is refused, a browser goes to the login, and the application sees the person
 * who signed in.
 */
async function checkLogin(
  berth: Platform,
  example: Example,
  people: IdentityProvider,
): Promise<boolean> {
  const address = `${berth.address(example.name)}${example.path}`;
  const [account] = PEOPLE;
  const browser = new PlainBrowser();
  try {
    const script = await browser.open(address, { headers: { accept: 'application/json' } });
    printLine(`checked ${address}: ${script.status} for a script that is not signed in`);
    const visitor = await browser.open(address, { follow: false });
    printLine(`checked ${address}: ${visitor.status} to the login for a browser`);
    const page = await people.signIn(browser, await browser.open(address), account);
    const seen = (JSON.parse(page.body) as { email: string | null }).email;
    printLine(
      `checked ${address}: ${page.status} after the login, and the application sees ` +
        (seen ?? 'nobody'),
    );
    return (
      script.status === 401 &&
      visitor.status === 302 &&
      page.url.href === address &&
      page.status === 200 &&
      seen === account.email
    );
  } catch (error) {
    printLine(`checked ${address}: ${messageOf(error)}`);
    return false;
  }
}

function printAddresses(berth: Platform, people: IdentityProvider, folder: string): void {
  console.log('');
  for (const example of ADDRESSES)
    console.log(`  ${berth.address(example.name).padEnd(46)} ${example.title}`);
  console.log('\n  accounts of the project behind the login, the dashboard and the command line');
  for (const account of people.accounts)
    console.log(`    ${account.email.padEnd(44)} password ${account.password}`);
  console.log(`\n  bin/berth login ${berth.publicUrl}   the command line; confirm in the browser`);
  console.log(
    `\n  deploy a change of your own: cd ${relative(process.cwd(), folder)}, edit index.html, ` +
      "git commit -a -m 'my change' && git push",
  );
  console.log(
    `\n  ${berth.publicUrl.padEnd(46)} the dashboard; or sign in as the admin ` +
      `${berth.admin.email} with ${berth.admin.password}`,
    `\n  ${`${berth.url}/docs`.padEnd(46)} the API; sign in at POST /api/auth/login as ` +
      `${berth.admin.email} with ${berth.admin.password}`,
  );
}

/** Removes only what a demo created, because an existing engine may run another Berth. */
async function removeLeft(engine: Engine): Promise<void> {
  const { nodes, registry } = JSON.parse(readFileSync(LEFT, 'utf8')) as Left;
  const ids = async (argv: string[]): Promise<string[]> => [
    ...new Set((await engine.docker(argv)).stdout.split('\n').filter((id) => id !== '')),
  ];
  for (const node of nodes) {
    const containers = await ids(['ps', '-aq', '--filter', `label=berth.node=${node}`]);
    if (containers.length > 0) await engine.docker(['rm', '-f', ...containers]);
  }
  // Nodes on one engine share the network of a project: it is free only when the containers of all
  // nodes are removed.
  for (const node of nodes) {
    const networks = await ids([
      'network',
      'ls',
      '-q',
      '--filter',
      'label=berth.network',
      '--filter',
      `label=berth.node=${node}`,
    ]);
    if (networks.length > 0) await engine.docker(['network', 'rm', ...networks]);
  }
  const images = await ids([
    'images',
    '--format',
    '{{.ID}}',
    '--filter',
    `reference=${registry}/*`,
  ]);
  if (images.length > 0) await engine.docker(['rmi', '-f', ...images]);
  rmSync(LEFT);
}

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
  process.on(signal, () => {
    if (ending !== undefined) return;
    console.log(`\n${elapsed()}  cleaning up`);
    void end().then(() => {
      printLine('cleaned up');
      // With --exit, an end from outside is not a success.
      process.exit(process.argv.includes('--exit') ? 130 : undefined);
    });
  });
}

try {
  await main(process.argv.includes('--exit'));
} catch (error) {
  if (ending === undefined) {
    console.error(`\n${elapsed()}  ${messageOf(error)}`);
    process.exitCode = 1;
  }
}
await end();
printLine('cleaned up');
