/**
 * Starts the real program with its launcher: settings, readiness, signals, and the switch from a
 * Node.js that is too old.
 */
import { BERTH_VERSION } from '@berth/wire/version';
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { cp, mkdir, mkdtemp, rm, symlink } from 'node:fs/promises';
import http from 'node:http';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { ask, backend, HOST, project } from './support.ts';

const ROOT = path.resolve(import.meta.dirname, '../../..');
const OLD_NODE = '/usr/bin/node';

type Started = {
  child: ChildProcessWithoutNullStreams;
  out: () => string;
  ended: Promise<{ code: number | null; signal: string | null }>;
};
function berth(
  args: string[],
  env: Record<string, string>,
  node = process.execPath,
  root = ROOT,
): Started {
  const child = spawn(node, [path.join(root, 'bin/berth'), ...args], {
    env: { PATH: '/usr/bin:/bin', ...env },
  });
  let out = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => (out += text));
  const ended = new Promise<{ code: number | null; signal: string | null }>((resolve) =>
    child.on('close', (code, signal) => resolve({ code, signal })),
  );
  onTestFinished(async () => {
    child.kill('SIGKILL');
    await ended;
  });
  return { child, out: () => out, ended };
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

const ready = (port: number): Promise<void> =>
  vi.waitFor(
    async () =>
      expect(await ask(port, `127.0.0.1:${port}`, '/readyz')).toMatchObject({ status: 200 }),
    15_000,
  );

describe('berth proxy', () => {
  test('serves its routes, reports when it is ready, drains on SIGTERM and exits with 0', async () => {
    const app = await backend((_, res) => res.end('app'));
    const routes = await backend((_, res) =>
      res.end(JSON.stringify({ http: project('shop', app.url) })),
    );
    const port = await freePort();
    const proxy = berth(['proxy'], { LISTEN: `127.0.0.1:${port}`, CONFIG_URL: routes.url });
    await ready(port);
    expect(await ask(port, HOST)).toMatchObject({ status: 200, body: 'app' });
    proxy.child.kill('SIGTERM');
    expect(await proxy.ended).toEqual({ code: 0, signal: null });
  });

  test('names all wrong settings and exits with 2', async () => {
    const proxy = berth(['proxy'], { LISTEN: 'nowhere', CONFIG_URL: 'ftp://x', LOG_LEVEL: 'loud' });
    expect(await proxy.ended).toEqual({ code: 2, signal: null });
    for (const name of ['LISTEN', 'CONFIG_URL', 'LOG_LEVEL'])
      expect(proxy.out()).toContain(`${name}: must be`);
    expect(await berth(['proxy'], {}).ended).toMatchObject({ code: 2 });
    const file = berth(['proxy'], { FILE_CONFIG: '/nowhere/dynamic.yml' });
    expect(await file.ended).toMatchObject({ code: 2 });
    expect(file.out()).toContain('FILE_CONFIG');
  });

  test('exits with 1 if the port is in use, and says so', async () => {
    const other = await backend((_, res) => res.end());
    const proxy = berth(['proxy'], { LISTEN: `127.0.0.1:${other.port}`, CONFIG_URL: other.url });
    expect(await proxy.ended).toMatchObject({ code: 1 });
    expect(proxy.out()).toContain('EADDRINUSE');
  });
});

describe('the launcher', () => {
  test.each([
    [['--help'], 0, 'Usage: berth'],
    [['--version'], 0, BERTH_VERSION],
    [['proxy', '--help'], 0, 'docs/settings.md'],
    [[], 2, 'Usage: berth'],
    [['nonsense'], 2, "unknown command 'nonsense'"],
    [['constructor'], 2, 'unknown command'],
    [['proxy', 'extra'], 2, 'takes no arguments'],
  ])('berth %j exits %i', async (args, code, text) => {
    const run = berth(args, {});
    expect(await run.ended).toMatchObject({ code });
    expect(run.out()).toContain(text);
  });

  const isOld = existsSync(OLD_NODE);
  /** Creates a tree as after set-up: the launcher, the sources, and Node 24 in its place. */
  async function installed(withNode: boolean): Promise<string> {
    const root = await mkdtemp(path.join(tmpdir(), 'berth-launcher-'));
    onTestFinished(() => rm(root, { recursive: true, force: true }));
    await mkdir(path.join(root, '.tools/node/bin'), { recursive: true });
    await cp(path.join(ROOT, 'bin'), path.join(root, 'bin'), { recursive: true });
    await cp(path.join(ROOT, 'package.json'), path.join(root, 'package.json'));
    await symlink(path.join(ROOT, 'packages'), path.join(root, 'packages'));
    if (withNode) await symlink(process.execPath, path.join(root, '.tools/node/bin/node'));
    return root;
  }

  test.runIf(isOld)(
    'under a Node.js that is too old: runs the downloaded one, forwards signals and returns its exit code',
    async () => {
      const routes = await backend((_, res) => res.end(JSON.stringify({ http: {} })));
      const root = await installed(true);
      const port = await freePort();
      const proxy = berth(
        ['proxy'],
        { LISTEN: `127.0.0.1:${port}`, CONFIG_URL: routes.url },
        OLD_NODE,
        root,
      );
      await ready(port);
      proxy.child.kill('SIGTERM');
      expect(await proxy.ended).toEqual({ code: 0, signal: null });
      expect(await berth(['proxy'], { LISTEN: 'x' }, OLD_NODE, root).ended).toEqual({
        code: 2,
        signal: null,
      });
    },
  );

  test.runIf(isOld)(
    'under a Node.js that is too old: killing the launcher also ends the process',
    async () => {
      const routes = await backend((_, res) => res.end(JSON.stringify({ http: {} })));
      const root = await installed(true);
      const port = await freePort();
      const proxy = berth(
        ['proxy'],
        { LISTEN: `127.0.0.1:${port}`, CONFIG_URL: routes.url },
        OLD_NODE,
        root,
      );
      await ready(port);
      proxy.child.kill('SIGKILL');
      await vi.waitFor(
        () =>
          new Promise<void>((resolve, reject) => {
            http
              .get({ host: '127.0.0.1', port }, () => reject(new Error('still there')))
              .on('error', () => resolve());
          }),
        5_000,
      );
    },
  );

  test('without the packages that a process needs: says how to install them', async () => {
    const root = await mkdtemp(path.join(tmpdir(), 'berth-launcher-'));
    onTestFinished(() => rm(root, { recursive: true, force: true }));
    await cp(path.join(ROOT, 'bin'), path.join(root, 'bin'), { recursive: true });
    await cp(path.join(ROOT, 'packages/proxy/src'), path.join(root, 'packages/proxy/src'), {
      recursive: true,
    });
    const run = berth(['proxy'], {}, process.execPath, root);
    expect(await run.ended).toEqual({ code: 1, signal: null });
    expect(run.out()).toContain("Cannot find package '@berth/kit'");
    expect(run.out()).toContain('run: npm run setup');
  });

  test.runIf(isOld)(
    'under a Node.js that is too old, without another one: says how to get one',
    async () => {
      const run = berth(['proxy'], {}, OLD_NODE, await installed(false));
      expect(await run.ended).toEqual({ code: 1, signal: null });
      expect(run.out()).toContain('npm run setup');
    },
  );
});
