/**
 * Compares deploy/compose.yml with deploy/traefik, and asks its view of the container engine what a
 * project may not see or change.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, request, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createRegistryConfigFile } from '../packages/agent/src/registry/config-file.ts';
import { repositoryRoot } from '@berth/testbed/config';
import { type RunningProcess, startProcess } from '@berth/testbed/process';
import { waitFor } from '@berth/testbed/wait';
import { readYaml } from '@berth/testbed/yaml';

type Service = {
  [name: string]: unknown;
  command?: string[];
  labels?: Record<string, string>;
  volumes?: string[];
  ports?: string[];
  environment?: Record<string, string>;
};
type Tree = { [name: string]: unknown };
const { services } = (await readYaml(join(repositoryRoot, 'deploy/compose.yml'))) as {
  services: Record<string, Service>;
};
const traefik = (await readYaml(join(repositoryRoot, 'deploy/traefik/traefik.yml'))) as Tree;

/** The flags of a static configuration. Traefik compares names without case. */
function flagsOf(tree: Tree, prefix = ''): Record<string, string> {
  const flags: Record<string, string> = {};
  for (const [name, value] of Object.entries(tree)) {
    const key = `${prefix}${name.toLowerCase()}`;
    if (value === null || typeof value !== 'object') flags[key] = String(value);
    else if (Object.keys(value).length === 0) flags[key] = 'true';
    else Object.assign(flags, flagsOf(value as Tree, `${key}.`));
  }
  return flags;
}

describe('deploy/compose.yml', () => {
  test('Traefik’s flags are those of traefik.yml, except values of the installation', () => {
    const flags = Object.fromEntries(
      (services['traefik']?.command ?? []).map(
        (flag) => flag.slice(2).split(/=(.*)/s) as [string, string],
      ),
    );
    const expected = flagsOf(traefik);
    const OF_INSTALLATION =
      /^(certificatesresolvers\.|providers\.(docker|file|http\.endpoint)|entrypoints\.(metrics|ping)\.|ping\.|metrics\.|global\.)/;
    const common = (all: Record<string, string>): Record<string, string> =>
      Object.fromEntries(Object.entries(all).filter(([name]) => !OF_INSTALLATION.test(name)));
    expect(common(flags)).toEqual(common(expected));
    expect(flags['providers.docker.exposedbydefault']).toBe('false');
    expect(flags['providers.docker.constraints']).toContain('!LabelRegex(`berth.project`, `.+`)');
    expect(Object.keys(flags).filter((name) => /insecure|forwardedheaders/.test(name))).toEqual([]);
  });

  test('every container runs as user 10001 with a read-only root and without capabilities', () => {
    for (const [name, service] of Object.entries(services)) {
      expect(service, name).toMatchObject({
        user: name === 'agent-deploy' ? '${AGENT_DEPLOY_USER:-10001:10001}' : '10001:10001',
        read_only: true,
        cap_drop: ['ALL'],
        security_opt: ['no-new-privileges:true'],
        logging: { options: { 'max-size': '10m' } },
        restart: name === 'prepare' ? 'no' : 'unless-stopped',
      });
      // The capabilities count only for AGENT_DEPLOY_USER=0:0.
      expect(service['cap_add'], name).toEqual(
        name === 'agent-deploy' ? ['CHOWN', 'DAC_OVERRIDE', 'FOWNER'] : undefined,
      );
      expect(service['privileged'], name).toBeUndefined();
    }
  });

  test('Traefik has no socket of the engine, and nothing but it is open to other machines', () => {
    const withSocket = Object.entries(services).flatMap(([name, { volumes }]) =>
      String(volumes).includes('ENGINE_SOCKET') ? [name] : [],
    );
    expect(withSocket.toSorted()).toEqual(['agent-builder', 'agent-deploy', 'labels', 'prepare']);
    expect(
      Object.entries(services).flatMap(([name, { ports }]) =>
        (ports ?? []).map((port) => `${name} ${port}`),
      ),
    ).toEqual([
      'control-plane ${INTERNAL_IP:-127.0.0.1}:8080:8080',
      'registry 127.0.0.1:5000:5000',
      'traefik 80:80',
      'traefik 443:443',
    ]);
    expect(JSON.stringify(services)).not.toContain('8081');
  });

  test('the services of the label provider have the routers of dynamic/auth-host.yml', async () => {
    type Router = { rule: string; middlewares: string[]; entryPoints: string[] };
    const file = (await readYaml(join(repositoryRoot, 'deploy/traefik/dynamic/auth-host.yml'))) as {
      http: { routers: Record<string, Router> };
    };
    const labels = Object.assign(
      {},
      ...Object.values(services).map((service) => service.labels ?? {}),
    ) as Record<string, string>;
    const pairs = {
      server: 'berth-api',
      'server-exchange': 'berth-exchange',
      dashboard: 'berth-pages',
      gateway: 'berth-gateway',
    };
    for (const [label, router] of Object.entries(pairs)) {
      const expected = file.http.routers[router];
      expect(labels[`traefik.http.routers.${label}.rule`], label).toBe(
        expected?.rule.replaceAll('{{ env "BASE_DOMAIN" }}', '${BASE_DOMAIN}'),
      );
      expect(labels[`traefik.http.routers.${label}.middlewares`], label).toBe(
        `${expected?.middlewares.join()}@file`,
      );
      expect(labels[`traefik.http.routers.${label}.entrypoints`], label).toBe('websecure');
    }
    expect(
      Object.values(services).flatMap(({ labels: own }) => own?.['berth.service'] ?? []),
    ).toEqual(['server', 'gateway', 'registry']);
  });
});

