/**
 * dist/berth (npm run build): the same bytes from two folders, and programs that need nothing else
 * of the repository.
 */
import { BERTH_VERSION } from '@berth/wire/version';
import { execFileSync } from 'node:child_process';
import {
  copyFileSync,
  cpSync,
  existsSync,
  globSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { get } from 'node:http';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { repositoryRoot, toolsDir } from '@berth/testbed/config';
import { freePorts } from '@berth/testbed/ports';
import { type RunningProcess, run, startProcess, untilReady } from '@berth/testbed/process';
import { waitFor } from '@berth/testbed/wait';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ON_THE_MACHINE } from '../../bin/launch.mjs';
import { filesIn } from '../../scripts/lib/artefact/build.ts';

const node = join(toolsDir, 'node/bin/node');
const EPOCH = 1_700_000_000;
const SECRET = 'artefact-'.repeat(5);
let scratch: string;
let artefact: string;
/**
 * The second build: from a copy of the sources elsewhere, at another time of day, with another
 * umask.
 */
let other: string;
const running: RunningProcess[] = [];

beforeAll(async () => {
  scratch = mkdtempSync(join(tmpdir(), 'berth-artefact-'));
  // A folder as a source of Node needs no registry.
  const nodeFolder = join(scratch, 'node');
  mkdirSync(join(nodeFolder, 'bin'), { recursive: true });
  // In a clone on a machine with its own Node it is a symbolic link.
  copyFileSync(node, join(nodeFolder, 'bin/node'));
  writeFileSync(join(nodeFolder, 'LICENSE'), 'licence of Node, for this test only\n');
  artefact = join(scratch, 'one', 'berth');
  other = join(scratch, 'two', 'somewhere', 'berth');
  const copy = join(scratch, 'copy');
  copySources(copy);
  const build = (root: string, out: string, timeZone: string, umask: number): Promise<unknown> => {
    const before = process.umask(umask);
    const done = run([node, 'scripts/build.ts', '--out', out, '--node', nodeFolder], {
      cwd: root,
      env: { SOURCE_DATE_EPOCH: String(EPOCH), BERTH_COMMIT: 'c0ffee', TZ: timeZone },
      deadlineMs: 170_000,
    });
    process.umask(before);
    return done;
  };
  await Promise.all([
    build(repositoryRoot, artefact, 'UTC', 0o022),
    build(copy, other, 'Asia/Tokyo', 0o077),
  ]);
}, 180_000);
afterAll(async () => {
  await Promise.all(running.map((process) => process.stop()));
  rmSync(scratch, { recursive: true, force: true });
});

/** Copies what the build reads. Packages are hard links where the file system allows it. */
function copySources(target: string): void {
  mkdirSync(target);
  for (const name of [
    'packages',
    'scripts',
    'bin',
    'deploy',
    'docs',
    'package.json',
    'tsconfig.json',
    'LICENSE',
  ])
    cpSync(join(repositoryRoot, name), join(target, name), {
      recursive: true,
      verbatimSymlinks: true,
    });
  symlinkSync(toolsDir, join(target, '.tools'));
  try {
    const probe = join(target, 'probe');
    linkSync(join(repositoryRoot, 'node_modules/.package-lock.json'), probe);
    execFileSync('cp', ['-al', join(repositoryRoot, 'node_modules'), join(target, 'node_modules')]);
  } catch {
    cpSync(join(repositoryRoot, 'node_modules'), join(target, 'node_modules'), {
      recursive: true,
      verbatimSymlinks: true,
    });
  }
}

test('two builds in two folders give the same bytes, modes and times', async () => {
  const seen = (root: string): unknown[] =>
    filesIn(root).map((file) => {
      const { mode, mtimeMs } = statSync(join(root, file));
      return [file, mode & 0o7777, mtimeMs];
    });
  expect(readFileSync(join(artefact, 'SHA256SUMS'), 'utf8')).toBe(
    readFileSync(join(other, 'SHA256SUMS'), 'utf8'),
  );
  expect(seen(artefact)).toEqual(seen(other));
  const modes = Object.fromEntries(
    (seen(artefact) as [string, number, number][]).map(([file, mode]) => [file, mode]),
  );
  expect([modes['bin/berth'], modes['bin/node'], modes['lib/berth.js']]).toEqual([
    0o755, 0o755, 0o644,
  ]);
  expect(new Set(seen(artefact).map((entry) => (entry as [string, number, number])[2]))).toEqual(
    new Set([EPOCH * 1000]),
  );
  await run(['sha256sum', '--check', '--quiet', 'SHA256SUMS'], { cwd: artefact });
});

