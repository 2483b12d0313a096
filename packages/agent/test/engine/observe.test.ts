/** Observed containers and the event stream. */
import { silentLogger } from '@berth/kit/log';
import { expect, it } from 'vitest';
import { toObserved, watchContainers } from '../../src/engine/observe.ts';
import type { Docker } from '../../src/engine/docker.ts';
import { until } from '../fake-control-plane.ts';
import { container } from '../fake-engine.ts';

it('toObserved keeps only the labels of Berth, and no port of a stopped container', () => {
  const labels = { 'berth.project': 'p', 'org.opencontainers.image.source': 'x' };
  expect(toObserved(container({ labels }))).toMatchObject({
    labels: { 'berth.project': 'p' },
    host_port: 1234,
  });
  expect(toObserved(container({ state: 'exited' })).host_port).toBeNull();
});

/** Watches an engine whose events the test emits. */
async function watched(times: { healthMs?: number; steadyMs?: number }) {
  let changes = 0;
  const ending = new AbortController();
  const stream = Promise.withResolvers<(action: string, id: string) => void>();
  const docker = {
    events: (_: unknown, onEvent: (action: string, id: string) => void) => {
      stream.resolve(onEvent);
      return new Promise((_done, reject) =>
        ending.signal.addEventListener('abort', () => reject(new Error('ended'))),
      );
    },
  } as unknown as Docker;
  const watch = {
    onChange: () => void (changes += 1),
    onBroken: () => undefined,
    ...times,
  };
  const watching = watchContainers(docker, watch, ending.signal, silentLogger());
  return {
    emit: await stream.promise,
    changes: () => changes,
    async end() {
      ending.abort();
      await watching;
    },
  };
}

it('a check that flaps does not register without end', async () => {
  const { emit, changes, end } = await watched({ healthMs: 3_600_000 });
  emit('health_status: unhealthy', 'c');
  await until('the first change', () => changes() === 1, 5_000);
  for (let i = 0; i < 50; i += 1)
    emit(`health_status: ${i % 2 === 0 ? 'healthy' : 'unhealthy'}`, 'c');
  emit('start', 'c');
  await until('the start', () => changes() === 2, 5_000);
  await end();
  expect(changes()).toBe(2);
});

it('a container that started is reported again when it has run for a while', async () => {
  const { emit, changes, end } = await watched({ steadyMs: 300 });
  emit('die', 'c');
  emit('start', 'c');
  await until('the start', () => changes() === 1, 5_000);
  await until('the report of the container that runs on', () => changes() === 2, 5_000);
  await end();
});

it('watchContainers debounces events and reopens the stream', async () => {
  let opened = 0;
  let changes = 0;
  let broken = 0;
  const ending = new AbortController();
  const docker = {
    events: async (_: unknown, onEvent: (action: string) => void) => {
      opened += 1;
      for (const action of ['exec_create: ls', 'start', 'die', 'destroy']) onEvent(action);
      throw new Error('the engine went away');
    },
  } as unknown as Docker;
  const watching = watchContainers(
    docker,
    { onChange: () => void (changes += 1), onBroken: () => void (broken += 1) },
    ending.signal,
    silentLogger(),
  );
  await until('opened twice', () => opened >= 2, 5_000);
  ending.abort();
  await watching;
  // Each end of the stream is reported, because the engine may have been restarted.
  expect(broken).toBeGreaterThanOrEqual(1);
  // One change for the events, one for the time without a stream.
  expect(changes).toBeGreaterThanOrEqual(2);
  expect(changes).toBeLessThanOrEqual(opened * 2);
});
