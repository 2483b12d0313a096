/**
 * The agents of bench/agents.ts, in a separate process. Each holds its request for tasks, registers
 * every `registerMs`, and sends a beat every `beat_seconds` of the answer. All run on loopback, with node:http and keep-alive connections.
 * Lines on stdout:
 *   registered | polling | arrived <epoch ms> <task id> | reported <ms> | error <message>
 *   counts <polls> <registers> <slowest register, ms> <beats>
 */
import { Agent, type IncomingMessage, request } from 'node:http';

export type FleetSettings = {
  port: number;
  secret: string;
  agents: number;
  builders: number;
  registerMs: number;
  hold: { from: number; to: number };
  /** False: no agent sends beats, like those of an earlier version. */
  beats: boolean;
};

type Answer = { status: number; etag: string | undefined; body: string; at: number };
type Sent = { answer: Promise<Answer>; connected: Promise<void> };

/**
 * Number of concurrent connection attempts: ten thousand at once would overflow the listen queue.
 */
const AT_ONCE = 64;
/** Pause after an error, the same as in our agent. */
const RETRY_MS = 1_000;

const settings = JSON.parse(process.argv[2] ?? '{}') as FleetSettings;
const { port, secret, agents, builders, registerMs, hold, beats } = settings;
const NO_ANSWER_MS = (hold.to + 25) * 1000;
const between = (from: number, to: number): number =>
  Math.round(from + Math.random() * (to - from));
const held = new Agent({
  keepAlive: true,
  maxSockets: Number.POSITIVE_INFINITY,
  maxFreeSockets: Number.POSITIVE_INFINITY,
});
// Real agents register on a separate connection. A few connections serve all agents here, which
// leaves open files for held requests.
const others = new Agent({ keepAlive: true, maxSockets: AT_ONCE });
/**
 * A separate pool, so that reports do not wait behind registrations: an agent asks for its next
 * task only after its report.
 */
const reports = new Agent({ keepAlive: true });
const counts = { polls: 0, registers: 0, slowest: 0, beats: 0 };
const ended = new Set<string>();
const printLine = (line: string): void => void process.stdout.write(`${line}\n`);
const note = (error: unknown): void =>
  printLine(`error ${error instanceof Error ? `${error.name}: ${error.message}` : String(error)}`);

function send(
  agent: Agent,
  method: string,
  path: string,
  body: string | null,
  etag?: string,
): Sent {
  const { promise: connected, resolve: isConnected } = Promise.withResolvers<void>();
  const answer = new Promise<Answer>((resolve, reject) => {
    const headers = {
      'x-agent-secret': secret,
      ...(body === null
        ? {}
        : {
            'content-type': 'application/json',
            'content-length': String(Buffer.byteLength(body)),
          }),
      ...(etag === undefined ? {} : { 'if-none-match': etag }),
    };
    const sent = request(
      { host: '127.0.0.1', port, method, path, agent, headers, timeout: NO_ANSWER_MS },
      (response: IncomingMessage) => {
        const at = performance.timeOrigin + performance.now();
        let text = '';
        response.setEncoding('utf8');
        response.on('data', (chunk: string) => (text += chunk));
        response.on('error', reject);
        response.on('end', () =>
          resolve({
            status: response.statusCode ?? 0,
            etag: response.headers.etag,
            body: text,
            at,
          }),
        );
      },
    );
    sent.once('socket', (socket) =>
      socket.connecting ? socket.once('connect', isConnected) : isConnected(),
    );
    sent.on('timeout', () =>
      sent.destroy(new Error(`${method} ${path} timed out after ${NO_ANSWER_MS} ms`)),
    );
    sent.on('error', (error) => {
      isConnected();
      reject(error);
    });
    sent.end(body ?? undefined);
  });
  return { answer, connected };
}

