/**
 * npm run pictures: records the pictures of the README again, against real parts: what the demo
 * prints (demo.svg), and a session with the command line (session.svg).
 * `npm run pictures -- session` records only one. Commit the result when the output changed.
 * `npm run pictures -- pages` takes pictures of every page of the dashboard in every state, with
 * made-up data, for people to look at; `-- docs` takes those of the docs again.
 */
import { spawn } from 'node:child_process';
import { appendFile, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { repositoryRoot } from '@berth/testbed/config';
import { startGitServer } from '@berth/testbed/git-server';
import { startIdentityProvider } from '@berth/testbed/identity-provider';
import { isFree } from '@berth/testbed/ports';
import { waitFor } from '@berth/testbed/wait';
import { startWorld, whyNot } from '../test/e2e/world.ts';
import { shopFiles } from './demo-push.ts';
import { bareForge, startGiteaForge, whyNoGitea } from './lib/forge.ts';
import { createPerson } from './lib/person.ts';
import { takePagePictures } from './lib/page-pictures.ts';
import { type Line, screenOf, svgOf, textLine } from './lib/terminal-picture.ts';

const PICTURES = join(repositoryRoot, 'docs', 'pictures');
const COLUMNS = 112;
const ADA = {
  email: 'ada@example.org',
  password: 'ada',
  name: 'Ada Lovelace',
  picture: null,
  emailVerified: true,
};

/** Sign-in, a new folder that goes live, a commit that fails, the fix by a push, a rollback. */
async function recordSession(): Promise<Line[]> {
  const people = await startIdentityProvider({ accounts: [ADA] });
  const world = await startWorld({
    proxy: 'built-in',
    ...((await isFree(8000)) ? { proxyPort: 8000 } : {}),
    env: { DEFAULT_ROLE: 'developer', ALLOWED_GIT_HOSTS: '127.0.0.1' },
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
  });
  const { berth } = world;
  const server = await startGitServer({ root: join(world.dir, 'forge'), push: true });
  const forge =
    whyNoGitea() === undefined
      ? await startGiteaForge(world.dir)
      : bareForge(server, join(world.dir, 'forge'));
  try {
    const person = await createPerson(join(world.dir, 'ada'), ADA);
    const folder = join(person.home, 'shop');
    const terminal = { columns: COLUMNS, rows: 50 };
    const lines: Line[] = [];
    const add = (command: string, output: string): void => {
      const home = output
        .replaceAll(person.home, '~')
        .replaceAll(/^remote: .*Process(ing|ed) \d+ references.*\r?\n/gm, '');
      lines.push(
        ...(lines.length === 0 ? [] : [[]]),
        textLine(`$ ${command}`, 'command'),
        ...screenOf(home),
      );
    };
    const explain = (text: string): void => void lines.push(textLine(`# ${text}`, 'dim'));
    /** Runs what the picture shows, and nothing else. */
    async function shown(command: string, expected = 0): Promise<void> {
      const { code, output } = await person.run(command, { folder: 'shop', terminal });
      if (code !== expected)
        throw new Error(`${command}: exit ${code}, not ${expected}:\n${output}`);
      add(command, output);
    }

    let signedIn = '';
    const onOutput = (chunk: string): void => void (signedIn += chunk);
    const login = await person.login(berth.publicUrl, people, { terminal, onOutput });
    if (login !== 0) throw new Error(`berth login: exit ${login}:\n${signedIn}`);
    add(`berth login ${berth.publicUrl}`, signedIn);

    await person.createFolder('shop', shopFiles, forge);
    await shown('ls');
    await shown("git add . && git commit -qm 'First version' && git push -qu origin main");
    await shown('berth project create');
    const [project] = (await berth.api.call('listProjects', { query: { limit: 1 } })).items;
    if (project === undefined) throw new Error('the project was not created');
    const params = { id: project.id };
    const access = await forge.giveAccess(berth, project.id, 'shop');
    if (access !== undefined) explain(access);
    // The old versions end at once: the picture is about the commands.
    await berth.api.call('patchProject', {
      params,
      body: { drain_seconds: 0, stop_grace_seconds: 1 },
    });
    await shown('berth deploy');

    await appendFile(join(folder, 'Dockerfile'), 'COPY prices.csv /www/\n');
    await shown("git commit -qam 'Show the prices' && git push -q");
    await shown('berth deploy', 1);

    await shown(`berth hook create --forge ${forge.kind} > hook.txt`);
    const hook = await readFile(join(folder, 'hook.txt'), 'utf8');
    const [url = '', secret = ''] = ['address', 'secret'].map(
      (name) => new RegExp(`^${name} +(\\S+)`, 'm').exec(hook)?.[1],
    );
    await forge.addHook('shop', { url: `${berth.url}${new URL(url).pathname}`, secret });
    await writeFile(join(folder, 'prices.csv'), 'apples,3\n');
    await shown("git add prices.csv && git commit -qm 'Add the prices' && git push -q");
    const pushed = await waitFor(
      'the push deploys',
      async () =>
        (await berth.api.call('projectDeployments', { params, query: { limit: 5 } })).items.find(
          (d) => d.trigger === 'hook',
        ),
      { deadlineMs: 120_000 },
    );
    await berth.settled(pushed);
    await shown('berth deployment list');
    await shown('berth rollback');
    await shown('berth status');
    return lines;
  } finally {
    await forge.stop();
    await server.stop();
    await world.stop();
    await people.stop();
  }
}

/**
 * The lines of the demo that tell its story. The picture leaves out the others, and the password of
 * the admin.
 */
const SHOWN_OF_DEMO = [
  /^[A-Z]/,
  /^ {2}http\S+localhost/,
  /are ready$/,
  /static-site: (built|assigned|the container answers)/,
  / live at /,
  /would have to be copied|copying|nothing was copied/,
  /\$ (git|berth)/,
  /deployment \d+ is live|version 2 is live|visitors: |as successful/,
  /checked .*\/me\.json/,
];

async function recordDemo(): Promise<Line[]> {
  const child = spawn(process.execPath, [join(repositoryRoot, 'scripts', 'demo.ts'), '--exit'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const lines: Line[] = [textLine('$ npm run demo', 'command')];
  createInterface({ input: child.stdout }).on('line', (line) => {
    if (line === '' || SHOWN_OF_DEMO.some((pattern) => pattern.test(line)))
      lines.push(textLine(line, styleOf(line)));
  });
  const code = await new Promise<number | null>((resolve, reject) =>
    child.once('error', reject).once('close', resolve),
  );
  if (code !== 0) throw new Error(`the demo ended with ${code}`);
  return lines.filter((line, i) => line.length > 0 || (lines[i - 1]?.length ?? 0) > 0);
}

function styleOf(line: string): 'bold' | 'command' | 'green' | 'plain' {
  if (/^[A-Z]/.test(line)) return 'bold';
  if (/\d s {2}\$ /.test(line)) return 'command';
  return / live at |is live|visitors: /.test(line) ? 'green' : 'plain';
}

const wanted = process.argv[2];
if (wanted === 'pages' || wanted === 'docs') {
  const { count, folder, findings } = await takePagePictures(wanted === 'docs');
  for (const finding of findings) console.error(finding);
  console.log(`${count} pictures in ${folder}, ${findings.length} findings`);
  process.exit(findings.length === 0 ? 0 : 1);
}
const reason = await whyNot();
if (reason !== undefined) throw new Error(`the pictures need real containers: ${reason}`);
if (wanted === undefined || wanted === 'session')
  await writeFile(
    join(PICTURES, 'session.svg'),
    svgOf(
      'berth login, deploy of a new folder, a failure, its fix by a push, rollback',
      await recordSession(),
      COLUMNS,
    ),
  );
if (wanted === undefined || wanted === 'demo')
  await writeFile(join(PICTURES, 'demo.svg'), svgOf('npm run demo', await recordDemo(), COLUMNS));
