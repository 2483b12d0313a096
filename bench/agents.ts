/**
 * Ten thousand agents against one control plane on SQLite: each holds its request for tasks (25 s, ETag) and registers every
 * 30 s. Asked: how much of a core the control plane needs, and how long after the commit of a task its agent has it.
 * The agents are sockets of this process (node:http, kept alive), all on loopback; the control plane is its own process.
 */
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { Agent, type IncomingMessage, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from '@berth/testbed/ports';
import { type RunningProcess, startProcess, untilReady } from '@berth/testbed/process';
import { waitFor } from '@berth/testbed/wait';
import { createClient } from '@berth/wire/client';
import { summary } from './stats.ts';

const AGENTS = 10_000;
const BUILDERS = 50;
const REGISTER_MS = 30_000;
const WAIT_SECONDS = 25;
const QUIET_MS = 60_000;
const PICKUPS = 200;
const GOAL_CORE = 0.1;
const GOAL_PICKUP_MS = 5;

type Answer = { status: number; etag: string | undefined; body: string; at: number };

/** Linux counts in hundredths of a second. */
const cpuSeconds = (pid: number): number => {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return (Number(fields[11]) + Number(fields[12])) / 100;
};
const memoryMiB = (pid: number): number => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024;
const openFilesAllowed = (): number => Number(/Max open files\s+(\d+)/.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1]);

export async function benchAgents(): Promise<string[]> {
  const allowed = openFilesAllowed();
  if (allowed < AGENTS + 500) return [`agents: skipped: ${allowed} open files are allowed, ${AGENTS + 500} are needed (ulimit -n)`];
  const dir = await mkdtemp(join(tmpdir(), 'berth-bench-'));
  const secret = randomBytes(16).toString('hex');
  const password = randomBytes(12).toString('base64url');
  const port = await freePort();
  const committed = new Map<string, number>();
  const ending = new AbortController();
  let server: RunningProcess | undefined;
  let pending = '';
  try {
    server = await startProcess([process.execPath, join(import.meta.dirname, 'timed-control-plane.ts')], {
      name: 'control-plane',
      logFile: join(dir, 'control-plane.log'),
      env: {
        LISTEN: `127.0.0.1:${port}`,
        DATABASE_URL: `sqlite:${join(dir, 'berth.db')}`,
        BASE_DOMAIN: 'berth.localhost',
        AGENT_SECRET: secret,
        ADMIN_EMAILS: 'admin@berth.localhost',
        ADMIN_PASSWORD: password,
        REGISTRY_ADDR: '127.0.0.1:1',
        LOG_FORMAT: 'json',
      },
      onOutput(text) {
        const lines = (pending + text).split('\n');
        pending = lines.pop() ?? '';
        for (const line of lines) {
          const [word, at, task] = line.split(' ');
          if (word === 'committed' && task !== undefined) committed.set(task, Number(at));
        }
      },
    });
    await untilReady(server, async () => (await fetch(`http://127.0.0.1:${port}/readyz`)).ok, 30_000);
    const fleet = await startFleet(port, secret, ending.signal);
    const lines = [await quietMinute(server.pid, fleet), ...(await pickups(server.pid, port, password, fleet, committed))];
    if (fleet.errors.length > 0) lines.push(`agents: ${fleet.errors.length} ERRORS, the first: ${fleet.errors[0]}`);
    return lines;
  } finally {
    ending.abort();
    await server?.stop(20_000);
    await rm(dir, { recursive: true, force: true });
  }
}

type Fleet = { arrived: Map<string, number>; answered: () => number; errors: string[] };