describe('the clean-up of the registry', () => {
  const registry = services['registry'];
  const builder = services['agent-builder'];
  /** Volume and mode of a folder in a container. */
  const mountAt = (service: Service | undefined, folder: string): string | undefined =>
    service?.volumes?.find((volume) => volume.split(':')[1] === folder)?.replace(`:${folder}`, '');

  test('one agent has the file and the images of the registry at the same paths, and its address in the network of the containers', async () => {
    const file = '/etc/berth-registry/registry.yml';
    expect(registry?.command).toEqual(['serve', file]);
    expect(builder?.environment).toMatchObject({
      REGISTRY_CONFIG: `\${REGISTRY_CONFIG-${file}}`,
      REGISTRY_CONTAINER: '${COMPOSE_PROJECT_NAME:-berth}-registry-1',
      REGISTRY_URL: 'http://registry:5000',
    });
    // The registry cannot change its own configuration, and the agent no image.
    expect([
      mountAt(builder, '/etc/berth-registry'),
      mountAt(registry, '/etc/berth-registry'),
    ]).toEqual(['registry', 'registry:ro']);
    expect([
      mountAt(builder, '/var/lib/berth-registry'),
      mountAt(registry, '/var/lib/berth-registry'),
    ]).toEqual(['images:ro', 'images']);
    expect(await readYaml(join(repositoryRoot, 'deploy/compose/registry.yml'))).toMatchObject({
      storage: {
        filesystem: { rootdirectory: '/var/lib/berth-registry' },
        delete: { enabled: true },
      },
      http: { addr: ':5000' },
    });
    const others = Object.entries(services).filter(
      ([, { environment }]) => environment?.['REGISTRY_CONFIG'] !== undefined,
    );
    expect(others.map(([name]) => name)).toEqual(['agent-builder']);
  });

  test('the other agent reaches the registry there too, and cleans nothing', () => {
    // 127.0.0.1 in a container is not the machine, and REGISTRY_ADDR is the address that the engine
    // uses.
    expect(services['agent-deploy']?.environment).toMatchObject({
      REGISTRY_URL: 'http://registry:5000',
    });
    expect(services['agent-deploy']?.environment).not.toHaveProperty('REGISTRY_CONFIG');
  });

  type Copy = (from: string, folder: string) => string | null;
  async function copyOf(): Promise<Copy> {
    const module = pathToFileURL(join(repositoryRoot, 'deploy/compose/registry-config.mjs')).href;
    return ((await import(module)) as { copyRegistryConfig: Copy }).copyRegistryConfig;
  }

  test('a change of the operator is copied for the registry, and a change of the agent stays otherwise', async () => {
    const copyRegistryConfig = await copyOf();
    const dir = mkdtempSync(join(tmpdir(), 'berth-registry-'));
    try {
      const [from, file] = [join(dir, 'from.yml'), join(dir, 'registry.yml')];
      const text = (): string => readFileSync(file, 'utf8');
      const copy = (): string | null => copyRegistryConfig(from, dir);
      expect(copy).toThrow(/ENOENT/);
      writeFileSync(from, 'a: 1\n');
      expect([copy(), text()]).toEqual(['created the configuration of the registry', 'a: 1\n']);
      writeFileSync(file, 'a: 1\nreadonly: true\n');
      expect([copy(), text()]).toEqual([null, 'a: 1\nreadonly: true\n']);
      writeFileSync(from, 'a: 2\n');
      expect([copy(), text()]).toEqual([
        expect.stringContaining('docker compose restart registry'),
        'a: 2\n',
      ]);
      // A copy that died between both files.
      writeFileSync(from, 'a: 3\n');
      writeFileSync(file, 'a: 3\n');
      expect([copy(), text()]).toEqual([
        expect.stringContaining('docker compose restart registry'),
        'a: 3\n',
      ]);
      rmSync(file);
      expect([copy(), text()]).toEqual(['created the configuration of the registry', 'a: 3\n']);
      expect(readdirSync(dir).toSorted()).toEqual(['copied.yml', 'from.yml', 'registry.yml']);
    } finally {
      rmSync(dir, { recursive: true });
    }
  });

  test('a change of the operator waits for the end of a clean-up: a writable registry would lose layers', async () => {
    const copyRegistryConfig = await copyOf();
    const dir = mkdtempSync(join(tmpdir(), 'berth-registry-'));
    try {
      const [from, file] = [join(dir, 'from.yml'), join(dir, 'registry.yml')];
      const copy = (): string | null => copyRegistryConfig(from, dir);
      const own = readFileSync(join(repositoryRoot, 'deploy/compose/registry.yml'), 'utf8');
      writeFileSync(from, own);
      copy();
      const agent = createRegistryConfigFile(file, join(dir, 'marker.json'));
      await agent.setReadOnly();
      const during = readFileSync(file, 'utf8');
      const changed = own.replace('level: warn', 'level: info');
      writeFileSync(from, changed);
      const waits = expect.stringMatching(/clean-up.*not copied.*docker compose up -d --wait/);
      expect([copy(), readFileSync(file, 'utf8')]).toEqual([waits, during]);
      expect([copy(), readFileSync(file, 'utf8')]).toEqual([waits, during]);
      await agent.setWritable();
      await agent.forget();
      expect([copy(), readFileSync(file, 'utf8')]).toEqual([
        expect.stringContaining('docker compose restart registry'),
        changed,
      ]);
      // The way out when nobody cleans any more.
      await agent.setReadOnly();
      rmSync(file);
      expect([copy(), readFileSync(file, 'utf8')]).toEqual([
        'created the configuration of the registry',
        changed,
      ]);
      // An operator's own read-only registry is no clean-up.
      writeFileSync(
        from,
        changed.replace('storage:', 'storage:\n  maintenance: { readonly: { enabled: true } }'),
      );
      expect(copy()).toContain('docker compose restart registry');
      writeFileSync(from, own);
      expect([copy(), readFileSync(file, 'utf8')]).toEqual([
        expect.stringContaining('docker compose restart registry'),
        own,
      ]);
    } finally {
      rmSync(dir, { recursive: true });
    }
  });
});