test('no file names a folder of the machine that built it', () => {
  for (const file of filesIn(artefact).filter((name) => !/^bin\/node$|\.node$/.test(name)))
    expect(
      readFileSync(join(artefact, file), 'utf8').includes(scratch) ||
        readFileSync(join(artefact, file), 'utf8').includes(repositoryRoot),
      file,
    ).toBe(false);
});

test('each component of the bill of materials has a licence, and each bundled package is one', () => {
  type Component = {
    name: string;
    version: string;
    group?: string;
    purl: string;
    licenses?: unknown[];
  };
  const bom = JSON.parse(readFileSync(join(artefact, 'sbom.cdx.json'), 'utf8')) as {
    bomFormat: string;
    specVersion: string;
    components: Component[];
  };
  expect([bom.bomFormat, bom.specVersion]).toEqual(['CycloneDX', '1.6']);
  const nameOf = ({ group, name, version }: Component): string =>
    `${group === undefined ? '' : `${group}/`}${name}@${version}`;
  expect(
    bom.components.filter(({ licenses }) => (licenses ?? []).length === 0).map(nameOf),
  ).toEqual([]);
  const foreign = bom.components.filter(
    ({ group, name }) => group !== '@berth' && name !== 'berth',
  );
  const folders = globSync(['[!@]*@*', '@*/*'], { cwd: join(artefact, 'licenses') });
  const asFolder = (name: string): string => name.replace('swagger-ui-dist@', 'swagger-ui@');
  expect([...new Set(foreign.map(nameOf).map(asFolder))].toSorted()).toEqual(folders.toSorted());
  for (const name of ['node', 'sqlite', 'better-sqlite3', 'fastify', 'pg', 'react', 'core'])
    expect(foreign.map((part) => part.name)).toContain(name);
  for (const folder of folders)
    expect(
      globSync('*', { cwd: join(artefact, 'licenses', folder) }).map(
        (file) => statSync(join(artefact, 'licenses', folder, file)).size > 20,
      ),
      folder,
    ).toContain(true);
});

test('every thread and child process that a program names is there', () => {
  const named = globSync('lib/*.js', { cwd: artefact }).flatMap((file) => [
    ...readFileSync(join(artefact, file), 'utf8').matchAll(
      /new URL\("(\.[^"]+)", import\.meta\.url\)/g,
    ),
  ]);
  const names = new Set(named.map((match) => basename(match[1] ?? '')));
  expect(names).toContain('scan-child.js');
  expect(names).toContain('checkpoint-thread.js');
  for (const name of names) expect(existsSync(join(artefact, 'lib', name)), name).toBe(true);
});

