/**
 * /verify of the real gateway process against a floor, node:http with the same answer, both at the
 * same time: 10,000 projects, 1,000 sessions, requests like Traefik's. Counts requests per second
 * of the server's own CPU time ("on one core"), because other load changes wall-clock figures a lot
 * and these hardly. Then two workers against one, by wall clock. There the load generator gets only
 * what two workers leave of two cores, so it sends several requests at once.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { repositoryRoot } from '@berth/testbed/config';
import { freePort } from '@berth/testbed/ports';
import { type RunningProcess, startProcess, untilReady } from '@berth/testbed/process';
import { FIRST_CLAIM } from '@berth/wire/gateway';
import { deriveKeys } from '../packages/gateway/src/keys.ts';
import { createSessions } from '../packages/gateway/src/session.ts';
import { summary } from './stats.ts';
import { cpuSecondsOfTree, type LoadResult, runLoad } from './verify-load.ts';

const PROJECTS = 10_000;
const SESSIONS = 1_000;
/** Enough connections for the server to have work at all times. */
const CONNECTIONS = 64;
const PIPELINED = 8;
const PROCESSES = 5;
const ROUNDS = 15;
const SECONDS = 2;
const WARM_REQUESTS = 100_000;
const MOST_WARM_ROUNDS = 30;
const GOAL_RATIO = 0.85;
const GOAL_WORKERS = 1.4;
const SECRET = 'a secret for the benchmark that is long enough';
const BASE = 'berth.localhost';
const READY = 'GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n';

export async function benchVerify(): Promise<string[]> {
  const dir = await mkdtemp(join(tmpdir(), 'berth-bench-'));
  const controlPlane = await policyServer();
  const ends: (() => Promise<unknown>)[] = [];
  try {
    const requestsFile = join(dir, 'requests');
    const requests = requestsOf();
    await writeFile(requestsFile, requests.join('\0'), 'latin1');

    const measure = (server: Started, pipelined = 1): Promise<LoadResult> =>
      runLoad({
        dir,
        requestsFile,
        port: server.port,
        connections: CONNECTIONS,
        seconds: SECONDS,
        pipelined,
        cpuSeconds: () => cpuSecondsOfTree(server.process.pid),
      });
    const rounds: { floor: LoadResult; gateway: LoadResult }[] = [];
    // Several processes of each kind: the compiler's luck in one process holds for all of its
    // rounds.
    for (let i = 0; i < PROCESSES; i++) {
      const gateway = await startGateway(join(dir, `gateway-${i}`), controlPlane, 1);
      const pair = [gateway.process];
      try {
        const answer = await rawAnswer(gateway.port, requests[0] ?? '');
        if (!answer.startsWith('HTTP/1.1 200 '))
          throw new Error(`/verify answered ${answer.slice(0, 200)}`);
        const floor = await startFloor(dir, answer);
        pair.push(floor.process);
        for (const server of [gateway, floor]) await warmUp(() => measure(server), 1);
        for (let round = 0; round < ROUNDS / PROCESSES; round++) {
          // At the same moment, so that other load on the machine affects both.
          const [of, to] = await Promise.all([measure(floor), measure(gateway)]);
          rounds.push({ floor: of, gateway: to });
        }
      } finally {
        for (const process of pair) await process.stop();
      }
    }

    const one = await startGateway(join(dir, 'one'), controlPlane, 1);
    ends.push(() => one.process.stop());
    await warmUp(() => measure(one), 1);
    const two = await startGateway(join(dir, 'two'), controlPlane, 2);
    ends.push(() => two.process.stop());
    await warmUp(() => measure(two), 2);
    const pairs: { one: LoadResult; two: LoadResult }[] = [];
    for (let i = 0; i < ROUNDS; i++)
      pairs.push({ one: await measure(one, PIPELINED), two: await measure(two, PIPELINED) });

    return [...oneCore(rounds), ...workers(pairs)];
  } finally {
    for (const end of ends.toReversed()) await end();
    controlPlane.server.close();
    controlPlane.server.closeAllConnections();
    await rm(dir, { recursive: true, force: true });
  }
}

