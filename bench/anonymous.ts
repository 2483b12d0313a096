/**
 * Requests that anybody can send without an account, each as expensive as a sender can make it.
 * Measures the CPU time that the process spends on one, and the slowest /healthz meanwhile, against
 * a plain request. Security review H1: one such request stopped the control plane for 26 s.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { repositoryRoot } from '@berth/testbed/config';
import { freePort } from '@berth/testbed/ports';
import { type RunningProcess, startProcess, untilReady } from '@berth/testbed/process';
import { cpuSecondsOfTree } from './verify-load.ts';

const ROUNDS = 3;
/**
 * Time of rest after a request before its CPU time is read, because the process may still collect
 * garbage or write.
 */
const REST_MS = 150;
const SECRET = 'a secret for the benchmark that is long enough';

type Attempt = { name: string; path: string; init: () => RequestInit };
type Cost = { status: number; cpuMs: number; healthMs: number };

const json = (body: string): RequestInit => ({
  method: 'POST',
  headers: { 'content-type': 'application/json' },
  body,
});
const form = (body: string): RequestInit => ({
  method: 'POST',
  headers: { 'content-type': 'application/x-www-form-urlencoded' },
  body,
});
const delivery = (headers: Record<string, string>): RequestInit => ({
  method: 'POST',
  headers,
  body: Buffer.alloc(25 * 1_048_576, ' '),
});
const unknownFields = (count: number): string =>
  JSON.stringify(Object.fromEntries(Array.from({ length: count }, (_, i) => [i.toString(36), 1])));
const parameters = (bytes: number): string =>
  Array.from({ length: Math.floor(bytes / 6) }, (_, i) => `a${i.toString(36)}`)
    .join('&')
    .slice(0, bytes);

const CONTROL_PLANE: Attempt[] = [
  {
    name: 'login, 1 MB of unknown fields',
    path: '/api/auth/login',
    init: () => json(unknownFields(116_000)),
  },
  {
    name: 'login, 8 KB of unknown fields',
    path: '/api/auth/login',
    init: () => json(unknownFields(900)),
  },
  {
    name: 'login, wrong password',
    path: '/api/auth/login',
    init: () => json(JSON.stringify({ email: 'admin@example.com', password: 'x'.repeat(1_000) })),
  },
  {
    name: 'unknown path with 1 MB of JSON',
    path: '/nothing',
    init: () => json(unknownFields(116_000)),
  },
  {
    name: 'a role’s route with 1 MB of JSON',
    path: '/api/projects',
    init: () => json(unknownFields(116_000)),
  },
  {
    name: '120 KB of cookies',
    path: '/api/projects',
    init: () => ({ headers: { cookie: 'a=b; '.repeat(24_000) } }),
  },
  {
    name: 'hook: 25 MiB with a signature',
    path: '/api/hooks/nowhere',
    init: () => delivery({ 'x-gitea-signature': 'ab'.repeat(32) }),
  },
  {
    name: 'hook: 25 MiB without a signature',
    path: '/api/hooks/nowhere',
    init: () => delivery({}),
  },
  { name: 'openapi.json', path: '/api/openapi.json', init: () => ({}) },
  { name: 'metrics', path: '/metrics', init: () => ({}) },
  { name: 'readyz', path: '/readyz', init: () => ({}) },
  { name: 'proxy configuration', path: '/api/traefik/config', init: () => ({}) },
];
const GATEWAY: Attempt[] = [
  {
    name: 'gateway: form of 16 KB with many parameters',
    path: '/_oauth/device/token',
    init: () => form(parameters(16_000)),
  },
  { name: 'gateway: device code', path: '/_oauth/device/code', init: () => ({ method: 'POST' }) },
  {
    name: 'gateway: /verify with 120 KB of cookies',
    path: '/verify?project=x',
    init: () => ({ headers: { cookie: 'a=b; '.repeat(24_000) } }),
  },
  {
    name: 'gateway: /verify with 1,000 session cookies',
    path: '/verify?project=x',
    init: () => ({
      headers: {
        cookie: `svc_fwd_session=${'x'.repeat(90)}; `.repeat(1_000),
        'x-forwarded-host': 'x.berth.localhost',
      },
    }),
  },
];

