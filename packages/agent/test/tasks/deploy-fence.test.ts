/**
 * Which containers one attempt at a deploy task may remove, stop and start while other attempts
 * work on the same engine.
 */
import type { TaskOf } from '@berth/wire/task';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Stopped } from '../../src/stopped.ts';
import { TaskFailure } from '../../src/failures.ts';
import type { Product, TaskContext } from '../../src/tasks/task.ts';
import { deployHandlerOn } from '../deploy-handler.ts';
import { deployTask } from '../fake-control-plane.ts';
import { type FakeEngine, PLAIN_IMAGE, startFakeEngine } from '../fake-engine.ts';

let engine: FakeEngine;
beforeEach(async () => void (engine = await startFakeEngine()));
afterEach(() => engine.stop());

/** Each call makes another agent, without shared memory, on the same engine. */
function agent(
  over: Partial<FakeEngine['docker']> = {},
  leaves: TaskContext['leaves'] = () => undefined,
) {
  const logged: string[] = [];
  const held: string[] = [];
  const handler = deployHandlerOn({
    docker: { ...engine.docker, ...over },
    prepare: null,
    holdProbe(id) {
      held.push(id);
      return () => void held.splice(held.indexOf(id), 1);
    },
  });
  const ending = new AbortController();
  const begin = (task: TaskOf<'deploy'>, attempt: number): Promise<Product> => {
    const context: TaskContext = {
      attempt,
      signal: ending.signal,
      log: () => undefined,
      logStep: (_, text) => void logged.push(text),
      secrets: [],
      secretsDigest: null,
      progress: () => undefined,
      learned: () => undefined,
      room: () => null,
      note: () => undefined,
      leaves,
    };
    return handler(task, context);
  };
  return { begin, logged, held, lose: () => ending.abort(new Stopped('lost')) };
}
const IMAGE = 'r/app@sha256:1';
const asked = (over: Parameters<typeof deployTask>[1] = {}) =>
  deployTask('d2', {
    image: IMAGE,
    image_digest: 'sha256:1',
    container_name: 'svc-app-g2',
    generation: 2,
    probe_seconds: 5,
    ...over,
  });

it.each([
  ['passes', false],
  ['fails', true],
])(
  'the probe of health_path leaves a container alone until its start check %s',
  async (_, fails) => {
    const during: number[] = [];
    const one = agent({
      async waitExit(id, signal) {
        during.push(one.held.length);
        if (!fails) await engine.docker.waitExit(id, signal);
      },
      async restartUnlessStopped(id, signal) {
        during.push(one.held.length);
        await engine.docker.restartUnlessStopped(id, signal);
      },
    });
    const product = one.begin(asked(), 1);
    await (fails ? expect(product).rejects.toThrow() : product);
    expect(during).toEqual(fails ? [1] : [1, 0]);
    expect(one.held).toEqual([]);
  },
);

it('an image that is removed right after its pull is pulled again, and its configuration still counts', async () => {
  const configs = [null, null, { ...PLAIN_IMAGE, cmd: [], entrypoint: [] }];
  let pulls = 0;
  const docker = {
    ...engine.docker,
    imageConfig: async () => configs.shift() ?? null,
    pull: async () => void (pulls += 1),
  };
  await expect(agent(docker).begin(asked({ image_tag: 'r/app:1' }), 1)).rejects.toThrow(
    'the image has no ENTRYPOINT and no CMD',
  );
  expect(pulls).toBe(2);
});

it.each([
  [
    'before its restart policy is set',
    new Error('docker update exited with 1: container not running'),
  ],
  ['while it is set', null],
])(
  'a container that answers once and exits %s fails with its exit code, and does not go live',
  async (_, error) => {
    const restartUnlessStopped = async (id: string): Promise<void> => {
      const found = engine.containers.get(id);
      if (found !== undefined)
        engine.containers.set(id, { ...found, state: 'exited', exitCode: 7 });
      if (error !== null) throw error;
    };
    const failure: unknown = await agent({ restartUnlessStopped })
      .begin(asked(), 1)
      .catch((e: unknown) => e);
    expect(failure).toMatchObject({
      code: 'container_exited',
      detail: expect.stringContaining('exit code 7'),
    });
    expect(engine.all()).toEqual([]);
  },
);