/**
 * Warms up until the compiler has optimized every process: half-compiled code costs twice as much.
 */
async function warmUp(measure: () => Promise<LoadResult>, processes: number): Promise<void> {
  for (let i = 0, requests = 0; i < MOST_WARM_ROUNDS && requests < WARM_REQUESTS * processes; i++)
    requests += (await measure()).perSecond * SECONDS;
}

function oneCore(rounds: readonly { floor: LoadResult; gateway: LoadResult }[]): string[] {
  const ratio = summary(rounds.map((r) => r.gateway.perCpuSecond / r.floor.perCpuSecond)).p50;
  const [floor, gateway] = [
    summary(rounds.map((r) => r.floor.perCpuSecond)).p50,
    summary(rounds.map((r) => r.gateway.perCpuSecond)).p50,
  ];
  const wall = summary(rounds.map((r) => r.gateway.perSecond / r.floor.perSecond)).p50;
  const [p99, floorP99] = [
    summary(rounds.map((r) => r.gateway.p99Ms)).p50,
    summary(rounds.map((r) => r.floor.p99Ms)).p50,
  ];
  return [
    `verify (${PROJECTS} projects, ${SESSIONS} sessions, ${CONNECTIONS} connections, ${ROUNDS} ` +
      `rounds with ${PROCESSES} processes of each, load by ${rounds[0]?.gateway.by}): ` +
      `${round(gateway)}/s on one core, floor ${round(floor)}/s: ratio ${ratio.toFixed(2)} (by ` +
      `the wall clock ${wall.toFixed(2)}); goal >= ${GOAL_RATIO}: ` +
      (ratio >= GOAL_RATIO ? 'met' : 'MISSED'),
    `verify p99: ${p99.toFixed(1)} ms, floor ${floorP99.toFixed(1)} ms`,
  ];
}

function workers(pairs: readonly { one: LoadResult; two: LoadResult }[]): string[] {
  const ratio = summary(pairs.map((p) => p.two.perSecond / p.one.perSecond)).p50;
  const cost = summary(pairs.map((p) => p.two.perCpuSecond / p.one.perCpuSecond)).p50;
  const [one, two] = [
    summary(pairs.map((p) => p.one.perSecond)).p50,
    summary(pairs.map((p) => p.two.perSecond)).p50,
  ];
  const judged = (r: number): string => `${r.toFixed(2)} (${r >= GOAL_WORKERS ? 'met' : 'MISSED'})`;
  return [
    `verify, two workers / one, goal >= ${GOAL_WORKERS}: by the wall clock ${round(two)}/s / ` +
      `${round(one)}/s = ${judged(ratio)}, with the load generator on the same two cores ` +
      `(${PIPELINED} requests at once on a connection); by requests per second of each worker's ` +
      `own CPU time, with a core each: 2 x ${cost.toFixed(2)} = ${judged(2 * cost)}`,
  ];
}
const round = (n: number): string => String(Math.round(n));

type Started = { process: RunningProcess; port: number };
type PolicyServer = { server: Server; url: string };