describe('outside the repository, without another Node', () => {
  const bare = (): Record<string, string> => ({
    PATH: '/usr/bin:/bin',
    HOME: scratch,
    NODE_OPTIONS: '',
    NODE_PATH: '',
  });
  const berth = (...args: string[]) =>
    run([join(other, 'bin/berth'), ...args], {
      cwd: '/',
      env: bare(),
      mayFail: true,
      deadlineMs: 120_000,
    });
  const start = async (
    name: string,
    url: string,
    env: Record<string, string>,
  ): Promise<RunningProcess> => {
    const process = await startProcess([join(other, 'bin/berth'), name], {
      name,
      cwd: '/',
      env: { ...bare(), ...env },
    });
    running.push(process);
    await untilReady(process, async () => (await fetch(`${url}/healthz`)).ok, 120_000);
    return process;
  };

  test('berth, also by a symbolic link, uses the Node beside it', async () => {
    rmSync(join(scratch, 'copy'), { recursive: true });
    expect((await berth('--version')).stdout).toBe(`${BERTH_VERSION}\n`);
    const link = join(scratch, 'berth');
    symlinkSync(join(other, 'bin/berth'), link);
    expect((await run([link, '--version'], { env: bare() })).stdout).toBe(`${BERTH_VERSION}\n`);
    expect(await berth('proxy')).toMatchObject({ code: 2, stdout: '' });
    expect(await berth('gateway', 'x')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('takes no arguments') as string,
    });
    expect(await berth('gateway')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('SESSION_SECRET: must be set') as string,
    });
    expect((await berth('admin', 'recover', 'no-address')).code).toBe(2);
    for (const name of Object.keys(ON_THE_MACHINE))
      expect([name, (await berth(name, '--help')).code]).toEqual([name, 0]);
  });

  test('control plane, gateway, relay and agent run and find each other', async () => {
    const [api = 0, login = 0, relay = 0] = await freePorts(3);
    const controlPlane = `http://127.0.0.1:${api}`;
    await start('control-plane', controlPlane, {
      BASE_DOMAIN: 'berth.localhost',
      LISTEN: `127.0.0.1:${api}`,
      DATABASE_URL: `sqlite:${scratch}/state/berth.db`,
      AGENT_SECRET: SECRET,
      GATEWAY_SECRET: SECRET,
      ADMIN_EMAILS: 'ada@example.test',
      ADMIN_PASSWORD: 'a long password',
    });
    const version = JSON.parse(
      await (
        await fetch(`${controlPlane}/api/version`, { headers: await signIn(controlPlane) })
      ).text(),
    ) as unknown;
    expect(version).toMatchObject({ version: BERTH_VERSION, commit: 'c0ffee' });
    // The page and its scripts come from the artefact.
    for (const path of ['/docs/', '/docs/static/swagger-ui-bundle.js', '/docs/static/logo.svg'])
      expect([path, (await fetch(controlPlane + path)).status]).toEqual([path, 200]);

    // Not fetch: it says by Sec-Fetch-Mode that it is a script, and scripts get no page.
    const page = await new Promise<string>((resolve, reject) => {
      const asked = get(
        `${controlPlane}/projects`,
        { headers: { accept: 'text/html' } },
        (answer) => {
          text(answer).then(resolve, reject);
        },
      );
      asked.on('error', reject);
    });
    const script = /src="(\/assets\/[^"]+)"/.exec(page)?.[1] ?? 'no script in the page';
    const served = await fetch(controlPlane + script);
    expect([served.status, served.headers.get('content-encoding')]).toEqual([200, 'gzip']);

    await start('relay', `http://127.0.0.1:${relay}`, {
      LISTEN: `127.0.0.1:${relay}`,
      CONTROL_PLANE_URL: controlPlane,
      STATE_DIR: join(scratch, 'relay'),
    });
    await start('gateway', `http://127.0.0.1:${login}`, {
      LISTEN: `127.0.0.1:${login}`,
      CONTROL_PLANE_URL: controlPlane,
      BASE_DOMAIN: 'berth.localhost',
      GATEWAY_SECRET: SECRET,
      SESSION_SECRET: SECRET,
      STATE_DIR: join(scratch, 'gateway'),
    });
    await waitFor(
      'the gateway has the policy',
      async () => (await fetch(`http://127.0.0.1:${login}/readyz`)).status === 200,
      {
        deadlineMs: 120_000,
      },
    );
    await waitFor(
      'the relay has a configuration',
      async () => (await fetch(`http://127.0.0.1:${relay}/readyz`)).status === 200,
      {
        deadlineMs: 120_000,
      },
    );
    const agent = await startProcess([join(other, 'bin/berth'), 'agent'], {
      name: 'agent',
      cwd: '/',
      env: {
        ...bare(),
        NODE_ROLE: 'deploy',
        CONTROL_PLANE_URL: controlPlane,
        AGENT_SECRET: SECRET,
        STATE_DIR: join(scratch, 'agent'),
        SVC_ROOT: join(scratch, 'svc'),
        DOCKER_HOST: `unix://${scratch}/no-engine.sock`,
      },
    });
    running.push(agent);
    await waitFor('the agent is registered', () => agent.tail().includes('node registered'), {
      deadlineMs: 120_000,
    });
  });

  test('a child process of the control plane runs from the bundle', async () => {
    mkdirSync(join(scratch, 'share/data'), { recursive: true });
    const answer = await run(
      [
        join(other, 'bin/node'),
        join(other, 'lib/check-folder-child.js'),
        join(scratch, 'share'),
        'data',
      ],
      {
        env: bare(),
      },
    );
    expect(JSON.parse(answer.stdout)).toBeNull();
  });

  async function signIn(controlPlane: string): Promise<Record<string, string>> {
    const reply = await fetch(`${controlPlane}/api/auth/login`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ email: 'ada@example.test', password: 'a long password' }),
    });
    const { token } = (await reply.json()) as { token?: string };
    return { authorization: `Bearer ${token}` };
  }
});

test('a folder that holds something else is not replaced', async () => {
  const mine = join(scratch, 'mine');
  mkdirSync(mine);
  writeFileSync(join(mine, 'letter.txt'), 'dear');
  const result = await run([node, 'scripts/build.ts', '--out', mine], {
    cwd: repositoryRoot,
    mayFail: true,
  });
  expect(result).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('is not empty and holds no artefact of Berth') as string,
  });
  expect(readFileSync(join(mine, 'letter.txt'), 'utf8')).toBe('dear');
});
