/**
 * npm run soak: redeploys a project again and again behind the real Traefik, while a client sends
 * 50 requests per second and opens streams. `--minutes N` also kills Berth's processes with -9 at
 * random: control plane, relay, gateway, builders and nodes. `--redeploys N` redeploys N times and
 * kills nothing. Three more projects run on the same node, and no host may show another one. The
 * history is checked against the invariants (docs/invariants.md). Exits with 0 when no request
 * failed and no invariant was broken. Prints the results and the seed of the kills.
 */
import { request } from 'node:https';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import type { Deployment } from '@berth/wire/deployment';
import type { Project } from '@berth/wire/project';
import { isSettled, isTerminal } from '@berth/wire/vocabulary';
import { memoryHistory } from '@berth/testbed/history';
import type { Service } from '@berth/testbed/platform';
import { startProber } from '@berth/testbed/prober';
import { waitFor } from '@berth/testbed/wait';
import { createQuery } from '../test/faults/lib/database.ts';
import { createRecorder, type Recorder } from '../test/faults/lib/recorder.ts';
import { loadText, startHostLoad } from '../test/faults/lib/host-load.ts';
import { pageApp, startWorld, versionOf, whyNot, type World } from '../test/e2e/world.ts';

const { values } = parseArgs({
  options: { minutes: { type: 'string' }, redeploys: { type: 'string' }, seed: { type: 'string' } },
});
const redeploys = values.redeploys === undefined ? null : Number(values.redeploys);
const minutes = Number(values.minutes ?? 10);
const seed = Number(values.seed ?? Date.now() % 1_000_000);
const STREAMS = 10;
const STREAM_SECONDS = 3;
const LEASE_MS = 6_000;
const NEIGHBOURS = ['north', 'east', 'south'];

/**
 * An application that answers at once and as a stream of 3 s, and ends at once on SIGTERM: only the
 * drain protects its requests.
 */
const app = (version: number): Record<string, string> => ({
  Dockerfile: 'FROM node:24-slim\nCOPY app.mjs /app.mjs\nCMD ["node", "/app.mjs"]\n',
  'app.mjs': `
import { createServer } from 'node:http';
process.on('SIGTERM', () => process.exit(0));
createServer((request, response) => {
  if (request.url !== '/stream') return void response.end('version ${version}\\n');
  let tick = 0;
  const timer = setInterval(() => {
    response.write('data: ' + ++tick + '\\n\\n');
    if (tick === ${STREAM_SECONDS * 5}) { clearInterval(timer); response.end('data: end\\n\\n'); }
  }, 200);
  request.on('close', () => clearInterval(timer));
}).listen(8080);
`,
});

/**
 * Seeded random numbers (mulberry32): the same seed kills in the same order, not at the same
 * moment.
 */
let state = seed >>> 0;
function random(): number {
  state = (state + 0x6d2b79f5) >>> 0;
  let t = Math.imul(state ^ (state >>> 15), state | 1);
  t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
  return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
}

const violations: string[] = [];
const started = performance.now();
const printLine = (text: string): void =>
  console.log(`${((performance.now() - started) / 1000).toFixed(0).padStart(5)} s  ${text}`);
function violated(what: string): void {
  violations.push(what);
  printLine(`VIOLATION ${what}`);
}

type Streams = { stop(): Promise<{ complete: number; broken: string[] }> };
function startStreams({ berth }: World, prefix: string): Streams {
  const host = `${prefix}.${berth.baseDomain}`;
  const broken: string[] = [];
  let complete = 0;
  let stopping = false;
  const one = (): Promise<string> =>
    new Promise((resolve, reject) => {
      const options = {
        host: berth.entry.host,
        port: berth.entry.port,
        path: '/stream',
        headers: { host },
        agent: false as const,
      };
      const sent = request(
        { ...options, servername: host, rejectUnauthorized: false, timeout: 10_000 },
        (response) => {
          let body = '';
          response.setEncoding('utf8');
          response.on('data', (chunk: string) => (body += chunk));
          response.on('error', reject);
          response.on('end', () =>
            resolve(response.statusCode === 200 ? body : `${response.statusCode} ${body}`),
          );
        },
      );
      sent.on('timeout', () => sent.destroy(new Error('silent')));
      sent.on('error', reject);
      sent.end();
    });
  const visitor = async (): Promise<void> => {
    while (!stopping) {
      const ended = await one().catch((error: unknown) => String(error));
      if (ended.endsWith('data: end\n\n')) complete++;
      else {
        broken.push(`${new Date().toISOString()} ${ended.slice(-120)}`);
        await sleep(100);
      }
    }
  };
  const all = Array.from({ length: STREAMS }, visitor);
  return {
    async stop() {
      stopping = true;
      await Promise.all(all);
      return { complete, broken };
    },
  };
}

