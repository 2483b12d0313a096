/**
 * Secrets from the API to the container, with all real parts: env, file and build secrets,
 * redaction, a rollback, a restart of the machine. Then a search for every value in every place
 * where it does not belong.
 */
import { createHash, randomBytes } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Deployment } from '@berth/wire/deployment';
import type { Project } from '@berth/wire/project';
import { waitFor } from '@berth/testbed/wait';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ENDS_AT_ONCE, startWorld, whyNot, type World } from './world.ts';

const reason = await whyNot();
/** A folder on tmpfs that a private engine sees too. */
const TMPFS = '/dev/shm';

const canary = (what: string): string => `canary-${what}-${randomBytes(8).toString('hex')}`;
const sha = (text: string): string => createHash('sha256').update(text).digest('hex');
const VALUES = {
  TOKEN: canary('env'),
  PEM: `${canary('line1')}\n${canary('line2')}\n`,
  CERT: canary('file'),
  NPM: canary('build'),
};
const GIT_TOKEN = canary('git-token');
/** Its page proves which values it got, without the values. It writes one to its log. */
const START = `mkdir -p /tmp/www
(
  printf %s "$TOKEN" | sha256sum
  printf %s "$PEM" | sha256sum
  sha256sum < /run/secrets/CERT
  stat -c 'mode %a owner %u' /run/secrets/CERT
  grep ' /run/secrets ' /proc/mounts
  touch /run/secrets/x 2>&1
) > /tmp/www/index.html
echo "starting with $TOKEN"
exec httpd -f -p 8080 -h /tmp/www
`;
const app = (step: string, start = START): Record<string, string> => ({
  Dockerfile: [
    'FROM busybox:stable',
    `RUN --mount=type=secret,id=NPM echo ${step} with $(cat /run/secrets/NPM) and $(base64 ` +
      '/run/secrets/NPM) && sha256sum < /run/secrets/NPM > /built',
    'COPY start /start',
    'USER nobody',
    ENDS_AT_ONCE,
    'EXPOSE 8080',
    'CMD ["sh", "/start"]',
    '',
  ].join('\n'),
  start,
});