/** Serves the one request that an idle gateway makes of a control plane. */
async function policyServer(): Promise<PolicyServer> {
  const projects = Array.from({ length: PROJECTS }, (_, i) => ({
    id: `id${i}`,
    name: `p${i}`,
    hosts: [`p${i}.${BASE}`],
    host_claims: [{ host: `p${i}.${BASE}`, claim: FIRST_CLAIM }],
  }));
  const body = JSON.stringify({
    projects,
    disabled_users: ['x@example.com'],
    revoked_sessions: [],
    device_tokens: [],
  });
  const server = createServer((request, response) => {
    if (request.headers['if-none-match'] === '"1"')
      setTimeout(() => response.writeHead(304, { etag: '"1"' }).end(), 20_000).unref();
    else response.writeHead(200, { 'content-type': 'application/json', etag: '"1"' }).end(body);
  });
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
  return { server, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
}

async function startGateway(
  dir: string,
  controlPlane: PolicyServer,
  count: number,
): Promise<Started> {
  const port = await freePort();
  const server = await startProcess(
    [process.execPath, join(repositoryRoot, 'bin', 'berth'), 'gateway'],
    {
      name: 'gateway',
      env: {
        LISTEN: `127.0.0.1:${port}`,
        CONTROL_PLANE_URL: controlPlane.url,
        GATEWAY_SECRET: 'x',
        BASE_DOMAIN: BASE,
        SESSION_SECRET: SECRET,
        GATEWAY_WORKERS: String(count),
        STATE_DIR: join(dir, 'state'),
        LOG_FORMAT: 'json',
      },
    },
  );
  // Each connection goes to the next worker, and each worker requests the policy itself.
  const isReady = async (): Promise<boolean> =>
    (await rawAnswer(port, READY)).startsWith('HTTP/1.1 200');
  await untilReady(
    server,
    async () => (await Promise.all(Array.from({ length: count * 2 }, isReady))).every(Boolean),
    30_000,
  );
  return { process: server, port };
}

/** Starts the floor in a separate process: node:http and nothing else. */
async function startFloor(dir: string, answer: string): Promise<Started> {
  const port = await freePort();
  const [, ...lines] = (answer.split('\r\n\r\n', 1)[0] ?? '').split('\r\n');
  const headers = lines
    .map((line) => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 2)] as const)
    .filter(([name]) => !['date', 'connection', 'keep-alive'].includes(name.toLowerCase()))
    .flat();
  const file = join(dir, 'floor.mjs');
  await writeFile(
    file,
    `import { createServer } from 'node:http';
const headers = ${JSON.stringify(headers)};
createServer({ keepAliveTimeout: 95_000 }, (request, response) => {
  response.writeHead(200, headers);
  response.end();
}).listen(${port}, '127.0.0.1');
`,
  );
  const server = await startProcess([process.execPath, file], { name: 'floor' });
  await untilReady(
    server,
    () =>
      rawAnswer(port, 'GET / HTTP/1.1\r\nHost: x\r\n\r\n').then((text) =>
        text.startsWith('HTTP/1.1 200'),
      ),
    10_000,
  );
  return { process: server, port };
}

/** Requests like those of Traefik 3 for Chromium: the browser's headers and X-Forwarded-…. */
function requestsOf(): string[] {
  const sessions = createSessions(deriveKeys([SECRET]), Date.now);
  const expires_at = Date.now() + 86_400_000;
  return Array.from({ length: SESSIONS }, (_, i) => {
    const project = (i * 7) % PROJECTS;
    const identity = {
      email: `person${i}@example.com`,
      name: `Person Number ${i}`,
      avatar_url: `https://pics.example/${i}.png`,
      provider: 'oidc',
    };
    const cookie = sessions.seal(
      { id: `session-${i}`, identity, begun_at: Date.now(), expires_at },
      `project:id${project}`,
    );
    return [
      `GET /verify?project=id${project} HTTP/1.1`,
      'Host: 127.0.0.1:4180',
      'User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) ' +
        'Chrome/140.0.0.0 Safari/537.36',
      'Accept: ' +
        'text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8',
      'Accept-Encoding: gzip, deflate, br, zstd',
      'Accept-Language: en-US,en;q=0.9',
      `Cookie: theme=dark; svc_fwd_session=${cookie}`,
      'Sec-Fetch-Dest: document',
      'Sec-Fetch-Mode: navigate',
      'Sec-Fetch-Site: none',
      'X-Forwarded-For: 127.0.0.1',
      `X-Forwarded-Host: p${project}.${BASE}`,
      'X-Forwarded-Method: GET',
      'X-Forwarded-Port: 443',
      'X-Forwarded-Proto: https',
      'X-Forwarded-Server: traefik',
      `X-Forwarded-Uri: /items/${i}?page=2`,
      'X-Real-Ip: 127.0.0.1',
      '',
      '',
    ].join('\r\n');
  });
}

function rawAnswer(port: number, request: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1', () => socket.write(request, 'latin1'));
    let text = '';
    socket.setEncoding('latin1');
    socket.on('data', (chunk: string) => {
      text += chunk;
      if (text.includes('\r\n\r\n')) socket.end();
    });
    socket.on('close', () => resolve(text));
    socket.on('error', reject);
  });
}