/**
 * Kills one process of Berth after the other until it is stopped. Each starts again a moment later,
 * as under a supervisor.
 */
function startKiller(victims: readonly Service[]): { stop(): Promise<Map<string, number>> } {
  const killed = new Map<string, number>();
  let stopping = false;
  const all = (async () => {
    while (!stopping) {
      await sleep(2_000 + random() * 6_000);
      const victim = victims[Math.floor(random() * victims.length)];
      if (stopping || victim === undefined) return;
      await victim.crash();
      killed.set(victim.name, (killed.get(victim.name) ?? 0) + 1);
      await sleep(random() * 2_000);
      await victim.start();
    }
  })();
  return {
    async stop() {
      stopping = true;
      await all;
      return killed;
    },
  };
}

/** Repeats a request while the control plane is down. The Idempotency-Key makes this safe. */
async function untilAnswered<T>(what: string, ask: () => Promise<T>): Promise<T> {
  return waitFor(what, async () => ({ answer: await ask() }), {
    deadlineMs: 60_000,
    intervalMs: 100,
  }).then(({ answer }) => answer);
}

type Soak = {
  world: World;
  project: Project;
  recorder: Recorder;
  accepted: Map<string, Deployment>;
};
async function redeploy(
  { world: { berth, git }, project, recorder, accepted }: Soak,
  version: number,
): Promise<Deployment> {
  await git.commit(project.name, app(version), `version ${version}`);
  const key = `soak-${seed}-${version}`;
  const sent = Date.now();
  const asked = await untilAnswered('the deployment is accepted', () =>
    berth.api.call('createDeployment', {
      params: { id: project.id },
      body: { note: `version ${version}` },
      headers: { 'idempotency-key': key },
    }),
  );
  accepted.set(asked.id, asked);
  recorder.record({ type: 'accepted', sent, project: project.id, deployment: asked.id, key });
  return waitFor(
    `version ${version} is settled`,
    async () => {
      const now = await untilAnswered('the deployment can be read', () =>
        berth.api.call('getDeployment', { params: { id: asked.id } }),
      );
      return isSettled(now.status) && now;
    },
    { deadlineMs: 180_000, intervalMs: 50 },
  );
}

/** Checks what must hold when everything is idle again. */
async function checkTheEnd(
  { world: { berth, engine }, project, recorder, accepted }: Soak,
  live: number,
): Promise<void> {
  const all: Deployment[] = [];
  for (const id of accepted.keys()) {
    const found = await berth.api.call('getDeployment', { params: { id } }).catch(() => null);
    if (found === null) violated(`deployment ${id} was acknowledged and is lost`);
    else all.push(found);
  }
  for (const d of all) {
    if (!isSettled(d.status)) violated(`deployment ${d.generation} never ended: ${d.status}`);
    const ends = d.events.filter((e) =>
      ['retired', 'failed', 'cancelled', 'superseded'].includes(e.kind),
    );
    if (ends.length > 1) violated(`deployment ${d.generation} ended ${ends.length} times`);
  }
  const running = all.filter((d) => !isTerminal(d.status));
  if (running.length !== 1) violated(`${running.length} deployments are running`);
  if (versionOf((await berth.get(project.domain_prefix)).body) !== live)
    violated(`version ${live} was the last to go live and is not served`);
  const left = await waitFor(
    'one container is left, under its final name',
    async () => {
      const { stdout } = await engine.docker([
        'ps',
        '-a',
        '--filter',
        `label=berth.project_name=${project.name}`,
        '--format',
        '{{.Names}}',
      ]);
      return stdout.trim() === `svc-${project.domain_prefix}`;
    },
    { deadlineMs: 120_000, intervalMs: 500 },
  ).catch((error: unknown) => String(error));
  if (left !== true) violated(`containers: ${left}`);
  printLine('one container is left; checking the history');
  for (const broken of await recorder.judge()) violated(broken);
}

