/** The `run` task on an engine in memory: the command starts at most once, whatever dies when. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLogger } from '@berth/kit/log';
import { createRefCounts } from '@berth/kit/ref-count';
import type { TaskOf } from '@berth/wire/task';
import { LABELS } from '@berth/wire/vocabulary';
import { afterEach, beforeEach, describe, expect, it, test } from 'vitest';
import type { CommandSpec, Container, Docker } from '../../src/engine/docker.ts';
import { TaskFailure } from '../../src/failures.ts';
import { createLocks } from '../../src/locks.ts';
import { Stopped } from '../../src/stopped.ts';
import { createRunMarks, type RunMarks } from '../../src/tasks/run-marks.ts';
import { createRunHandler, type RunDeps } from '../../src/tasks/run.ts';
import { createSweepRuns, listRuns, type SweepRunsDeps } from '../../src/tasks/sweep-runs.ts';
import type { Product, TaskContext } from '../../src/tasks/task.ts';
import { type FakeEngine, startFakeEngine } from '../fake-engine.ts';

let engine: FakeEngine;
let folder: string;
let marks: RunMarks;
/** Plays the command when it is started. */
let command: (container: Container) => Promise<void>;
let starts: number;
let logged: string[];
let lines: { at: string; stream: string; text: string }[];
/** The log of the engine, as `docker logs --timestamps` prints it. */
let output: { at: string; text: string; stream?: 'stderr' }[];

beforeEach(async () => {
  engine = await startFakeEngine();
  folder = mkdtempSync(join(tmpdir(), 'berth-run-'));
  marks = createRunMarks(join(folder, 'runs'));
  command = exits(0);
  starts = 0;
  logged = [];
  lines = [];
  output = [];
});
afterEach(async () => {
  await engine.stop();
  rmSync(folder, { recursive: true, force: true });
});

const set = (id: string, over: Partial<Container>): void => {
  const container = engine.containers.get(id);
  if (container !== undefined) engine.containers.set(id, { ...container, ...over });
};
const exits =
  (exitCode: number, over: Partial<Container> = {}) =>
  async ({ id }: Container): Promise<void> =>
    set(id, { state: 'exited', exitCode, finishedAt: new Date().toISOString(), ...over });
const runsOn = async (): Promise<void> => undefined;

