/**
 * Retire tasks: overlapping drains, lost tasks, failures of the dataset cache, and stop and start.
 */
import type { TaskOf } from '@berth/wire/task';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { waitFor } from '@berth/testbed/wait';
import type { Images } from '../../src/disk/old-images.ts';
import { createLocks } from '../../src/locks.ts';
import { Stopped } from '../../src/stopped.ts';
import { createRetireHandler } from '../../src/tasks/retire.ts';
import type { TaskContext } from '../../src/tasks/task.ts';
import { retireTask } from '../fake-control-plane.ts';
import { type FakeEngine, startFakeEngine } from '../fake-engine.ts';

let engine: FakeEngine;
beforeEach(async () => void (engine = await startFakeEngine()));
afterEach(() => engine.stop());

const labels = (deployment: string) => ({ 'berth.project': 'p1', 'berth.deployment': deployment });
const context: TaskContext = {
  attempt: 1,
  signal: new AbortController().signal,
  log: () => undefined,
  logStep: () => undefined,
  secrets: [],
  secretsDigest: null,
  progress: () => undefined,
  learned: () => undefined,
  room: () => null,
  note: () => undefined,
};

const handler = (
  docker: FakeEngine['docker'],
  data: Parameters<typeof createRetireHandler>[0]['data'] = null,
) =>
  createRetireHandler({
    docker,
    listContainers: (wanted) => docker.list(wanted),
    images: { cleanLater: () => undefined } as unknown as Images,
    locks: createLocks(),
    networks: { cleanLater: () => undefined },
    secretFiles: { cleanLater: () => undefined },
    data,
    repositoryOf: () => null,
  });
const task = (remove: string, keep: string, drain_seconds: number): TaskOf<'retire'> =>
  retireTask({
    project_id: 'p1',
    remove: [{ deployment_id: remove, reason: '' }],
    keep: { deployment_id: keep, name: 'svc-app' },
    drain_seconds,
    stop_grace_seconds: 0,
  });

it('a task that is lost while it waits for its turn rejects, without an unhandled rejection', async () => {
  engine.put({ id: 'd1', name: 'svc-app', labels: labels('d1') });
  engine.put({ id: 'd2', name: 'svc-app-g2', labels: labels('d2') });
  const stopping = Promise.withResolvers<void>();
  const stopped = Promise.withResolvers<void>();
  const docker = {
    ...engine.docker,
    async stop(id: string) {
      if (id !== 'd2') return;
      stopping.resolve();
      // Like docker, which finishes a stop that it has begun.
      await stopped.promise;
    },
  };
  const retire = handler(docker);
  const losing = new AbortController();
  const first = retire(task('d1', 'd2', 0.3), context);
  const second = retire(task('d2', 'd3', 0), { ...context, signal: losing.signal });
  await stopping.promise;
  const unhandled: unknown[] = [];
  const note = (error: unknown): void => void unhandled.push(error);
  process.on('unhandledRejection', note);
  try {
    losing.abort(new Stopped('lost'));
    await new Promise((resolve) => setImmediate(resolve));
  } finally {
    process.off('unhandledRejection', note);
    stopped.resolve();
  }
  expect(unhandled).toEqual([]);
  await expect(second).rejects.toThrow(Stopped);
  await first;
});

it.each([
  ['that does not know instances', {}, 'for 10 s'],
  ['that knows instances', { keep_instances: [] }, null],
])('a control plane %s removes an instance: %j', async (_, over, drains) => {
  engine.put({ id: 'd1', name: 'svc-app', labels: { ...labels('d1'), 'berth.instance': 'i2' } });
  const logged: string[] = [];
  const ending = new AbortController();
  const removal = task('d1', 'd2', 0);
  const done = handler(engine.docker)(
    { ...removal, payload: { ...removal.payload, keep: null, ...over } },
    { ...context, signal: ending.signal, logStep: (__, text) => void logged.push(text) },
  );
  if (drains === null) await done;
  else {
    await waitFor('it drains', () => logged.some((text) => text.includes(drains)));
    ending.abort(new Stopped('lost'));
    await expect(done).rejects.toThrow(Stopped);
  }
  expect(engine.all()).toEqual(drains === null ? [] : ['svc-app running']);
});