describe.skipIf(reason !== undefined)('secrets', () => {
  let world: World;
  let tmpfs: string;
  let project: Project;
  let first: Deployment;
  const argv = new Set<string>();
  const watching = new AbortController();
  const run = `run-${Date.now()}`;

  beforeAll(async () => {
    tmpfs = await mkdtemp(join(TMPFS, 'berth-secrets-'));
    world = await startWorld({
      proxy: 'built-in',
      env: { LOG_LEVEL: 'trace' },
      agentEnv: { SECRETS_DIR: tmpfs, LOG_LEVEL: 'trace' },
    });
    void watchArgv(argv, watching.signal);
    const { url } = await world.git.createRepo('vault', app(`building ${run}`));
    project = await world.berth.createProject({
      name: 'vault',
      git_url: url,
      domain_prefix: 'vault',
      drain_seconds: 0,
    });
    await set('TOKEN', { value: VALUES.TOKEN });
    await set('PEM', { value: VALUES.PEM });
    await set('CERT', { value: VALUES.CERT, as: 'file' });
    await set('NPM', { value: VALUES.NPM, scope: 'build' });
  }, 120_000);
  afterAll(async () => {
    watching.abort();
    await world?.stop();
    await rm(tmpfs, { recursive: true, force: true });
  }, 60_000);

  const set = (
    name: string,
    body: { value: string; scope?: 'run' | 'build'; as?: 'env' | 'file' },
  ) => world.berth.api.call('putSecret', { params: { id: project.id, name }, body });
  const deploy = async (): Promise<Deployment> =>
    world.berth.settled(await world.berth.deploy(project));
  const page = async (): Promise<string> => (await world.berth.get('vault')).body;
  const container = async (): Promise<string> =>
    (
      await world.engine.docker(['ps', '-aq', '--filter', `label=berth.project=${project.id}`])
    ).stdout.trim();

  it('reach the container: env, and a file on tmpfs that only its user reads', {
    timeout: 120_000,
  }, async () => {
    first = await deploy();
    expect(first.status, JSON.stringify(first.error)).toBe('running');
    const shown = await page();
    for (const name of ['TOKEN', 'PEM', 'CERT'] as const)
      expect(shown).toContain(sha(VALUES[name]));
    expect(shown).toContain('mode 400 owner 65534');
    expect(shown).toMatch(/ \/run\/secrets tmpfs ro/);
    expect(shown).toMatch(/touch: .*(Read-only|Permission denied)/);
    const log = (await world.berth.logs(first)).join('\n');
    expect(log).toContain(`building ${run} with *** and ***`);
    const { stdout } = await world.engine.docker([
      'run',
      '--rm',
      '--entrypoint',
      'cat',
      first.image_tag ?? '',
      '/built',
    ]);
    expect(stdout).toContain(sha(VALUES.NPM));
  });

  it('change: the next build runs once without cache, and the next one with it', {
    timeout: 120_000,
  }, async () => {
    const withoutCache = async (d: Deployment): Promise<boolean> =>
      (await world.berth.logs(d)).some((line) => line.includes('building without cache'));
    expect(await withoutCache(first)).toBe(true);
    const second = await deploy();
    expect([second.status, await withoutCache(second)]).toEqual(['running', false]);
    expect((await world.berth.logs(second)).join('\n')).toContain('(cached)');
    VALUES.NPM = watch('NPM', canary('build-2'));
    await set('NPM', { value: VALUES.NPM, scope: 'build' });
    const third = await deploy();
    expect([third.status, await withoutCache(third)]).toEqual(['running', true]);
    const { stdout } = await world.engine.docker([
      'run',
      '--rm',
      '--entrypoint',
      'cat',
      third.image_tag ?? '',
      '/built',
    ]);
    expect(stdout).toContain(sha(VALUES.NPM));
  });

  it('have the current value after a rollback, and its story names what differs', {
    timeout: 120_000,
  }, async () => {
    VALUES.TOKEN = watch('TOKEN', canary('env-2'));
    await set('TOKEN', { value: VALUES.TOKEN });
    const back = await world.berth.api.call('rollback', {
      params: { id: project.id },
      body: { deployment_id: first.id },
    });
    const { status } = await world.berth.settled(back);
    expect(status).toBe('running');
    expect(await page()).toContain(sha(VALUES.TOKEN));
    const { events } = await world.berth.api.call('getDeployment', { params: { id: back.id } });
    expect(events.map(({ message }) => message).join('\n')).toContain(
      'since deployment 1, TOKEN has another value',
    );
  });

  it('are there again after the machine was restarted, without the control plane', {
    timeout: 120_000,
  }, async (context) => {
    const { faults } = world.engine;
    if (faults === undefined) return context.skip();
    const agent = world.berth.agents['node-1'];
    await agent?.crash();
    await faults.powerOff();
    for (const entry of await readdir(tmpfs)) await rm(join(tmpfs, entry), { recursive: true });
    await faults.powerOn();
    await agent?.start();
    await waitFor(
      'the project serves with its file',
      async () => (await page().catch(() => '')).includes(sha(VALUES.CERT)),
      {
        deadlineMs: 60_000,
      },
    );
  });

  it('are in no text of a failure: a build step, and a container that prints them and exits', {
    timeout: 120_000,
  }, async () => {
    const failing = app(`failing ${run}`);
    await world.git.commit(
      'vault',
      {
        ...failing,
        Dockerfile: (failing['Dockerfile'] ?? '').replace('> /built', '> /built && false'),
      },
      'fails',
    );
    const build = await deploy();
    expect(build.error).toMatchObject({
      code: 'build_step_failed',
      message: expect.stringContaining(`failing ${run} with *** and ***`),
    });
    await world.git.commit(
      'vault',
      app(`exiting ${run}`, 'echo "$TOKEN $PEM $(cat /run/secrets/CERT)"; exit 3\n'),
      'exits',
    );
    const exit = await deploy();
    expect(exit.error?.code).toBe('container_exited');
    const log = (await world.berth.logs(exit)).join('\n');
    expect(log).toContain('*** ***');
    expect(await page()).toContain(sha(VALUES.TOKEN));
  });

  it('of git access and of a hook are used too: a token, a deploy key, the secret of a hook', {
    timeout: 120_000,
  }, async () => {
    const { api } = world.berth;
    const secret = canary('hook');
    const byToken = await world.berth.createProject({
      name: 'token',
      git_url: 'https://127.0.0.1:1/team/app.git',
      domain_prefix: 'token',
    });
    await api.call('putGitToken', { params: { id: byToken.id }, body: { token: GIT_TOKEN } });
    await api.call('putHook', { params: { id: byToken.id }, body: { forge: 'generic', secret } });
    earlier.push(GIT_TOKEN, secret);
    const byKey = await world.berth.createProject({
      name: 'key',
      git_url: 'ssh://git@127.0.0.1:1/team/app.git',
      domain_prefix: 'key',
    });
    await api.call('createDeployKey', { params: { id: byKey.id } });
    for (const project of [byToken, byKey])
      expect((await world.berth.settled(await world.berth.deploy(project))).status).toBe('failed');
    // The vault sealed them all: each project has a key.
    expect(await (await fetch(`${world.berth.url}/metrics`)).text()).toContain(
      'berth_project_keys{wrapped_by="current"} 3',
    );
  });

  it('are nowhere in clear text, except in the container’s own configuration', {
    timeout: 120_000,
  }, async () => {
    watching.abort();
    const { berth, engine, dir } = world;
    const values = Object.values(VALUES).flatMap((value) => value.trim().split('\n'));
    const forms = [...new Set([...values, ...earlier])].flatMap((value) => [
      value,
      Buffer.from(value).toString('base64').replace(/=+$/, ''),
    ]);
    const places = new Map<string, string>();
    for (const file of await filesBelow(dir))
      places.set(file, (await readFile(file)).toString('latin1'));
    for (const service of [
      berth.url,
      ...Object.values(berth.agents).map((agent) => agent.readyUrl.replace('/readyz', '')),
    ])
      for (const path of ['/metrics', '/readyz'])
        places.set(service + path, await (await fetch(service + path)).text());
    const answers = {
      events: await berth.api.call('events', { query: { limit: 1000 } }),
      audit: await berth.api.call('audit', { query: { limit: 200 } }),
      project: await berth.api.call('getProject', { params: { id: project.id } }),
      secrets: await berth.api.call('listSecrets', { params: { id: project.id } }),
      nodes: await berth.api.call('listNodes', { query: {} }),
    };
    for (const [name, answer] of Object.entries(answers)) places.set(name, JSON.stringify(answer));
    const { items } = await berth.api.call('projectDeployments', {
      params: { id: project.id },
      query: {},
    });
    for (const { id, image_tag } of items) {
      places.set(
        `deployment ${id}`,
        JSON.stringify(await berth.api.call('getDeployment', { params: { id } })),
      );
      places.set(
        `log of ${id}`,
        JSON.stringify(
          await berth.api.call('deploymentLogs', { params: { id }, query: { limit: 5000 } }),
        ),
      );
      if (image_tag === null) continue;
      const history = await engine.docker(
        ['history', '--no-trunc', '--format', '{{json .}}', image_tag],
        { mayFail: true },
      );
      const config = await engine.docker(['image', 'inspect', image_tag], { mayFail: true });
      places.set(`image ${image_tag}`, history.stdout + config.stdout);
    }
    const cache = await engine.docker(['buildx', 'du', '--verbose'], { mayFail: true });
    places.set('build cache', cache.stdout);
    places.set('argv', [...argv].join('\n'));
    expect([...argv].join('\n')).toMatch(/id=NPM,env=\S+/);

    // A private key begins with this line.
    forms.push('OPENSSH PRIVATE KEY');
    const found = [...places].flatMap(([where, text]) =>
      forms.filter((form) => text.includes(form)).map((form) => `${form} in ${where}`),
    );
    expect(found).toEqual([]);
    // The search can find: the names of secrets are in these places, and the copy of the files is
    // one of them.
    const naming = [...places].filter(([, text]) => text.includes('TOKEN')).map(([where]) => where);
    expect(naming).toEqual(expect.arrayContaining(['events', 'secrets']));
    expect(naming.some((where) => where.startsWith(join(dir, 'berth.db')))).toBe(true);
    const kinds = [...places.keys()].map((where) => where.replace(dir, ''));
    expect(kinds).toEqual(
      expect.arrayContaining([
        '/logs/control-plane.log',
        '/logs/builder-1.log',
        '/logs/node-1.log',
        '/secrets-key',
      ]),
    );
    expect(kinds.some((where) => where.endsWith('.sealed'))).toBe(true);
    // The known exception (docs/security.md): the engine keeps env in the configuration of the
    // container.
    const inspected = (await engine.docker(['inspect', ...(await container()).split('\n')])).stdout;
    expect(inspected).toContain(VALUES.TOKEN);
    expect(inspected).not.toContain(VALUES.CERT);
    expect(inspected).not.toContain(VALUES.NPM);
  });

  it('leave no file behind when the project is deleted', { timeout: 60_000 }, async () => {
    await world.berth.api.call('deleteProject', { params: { id: project.id } });
    await waitFor(
      'the files of the secrets are removed',
      async () => (await filesBelow(tmpfs)).length === 0,
      { deadlineMs: 40_000 },
    );
  });

  const earlier: string[] = [];
  /** Remembers the value that `next` replaces. Returns `next`. */
  function watch(name: keyof typeof VALUES, next: string): string {
    earlier.push(VALUES[name]);
    return next;
  }
});

/** Collects the arguments of all processes until the signal aborts. */
const watchArgv = (seen: Set<string>, signal: AbortSignal): Promise<true> =>
  waitFor(
    'the secrets were used',
    async () => {
      for (const pid of (await readdir('/proc')).filter((name) => /^\d+$/.test(name))) {
        const line = await readFile(`/proc/${pid}/cmdline`, 'latin1').catch(() => '');
        if (line.includes('docker')) seen.add(line.replaceAll('\0', ' '));
      }
      return signal.aborted;
    },
    { intervalMs: 20, deadlineMs: 600_000 },
  );

async function filesBelow(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { withFileTypes: true, recursive: true });
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
}