async function register(i: number): Promise<{ id: string; beat_seconds?: number }> {
  const body = JSON.stringify({
    hostname: `agent-${String(i).padStart(5, '0')}`,
    role: i < builders ? 'builder' : 'deploy',
    host_ip: '127.0.0.1',
    max_storage: 1e12,
    // The value changes with each registration, like on a real disk.
    free_storage: 5e11 + Math.round(performance.now()),
    max_builds: 100,
    containers: [],
    agent_version: '0.1.0',
    capabilities: beats && i >= builders ? ['beat'] : [],
    boot_id: `boot-${i}`,
  });
  const began = performance.now();
  const answer = await send(others, 'POST', '/api/agent/register', body).answer;
  if (answer.status !== 200)
    throw new Error(`registration failed: ${answer.status} ${answer.body}`);
  counts.registers++;
  counts.slowest = Math.max(counts.slowest, performance.now() - began);
  return JSON.parse(answer.body) as { id: string; beat_seconds?: number };
}

async function beat(node: string): Promise<void> {
  const answer = await send(others, 'POST', `/api/agent/beat?node_id=${node}`, null).answer;
  if (answer.status !== 204) throw new Error(`beat failed: ${answer.status} ${answer.body}`);
  counts.beats++;
}

/** Polls until the process ends. Calls `begun` when its connection is open. */
async function poll(node: string, begun: () => void): Promise<void> {
  let etag: string | undefined;
  // The first polls are spread over a whole hold, because the agents of a real fleet do not start
  // at the same moment.
  let wait = between(1, hold.to);
  for (;;) {
    try {
      const sent = send(held, 'GET', `/api/agent/tasks?node_id=${node}&wait=${wait}`, null, etag);
      wait = between(hold.from, hold.to);
      void sent.connected.then(begun);
      const answer = await sent.answer;
      counts.polls++;
      if (answer.status !== 200 && answer.status !== 304)
        throw new Error(`poll failed: ${answer.status} ${answer.body}`);
      etag = answer.etag;
      if (answer.status === 200) await work(JSON.parse(answer.body) as { id: string }[], answer.at);
    } catch (error) {
      note(error);
      etag = undefined;
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}

async function work(tasks: readonly { id: string }[], at: number): Promise<void> {
  for (const task of tasks) {
    if (ended.has(task.id)) continue;
    ended.add(task.id);
    printLine(`arrived ${at} ${task.id}`);
    const report = JSON.stringify({ status: 'failed', result: 'a benchmark' });
    const began = performance.now();
    await send(reports, 'POST', `/api/agent/tasks/${task.id}/complete`, report).answer;
    printLine(`reported ${(performance.now() - began).toFixed(1)}`);
  }
}

/** Runs at most `AT_ONCE` at a time, in order. */
async function withLimit<T>(items: readonly T[], one: (item: T) => Promise<void>): Promise<void> {
  for (let first = 0; first < items.length; first += AT_ONCE)
    await Promise.all(items.slice(first, first + AT_ONCE).map(one));
}

const nodes: { i: number; id: string; beat_seconds?: number }[] = [];
await withLimit(
  [...Array(agents).keys()],
  async (i) => void nodes.push({ i, ...(await register(i)) }),
);
printLine('registered');
await withLimit(nodes, ({ id }) => new Promise((begun) => void poll(id, begun)));
printLine('polling');
// Registrations are spread over the period, because the agents of a real fleet do not start at the
// same moment.
for (const { i, id, beat_seconds } of nodes) {
  setTimeout(
    () => setInterval(() => void register(i).catch(note), registerMs),
    (i / agents) * registerMs,
  );
  if (!beats || beat_seconds === undefined) continue;
  const beatMs = beat_seconds * 1000;
  setTimeout(() => setInterval(() => void beat(id).catch(note), beatMs), (i / agents) * beatMs);
}
setInterval(() => {
  const { polls, registers, slowest, beats } = counts;
  printLine(`counts ${polls} ${registers} ${slowest.toFixed(1)} ${beats}`);
  counts.slowest = 0;
}, 1_000);
