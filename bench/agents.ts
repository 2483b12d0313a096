/**
 * Ten thousand agents against one control plane on SQLite. Each agent holds its request for tasks
 * (as long as our agent does, with an ETag), registers every 30 s and sends its beats. Measures how much of a core
 * the control plane uses, and the time from a task's commit until its agent has the task. The
 * control plane and the agents (bench/agent-fleet.ts) are separate processes. Options:
 * `--agents=3000` uses fewer agents. `--no-beats` sends none. `--profile=FILE` writes a CPU profile of the control plane's
 * idle minute. `--floor` measures a bare node:http server under the same requests
 * (bench/bare-server.ts): the difference is Berth's own cost.
 */
import { randomBytes } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { POLL_HOLD } from '@berth/agent/link/poll-loop';
import { messageOf } from '@berth/kit/message-of';
import { freePort } from '@berth/testbed/ports';
import { type RunningProcess, startProcess, statOf, untilReady } from '@berth/testbed/process';
import { GiveUp, waitFor } from '@berth/testbed/wait';
import { createClient } from '@berth/wire/client';
import type { FleetSettings } from './agent-fleet.ts';
import { summary } from './stats.ts';

export type AgentsOptions = {
  agents: number;
  profile: string | null;
  floor: boolean;
  beats: boolean;
};

const BUILDERS = 50;
const REGISTER_MS = 30_000;
const QUIET_MS = 60_000;
const PICKUPS = 200;
const FLOOR_MS = 30_000;
const GOAL_CORE = 0.1;
const GOAL_PICKUP_MS = 5;
/**
 * Open files besides the agents' connections: the connections on which they register, the database,
 * logs.
 */
const SPARE_FILES = 300;

/**
 * Linux counts CPU time in hundredths of a second: `user` in the program, `kernel` in the kernel on
 * its behalf.
 */
const cpuOf = (pid: number): { user: number; kernel: number } => {
  const [user, kernel] = statOf(pid).slice(11, 13);
  return { user: Number(user) / 100, kernel: Number(kernel) / 100 };
};
const cpuSeconds = (pid: number): number => cpuOf(pid).user + cpuOf(pid).kernel;
const memoryMiB = (pid: number): number =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024;
const openFiles = (pid: number): number => readdirSync(`/proc/${pid}/fd`).length;
const openFilesAllowed = (): number =>
  Number(/Max open files\s+(\d+)/.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1]);

export async function benchAgents(options: AgentsOptions): Promise<string[]> {
  const needed = options.agents + SPARE_FILES;
  const allowed = openFilesAllowed();
  if (allowed < needed)
    return [`agents: skipped: ${allowed} open files are allowed, ${needed} are needed (ulimit -n)`];
  const dir = await mkdtemp(join(tmpdir(), 'berth-bench-'));
  const secret = randomBytes(16).toString('hex');
  const password = randomBytes(12).toString('base64url');
  const port = await freePort();
  const committed = new Map<string, number>();
  const delays: number[] = [];
  const lines: string[] = [];
  let server: RunningProcess | undefined;
  let fleet: Fleet | undefined;
  try {
    server = await startProcess(
      [process.execPath, join(import.meta.dirname, 'timed-control-plane.ts')],
      {
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
          ...(options.profile === null ? {} : { BENCH_PROFILE: resolve(options.profile) }),
        },
        onOutput: byLine(([word, at, task]) => {
          if (word === 'committed' && task !== undefined) committed.set(task, Number(at));
          if (word === 'delay') delays.push(Number(at));
        }),
      },
    );
    await untilReady(
      server,
      async () => (await fetch(`http://127.0.0.1:${port}/readyz`)).ok,
      30_000,
    );
    fleet = await startFleet(settingsOf(port, secret, options.agents, options.beats));
    lines.push(await ramp(server, fleet, options.agents, port));
    delays.length = 0;
    lines.push(await quietMinute(server, fleet, options), stalls('quiet', delays));
    lines.push(
      ...(await pickups(server, port, password, fleet, committed)),
      stalls('pick-ups', delays),
    );
    if (options.floor) lines.push(await floor(fleet, server, options.agents));
    if (fleet.errors.length > 0)
      lines.push(`agents: ${fleet.errors.length} ERRORS, the first: ${fleet.errors[0]}`);
    return lines;
  } catch (error) {
    throw new Error([...lines, messageOf(error)].join('\n'), {
      cause: error,
    });
  } finally {
    await fleet?.process.stop(1_000);
    await server?.stop(20_000);
    await rm(dir, { recursive: true, force: true });
  }
}

/**
 * The longest event loop delay of each second: the share of the machine and its disk in every other
 * figure.
 */
