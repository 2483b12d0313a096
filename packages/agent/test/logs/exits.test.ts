import { setImmediate } from 'node:timers/promises';
import { silentLogger } from '@berth/kit/log';
import type { Client } from '@berth/wire/client';
import type { ExitReport } from '@berth/wire/runtime';
import { LABELS } from '@berth/wire/vocabulary';
import { expect, test } from 'vitest';
import { createExits } from '../../src/logs/exits.ts';
import { createRedact } from '../../src/secrets/redaction.ts';
import type { Container, Docker } from '../../src/engine/docker.ts';

const START = '2026-11-24T01:00:00.000000000Z';
const AGAIN = '2026-11-24T01:05:00.000000000Z';
const container = (more: Partial<Container> = {}): Container =>
  ({
    id: 'c1',
    name: 'svc-shop',
    labels: { [LABELS.deployment]: 'd1', [LABELS.node]: 'n1' },
    state: 'running',
    exitCode: 0,
    oomKilled: false,
    startedAt: START,
    finishedAt: null,
    error: '',
    ...more,
  }) as Container;

function world(
  end: Awaited<ReturnType<Docker['lastEnd']>> = { exitCode: 7, outOfMemory: false },
  more: Partial<Docker> = {},
) {
  const reports: ExitReport[] = [];
  const asked: (string | null)[] = [];
  const docker: Partial<Docker> = {
    lastEnd: async () => end,
    async logs(_id, { until, onChunk }) {
      asked.push(until);
      onChunk(Buffer.from('2026-11-24T01:04:59.000000000Z last words\n'), 'stdout');
      return null;
    },
    inspect: async () => container({ state: 'exited', exitCode: 143, finishedAt: AGAIN }),
    remove: async () => undefined,
    ...more,
  };
  const exits = createExits({
    docker: docker as Docker,
    redactOf: async () => createRedact([]),
    client: {
      call: async (_name: string, { body }: { body: { exits: ExitReport[] } }) =>
        void reports.push(...body.exits),
    } as unknown as Client,
    nodeId: () => 'n1',
    isOwn: () => true,
    log: silentLogger(),
  });
  return { exits, reports, asked };
}
const settle = async (exits: { stop(): Promise<void> }, enough: () => boolean): Promise<void> => {
  await expect.poll(enough, { timeout: 10_000 }).toBe(true);
  await exits.stop();
};

test('a container that the engine started again at once: its end is reported once, with the lines before the new start', async () => {
  const { exits, reports, asked } = world();
  exits.seen([container()]);
  const restarted = container({
    startedAt: AGAIN,
    finishedAt: '2026-11-24T01:04:59.500000000Z',
    restarts: 1,
  });
  exits.seen([restarted]);
  exits.seen([restarted]);
  exits.restarted(restarted, START);
  await settle(exits, () => reports.length > 0);
  expect(reports).toMatchObject([
    {
      exit_code: 7,
      out_of_memory: false,
      started_at: START,
      finished_at: '2026-11-24T01:04:59.500000000Z',
    },
  ]);
  expect(reports[0]?.lines.map((line) => line.text)).toEqual(['last words']);
  // Not the new start: the engine notes it after the first lines of the new run.
  expect(asked).toEqual(['2026-11-24T01:04:59.550Z']);
});

test('a container that the engine is about to start again is reported without lines of its next run', async () => {
  const { exits, reports, asked } = world();
  exits.seen([container({ state: 'restarting', exitCode: 7, finishedAt: AGAIN })]);
  await settle(exits, () => reports.length > 0);
  expect(reports).toMatchObject([{ exit_code: 7, started_at: START, finished_at: AGAIN }]);
  expect(asked).toEqual([new Date(Date.parse(AGAIN) + 50).toISOString()]);
});

test('an engine that has forgotten the event: the exit code is unknown, and not 0', async () => {
  const { exits, reports } = world(null);
  exits.restarted(container({ startedAt: AGAIN }), START);
  await settle(exits, () => reports.length > 0);
  expect(reports).toMatchObject([{ exit_code: null, started_at: START }]);
});

test('a container is reported before it is removed, with the exit code of its stop', async () => {
  const { exits, reports } = world();
  await exits.docker.remove('c1');
  await settle(exits, () => reports.length > 0);
  expect(reports).toMatchObject([{ exit_code: 143, container: 'svc-shop' }]);
});

test('a container whose end is being read is removed after the read', async () => {
  const ended = container({ state: 'exited', exitCode: 143, finishedAt: AGAIN });
  const steps: string[] = [];
  const { promise: mayRead, resolve: release } = Promise.withResolvers<void>();
  const { exits, reports } = world(undefined, {
    async logs(_id, { onChunk }) {
      steps.push('read');
      await mayRead;
      if (steps.includes('removed')) return 'the container is marked for removal';
      onChunk(Buffer.from('2026-11-24T01:04:59.000000000Z last words\n'), 'stdout');
      return null;
    },
    inspect: async () => ended,
    remove: async () => void steps.push('removed'),
  });
  exits.seen([ended]);
  await expect.poll(() => steps).toEqual(['read']);
  const removals = [exits.docker.remove('c1'), exits.docker.remove('c1')];
  // A removal that does not wait gets this far.
  await setImmediate();
  release();
  await Promise.all(removals);
  await settle(exits, () => reports.length > 0);
  expect(reports).toHaveLength(1);
  expect(reports[0]?.lines.map((line) => line.text)).toEqual(['last words']);
  expect(steps.indexOf('removed')).toBeGreaterThan(steps.lastIndexOf('read'));
});

test('a container that runs on is not reported', async () => {
  const { exits, reports } = world();
  exits.seen([container()]);
  exits.seen([container()]);
  await exits.stop();
  expect(reports).toEqual([]);
});

test('the end of an instance beside the first one names the process and the number', async () => {
  const { exits, reports } = world();
  const labels = {
    [LABELS.deployment]: 'd1',
    [LABELS.node]: 'n1',
    [LABELS.instance]: 'i2',
    [LABELS.process]: 'web',
    [LABELS.number]: '2',
  };
  exits.seen([
    container({ state: 'exited', exitCode: 7, finishedAt: AGAIN }),
    container({ id: 'c2', labels, state: 'exited', exitCode: 8, finishedAt: AGAIN }),
  ]);
  await settle(exits, () => reports.length > 1);
  const [first, second] = reports.toSorted((a, b) => (a.exit_code ?? 0) - (b.exit_code ?? 0));
  expect(first).not.toHaveProperty('instance');
  expect(second).toMatchObject({ instance: { id: 'i2', process: 'web', number: 2 } });
});