it('a failure of the dataset cache does not stop the removal of containers', async () => {
  engine.put({ id: 'd1', name: 'svc-app', labels: labels('d1') });
  engine.put({ id: 'd2', name: 'svc-app-g2', labels: labels('d2') });
  const broken = (): Promise<never> => Promise.reject(new Error('EIO'));
  const logged: string[] = [];
  const inventory = { released: broken, cached: broken, forget: broken, copyRate: () => null };
  const retire = handler(engine.docker, { inventory, sweepMounts: broken });
  await retire(task('d1', 'd2', 0), { ...context, logStep: (_, text) => void logged.push(text) });
  expect(engine.all()).toEqual(['svc-app running']);
  expect(logged.filter((text) => text.includes('EIO'))).toHaveLength(2);
});

it('a container that stops slowly does not delay the removal of a younger one, and the stable name is given in order', async () => {
  for (const [id, name] of [
    ['d1', 'svc-app'],
    ['d2', 'svc-app-g2'],
    ['d3', 'svc-app-g3'],
  ] as const)
    engine.put({ id, name, labels: labels(id) });
  const mayStop = Promise.withResolvers<void>();
  const docker = {
    ...engine.docker,
    async stop(...args: Parameters<FakeEngine['docker']['stop']>) {
      if (args[0] === 'd1') await mayStop.promise;
      return engine.docker.stop(...args);
    },
  };
  const retire = handler(docker);
  const first = retire(task('d1', 'd2', 0.01), context);
  const second = retire(task('d2', 'd3', 0), context);
  await waitFor(
    'the younger container is removed',
    () => !engine.all().some((c) => c.startsWith('svc-app-g2')),
    { intervalMs: 5 },
  );
  expect(engine.all().sort()).toEqual(['svc-app running', 'svc-app-g3 running']);
  mayStop.resolve();
  await Promise.all([first, second]);
  expect(engine.all()).toEqual(['svc-app running']);
  expect([...engine.containers.keys()]).toEqual(['d3']);
});

it('stop keeps the stopped container, and start runs it again', async () => {
  engine.put({ id: 'd1', name: 'svc-app', labels: labels('d1') });
  engine.put({ id: 'd2', name: 'svc-other', labels: { ...labels('d2'), 'berth.project': 'p2' } });
  const retire = handler(engine.docker);
  const given = (over: object) =>
    retireTask({
      project_id: 'p1',
      remove: [],
      keep: null,
      drain_seconds: 0,
      stop_grace_seconds: 0,
      ...over,
    });
  const stop = given({
    stop: [
      { deployment_id: 'd1', reason: 'it moves' },
      { deployment_id: 'd2', reason: 'of another project' },
    ],
  });
  for (let run = 0; run < 2; run++)
    expect((await retire(stop, context)).report.status).toBe('completed');
  expect(engine.all().toSorted()).toEqual(['svc-app exited', 'svc-other running']);
  for (let run = 0; run < 2; run++) await retire(given({ start: 'd1' }), context);
  expect(engine.all().toSorted()).toEqual(['svc-app running', 'svc-other running']);
  engine.put({
    id: 'd1-2',
    name: 'svc-app-web-2',
    labels: { ...labels('d1'), 'berth.instance': 'i2' },
  });
  await retire(stop, context);
  const both = ['svc-app', 'svc-app-web-2'];
  const states = (state: string): string[] => [
    ...both.map((name) => `${name} ${state}`),
    'svc-other running',
  ];
  expect(engine.all().toSorted()).toEqual(states('exited'));
  const broken = {
    ...engine.docker,
    start: (id: string) =>
      id === 'd1' ? Promise.reject(new Error('port is taken')) : engine.docker.start(id),
  };
  await expect(handler(broken)(given({ start: 'd1' }), context)).rejects.toThrow('port is taken');
  expect(engine.all().toSorted()).toContain('svc-app-web-2 running');
  await retire(given({ start: 'd1' }), context);
  expect(engine.all().toSorted()).toEqual(states('running'));
  await expect(retire(given({ start: 'd9' }), context)).rejects.toThrow(
    'the container of deployment d9 does not exist any more',
  );
});