function stalls(phase: string, delays: number[]): string {
  const { p50, max } = summary(delays.splice(0));
  return (
    `agents (${phase}: longest event loop delay of the control plane in each second): p50 ` +
    `${p50.toFixed(0)} ms, max ${max.toFixed(0)} ms`
  );
}

/** Splits output into lines and calls `hear` with the words of each. */
function byLine(hear: (words: string[], line: string) => void): (text: string) => void {
  let pending = '';
  return (text) => {
    const lines = (pending + text).split('\n');
    pending = lines.pop() ?? '';
    for (const line of lines) hear(line.split(' '), line);
  };
}

type Fleet = {
  process: RunningProcess;
  milestones: Set<string>;
  arrived: Map<string, number>;
  counts: { polls: number; registers: number; slowest: number; beats: number };
  reports: number[];
  errors: string[];
};

const settingsOf = (
  port: number,
  secret: string,
  agents: number,
  beats: boolean,
): FleetSettings => ({
  port,
  secret,
  agents,
  builders: BUILDERS,
  registerMs: REGISTER_MS,
  hold: POLL_HOLD,
  beats,
});

async function startFleet(settings: FleetSettings): Promise<Fleet> {
  const fleet = {
    milestones: new Set<string>(),
    arrived: new Map<string, number>(),
    counts: { polls: 0, registers: 0, slowest: 0, beats: 0 },
    reports: [] as number[],
    errors: [] as string[],
  };
  const process_ = await startProcess(
    [process.execPath, join(import.meta.dirname, 'agent-fleet.ts'), JSON.stringify(settings)],
    {
      name: 'agents',
      onOutput: byLine(([word = '', first, second, third, fourth], line) => {
        if (word === 'arrived' && second !== undefined) fleet.arrived.set(second, Number(first));
        else if (word === 'counts')
          fleet.counts = {
            polls: Number(first),
            registers: Number(second),
            slowest: Math.max(fleet.counts.slowest, Number(third)),
            beats: Number(fourth),
          };
        else if (word === 'reported') fleet.reports.push(Number(first));
        else if (word === 'registered' || word === 'polling') fleet.milestones.add(word);
        else fleet.errors.push(line);
      }),
    },
  );
  return Object.assign(fleet, { process: process_ });
}

/**
 * Waits until all agents are registered and held, and for one period more: then every agent has
 * registered again.
 */
async function ramp(
  server: RunningProcess,
  fleet: Fleet,
  agents: number,
  port: number,
): Promise<string> {
  const began = performance.now();
  const seconds = (): string => ((performance.now() - began) / 1000).toFixed(1);
  const alive = (): void => {
    for (const { name, exit, tail } of [server, fleet.process])
      if (exit() !== undefined) throw new GiveUp(`${name} ended: ${tail()}`);
  };
  const reached = (word: string): Promise<unknown> =>
    waitFor(`the agents are ${word}`, () => (alive(), fleet.milestones.has(word)), {
      deadlineMs: 120_000,
    });
  await reached('registered');
  const registered = seconds();
  await reached('polling');
  let present = '';
  await waitFor(
    `${agents} requests are held`,
    async () => {
      alive();
      const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
      const held = Number(/berth_http_requests_held\{kind="tasks"\} (\d+)/.exec(text)?.[1]);
      present =
        `${held} held, ${openFiles(server.pid)} open files, ${fleet.errors.length} errors ` +
        `(${fleet.errors[0] ?? 'none'})`;
      if (held >= agents * 0.99) return true;
      throw new Error(present);
    },
    { deadlineMs: 60_000, intervalMs: 500 },
  );
  const line = `agents (ramp): registered after ${registered} s, held after ${seconds()} s: ${present}`;
  await sleep(REGISTER_MS);
  return line;
}

async function quietMinute(
  server: RunningProcess,
  fleet: Fleet,
  { agents, profile }: AgentsOptions,
): Promise<string> {
  if (profile !== null) server.kill('SIGUSR2');
  const [from, cpu, counts, generator] = [
    performance.now(),
    cpuOf(server.pid),
    fleet.counts,
    cpuSeconds(fleet.process.pid),
  ];
  fleet.counts.slowest = 0;
  await sleep(QUIET_MS);
  const seconds = (performance.now() - from) / 1000;
  const after = cpuOf(server.pid);
  const [user, kernel] = [(after.user - cpu.user) / seconds, (after.kernel - cpu.kernel) / seconds];
  const core = user + kernel;
  const load = (cpuSeconds(fleet.process.pid) - generator) / seconds;
  const { polls, registers, slowest, beats } = fleet.counts;
  const rate = (before: number, after: number): string => ((after - before) / seconds).toFixed(0);
  if (profile !== null) {
    server.kill('SIGUSR2');
    await waitFor('the profile is written', () => existsSync(profile));
  }
  return (
    `agents (${agents} held, ${rate(counts.polls, polls)} polls/s, ` +
    `${rate(counts.beats, beats)} beats/s and ${rate(counts.registers, registers)} registers/s, the slowest ${slowest.toFixed(0)} ms): ` +
    `control plane ${(core * 100).toFixed(1)} % of a core (${(kernel * 100).toFixed(1)} % in ` +
    `the kernel) over ${seconds.toFixed(0)} s, ${memoryMiB(server.pid).toFixed(0)} MiB ` +
    `(process of the agents: ${(load * 100).toFixed(0)} %); goal <= ${GOAL_CORE * 100} %: ` +
    (core <= GOAL_CORE ? 'met' : 'MISSED')
  );
}