export async function benchAnonymous(): Promise<string[]> {
  const dir = await mkdtemp(join(tmpdir(), 'berth-bench-'));
  const running: RunningProcess[] = [];
  try {
    const controlPlane = await start(dir, 'control-plane', running, {
      DATABASE_URL: `sqlite:${join(dir, 'berth.db')}`,
      AGENT_SECRET: SECRET,
      ADMIN_EMAILS: 'admin@example.com',
      ADMIN_PASSWORD: SECRET,
    });
    const gateway = await start(dir, 'gateway', running, {
      CONTROL_PLANE_URL: controlPlane.url,
      SESSION_SECRET: SECRET,
      STATE_DIR: join(dir, 'state'),
    });
    const rows = [
      ...(await costs(controlPlane, CONTROL_PLANE)),
      ...(await costs(gateway, GATEWAY)),
    ].toSorted((a, b) => worst(b.costs) - worst(a.costs));
    return [
      'anonymous requests: CPU ms of one request (three rounds), the slowest /healthz ' +
        'meanwhile in ms; the most expensive first',
      ...rows.map(
        ({ name, costs: list }) =>
          `  ${name.padEnd(46)} ${list
            .map((c) => c.cpuMs.toFixed(1))
            .join(' ')
            .padEnd(
              26,
            )} healthz ${list.map((c) => c.healthMs.toFixed(0)).join(' ')}  (${list[0]?.status})`,
      ),
    ];
  } finally {
    for (const process of running) await process.stop();
    await rm(dir, { recursive: true, force: true });
  }
}

const worst = (list: readonly Cost[]): number => Math.max(...list.map((c) => c.cpuMs));

type Server = { url: string; process: RunningProcess };

async function start(
  dir: string,
  name: string,
  running: RunningProcess[],
  env: Record<string, string>,
): Promise<Server> {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const server = await startProcess(
    [process.execPath, join(repositoryRoot, 'bin', 'berth'), name],
    {
      name,
      cwd: dir,
      env: {
        LISTEN: `127.0.0.1:${port}`,
        BASE_DOMAIN: 'berth.localhost',
        PUBLIC_URL: 'http://berth.localhost:8000',
        GATEWAY_SECRET: SECRET,
        LOG_LEVEL: 'error',
        ...env,
      },
    },
  );
  running.push(server);
  await untilReady(server, () => answers(`${url}/healthz`), 30_000);
  return { url, process: server };
}

const answers = (url: string): Promise<boolean> =>
  fetch(url).then(
    (r) => r.ok,
    () => false,
  );

async function costs(
  server: Server,
  attempts: readonly Attempt[],
): Promise<{ name: string; costs: Cost[] }[]> {
  const rows: { name: string; costs: Cost[] }[] = [];
  for (const attempt of attempts) {
    const list: Cost[] = [];
    for (let i = 0; i < ROUNDS; i++) list.push(await costOf(server, attempt));
    rows.push({ name: attempt.name, costs: list });
  }
  return rows;
}

async function costOf({ url, process: server }: Server, attempt: Attempt): Promise<Cost> {
  const init = attempt.init();
  // Sent at once, so that it waits behind the request.
  const before = cpuSecondsOfTree(server.pid);
  const sent = fetch(url + attempt.path, { ...init, redirect: 'manual' }).then(
    async (r) => {
      await r.arrayBuffer().catch(() => null);
      return r.status;
    },
    () => 0,
  );
  const from = performance.now();
  await fetch(`${url}/healthz`);
  const healthMs = performance.now() - from;
  const status = await sent;
  return { status, cpuMs: ((await cpuAtRest(server.pid)) - before) * 1_000, healthMs };
}

/** Returns the CPU seconds once two readings REST_MS apart differ by less than 1 ms. */
async function cpuAtRest(pid: number): Promise<number> {
  for (let last = cpuSecondsOfTree(pid); ; ) {
    await new Promise((resolve) => setTimeout(resolve, REST_MS));
    const now = cpuSecondsOfTree(pid);
    if (now - last < 0.001) return last;
    last = now;
  }
}