/** Resolves when the container has ended. */
const untilExited = async (id: string, signal: AbortSignal): Promise<void> => {
  while (engine.containers.get(id)?.state === 'running') {
    signal.throwIfAborted();
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
};

const docker = (over: Partial<Docker> = {}): Docker => ({
  ...engine.docker,
  async start(id) {
    starts += 1;
    set(id, { state: 'running', startedAt: new Date().toISOString() });
    await command(engine.containers.get(id) as Container);
  },
  async stop(id) {
    set(id, { state: 'exited', exitCode: 143, finishedAt: new Date().toISOString() });
  },
  async logs(id, { onChunk, since, signal }) {
    await untilExited(id, signal);
    for (const { at, text, stream = 'stdout' } of output)
      if (since === null || at >= since) onChunk(Buffer.from(`${at} ${text}\n`), stream);
    return null;
  },
  ...over,
});

const deps = (over: Partial<RunDeps> = {}): RunDeps => ({
  docker: docker(),
  images: {
    protect: () => () => undefined,
    removed: async () => undefined,
    cleanLater: () => undefined,
  },
  locks: createLocks(),
  networks: { of: async () => null, protect: () => () => undefined, cleanLater: () => undefined },
  secretFiles: {
    fill: () => Promise.reject(new Error('no file secrets')),
    protect: () => () => undefined,
    cleanLater: () => undefined,
  },
  prepare: null,
  volumes: null,
  marks,
  inputs: {
    expect: () => {
      throw new Error('no input');
    },
  },
  inUse: createRefCounts(),
  onDevicesFree: () => undefined,
  keepRoom: async () => undefined,
  expectPull: async () => ({ bytes: 0, pulled: async () => undefined, release: () => undefined }),
  pullTimeoutMs: 1_000,
  arch: () => 'amd64',
  pidsLimit: 10,
  defaultMemory: undefined,
  logMaxSize: '1m',
  logMaxFiles: 1,
  ...over,
});

const task = (over: Partial<TaskOf<'run'>['payload']> = {}): TaskOf<'run'> => ({
  id: 'task-000001',
  kind: 'run',
  status: 'running',
  node_id: 'node-1',
  deployment_id: null,
  attempt: 1,
  cancel_requested: false,
  created_at: '2026-11-28T01:00:00Z',
  payload: {
    run_id: 'run-1',
    project_id: 'p',
    project: 'shop',
    image: 'r/shop@sha256:1',
    image_tag: 'r/shop:1',
    image_digest: `sha256:${'1'.repeat(64)}`,
    container_name: 'run-shop-run-1',
    command: ['node', 'migrate.js'],
    env: {},
    datasets: [],
    memory_bytes: null,
    cpus: null,
    timeout_seconds: 60,
    stop_grace_seconds: 1,
    ...over,
  },
});

const context = (over: Partial<TaskContext> = {}): TaskContext => ({
  attempt: 1,
  signal: new AbortController().signal,
  secrets: [],
  secretsDigest: null,
  log: (line) => void lines.push(line as (typeof lines)[number]),
  room: () => null,
  logStep: (_, text) => void logged.push(text),
  progress: () => undefined,
  learned: () => undefined,
  note: () => undefined,
  ...over,
});
const attempt = (over: Partial<RunDeps> = {}, ctx: Partial<TaskContext> = {}): Promise<Product> =>
  createRunHandler(deps(over))(task(), context(ctx));
const resultOf = async (product: Promise<Product>): Promise<unknown> =>
  (await product).report.result;
/** Stops the attempt once its command was started. */
const stops = (why: Stopped['why']): AbortController => {
  const controller = new AbortController();
  const look = setInterval(() => {
    if (starts === 0) return;
    clearInterval(look);
    controller.abort(new Stopped(why));
  }, 5);
  return controller;
};

test.each([
  ['its exit code', 3, false],
  ['an end for lack of memory', 137, true],
] as const)(
  'reports %s, and removes the container when the report was accepted',
  async (_, code, oom) => {
    command = exits(code, { oomKilled: oom });
    const product = await attempt();
    expect(product.report).toMatchObject({
      status: 'completed',
      result: { exit_code: code, out_of_memory: oom },
    });
    expect(engine.all(), 'until then a later attempt can read the exit code').toHaveLength(1);
    await product.accepted?.();
    expect(engine.all()).toEqual([]);
    expect(await marks.all()).toEqual([]);
  },
);

it('says that its devices are free when its container is gone', async () => {
  const left: number[] = [];
  const handler = createRunHandler(deps({ onDevicesFree: () => left.push(engine.all().length) }));
  const product = await handler(task({ devices: ['nvidia.com/gpu=0'] }), context());
  expect(left).toEqual([]);
  await product.accepted?.();
  expect(left).toEqual([0]);
});

it('has the labels of a run, and none of a deployment', async () => {
  await attempt();
  const [container] = [...engine.containers.values()];
  expect(container?.labels).toMatchObject({ 'berth.run': 'run-1', 'berth.run_node': 'node-1' });
  expect(container?.labels[LABELS.deployment]).toBeUndefined();
  expect(container?.labels[LABELS.node]).toBeUndefined();
});

it('the container gets its devices, and the label that names them', async () => {
  const created: CommandSpec[] = [];
  const createCommand: Docker['createCommand'] = (spec, signal) => {
    created.push(spec);
    return engine.docker.createCommand(spec, signal);
  };
  const devices = ['nvidia.com/gpu=0', 'nvidia.com/gpu=1'];
  const handler = createRunHandler(deps({ docker: docker({ createCommand }) }));
  await handler(task({ devices }), context());
  await handler(task({ run_id: 'run-2' }), context());
  expect(created.map((spec) => [spec.devices, spec.labels[LABELS.devices]])).toEqual([
    [devices, 'nvidia.com/gpu=0,nvidia.com/gpu=1'],
    [[], undefined],
  ]);
});

test.each([
  ['exec: "nothing": executable file not found in $PATH: unknown', 127, ['nothing']],
  ['exec: "/app/x": permission denied: unknown', 126, ['/app/x']],
  ['exec: "node x.js": executable file not found in $PATH: unknown', 127, ['node x.js']],
] as const)('%s: exit code %i, as in a shell', async (message, code, command) => {
  const start = () => Promise.reject(new TaskFailure('container_start_failed', message));
  const handler = createRunHandler(deps({ docker: docker({ start }) }));
  expect(await resultOf(handler(task({ command: [...command] }), context()))).toEqual({
    exit_code: code,
    out_of_memory: false,
  });
  expect(logged.at(-1)).toContain(`“${command[0]}”`);
  expect(logged.at(-1)?.includes('no shell splits'), 'only words that were not split').toBe(
    command[0].includes(' '),
  );
});

describe('at most once', () => {
  it('a second attempt goes on with the running container', async () => {
    command = runsOn;
    const stop = stops('shutdown');
    await expect(attempt({}, { signal: stop.signal })).rejects.toBeInstanceOf(Stopped);
    expect(engine.all()).toEqual(['run-shop-run-1-000001 running']);
    const [id = ''] = engine.containers.keys();
    setTimeout(() => void exits(5)({ id } as Container), 20);
    expect(await resultOf(attempt({}, { attempt: 2 }))).toMatchObject({ exit_code: 5 });
    expect(starts).toBe(1);
  });

  it('a command that ended in time while its agent was away has its own exit code', async () => {
    command = runsOn;
    const stop = stops('shutdown');
    await expect(attempt({}, { signal: stop.signal })).rejects.toBeInstanceOf(Stopped);
    const [id = ''] = engine.containers.keys();
    const ago = (seconds: number) => new Date(Date.now() - seconds * 1000).toISOString();
    const logs: Docker['logs'] = async (...given) => {
      // The engine answers later than a timer that is due.
      await new Promise((resolve) => setTimeout(resolve, 20));
      return docker().logs(...given);
    };
    const handler = createRunHandler(deps({ docker: docker({ logs }) }));
    set(id, { state: 'exited', exitCode: 4, startedAt: ago(3_600), finishedAt: ago(3_590) });
    const { report } = await handler(task({ timeout_seconds: 30 }), context({ attempt: 2 }));
    expect(report).toMatchObject({ status: 'completed', result: { exit_code: 4 } });
    expect(logged.join('\n')).not.toContain('stopping the command');
  });

  it('an attempt that lost its lease leaves the container', async () => {
    command = runsOn;
    const stop = stops('lost');
    await expect(attempt({}, { signal: stop.signal })).rejects.toBeInstanceOf(Stopped);
    expect(engine.all()).toEqual(['run-shop-run-1-000001 running']);
  });

  it('a second attempt reads the exit code of a container that has ended', async () => {
    await attempt();
    expect(await resultOf(attempt({}, { attempt: 2 }))).toMatchObject({ exit_code: 0 });
    expect(starts).toBe(1);
  });

  it('a container that is gone after its start is lost', async () => {
    await attempt();
    engine.containers.clear();
    await expect(attempt({}, { attempt: 2 })).rejects.toMatchObject({ code: 'run_lost' });
    expect(starts).toBe(1);
  });

  it('a container that was created and never started is started', async () => {
    const start = (): Promise<void> => new Promise(() => undefined);
    void attempt({ docker: docker({ start }) });
    while (!(await marks.has('run-1'))) await new Promise((resolve) => setTimeout(resolve, 5));
    // The agent dies here; its successor has other locks.
    expect(await resultOf(attempt({}, { attempt: 2 }))).toMatchObject({ exit_code: 0 });
    expect(engine.all()).toHaveLength(1);
    expect(starts).toBe(1);
  });

  it('a mark that cannot be read counts as a mark', async () => {
    const broken = { ...marks, has: () => Promise.reject(new Error('EIO')) };
    await expect(attempt({ marks: broken })).rejects.toThrow('EIO');
    expect(starts).toBe(0);
  });

  it('a failure before the start leaves nothing', async () => {
    const createCommand = () =>
      Promise.reject(new TaskFailure('container_start_failed', 'no space'));
    await expect(attempt({ docker: docker({ createCommand }) })).rejects.toThrow('no space');
    expect(engine.all()).toEqual([]);
    expect(await marks.all()).toEqual([]);
  });
});

describe('with standard input', () => {
  const withInput = task({ stdin: true });
  it('starts when the input is there, and says in the log when it is cut off', async () => {
    const steps: string[] = [];
    const inputs: RunDeps['inputs'] = {
      expect: (run) => ({
        async attach(id, { onCut }) {
          steps.push(`${run} ${engine.containers.get(id)?.state}, ${starts} starts`);
          onCut(3);
        },
        close: () => void steps.push('closed'),
      }),
    };
    const handler = createRunHandler(deps({ inputs }));
    expect(await resultOf(handler(withInput, context()))).toMatchObject({ exit_code: 0 });
    expect(steps).toEqual(['run-1 created, 0 starts', 'closed']);
    expect(logged.join('\n')).toContain('the standard input ended after 3 bytes');
  });

  it('never starts without it, and leaves nothing', async () => {
    const inputs: RunDeps['inputs'] = {
      expect: () => ({
        attach: () => Promise.reject(new TaskFailure('run_input_missing', 'nobody')),
        close: () => undefined,
      }),
    };
    await expect(createRunHandler(deps({ inputs }))(withInput, context())).rejects.toMatchObject({
      code: 'run_input_missing',
    });
    expect(starts).toBe(0);
    expect(engine.all()).toEqual([]);
    expect(await marks.all()).toEqual([]);
  });
});

describe('stopped', () => {
  it('by a cancellation: the container is stopped and removed', async () => {
    command = runsOn;
    const stop = stops('cancelled');
    await expect(attempt({}, { signal: stop.signal })).rejects.toMatchObject({ why: 'cancelled' });
    expect(engine.all()).toEqual([]);
  });

  it('by its time limit, also for the attempt that finds it stopped', async () => {
    command = runsOn;
    const limited = task({ timeout_seconds: 0 });
    const handler = createRunHandler(deps());
    for (const n of [1, 2]) {
      const { report } = await handler(limited, context({ attempt: n }));
      expect(report).toMatchObject({
        status: 'failed',
        result: { error: { code: 'command_timeout' } },
      });
    }
    expect(starts).toBe(1);
  });
});

describe('output', () => {
  it('is sent with the times of the engine', async () => {
    output = [{ at: '2026-11-28T01:00:00.000000001Z', text: 'one' }];
    await attempt();
    expect(lines).toEqual([
      { at: '2026-11-28T01:00:00.000000001Z', stream: 'stdout', text: 'one' },
    ]);
  });

  it('goes on after the last line that an earlier attempt sent', async () => {
    output = [1, 2, 3].map((n) => ({ at: `2026-11-28T01:00:00.00000000${n}Z`, text: `line ${n}` }));
    await attempt({}, { loggedUntil: '2026-11-28T01:00:00.000000002Z' });
    expect(lines.map(({ text }) => text)).toEqual(['line 3']);
  });

  it('has each line once, whatever its time', async () => {
    output = [
      { at: '2026-11-28T01:00:00.000000005Z', text: 'one', stream: 'stderr' },
      // Two lines of one time, and a stream whose line was stored later than its time.
      { at: '2026-11-28T01:00:00.000000003Z', text: 'two' },
      { at: '2026-11-28T01:00:00.000000003Z', text: 'three' },
    ];
    await attempt();
    expect(lines.map(({ text }) => text)).toEqual(['one', 'two', 'three']);
  });

  it('has the lines that the engine stored after its stream had ended', async () => {
    const all = [
      { at: '2026-11-28T01:00:00.000000005Z', text: 'one', stream: 'stderr' as const },
      { at: '2026-11-28T01:00:00.000000006Z', text: 'two' },
      { at: '2026-11-28T01:00:00.000000006Z', text: 'stopped' },
    ];
    output = all.slice(0, 2);
    command = runsOn;
    const { logs } = docker();
    await attempt({
      docker: docker({
        async logs(id, options) {
          const problem = await exits(0)({ id } as Container).then(() => logs(id, options));
          output = all;
          return problem;
        },
      }),
    });
    expect(lines.map(({ text }) => text)).toEqual(['one', 'two', 'stopped']);
  });

  it('is not cut where the engine went away', async () => {
    const at = '2026-11-28T01:00:00.000000005Z';
    output = [{ at, text: 'a whole line' }];
    const { logs } = docker();
    let reads = 0;
    await attempt({
      docker: docker({
        async logs(id, options) {
          if (++reads > 1) return logs(id, options);
          options.onChunk(Buffer.from(`${at} a who`), 'stdout');
          return 'the engine went away';
        },
      }),
    });
    expect(lines.map(({ text }) => text)).toEqual(['a whole line']);
  });

  it.each(['cancelled', 'late'] as const)(
    'that a command prints while it stops is sent (%s)',
    async (why) => {
      command = runsOn;
      const stop = why === 'cancelled' ? stops('cancelled') : new AbortController();
      const over = {
        docker: docker({
          async stop(id) {
            output.push({ at: '2026-11-28T01:00:00.000000001Z', text: 'stopped' });
            await exits(143)({ id } as Container);
          },
        }),
      };
      const limit = why === 'late' ? { timeout_seconds: 0 } : {};
      await createRunHandler(deps(over))(task(limit), context({ signal: stop.signal })).catch(
        () => undefined,
      );
      expect(lines.map(({ text }) => text)).toEqual(['stopped']);
    },
  );

  it('of a command that prints too much says how many lines are missing', async () => {
    output = Array.from({ length: 40_000 }, (_, i) => ({
      at: `2026-11-28T01:00:00.${String(i).padStart(9, '0')}Z`,
      text: 'x',
    }));
    await attempt();
    expect(lines.length).toBeLessThan(40_000);
    expect(logged.join('\n')).toMatch(/… \d+ lines are missing here/);
  });

  it('waits for an engine that is away', async () => {
    let isAway = true;
    const inspect: Docker['inspect'] = (ref) => {
      if (!isAway) return engine.docker.inspect(ref);
      isAway = false;
      return Promise.reject(new TaskFailure('engine_unavailable', 'no socket'));
    };
    expect(await resultOf(attempt({ docker: docker({ inspect }) }))).toMatchObject({
      exit_code: 0,
    });
  });
});

const sweepOf = (over: Partial<SweepRunsDeps> = {}) =>
  createSweepRuns({
    docker: engine.docker,
    list: listRuns(engine.docker, { all: () => ['node-1'] }),
    prepare: null,
    secretFiles: deps().secretFiles,
    marks,
    inUse: createRefCounts(),
    onDevicesFree: () => undefined,
    log: silentLogger(),
    ...over,
  });

test('a registration says at once that the devices of a removed command are free', async () => {
  const labels = { 'berth.run': 'old', 'berth.run_node': 'node-1' };
  const states: number[] = [];
  const sweep = sweepOf({ onDevicesFree: () => states.push(engine.containers.size) });
  engine.put({ id: 'old', state: 'exited', labels });
  sweep.listed([]);
  await sweep.stop();
  expect(states).toEqual([]);
  engine.put({ id: 'gpu', state: 'exited', labels: { ...labels, 'berth.devices': 'toy=0' } });
  const again = sweepOf({ onDevicesFree: () => states.push(engine.containers.size) });
  again.listed([]);
  await again.stop();
  expect(states).toEqual([0]);
});
test.each([
  ['its own', { 'berth.run_grace': '45' }, 45],
  ['the default one of an earlier version', {}, 10],
] as const)('a command that no task wants is stopped with %s grace', async (_, label, grace) => {
  const labels = { 'berth.run': 'old', 'berth.run_node': 'node-1', ...label };
  engine.put({ id: 'old', state: 'running', labels });
  const stopped: [string, number][] = [];
  const sweep = sweepOf({
    docker: docker({
      async stop(id, seconds) {
        stopped.push([id, seconds]);
        await exits(143)({ id } as Container);
      },
    }),
  });
  sweep.listed([]);
  await sweep.stop();
  expect(stopped).toEqual([['old', grace]]);
  expect(engine.all()).toEqual([]);
});

test('what no task wants is removed, and what one wants stays', async () => {
  const add = (run: string, node: string) =>
    engine.put({ id: run, labels: { 'berth.run': run, 'berth.run_node': node } });
  add('wanted', 'node-1');
  add('old', 'node-1');
  add('working', 'node-1');
  add('foreign', 'node-9');
  await marks.add('forgotten');
  const inUse = createRefCounts();
  inUse.add('working');
  const sweep = sweepOf({ inUse });
  sweep.listed([task({ run_id: 'wanted' })]);
  await sweep.stop();
  expect([...engine.containers.keys()].sort()).toEqual(['foreign', 'wanted', 'working']);
  expect(await marks.all()).toEqual([]);
});