it('a container that cannot be removed after a failure is named, and one that never started is not', async () => {
  const left: string[] = [];
  const gone = () => Promise.reject(new TaskFailure('engine_unavailable', 'no engine'));
  await expect(
    agent({ waitExit: async () => {}, remove: gone }, (c) => void left.push(c)).begin(asked(), 1),
  ).rejects.toThrow();
  expect(left).toEqual(['svc-app-g2']);
  expect(engine.all()).toHaveLength(1);
  const early = agent({ list: gone, imageConfig: gone }, (c) => void left.push(c));
  await expect(early.begin(asked(), 1)).rejects.toThrow('no engine');
  expect(left).toHaveLength(1);
});

describe('two agents with one identity', () => {
  it('after a refused report an agent removes its own container if no other attempt adopted it', async () => {
    const product = await agent().begin(asked(), 1);
    expect(engine.all()).toEqual(['svc-app-g2 running']);
    await product.discard();
    expect(engine.all()).toEqual([]);
  });
  it('an agent does not remove a container that the other one has adopted', async () => {
    const task = asked();
    const first = await agent().begin(task, 1);
    const other = agent();
    const second = await other.begin(task, 2);
    expect(other.logged.join()).toContain('adopted container svc-app-g2');
    expect(second.report.container_id).toBe(first.report.container_id);
    await first.discard();
    expect([...engine.containers.keys()]).toEqual([second.report.container_id]);
    await second.discard();
    expect(engine.all()).toEqual([]);
  });
  it('an agent does not remove a container that was adopted for a new task of the same deployment', async () => {
    const first = await agent().begin(asked(), 1);
    const second = await agent().begin(asked(), 1);
    await first.discard();
    expect([...engine.containers.keys()]).toEqual([second.report.container_id]);
  });
  it('an agent does not remove a container that a later attempt started under the same name', async () => {
    const first = await agent().begin(asked(), 1);
    await engine.docker.stop(first.report.container_id ?? '', 1);
    const second = await agent().begin(asked(), 1);
    expect(second.report.container_id).not.toBe(first.report.container_id);
    await first.discard();
    expect(engine.all()).toEqual(['svc-app-g2 running']);
  });
  it('an agent that loses the task during the probe leaves the container that the other one has adopted', async () => {
    const task = asked();
    let other: Promise<Product> | undefined;
    const slow = agent({
      async restartUnlessStopped() {
        other ??= agent().begin(task, 2);
        await other;
        slow.lose();
        throw new Stopped('lost');
      },
    });
    await expect(slow.begin(task, 1)).rejects.toThrow(/lost/);
    expect([...engine.containers.keys()]).toEqual([(await other)?.report.container_id]);
  });
  it('an earlier attempt does not adopt the container of a later attempt', async () => {
    const task = asked();
    const later = await agent().begin(task, 2);
    const stale = await agent().begin(task, 1);
    expect(stale.report.container_id).not.toBe(later.report.container_id);
    await stale.discard();
    expect([...engine.containers.keys()]).toEqual([later.report.container_id]);
  });
});