describe('labels.mjs, what Traefik sees of the engine', () => {
  const id = (digit: string): string => digit.repeat(64);
  const LABELS: Record<string, Record<string, string>> = {
    [id('a')]: { 'berth.service': 'server', 'traefik.enable': 'true' },
    // The image of this project says that it is a service of Berth.
    [id('b')]: {
      'berth.service': 'server',
      'berth.project': 'p1',
      'traefik.http.routers.x.rule': 'Host(`berth.test`)',
    },
    [id('c')]: { 'traefik.enable': 'true' },
  };
  const seen: string[] = [];
  let dir: string;
  let engine: Server;
  let view: RunningProcess;
  const ask = (method: string, path: string): Promise<{ status: number; body: string }> =>
    new Promise((resolve, reject) => {
      const asking = request({ socketPath: join(dir, 'labels.sock'), method, path }, (response) => {
        let body = '';
        response.setEncoding('utf8').on('data', (text: string) => {
          body += text;
          // The events never end.
          if (path.includes('/events')) {
            resolve({ status: response.statusCode ?? 0, body });
            asking.destroy();
          }
        });
        response
          .on('end', () => resolve({ status: response.statusCode ?? 0, body }))
          .on('error', reject);
      });
      asking.on('error', reject).end();
    });

  beforeAll(async () => {
    dir = mkdtempSync(join(tmpdir(), 'berth-labels-'));
    engine = createServer((incoming, outgoing) => {
      const { method = '', url = '' } = incoming;
      seen.push(`${method} ${decodeURIComponent(url)}`);
      const [, one] = /containers\/([0-9a-f]{64})\/json/.exec(url) ?? [];
      if (url.includes('/events')) outgoing.write('{"Type":"container"}\n');
      else if (url.includes('/containers/json'))
        outgoing.end(
          JSON.stringify(
            Object.entries(LABELS).map(([Id, Labels]) => ({ Id, Labels, Command: 'x' })),
          ),
        );
      else if (one !== undefined)
        outgoing.end(
          JSON.stringify({
            Id: one,
            Name: '/x',
            Config: { Labels: LABELS[one], Env: ['PASSWORD=hunter2'] },
            State: { Running: true, Health: { Status: 'unhealthy' } },
          }),
        );
      else outgoing.writeHead(200, { 'api-version': '1.41' }).end('OK');
    });
    await new Promise<void>((resolve) => engine.listen(join(dir, 'engine.sock'), resolve));
    view = await startProcess(
      [process.execPath, join(repositoryRoot, 'deploy/compose/labels.mjs')],
      {
        name: 'labels',
        env: { BERTH_ENGINE: join(dir, 'engine.sock'), BERTH_LABELS: join(dir, 'labels.sock') },
      },
    );
    await waitFor('labels.mjs answers', async () => (await ask('GET', '/_ping')).status === 200);
  });
  afterAll(async () => {
    await view?.stop();
    engine.close();
    engine.closeAllConnections();
    rmSync(dir, { recursive: true, force: true });
  });

  test('shows containers of Berth, and none of a project, whatever labels its image has', async () => {
    const { body } = await ask('GET', '/v1.41/containers/json?limit=0&all=1');
    expect((JSON.parse(body) as { Id: string }[]).map(({ Id }) => Id)).toEqual([id('a')]);
    expect(seen.at(-1)).toBe('GET /v1.41/containers/json?filters={"label":["berth.service"]}');
  });

  test('shows no environment, no health (a late check would end the routes), and no other container by its id', async () => {
    const own = await ask('GET', `/v1.41/containers/${id('a')}/json`);
    expect(own.status).toBe(200);
    expect(own.body).toContain('berth.service');
    expect(own.body).not.toMatch(/hunter2|unhealthy/);
    for (const other of ['b', 'c'])
      expect(await ask('GET', `/v1.41/containers/${id(other)}/json`)).toMatchObject({
        status: 404,
      });
  });

  test('shows the events of Berth’s own containers', async () => {
    expect(await ask('GET', '/v1.41/events?filters=%7B%7D')).toEqual({
      status: 200,
      body: '{"Type":"container"}\n',
    });
    expect(seen.at(-1)).toBe(
      'GET /v1.41/events?filters={"type":["container"],"label":["berth.service"]}',
    );
  });

  test('passes nothing else on, in any spelling', async () => {
    const before = seen.length;
    for (const path of [
      ...[
        '/v1.41/images/json',
        '/info',
        '/v1.41/secrets',
        '/containers/a/json',
        `/containers/${id('b')}/logs?stdout=1`,
      ],
      ...[
        `/containers/${id('a')}/archive?path=/`,
        `/containers/${id('a')}/json/../../../images/json`,
        '/v1.41/../info',
        '//containers/json',
        '/',
      ],
      ...['/containers/json/x', '/%63ontainers/json', '/eventsx'],
    ])
      expect([path, (await ask('GET', path)).status]).toEqual([path, 403]);
    for (const method of ['POST', 'PUT', 'DELETE', 'PATCH'])
      for (const path of [
        '/containers/create',
        `/containers/${id('a')}/stop`,
        '/containers/json',
        '/events',
        '/_ping',
      ])
        expect([method, path, (await ask(method, path)).status]).toEqual([method, path, 403]);
    expect(seen.slice(before)).toEqual([]);
  });
});