async function pickups(
  server: RunningProcess,
  port: number,
  password: string,
  fleet: Fleet,
  committed: Map<string, number>,
): Promise<string[]> {
  const url = `http://127.0.0.1:${port}`;
  const { token } = await createClient({ baseUrl: url }).call('login', {
    body: { email: 'admin@berth.localhost', password },
  });
  const api = createClient({ baseUrl: url, headers: () => ({ authorization: `Bearer ${token}` }) });
  const project = await api.call('createProject', {
    body: { name: 'p', git_url: 'https://git.example/x.git', domain_prefix: 'p' },
  });
  const [from, cpu] = [performance.now(), cpuSeconds(server.pid)];
  for (let i = 1; i <= PICKUPS; i++) {
    const { id } = await api.call('createDeployment', { params: { id: project.id }, body: {} });
    // Waits for the end of the deployment: a newer request would supersede it, and its task might
    // never be created.
    await waitFor(
      `task ${i} arrived`,
      async () => {
        if (fleet.arrived.size >= i) return true;
        const { status, events } = await api.call('getDeployment', { params: { id } });
        throw new Error(
          `${committed.size} committed, ${fleet.arrived.size} arrived, ${fleet.reports.length} ` +
            `reported, slowest register ${fleet.counts.slowest} ms; deployment ${status}: ` +
            events.at(-1)?.message,
        );
      },
      { deadlineMs: 30_000, intervalMs: 20 },
    );
  }
  const seconds = (performance.now() - from) / 1000;
  const took = [...fleet.arrived].map(([task, at]) => at - (committed.get(task) ?? Number.NaN));
  const s = summary(took);
  return [
    `agents (${PICKUPS} tasks, from commit until the agent has the task): p50 ` +
      `${s.p50.toFixed(2)} ms, p99 ${s.p99.toFixed(2)} ms, max ${s.max.toFixed(2)} ms; reports ` +
      `answered after p50 ${summary(fleet.reports).p50.toFixed(0)} ms, max ` +
      `${summary(fleet.reports).max.toFixed(0)} ms; goal p50 <= ${GOAL_PICKUP_MS} ms: ` +
      (s.p50 <= GOAL_PICKUP_MS ? 'met' : 'MISSED'),
    `agents (deployments requested one after the other): ${(PICKUPS / seconds).toFixed(1)} ` +
      'deployments/s, control plane ' +
      `${(((cpuSeconds(server.pid) - cpu) / seconds) * 100).toFixed(0)} % of a core`,
  ];
}

/** Runs the same fleet against the bare server, on the machine as busy as it is now. */
async function floor(before: Fleet, control: RunningProcess, agents: number): Promise<string> {
  await before.process.stop(1_000);
  await control.stop(20_000);
  const port = await freePort();
  const server = await startProcess(
    [process.execPath, join(import.meta.dirname, 'bare-server.ts'), String(port)],
    { name: 'bare server' },
  );
  await untilReady(
    server,
    async () => (await fetch(`http://127.0.0.1:${port}/api/agent/tasks?wait=0`)).ok,
    30_000,
  );
  const fleet = await startFleet(settingsOf(port, '', agents, true));
  try {
    await waitFor('the agents poll', () => fleet.milestones.has('polling'), {
      deadlineMs: 120_000,
    });
    await sleep(REGISTER_MS);
    const [from, cpu, counts] = [performance.now(), cpuSeconds(server.pid), fleet.counts];
    await sleep(FLOOR_MS);
    const seconds = (performance.now() - from) / 1000;
    const core = (cpuSeconds(server.pid) - cpu) / seconds;
    const requests =
      (fleet.counts.polls + fleet.counts.registers - counts.polls - counts.registers) / seconds;
    return (
      `agents (the same ${requests.toFixed(0)} requests/s to a bare node:http server): ` +
      `${(core * 100).toFixed(1)} % of a core, ${memoryMiB(server.pid).toFixed(0)} MiB`
    );
  } finally {
    await fleet.process.stop(1_000);
    await server.stop(1_000);
  }
}