describe('the strategy recreate', () => {
  const of = (id: string, deployment: string, generation: number, over = {}) =>
    engine.put({
      id,
      name: id,
      labels: {
        'berth.project': 'prj-1',
        'berth.node': 'node-1',
        'berth.deployment': deployment,
        'berth.generation': String(generation),
      },
      ...over,
    });
  const recreate = asked.bind(null, { replace: 'recreate', replaces: 'd1' });
  const failing = { restartUnlessStopped: () => Promise.reject(new Error('the engine refuses')) };

  it('stops all containers of the project, removes none, and logs that an unknown one stays stopped', async () => {
    of('svc-app', 'forgotten', 9);
    of('svc-app-g1', 'd1', 1);
    const worker = agent();
    await worker.begin(recreate(), 1);
    expect(engine.all()).toEqual(['svc-app exited', 'svc-app-g1 exited', 'svc-app-g2 running']);
    expect(worker.logged.find((line) => line.startsWith('stopping svc-app '))).toMatch(
      /it stays stopped \(docker start svc-app /,
    );
    expect(worker.logged.find((line) => line.startsWith('stopping svc-app-g1 '))).not.toMatch(
      /stays stopped/,
    );
  });
  it('restarts only the container that served if the new one fails', async () => {
    of('svc-app', 'forgotten', 9);
    of('svc-app-g1', 'd1', 1);
    await expect(agent(failing).begin(recreate(), 1)).rejects.toThrow('the engine refuses');
    expect(engine.all()).toEqual(['svc-app exited', 'svc-app-g1 running']);
  });
  it('restarts all instances of the version that served', async () => {
    of('svc-app', 'd1', 1);
    of('svc-app-web-2', 'd1', 1);
    await expect(agent(failing).begin(recreate(), 1)).rejects.toThrow('the engine refuses');
    expect(engine.all()).toEqual(['svc-app running', 'svc-app-web-2 running']);
  });
  it('restarts the container that ran if none served', async () => {
    of('svc-app', 'forgotten', 9);
    await expect(
      agent(failing).begin(asked({ replace: 'recreate', replaces: null }), 1),
    ).rejects.toThrow('the engine refuses');
    expect(engine.all()).toEqual(['svc-app running']);
  });
  it('does not restart a container that a person had stopped', async () => {
    of('svc-app', 'forgotten', 9, { state: 'exited' });
    await expect(
      agent(failing).begin(asked({ replace: 'recreate', replaces: null }), 1),
    ).rejects.toThrow('the engine refuses');
    expect(engine.all()).toEqual(['svc-app exited']);
  });
  it('restarts no container after the task was lost: the other agent has stopped it', async () => {
    of('svc-app-g1', 'd1', 1);
    const slow = agent({
      async restartUnlessStopped() {
        slow.lose();
        throw new Stopped('lost');
      },
    });
    await expect(slow.begin(recreate(), 1)).rejects.toThrow(/lost/);
    expect(engine.all()).toEqual(['svc-app-g1 exited']);
  });
});

describe('an image whose registry has another address now', () => {
  const moved = asked({ image: 'new/app@sha256:1', image_tag: 'r/app:1' });
  const has = (...names: string[]): Partial<FakeEngine['docker']> => ({
    imageConfig: async (name, signal) =>
      [...names, ...pulled].includes(name) ? engine.docker.imageConfig(name, signal) : null,
    pull: async (name) => void pulled.push(name),
    run: async (spec, signal) => {
      ran.push(spec.image);
      return engine.docker.run(spec, signal);
    },
  });
  let pulled: string[] = [];
  let ran: string[] = [];
  beforeEach(() => void ([pulled, ran] = [[], []]));

  it('is not pulled again if the node has it under its earlier name', async () => {
    await agent(has(IMAGE)).begin(moved, 1);
    expect([pulled, ran]).toEqual([[], [IMAGE]]);
  });
  it('is pulled from the present address otherwise', async () => {
    await agent(has()).begin(moved, 1);
    expect([pulled, ran]).toEqual([['new/app@sha256:1'], ['new/app@sha256:1']]);
  });
});

describe('the host port of a container', () => {
  const refusing = (times: number) => {
    const given: number[] = [];
    const run: FakeEngine['docker']['run'] = async (spec, signal) => {
      given.push(spec.port?.hostPort ?? 0);
      const id = await engine.docker.run(spec, signal);
      if (given.length > times) return id;
      engine.put({ id, name: spec.name, labels: spec.labels, state: 'created' });
      throw new TaskFailure(
        'container_start_failed',
        'Bind for 0.0.0.0:20000 failed: port is already allocated',
      );
    };
    return { given, run };
  };

  it('is the next one of its range while other programs have the first ones, and no failed container stays', async () => {
    const { given, run } = refusing(3);
    const { begin, logged } = agent({ run });
    await begin(asked(), 1);
    expect(new Set(given).size).toBe(4);
    expect(engine.all()).toEqual(['svc-app-g2 running']);
    expect(logged.filter((line) => line.includes('another program has port'))).toHaveLength(3);
  });
  it('ends the task with an error of its own if every try is refused', async () => {
    const { given, run } = refusing(1_000);
    await expect(agent({ run }).begin(asked(), 1)).rejects.toMatchObject({
      code: 'ports_exhausted',
      message: expect.stringMatching(
        /refused 50 ports between 20000 and 29999 \(PUBLISH_PORTS\).*already allocated/,
      ),
    });
    expect(given).toHaveLength(50);
    expect(engine.all()).toEqual([]);
  });
});
