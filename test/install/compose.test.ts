/**
 * One host with compose, as docs/compose.md says: the image on a fresh Debian, the real docker
 * compose, engine, Traefik and registry, and certificates of Pebble. The commands come from the
 * page.
 */
import { BERTH_VERSION } from '@berth/wire/version';
import { randomBytes } from 'node:crypto';
import {
  chmodSync,
  chownSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { type IncomingHttpHeaders, request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ensureBaseImages } from '@berth/testbed/base-images';
import { findProgram, findTraefik, repositoryRoot, toolsDir } from '@berth/testbed/config';
import { type Engine, startEngine, whyNoOwnEngine } from '@berth/testbed/engine';
import { type GitServer, startGitServer } from '@berth/testbed/git-server';
import { type Pebble, startPebble, whyNoPebble } from '@berth/testbed/pebble';
import { startProber } from '@berth/testbed/prober';
import { type Argv, type Finished, run } from '@berth/testbed/process';
import { startInside } from '@berth/testbed/process-tree';
import { waitFor } from '@berth/testbed/wait';
import { type Client, createClient } from '@berth/wire/client';
import type { CleanUps } from '@berth/wire/clean-up';
import type { Deployment } from '@berth/wire/deployment';
import { isSettled } from '@berth/wire/vocabulary';

const registry = findProgram('docker-registry');
const traefik = findTraefik();
const why =
  whyNoOwnEngine() ??
  whyNoPebble() ??
  (findProgram('debootstrap') === undefined ? 'missing: debootstrap' : undefined) ??
  (traefik === undefined ? 'missing: Traefik' : undefined) ??
  (registry === undefined ? 'missing: docker-registry' : undefined) ??
  (existsSync(join(toolsDir, 'docker-plugins/docker-compose'))
    ? undefined
    : 'missing: docker compose');

const GROUP = 4242;
const USER = 10001;
const BASE_DOMAIN = 'berth.test';
const ADMIN = 'ada@berth.test';
const MB = 1024 * 1024;
const SERVICES = [
  'agent-builder',
  'agent-deploy',
  'control-plane',
  'gateway',
  'labels',
  'registry',
  'relay',
  'traefik',
];
const PAGE = readFileSync(join(repositoryRoot, 'docs/compose.md'), 'utf8');
const COMMANDS = [...PAGE.matchAll(/^```sh\n([\s\S]*?)^```$/gm)].flatMap(([, block = '']) =>
  block.trimEnd().split('\n'),
);

type Answer = { status: number; headers: IncomingHttpHeaders; body: string };

/**
 * A Debian 13 with the programs of the image, as a tar. Its packages are those of the day it was
 * made.
 */
async function provideBase(): Promise<string> {
  const target = join(toolsDir, 'install/trixie-image.tar');
  if (existsSync(target)) return target;
  mkdirSync(join(toolsDir, 'install'), { recursive: true });
  const root = mkdtempSync(join(toolsDir, 'install/trixie-'));
  const packages =
    'ca-certificates,git,openssh-client,rsync,tini,docker-cli,docker-buildx,postgresql-client';
  try {
    await run(['debootstrap', '--variant=minbase', `--include=${packages}`, 'trixie', root], {
      deadlineMs: 900_000,
    });
    for (const name of ['var/cache/apt', 'var/lib/apt/lists'])
      rmSync(join(root, name), { recursive: true });
    await run(['tar', '-C', root, '-cf', `${target}.${process.pid}`, '.'], { deadlineMs: 120_000 });
    renameSync(`${target}.${process.pid}`, target);
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
  return target;
}

describe.skipIf(why !== undefined)(
  `one host with compose${why === undefined ? '' : ` (${why})`}`,
  () => {
    const stops: (() => Promise<unknown>)[] = [];
    const layers: string[] = [];
    const used = new Set<string>();
    let dir: string;
    let engine: Engine;
    let pebble: Pebble;
    let git: GitServer;
    let socket: string;
    let api: Client;
    let projectRoot: string;
    let workingDir: string;

    const docker = (...args: string[]): Promise<Finished> =>
      engine.docker(args, { deadlineMs: 240_000 });
    const inside = (path: string): string =>
      path
        .replace(/^\/etc\/berth/, join(dir, 'etc/berth'))
        .replace(/^\/svc\/data/, join(dir, 'svc'));
    /**
     * Runs a command of the page. Only the folders differ: this machine may have an installation of
     * its own.
     */
    const fromPage = (
      command: string,
      options: { mayFail?: boolean; env?: Record<string, string> } = {},
    ): Promise<Finished> => {
      expect(COMMANDS).toContain(command);
      used.add(command);
      const [, folder] = /^cd (\S+)$/.exec(command) ?? [];
      if (folder !== undefined) workingDir = inside(folder);
      const text = command
        .replaceAll('/etc/berth', join(dir, 'etc/berth'))
        .replaceAll('/svc/data', join(dir, 'svc'));
      return run(['sh', '-c', text], {
        cwd: workingDir,
        env: { ...engine.env, ...options.env },
        deadlineMs: 300_000,
        mayFail: options.mayFail === true,
      });
    };
    const compose = (
      args: string[],
      options: { mayFail?: boolean; env?: Record<string, string> } = {},
    ): Promise<Finished> =>
      run(['docker', 'compose', ...args], {
        cwd: workingDir,
        env: { ...engine.env, ...options.env },
        deadlineMs: 300_000,
        mayFail: options.mayFail === true,
      });
    /** Returns the lines that `prepare` prints with these variables. */
    const prepareSays = async (env: Record<string, string> = {}): Promise<string> => {
      const { code, stdout, stderr } = await compose(['run', '--rm', '-T', 'prepare'], {
        env,
        mayFail: true,
      });
      const said = `${stdout}${stderr}`.split('\n').filter((line) => line.startsWith('berth: '));
      expect([code, said.length > 0]).toEqual([1, true]);
      return said.join('\n');
    };
    const ask = (
      url: string,
      { ca, headers = {} }: { ca?: string; headers?: Record<string, string> } = {},
    ): Promise<Answer> =>
      new Promise((resolve, reject) => {
        const { protocol, hostname, pathname } = new URL(url);
        const secure = protocol === 'https:';
        const asking = (secure ? httpsRequest : httpRequest)({
          ...{
            host: engine.hostIp,
            path: pathname,
            headers: { host: hostname, ...headers },
            agent: false,
            timeout: 10_000,
          },
          ...(secure
            ? {
                port: 443,
                servername: hostname,
                ...(ca === undefined ? { rejectUnauthorized: false } : { ca }),
              }
            : { port: 80 }),
        });
        asking.on('response', (response) => {
          let body = '';
          response.setEncoding('utf8').on('data', (text: string) => (body += text));
          response
            .on('end', () =>
              resolve({ status: response.statusCode ?? 0, headers: response.headers, body }),
            )
            .on('error', reject);
        });
        asking.on('timeout', () => asking.destroy(new Error(`${url} does not answer`)));
        asking.on('error', reject).end();
      });
    const deployed = async (name: string, files: Record<string, string>): Promise<Deployment> => {
      const { url } = await git.createRepo(name, files);
      await api.call('createProject', { body: { name, git_url: url, domain_prefix: name } });
      return settled(name);
    };
    const settled = async (name: string): Promise<Deployment> => {
      return live(await api.call('createDeployment', { params: { id: name }, body: {} }));
    };
    const live = async ({ id }: Deployment): Promise<Deployment> => {
      const last = await waitFor(
        'the deployment is settled',
        async () => {
          const now = await api.call('getDeployment', { params: { id } });
          return isSettled(now.status) && now;
        },
        { deadlineMs: 240_000, intervalMs: 300 },
      );
      if (last.status !== 'running')
        throw new Error(`${last.status}: ${last.error?.message ?? ''}`);
      return last;
    };
    const site = (text: string, more = ''): Record<string, string> => ({
      Dockerfile:
        `FROM busybox:stable\nCOPY index.html /www/index.html\n${more}\nEXPOSE 8080\nCMD ` +
        `["httpd", "-f", "-p", "8080", "-h", "/www"]\n`,
      'index.html': text,
    });

    beforeAll(async () => {
      dir = mkdtempSync(join(tmpdir(), 'berth-compose-'));
      chmodSync(dir, 0o755);
      stops.push(async () => rmSync(dir, { recursive: true, force: true }));
      workingDir = dir;
      const base = await provideBase();
      engine = await startEngine({
        dir: join(dir, 'engine'),
        private: true,
        fresh: true,
        name: 'compose',
      });
      stops.push(() => engine.stop());
      socket = engine.host.replace('unix://', '');
      chownSync(socket, 0, GROUP);
      // The group must be able to come to it.
      chmodSync(join(socket, '..'), 0o755);
      pebble = await startPebble({
        httpPort: 80,
        tlsPort: 443,
        address: engine.gatewayIp,
        resolveTo: engine.hostIp,
      });
      stops.push(() => pebble.stop());
      git = await startGitServer({ root: join(dir, 'git'), address: engine.gatewayIp });
      stops.push(() => git.stop());

      await docker('import', base, 'berth-base:test');
      mkdirSync(join(dir, 'node/bin'), { recursive: true });
      copyFileSync(join(toolsDir, 'node/bin/node'), join(dir, 'node/bin/node'));
      writeFileSync(join(dir, 'node/LICENSE'), 'licence of Node, for this test only\n');
      for (const tag of [`berth:${BERTH_VERSION}`, 'berth:again']) {
        const options = [
          '--out',
          join(dir, tag.replace(':', '-')),
          '--node',
          join(dir, 'node'),
          '--image',
          tag,
          '--base',
          'berth-base:test',
        ];
        await run([process.execPath, 'scripts/build.ts', ...options], {
          cwd: repositoryRoot,
          env: { ...engine.env, SOURCE_DATE_EPOCH: '1700000000', BERTH_COMMIT: 'c0ffee' },
          deadlineMs: 300_000,
        });
        layers.push(
          (await docker('image', 'inspect', '--format', '{{json .RootFS.Layers}}', tag)).stdout,
        );
        // Otherwise the second build takes everything from the first one.
        await docker('builder', 'prune', '--all', '--force');
      }
      // The hub cannot be reached here. The real programs, on the same Debian.
      for (const [tag, program, more] of [
        ['traefik:v3.7.13', traefik, ''],
        ['registry:3', registry, 'COPY busybox /usr/bin/wget\n'],
      ] as const) {
        const context = join(dir, tag.replace(':', '-'));
        const name = tag.split(':')[0] ?? '';
        mkdirSync(context);
        copyFileSync(program ?? '', join(context, name));
        copyFileSync(findProgram('busybox') ?? '', join(context, 'busybox'));
        const text =
          `FROM berth-base:test\nCOPY ${name} /usr/local/bin/${name}\n${more}ENTRYPOINT ` +
          `["/usr/local/bin/${name}"]\n`;
        writeFileSync(join(context, 'Dockerfile'), text);
        await docker('buildx', 'build', '--quiet', '--tag', tag, context);
      }
      await ensureBaseImages(engine, ['busybox:stable']);
    }, 1_500_000);

    afterAll(async () => {
      for (const stop of stops.toReversed()) await stop();
    }, 180_000);

    test('two builds of the image have equal layers', () => {
      expect(layers[0]).toBe(layers[1]);
    });

    test('the image has every program, and runs read-only as its own user without a network', async () => {
      const inImage = async (...args: string[]): Promise<string> =>
        (
          await docker('run', '--rm', '--read-only', '--network=none', '--cap-drop=ALL', ...args)
        ).stdout.trim();
      expect(await inImage(`berth:${BERTH_VERSION}`, '--version')).toBe(BERTH_VERSION);
      expect(await inImage('--entrypoint', 'id', `berth:${BERTH_VERSION}`)).toBe(
        `uid=${USER}(berth) gid=${USER}(berth) groups=${USER}(berth)`,
      );
      for (const program of ['git', 'ssh', 'rsync', 'tini', 'docker', 'pg_dump', 'pg_restore'])
        expect(
          await inImage(
            '--entrypoint',
            'sh',
            `berth:${BERTH_VERSION}`,
            '-c',
            `command -v ${program}`,
          ),
        ).toBe(`/usr/bin/${program}`);
      expect(
        await inImage('--entrypoint', 'docker', `berth:${BERTH_VERSION}`, 'buildx', 'version'),
      ).toContain('buildx');
      const settings = await engine.docker(
        ['run', '--rm', `berth:${BERTH_VERSION}`, 'control-plane'],
        {
          mayFail: true,
        },
      );
      expect([settings.code, settings.stderr]).toEqual([2, expect.stringContaining('BASE_DOMAIN')]);
    });

    test('the page’s commands lay the files', async () => {
      for (const command of COMMANDS.slice(
        0,
        COMMANDS.findIndex((line) => line.startsWith('cd ')),
      ))
        await fromPage(command);
      await fromPage('cd /etc/berth/compose');
      const file = join(workingDir, '.env');
      const values = {
        BASE_DOMAIN,
        ACME_EMAIL: 'ops@berth.test',
        ADMIN_EMAILS: ADMIN,
        ENGINE_GID: String(GROUP),
      };
      const text = Object.entries(values).reduce(
        (before, [name, value]) => {
          expect(before).toMatch(new RegExp(`^${name}=`, 'm'));
          return before.replace(new RegExp(`^${name}=.*$`, 'm'), `${name}=${value}`);
        },
        readFileSync(file, 'utf8'),
      );
      const here = {
        ENGINE_SOCKET: socket,
        BERTH_ETC: join(dir, 'etc/berth'),
        SVC_ROOT: join(dir, 'svc'),
        ACME_CA_SERVER: pebble.directoryUrl,
      };
      writeFileSync(
        file,
        `${text}${Object.entries(here)
          .map(([name, value]) => `${name}=${value}\n`)
          .join('')}`,
      );
      // Traefik must trust Pebble's own certificate.
      copyFileSync(pebble.caFile, join(workingDir, 'pebble.pem'));
      const trust = {
        environment: { LEGO_CA_CERTIFICATES: '/pebble.pem' },
        volumes: ['./pebble.pem:/pebble.pem:ro'],
      };
      writeFileSync(
        join(workingDir, 'compose.override.yml'),
        JSON.stringify({ services: { traefik: trust } }),
      );
    });

    describe('bad input', () => {
      test.each(['BASE_DOMAIN', 'ACME_EMAIL', 'ENGINE_GID'])(
        'without %s, compose says what to set',
        async (name) => {
          const { code, stderr } = await compose(['up', '-d'], {
            env: { [name]: '' },
            mayFail: true,
          });
          expect(code).not.toBe(0);
          expect(stderr).toContain(
            `required variable ${name} is missing a value: set ${name} in .env to `,
          );
        },
      );
      test('a domain that is none', async () => {
        expect(await prepareSays({ BASE_DOMAIN: 'https://berth.test/' })).toContain(
          'BASE_DOMAIN=https://berth.test/ is no domain name',
        );
      });
      test('the wrong group of the engine', async () => {
        expect(await prepareSays({ ENGINE_GID: '4243' })).toBe(
          `berth: ENGINE_GID=4243 is not the group of ${socket}, so Berth cannot use the ` +
            `engine. Set ENGINE_GID=${GROUP} in .env`,
        );
      });
      test('no socket of the engine', async () => {
        const missing = join(dir, 'missing.sock');
        expect(await prepareSays({ ENGINE_SOCKET: missing })).toContain(
          `${missing} is no socket. Start the container engine first`,
        );
      });
      test('folders of another user', async () => {
        const folders = [join(dir, 'svc'), join(dir, 'etc/berth/secrets/gateway')];
        for (const folder of folders) chownSync(folder, 0, 0);
        const said = await prepareSays();
        for (const folder of folders) {
          expect(said).toContain(
            `${folder} belongs to user 0, not ${USER}: Berth cannot write there. Run: chown -R ` +
              `${USER}:${USER} ${folder}`,
          );
          chownSync(folder, USER, USER);
        }
      });
      test('a state folder of another user', async () => {
        const folder = join(dir, 'state');
        mkdirSync(folder, { mode: 0o755 });
        const { code, stderr } = await engine.docker(
          [
            'run',
            '--rm',
            '--volume',
            `${folder}:/var/lib/berth`,
            '--env',
            `BASE_DOMAIN=${BASE_DOMAIN}`,
            `berth:${BERTH_VERSION}`,
            'control-plane',
          ],
          { mayFail: true },
        );
        expect([code, stderr]).toEqual([
          2,
          expect.stringContaining(
            'user 10001 cannot write to STATE_DIR (/var/lib/berth), which belongs to user 0',
          ),
        ]);
      });
      test('a port in use', async () => {
        const enter = engine.faults?.nsenterArgv() ?? [];
        const other = await startInside(enter, ['busybox', 'httpd', '-f', '-p', '443'], {
          name: 'another web server',
        });
        try {
          const { code, stderr } = await compose(['up', '-d'], { mayFail: true });
          expect([code, stderr]).toEqual([
            1,
            expect.stringMatching(/:443: bind: address already in use/),
          ]);
        } finally {
          await other.stop(0);
        }
      });
    });

    test('the page’s commands bring everything up, after the mistakes above too', async () => {
      const from = Date.now();
      await fromPage('docker compose up -d --wait');
      console.log(`compose up: ${Math.round((Date.now() - from) / 1000)} s`);
      const { stdout } = await compose(['ps', '--format', '{{.Service}} {{.Health}}']);
      expect(stdout.trim().split('\n').toSorted()).toEqual(
        SERVICES.map((name) => `${name} healthy`),
      );
      const password = (
        await fromPage('docker compose exec control-plane cat /var/lib/berth/admin-password')
      ).stdout.trim();
      projectRoot = await pebble.rootPem();
      const url = `http://${engine.hostIp}:8080`;
      // The API is published on loopback of the engine's machine. From here it is reached through
      // Traefik.
      await expect(fetch(url, { signal: AbortSignal.timeout(3_000) })).rejects.toThrow();
      const token = await waitFor(
        'the admin signs in through Traefik',
        async () => {
          const { status, body } = await signIn(password);
          return status === 200 && (JSON.parse(body) as { token: string }).token;
        },
        { deadlineMs: 180_000, intervalMs: 500 },
      );
      api = clientThroughTraefik(token);
    });

    /** POST /api/auth/login. */
    const signIn = (password: string): Promise<Answer> =>
      call('POST', '/api/auth/login', {}, JSON.stringify({ email: ADMIN, password }));
    const call = (
      method: string,
      path: string,
      headers: Record<string, string>,
      body?: string,
    ): Promise<Answer> =>
      new Promise((resolve, reject) => {
        const asking = httpsRequest({
          ...{
            host: engine.hostIp,
            port: 443,
            servername: BASE_DOMAIN,
            rejectUnauthorized: false,
            agent: false,
            timeout: 30_000,
            method,
            path,
          },
          headers: {
            host: BASE_DOMAIN,
            ...(body === undefined ? {} : { 'content-type': 'application/json' }),
            ...headers,
          },
        });
        asking.on('response', (response) => {
          let text = '';
          response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
          response
            .on('end', () =>
              resolve({ status: response.statusCode ?? 0, headers: response.headers, body: text }),
            )
            .on('error', reject);
        });
        asking.on('timeout', () => asking.destroy(new Error(`${path} does not answer`)));
        asking.on('error', reject).end(body);
      });
    const clientThroughTraefik = (token: string): Client =>
      createClient({
        baseUrl: `https://${BASE_DOMAIN}`,
        headers: () => ({ authorization: `Bearer ${token}` }),
        fetch: async (input, init) => {
          const request = new Request(input, init);
          const { pathname, search } = new URL(request.url);
          const text = request.method === 'GET' ? undefined : await request.text();
          const answer = await call(
            request.method,
            pathname + search,
            Object.fromEntries(request.headers),
            text,
          );
          return new Response(answer.status === 204 ? null : answer.body, {
            status: answer.status,
            headers: { 'content-type': answer.headers['content-type'] ?? '' },
          });
        },
      });

    test('a project from a git server is live over https, with a certificate of the authority', async () => {
      const from = Date.now();
      await deployed('shop', site('the shop'));
      const answer = await waitFor(
        'https://shop.berth.test has a trusted certificate',
        () => ask('https://shop.berth.test/', { ca: projectRoot }),
        {
          deadlineMs: 180_000,
          intervalMs: 200,
        },
      );
      expect(answer).toMatchObject({ status: 200, body: 'the shop' });
      console.log(`first deployment to trusted https: ${Math.round((Date.now() - from) / 1000)} s`);
      expect(await ask('http://shop.berth.test/path')).toMatchObject({
        status: 301,
        headers: { location: 'https://shop.berth.test/path' },
      });
    });

    test('Berth’s own host has the paths of the page', async () => {
      const trusted = (path: string, host = BASE_DOMAIN): Promise<Answer> =>
        ask(`https://${host}${path}`, { ca: projectRoot });
      await waitFor('https://berth.test has a trusted certificate', () => trusted('/'), {
        deadlineMs: 180_000,
      });
      // The dashboard, also at the address of one of its pages. Programs get no page.
      const page = await ask(`https://${BASE_DOMAIN}/projects/shop`, {
        ca: projectRoot,
        headers: { accept: 'text/html' },
      });
      expect(page).toMatchObject({ status: 200, body: expect.stringContaining('<div id="root">') });
      expect(await trusted(/src="(\/assets\/[^"]+)"/.exec(page.body)?.[1] ?? '')).toMatchObject({
        status: 200,
      });
      expect(await trusted('/projects/shop')).toMatchObject({ status: 404 });
      expect(await trusted('/_oauth/userinfo')).toMatchObject({ status: 401 });
      expect(await trusted('/.well-known/oauth-authorization-server')).toMatchObject({
        status: 200,
      });
      expect(await trusted('/docs')).toMatchObject({ status: 200 });
      expect((await trusted('/api/openapi.json')).status).toBeLessThan(402);
      for (const path of [
        '/api/agent/register',
        '/api/internal/x',
        '/api/traefik/config',
        '/metrics',
        '/readyz',
        '/verify',
      ])
        expect([path, (await trusted(path)).status]).toEqual([path, 404]);
      expect(await ask('http://berth.test/docs')).toMatchObject({
        status: 301,
        headers: { location: 'https://berth.test/docs' },
      });
      const images = await waitFor('https://registry.berth.test has a trusted certificate', () =>
        trusted('/v2/', 'registry.berth.test'),
      );
      expect(images).toMatchObject({
        status: 401,
        headers: { 'www-authenticate': 'Basic realm="berth"' },
      });
    });

    test('Traefik’s dashboard is behind the login of the admins', async () => {
      for (const path of ['/', '/dashboard/', '/api/overview', '/api/rawdata'])
        expect([path, (await ask(`https://traefik.berth.test${path}`)).status]).toEqual([
          path,
          401,
        ]);
      // A spoofed identity opens nothing.
      expect(
        await ask('https://traefik.berth.test/api/overview', {
          headers: { 'x-forwarded-user': ADMIN },
        }),
      ).toMatchObject({ status: 401 });
      for (const host of [BASE_DOMAIN, 'shop.berth.test', 'unknown.berth.test'])
        expect([
          host,
          (await ask(`https://${host}/api/rawdata`)).body.includes('"routers"'),
        ]).toEqual([host, false]);
    });

    test('only the ports of the page are open, and nothing listens on 8081', async () => {
      const { stdout } = await run([
        ...(engine.faults?.nsenterArgv() ?? []),
        'ss',
        '-Hltn',
      ] as unknown as Argv);
      const listening = [
        ...new Set(
          stdout
            .trim()
            .split('\n')
            .map((line) => line.trim().split(/\s+/)[3] ?? ''),
        ),
      ];
      // Docker publishes the project on a port of its own choice.
      const known = listening.filter((address) => !/^10\.218\.0\.1:\d+$/.test(address));
      expect(known.toSorted()).toEqual([
        '0.0.0.0:443',
        '0.0.0.0:80',
        '127.0.0.1:5000',
        '127.0.0.1:8080',
        '[::]:443',
        '[::]:80',
      ]);
      expect(listening.filter((address) => address.endsWith(':8081'))).toEqual([]);
      for (const name of SERVICES) {
        const { stdout: ports } = await docker(
          'exec',
          `berth-${name}-1`,
          'sh',
          '-c',
          'cat /proc/net/tcp /proc/net/tcp6 2>/dev/null',
        );
        const ofContainer = [...ports.matchAll(/:([0-9A-F]{4}) [0-9A-F]+:0000 0A /g)].map(
          ([, port = '']) => Number.parseInt(port, 16),
        );
        expect([name, ofContainer.includes(8081)]).toEqual([name, false]);
      }
    });

    test('containers run as another user than root, without rights, with a root that nobody can write', async () => {
      for (const name of SERVICES) {
        const container = `berth-${name}-1`;
        const [state] = JSON.parse((await docker('inspect', container)).stdout) as [
          {
            Config: { User: string };
            HostConfig: {
              ReadonlyRootfs: boolean;
              Privileged: boolean;
              CapDrop: string[];
              SecurityOpt: string[];
            };
          },
        ];
        expect([
          name,
          state.Config.User,
          state.HostConfig.ReadonlyRootfs,
          state.HostConfig.Privileged,
          state.HostConfig.CapDrop,
        ]).toEqual([...[name, `${USER}:${USER}`, true, false, ['ALL']]]);
        expect(state.HostConfig.SecurityOpt).toEqual(['no-new-privileges:true']);
        const { stdout } = await docker('exec', container, 'sh', '-c', 'cat /proc/1/status');
        expect(stdout).toMatch(/^Uid:\s+10001\s+10001/m);
        expect(stdout).toMatch(/^CapEff:\s+0+$/m);
        expect(stdout).toMatch(/^NoNewPrivs:\s+1$/m);
        for (const path of ['/x', '/usr/x', '/etc/x', '/usr/lib/berth/x', '/var/lib/x'])
          for (const user of [String(USER), '0']) {
            const touched = await engine.docker(
              ['exec', '--user', user, container, 'touch', path],
              { mayFail: true },
            );
            expect([name, path, touched.code]).toEqual([name, path, 1]);
            if (user === '0') expect(touched.stderr).toMatch(/Read-only file system|No such file/);
          }
      }
    });

    test('a project makes no router of its own, whatever labels its image has', async () => {
      const labels = {
        'berth.service': 'server',
        'berth.project': '',
        'traefik.enable': 'true',
        'traefik.http.routers.evil.rule': 'Host(`berth.test`) || Host(`evil.berth.test`)',
        'traefik.http.routers.evil.priority': '100000',
        'traefik.http.routers.evil.entrypoints': 'websecure',
        'traefik.http.routers.evil.tls': 'true',
        'traefik.http.services.evil.loadbalancer.server.port': '8080',
      };
      const lines = Object.entries(labels).map(([name, value]) => `LABEL ${name}='${value}'`);
      await deployed('evening', site('evil', lines.join('\n')));
      expect((await ask('https://evening.berth.test/')).body).toBe('evil');
      expect((await ask('https://berth.test/')).body).not.toBe('evil');
      expect(await ask('https://evil.berth.test/')).toMatchObject({ status: 404 });
      // Traefik sees these containers of the engine.
      const script =
        "require('node:http').get({socketPath: '/run/berth-labels/labels.sock', path: " +
        "'/containers/json'}, (r) => r.pipe(process.stdout))";
      const { stdout } = await docker(
        'exec',
        'berth-labels-1',
        '/usr/lib/berth/bin/node',
        '-e',
        script,
      );
      const seen = (JSON.parse(stdout) as { Labels: Record<string, string> }[]).map(
        ({ Labels }) => Labels['berth.service'] ?? '',
      );
      expect(seen.toSorted()).toEqual(['gateway', 'registry', 'server']);
    });

    test('a restart of the control plane, of the relay and of labels loses no request of a project', async () => {
      const prober = startProber({
        entry: { host: engine.hostIp, port: 443, secure: true },
        ...{ host: 'shop.berth.test', perSecond: 50, versionOf: () => 1 },
      });
      for (const name of ['control-plane', 'relay', 'labels', 'gateway', 'agent-deploy'])
        await compose(['restart', name]);
      await compose(['up', '-d', '--wait']);
      const report = await prober.stop();
      expect([report.failed, report.failures]).toEqual([0, []]);
      expect(report.sent).toBeGreaterThan(100);
      console.log(
        `restart under load: ${report.sent} requests, ${report.failed} failed, slowest ` +
          `${Math.round(report.slowest)} ms`,
      );
      await waitFor(
        'the API answers through Traefik again',
        async () => (await api.call('listProjects', {})).items.length === 2,
        {
          deadlineMs: 180_000,
          intervalMs: 500,
        },
      );
    });

    test('a second `up` changes nothing', async () => {
      const state = async (): Promise<string> =>
        (
          await docker(
            'inspect',
            '--format',
            '{{.Name}} {{.Id}} {{.State.StartedAt}}',
            ...SERVICES.map((name) => `berth-${name}-1`),
          )
        ).stdout;
      const secrets = async (): Promise<string> =>
        (await run(['sh', '-c', `cd ${join(dir, 'etc/berth')} && sha256sum secrets/*/*`])).stdout;
      const before = [await state(), await secrets()];
      await fromPage('docker compose up -d --wait');
      expect([await state(), await secrets()]).toEqual(before);
    });

    describe('the clean-up of the registry', () => {
      const cleanUp = async (): Promise<CleanUps['items'][number] | undefined> => {
        const { items: before } = await api.call('cleanUps', {});
        await api.call('startCleanUp', {});
        return waitFor(
          'the clean-up has ended',
          async () => {
            const { items } = await api.call('cleanUps', {});
            return items.length > before.length && items[0];
          },
          { deadlineMs: 180_000, intervalMs: 300 },
        );
      };

      test('removes what no release needs, frees the space, and the registry takes images again', async () => {
        writeFileSync(join(dir, 'etc/berth/control-plane.env'), 'KEEP_RELEASES=1\n');
        await fromPage('docker compose up -d --wait');
        await waitFor(
          'the API answers again',
          async () => (await api.call('cleanUps', {})).keep_releases === 1,
          { deadlineMs: 60_000 },
        );
        expect(await api.call('cleanUps', {})).not.toHaveProperty('unavailable');
        const old = await settledWith('with ballast', {
          ballast: randomBytes(2 * MB).toString('base64'),
          ...site('large', 'COPY ballast /b'),
        });
        const kept = await settledWith('without ballast', site('the shop'));
        const from = Date.now();
        const ended = await cleanUp();
        console.log(`clean-up: ${Math.round((Date.now() - from) / 1000)} s`);
        expect(ended).toMatchObject({
          state: 'done',
          images: 2,
          removed: 2,
          missing: 0,
          error: null,
        });
        expect((ended?.bytes_before ?? 0) - (ended?.bytes_after ?? 0)).toBeGreaterThan(2 * MB);
        await expect(
          api.call('rollback', { params: { id: 'shop' }, body: { deployment_id: old.id } }),
        ).rejects.toThrow(/no_release|was removed/);
        await settledWith('after the clean-up', site('the next shop'));
        // The image must come from the registry.
        const ref = `${kept.image_tag?.replace(/:[^:/]*$/, '')}@${kept.image_digest}`;
        await waitFor('the engine has no image of the release', async () => {
          await engine.docker(['image', 'rm', '--force', kept.image_tag ?? '', ref], {
            mayFail: true,
          });
          return (await engine.docker(['image', 'inspect', ref], { mayFail: true })).code !== 0;
        });
        await live(
          await api.call('rollback', { params: { id: 'shop' }, body: { deployment_id: kept.id } }),
        );
        expect((await ask('https://shop.berth.test/', { ca: projectRoot })).body).toBe('the shop');
        const { stdout } = await compose([
          'exec',
          '-T',
          'registry',
          'cat',
          '/etc/berth-registry/registry.yml',
        ]);
        expect(stdout).toContain('delete: { enabled: true }');
        expect(stdout).not.toContain('readonly');
      });

      test('says that the registry does not allow deletions, and goes on after the file is right again', async () => {
        const file = join(workingDir, 'compose/registry.yml');
        const text = readFileSync(file, 'utf8');
        writeFileSync(
          file,
          text.replace('delete: { enabled: true }', 'delete: { enabled: false }'),
        );
        await fromPage('docker compose up -d --wait');
        expect((await compose(['logs', 'prepare'])).stdout).toContain(
          'compose/registry.yml has changed. Run: docker compose restart registry',
        );
        await compose(['restart', 'registry']);
        expect(await cleanUp()).toMatchObject({
          state: 'failed',
          error: {
            code: 'registry_delete_disabled',
            message: expect.stringContaining(
              'storage.delete.enabled: true in /etc/berth-registry/registry.yml',
            ),
          },
        });
        writeFileSync(file, text);
        await fromPage('docker compose up -d --wait');
        await compose(['restart', 'registry']);
        expect(await cleanUp()).toMatchObject({ state: 'done', missing: 0, error: null });
      });

      const settledWith = async (
        message: string,
        files: Record<string, string>,
      ): Promise<Deployment> => {
        await git.commit('shop', files, message);
        return settled('shop');
      };
    });

    test('with AGENT_DEPLOY_USER=0:0, a project has file secrets, and the agent has only three capabilities', async () => {
      const file = join(workingDir, '.env');
      writeFileSync(file, `${readFileSync(file, 'utf8')}AGENT_DEPLOY_USER=0:0\n`);
      await fromPage('docker compose up -d --wait');
      const { stdout } = await docker(
        'exec',
        'berth-agent-deploy-1',
        'sh',
        '-c',
        'cat /proc/1/status; touch /x 2>&1 || true',
      );
      // CAP_CHOWN (0), CAP_DAC_OVERRIDE (1), CAP_FOWNER (3).
      expect(stdout).toMatch(/^CapEff:\s+0*b$/m);
      expect(stdout).toContain('Read-only file system');
      await api.call('putSecret', {
        params: { id: 'shop', name: 'TOKEN' },
        body: { value: 'hunter2', scope: 'run', as: 'file' },
      });
      const serve =
        'CMD ["sh", "-c", "cp /run/secrets/TOKEN /tmp/index.html && exec httpd -f -p 8080 -h ' +
        '/tmp"]';
      await git.commit(
        'shop',
        { Dockerfile: `FROM busybox:stable\nUSER nobody\nEXPOSE 8080\n${serve}\n` },
        'shows its secret',
      );
      await settled('shop');
      expect((await ask('https://shop.berth.test/', { ca: projectRoot })).body).toBe('hunter2');
    });

    test('the way back to an agent without root', async () => {
      const file = join(workingDir, '.env');
      expect(PAGE).toContain(
        '`docker compose exec agent-deploy chown -R 10001:10001 /var/lib/berth`',
      );
      await compose(['exec', '-T', 'agent-deploy', 'chown', '-R', '10001:10001', '/var/lib/berth']);
      writeFileSync(file, readFileSync(file, 'utf8').replace('AGENT_DEPLOY_USER=0:0\n', ''));
      await fromPage('docker compose up -d --wait');
      expect(
        (
          await docker('inspect', '--format', '{{.Config.User}}', 'berth-agent-deploy-1')
        ).stdout.trim(),
      ).toBe(`${USER}:${USER}`);
    });

    test('the commands of the operator', async () => {
      const backup = await fromPage(
        'docker compose exec control-plane berth backup --to /var/backups/berth',
      );
      expect(backup.stdout + backup.stderr).toContain('/var/backups/berth/');
      const recovered = await fromPage(
        'docker compose exec control-plane berth admin recover ops@example.org',
      );
      expect(recovered.stdout + recovered.stderr).toContain('ops@example.org');
    });

    test('down keeps everything, and up continues with it', async () => {
      const from = Date.now();
      await fromPage('docker compose down');
      const down = Date.now();
      await fromPage('docker compose up -d --wait');
      const up = Date.now();
      const answer = await waitFor(
        'the project answers again',
        () => ask('https://shop.berth.test/', { ca: projectRoot }),
        {
          deadlineMs: 180_000,
        },
      );
      expect(answer).toMatchObject({ status: 200, body: 'hunter2' });
      expect(COMMANDS.filter((command) => !used.has(command))).toEqual([]);
      console.log(
        `down: ${Math.round((down - from) / 1000)} s, up: ${Math.round((up - down) / 1000)} s, ` +
          `project: ${Date.now() - up} ms`,
      );
    });
  },
);