async function main(): Promise<void> {
  const reason = await whyNot('traefik');
  if (reason !== undefined) throw new Error(`the soak needs real parts: ${reason}`);
  printLine(
    redeploys === null
      ? `${minutes} minutes with kill -9 at random, seed ${seed}`
      : `${redeploys} redeploys`,
  );
  const history = memoryHistory();
  const world = await startWorld({
    proxy: 'traefik',
    relay: true,
    history,
    images: ['busybox:stable', 'node:24-slim'],
    // No client signs in here. The kill of the gateway must disturb no request.
    gateway: { env: () => ({ GITHUB_CLIENT_ID: 'nobody', GITHUB_CLIENT_SECRET: 'nobody' }) },
    env: { LEASE_TTL: `${LEASE_MS / 1000}s`, CLAIM_TIMEOUT: '20s', ROUTE_TIMEOUT: '60s' },
    agents: (engine) => [
      { name: 'builder-1', role: 'builder', engine },
      { name: 'builder-2', role: 'builder', engine },
      { name: 'node-1', role: 'deploy', engine },
    ],
  });
  for (const [signal, code] of [
    ['SIGINT', 130],
    ['SIGTERM', 143],
  ] as const)
    process.once(signal, () => void world.stop().finally(() => process.exit(code)));
  try {
    const { berth, git } = world;
    const { url } = await git.createRepo('soak', app(1));
    const project = await berth.createProject({
      name: 'soak',
      git_url: url,
      domain_prefix: 'soak',
      drain_seconds: STREAM_SECONDS + 2,
      stop_grace_seconds: 1,
    });
    const recorder = createRecorder({
      history,
      api: berth.api,
      configUrl: `${berth.url}/api/traefik/config`,
      project,
      engines: [world.engine],
      query: createQuery(join(world.dir, 'berth.db')),
      leaseMs: LEASE_MS,
    });
    recorder.watch();
    const soak: Soak = { world, project, recorder, accepted: new Map() };
    let version = 1;
    let live = 1;
    const first = await redeploy(soak, version);
    if (first.status !== 'running')
      throw new Error(`the first version is ${first.status}: ${first.error?.message}`);
    const prober = startProber({
      entry: berth.entry,
      host: `soak.${berth.baseDomain}`,
      perSecond: 50,
      versionOf,
    });
    const streams = startStreams(world, 'soak');
    for (const name of NEIGHBOURS) {
      const source = await git.createRepo(name, pageApp(name));
      const neighbour = await berth.createProject({
        name,
        git_url: source.url,
        domain_prefix: name,
      });
      const d = await berth.settled(await berth.deploy(neighbour), 180_000);
      if (d.status !== 'running')
        throw new Error(`project ${name} is ${d.status}: ${d.error?.message}`);
    }
    const pages = new Map([
      ['soak', /^version \d+$/],
      ...NEIGHBOURS.map((name) => [name, new RegExp(`^version ${name}$`)] as const),
    ]);
    const hosts = startHostLoad(
      { pages, get: (prefix) => berth.get(prefix) },
      {
        perSecond: 10,
        wrong: (prefix, by) => recorder.record({ type: 'shown', project: prefix, by }),
      },
    );
    const victims = [
      berth.controlPlane,
      berth.relay,
      berth.gateway,
      ...Object.values(berth.agents),
    ].filter((s) => s !== undefined);
    const killer = redeploys === null ? startKiller(victims) : null;

    const statuses = new Map<string, number>();
    const until = Date.now() + minutes * 60_000;
    while (redeploys === null ? Date.now() < until : version <= redeploys) {
      version++;
      const done = await redeploy(soak, version);
      statuses.set(done.status, (statuses.get(done.status) ?? 0) + 1);
      if (done.status === 'running' || done.status === 'retired') live = version;
      // These versions are correct: when one does not go live without a kill, Berth is at fault.
      else if (redeploys !== null)
        violated(`version ${version} is ${done.status}: ${done.error?.message}`);
      else printLine(`version ${version} is ${done.status}: ${done.error?.message}`);
      if (version % 10 === 0)
        printLine(`${version} versions deployed, version ${prober.latest()} is served`);
    }
    const killed = await killer?.stop();
    printLine('the last redeployment has ended; waiting until everything is idle');
    const { complete, broken } = await streams.stop();
    const compared = await hosts.stop();
    const report = await prober.stop();
    for (const failure of report.failures) violated(`a request failed: ${failure}`);
    for (const stream of broken) violated(`a stream was cut: ${stream}`);
    if (report.stale > 0)
      violated(`${report.stale} answers came from an older version than one seen before`);
    await checkTheEnd(soak, live);
    await recorder.stop();

    printLine(`redeploys: ${[...statuses].map(([status, n]) => `${n} ${status}`).join(', ')}`);
    if (killed !== undefined)
      printLine(
        `kill -9 (seed ${seed}): ${[...killed].map(([name, n]) => `${name} ${n}`).join(', ')}`,
      );
    printLine(
      `requests: ${report.sent}, ${report.failed} failed, ${report.stale} stale; p50 ` +
        `${report.p50.toFixed(1)} ms, p99 ${report.p99.toFixed(1)} ms`,
    );
    printLine(`hosts of ${pages.size} projects: ${loadText(compared)}`);
    printLine(`streams: ${complete} complete, ${broken.length} cut`);
    printLine(`${violations.length} violations`);
  } finally {
    await world.stop();
  }
  process.exitCode = violations.length === 0 ? 0 : 1;
}

await main();