/** Registers all, then holds one request for each; returns when all of them are held. */
async function startFleet(port: number, secret: string, signal: AbortSignal): Promise<Fleet> {
  const held = new Agent({ keepAlive: true, maxSockets: Number.POSITIVE_INFINITY });
  // Real agents register on a connection of their own; a few stand for all, which leaves open files for the held ones.
  const others = new Agent({ keepAlive: true, maxSockets: 64 });
  const arrived = new Map<string, number>();
  const errors: string[] = [];
  let answered = 0;
  const call = (agent: Agent, method: string, path: string, body: string | null, headers: Record<string, string> = {}): Promise<Answer> =>
    new Promise((resolve, reject) => {
      const all = {
        'x-agent-secret': secret,
        ...(body === null ? {} : { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(body)) }),
        ...headers,
      };
      const sent = request({ host: '127.0.0.1', port, method, path, agent, headers: all, signal }, (response: IncomingMessage) => {
        const at = performance.timeOrigin + performance.now();
        let text = '';
        response.setEncoding('utf8');
        response.on('data', (chunk: string) => (text += chunk));
        response.on('error', reject);
        response.on('end', () => resolve({ status: response.statusCode ?? 0, etag: response.headers.etag, body: text, at }));
      });
      sent.on('error', reject);
      sent.end(body ?? undefined);
    });

  const note = (error: unknown): void => void (signal.aborted || errors.push(error instanceof Error ? error.message : String(error)));
  const bodyOf = (i: number): string =>
    JSON.stringify({
      hostname: `agent-${String(i).padStart(5, '0')}`,
      role: i < BUILDERS ? 'builder' : 'deploy',
      host_ip: '127.0.0.1',
      max_storage: 1e12,
      // It changes with each look, as on a real disk.
      free_storage: 5e11 + Math.round(performance.now()),
      max_builds: 100,
      containers: [],
      agent_version: '0.1.0',
      boot_id: `boot-${i}`,
    });
  const register = (i: number): Promise<Answer> => call(others, 'POST', '/api/agent/register', bodyOf(i));
  const ended = new Set<string>();

  async function poll(node: string): Promise<void> {
    let etag: string | undefined;
    while (!signal.aborted) {
      const path = `/api/agent/tasks?node_id=${node}&wait=${WAIT_SECONDS}`;
      const answer = await call(held, 'GET', path, null, etag === undefined ? {} : { 'if-none-match': etag });
      answered++;
      if (answer.status !== 200 && answer.status !== 304) throw new Error(`a poll was answered with ${answer.status} ${answer.body}`);
      etag = answer.etag;
      if (answer.status === 304) continue;
      for (const task of JSON.parse(answer.body) as { id: string }[]) {
        if (!arrived.has(task.id)) arrived.set(task.id, answer.at);
        if (ended.has(task.id)) continue;
        ended.add(task.id);
        await call(others, 'POST', `/api/agent/tasks/${task.id}/complete`, JSON.stringify({ status: 'failed', result: 'a benchmark' }));
      }
    }
  }

  const ids: string[] = [];
  for (let first = 0; first < AGENTS; first += 64) {
    const some = Array.from({ length: Math.min(64, AGENTS - first) }, (_, k) => register(first + k));
    for (const answer of await Promise.all(some)) ids.push((JSON.parse(answer.body) as { id: string }).id);
  }
  for (const [i, id] of ids.entries()) {
    void poll(id).catch(note);
    // Spread over the period, as a fleet that was not started by one hand is.
    setTimeout(
      () => {
        const again = setInterval(() => void register(i).then((a) => a.status === 200 || note(`register: ${a.status}`), note), REGISTER_MS);
        signal.addEventListener('abort', () => clearInterval(again));
      },
      (i / AGENTS) * REGISTER_MS,
    ).unref();
    // The listening queue is no place for ten thousand connections at once.
    if (i % 200 === 199) await sleep(500 / (AGENTS / 200) + 20);
  }
  const metrics = async (): Promise<number> => {
    const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
    return Number(/berth_http_requests_held\{kind="tasks"\} (\d+)/.exec(text)?.[1]);
  };
  await waitFor(`${AGENTS} requests are held`, async () => errors.length > 0 || (await metrics()) >= AGENTS * 0.99, {
    deadlineMs: 180_000,
  });
  // One whole period: every agent has registered again, and the polls have spread.
  await sleep(REGISTER_MS);
  return { arrived, answered: () => answered, errors };
}

async function quietMinute(pid: number, fleet: Fleet): Promise<string> {
  const [from, cpu, polls] = [performance.now(), cpuSeconds(pid), fleet.answered()];
  await sleep(QUIET_MS);
  const seconds = (performance.now() - from) / 1000;
  const core = (cpuSeconds(pid) - cpu) / seconds;
  const rate = (fleet.answered() - polls) / seconds;
  return `agents (${AGENTS} held, ${Math.round(rate)} polls/s and ${Math.round(AGENTS / (REGISTER_MS / 1000))} registrations/s): control plane ${(core * 100).toFixed(1)} % of a core over ${seconds.toFixed(0)} s, ${memoryMiB(pid).toFixed(0)} MiB; goal <= ${GOAL_CORE * 100} %: ${core <= GOAL_CORE ? 'met' : 'MISSED'}`;
}

async function pickups(pid: number, port: number, password: string, fleet: Fleet, committed: Map<string, number>): Promise<string[]> {
  const url = `http://127.0.0.1:${port}`;
  const { token } = await createClient({ baseUrl: url }).call('login', { body: { email: 'admin@berth.localhost', password } });
  const api = createClient({ baseUrl: url, headers: () => ({ authorization: `Bearer ${token}` }) });
  const project = await api.call('createProject', { body: { name: 'p', git_url: 'https://git.example/x.git', domain_prefix: 'p' } });
  const [from, cpu] = [performance.now(), cpuSeconds(pid)];
  for (let i = 1; i <= PICKUPS; i++) {
    await api.call('createDeployment', { params: { id: project.id }, body: {} });
    await waitFor(`task ${i} arrived`, () => fleet.arrived.size >= i, { deadlineMs: 60_000, intervalMs: 1 });
  }
  const seconds = (performance.now() - from) / 1000;
  const took = [...fleet.arrived].map(([task, at]) => at - (committed.get(task) ?? Number.NaN));
  const s = summary(took);
  return [
    `agents (${PICKUPS} tasks, commit -> its agent has it): p50 ${s.p50.toFixed(2)} ms, p99 ${s.p99.toFixed(2)} ms, max ${s.max.toFixed(2)} ms; goal p50 <= ${GOAL_PICKUP_MS} ms: ${s.p50 <= GOAL_PICKUP_MS ? 'met' : 'MISSED'}`,
    `agents (while one deployment after the other is requested): ${(PICKUPS / seconds).toFixed(1)} deployments/s, control plane ${(((cpuSeconds(pid) - cpu) / seconds) * 100).toFixed(0)} % of a core`,
  ];
}
