/**
 * Reports of the meter: points, out-of-memory kills over restarts, and the notes in a registration.
 */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLogger } from '@berth/kit/log';
import { expect, it, onTestFinished } from 'vitest';
import type { GroupReading } from '../../src/usage/control-groups.ts';
import { createMeter } from '../../src/usage/meter.ts';
import { createOomMemory } from '../../src/usage/oom-memory.ts';
import type { Container } from '../../src/engine/docker.ts';
import { container } from '../fake-engine.ts';

const MINUTE = 60_000;
const START = Date.parse('2026-11-23T10:00:00Z');
const at = (minute: number): string => new Date(START + minute * MINUTE).toISOString();
const READING: GroupReading = {
  cpuSeconds: 1,
  memoryBytes: 2,
  memoryLimit: 3,
  oomKills: 0,
  periods: null,
  throttledPeriods: null,
  throttledSeconds: null,
  pid: 1,
};
const app = (given: Partial<Container> = {}): Container =>
  container({
    id: 'a',
    labels: { 'berth.deployment': 'd1', 'berth.project': 'p1', 'berth.project_name': 'shop' },
    startedAt: at(0),
    ...given,
  });

async function scene(file?: string) {
  const folder = await mkdtemp(join(tmpdir(), 'berth-meter-'));
  const path = file ?? join(folder, 'oom.json');
  const memory = await createOomMemory(path, silentLogger());
  onTestFinished(async () => {
    await memory.saved();
    await rm(folder, { recursive: true, force: true });
  });
  const world = { reading: READING as GroupReading | null, minute: 0, changes: 0, found: true };
  const meter = createMeter({
    groups: {
      find: async (ids) =>
        new Map(
          world.found
            ? ids.map((id) => [id, { version: 2 as const, memory: id, cpu: id, cpuacct: id }])
            : [],
        ),
      read: async () => world.reading,
    },
    memory,
    network: async () => ({ rx: 5, tx: 6 }),
    onChange: () => void (world.changes += 1),
    now: () => START + world.minute * MINUTE,
    clock: () => world.minute * MINUTE,
  });
  const kills = async () => (await meter.read()).map(({ point }) => point.oom_kills);
  return { meter, world, memory, path, kills };
}

it('a point has the values of the control group, the network and the engine', async () => {
  const { meter } = await scene();
  meter.seen([
    app({ restarts: 3 }),
    app({ id: 'b', state: 'exited' }),
    container({ id: 'c', labels: {} }),
  ]);
  const points = await meter.read();
  expect(points).toEqual([
    {
      readAt: 0,
      project: 'shop',
      point: {
        deployment_id: 'd1',
        started_at: at(0),
        cpu_seconds: 1,
        throttled_seconds: null,
        memory_bytes: 2,
        memory_limit: 3,
        restarts: 3,
        oom_kills: 0,
        net_rx: 5,
        net_tx: 6,
      },
    },
  ]);
  expect(meter.last()).toEqual(points);
  expect(meter.notesOf('a')).toEqual({});
});

it('of two containers of one deployment, the newer one counts', async () => {
  const { meter } = await scene();
  meter.seen([app({ id: 'new', startedAt: at(9), restarts: 9 }), app({ restarts: 1 })]);
  expect((await meter.read()).map(({ point }) => point.restarts)).toEqual([9]);
});

it('a container without a control group gives a reason and no error, until it has one', async () => {
  const { meter, world } = await scene();
  world.found = false;
  meter.seen([app()]);
  expect(await meter.read()).toEqual([]);
  expect(meter.notesOf('a').metrics_problem).toContain('no control group');
  world.found = true;
  expect(await meter.read()).toHaveLength(1);
  expect(meter.notesOf('a')).toEqual({});
  expect(world.changes).toBe(1);
});

it('kills are counted over restarts, although the control group forgets them', async () => {
  const { meter, world, kills } = await scene();
  meter.seen([app()]);
  world.reading = { ...READING, oomKills: 2 };
  expect(await kills()).toEqual([2]);
  // The kill of the first process ends the run before it is read; the engine reports it.
  world.reading = null;
  for (let i = 0; i < 3; i++) await meter.oomKilled('a');
  meter.seen([app({ startedAt: at(1), restarts: 1 })]);
  world.reading = { ...READING, oomKills: 0 };
  expect(await kills()).toEqual([3]);
  world.reading = { ...READING, oomKills: 1 };
  expect(await kills()).toEqual([4]);
  // The same kill, reported twice.
  await meter.oomKilled('a');
  expect(await kills()).toEqual([4]);
});

it('an event that the engine repeats for one kill counts once, before and after a reading', async () => {
  const { meter, world, kills } = await scene();
  meter.seen([app()]);
  world.reading = { ...READING, oomKills: 1 };
  // Version 1 tells that memory ran out, also while the killed process still ends.
  for (let i = 0; i < 3; i++) await meter.oomKilled('a');
  expect(await kills()).toEqual([1]);
  await meter.oomKilled('a');
  expect(await kills()).toEqual([1]);
  world.reading = { ...READING, oomKills: 3 };
  await meter.oomKilled('a');
  expect(meter.notesOf('a').pressure).toEqual(['memory']);
  expect(await kills()).toEqual([3]);
});

it('a container that ends with its group before anybody read it counts one kill, whatever the number of events', async () => {
  const { meter, world, kills } = await scene();
  meter.seen([app()]);
  world.reading = null;
  await Promise.all([meter.oomKilled('a'), meter.oomKilled('a')]);
  meter.seen([app({ startedAt: at(1), restarts: 1 })]);
  world.reading = READING;
  expect(await kills()).toEqual([1]);
});

it('an event while the container starts again belongs to the run that ended', async () => {
  const { meter, world, kills } = await scene();
  meter.seen([app()]);
  expect(await kills()).toEqual([0]);
  world.reading = null;
  const heard = meter.oomKilled('a');
  meter.seen([app({ startedAt: at(1), restarts: 1 })]);
  await heard;
  world.reading = READING;
  expect(await kills()).toEqual([1]);
});

it('an agent that sees no control groups counts events', async () => {
  const { meter, world } = await scene();
  world.found = false;
  meter.seen([app()]);
  await meter.read();
  for (let i = 0; i < 2; i++) await meter.oomKilled('a');
  world.found = true;
  world.reading = { ...READING, oomKills: null };
  expect((await meter.read()).map(({ point }) => point.oom_kills)).toEqual([2]);
});

it('a kill is known to the next process of the agent, and a container that is gone is forgotten', async () => {
  const first = await scene();
  first.meter.seen([app()]);
  first.world.reading = { ...READING, oomKills: 1 };
  await first.meter.oomKilled('a');
  await first.memory.saved();
  const second = await scene(first.path);
  second.meter.seen([app()]);
  expect(await second.kills()).toEqual([1]);
  expect(second.meter.notesOf('a').pressure).toEqual(['memory']);
  second.meter.seen([]);
  await second.memory.saved();
  expect(await readFile(first.path, 'utf8')).toBe('{}');
});

it('a damaged file of kills is no error', async () => {
  const { path } = await scene();
  await writeFile(path, '{"a":{"before":"x"},"b"');
  await expect(scene(path)).resolves.toBeDefined();
  await writeFile(path, '{"a":{"before":"x"},"b":{"run":null,"before":1,"inRun":2,"last_at":3}}');
  const again = await scene(path);
  expect([again.memory.get('a'), again.memory.get('b')?.inRun]).toEqual([undefined, 2]);
});

it('the engine’s word about a run that ended counts, when nobody saw the kill', async () => {
  const { meter, kills } = await scene();
  meter.seen([app({ state: 'restarting', oomKilled: true, exitCode: 137 })]);
  meter.seen([app({ startedAt: at(1), restarts: 1 })]);
  expect(await kills()).toEqual([1]);
});

it('kills from before the first reading of this agent are counted, and not reported as recent', async () => {
  const { meter, world, kills } = await scene();
  meter.seen([app()]);
  world.reading = { ...READING, oomKills: 5 };
  expect(await kills()).toEqual([5]);
  expect(meter.notesOf('a').pressure).toBeUndefined();
  world.reading = { ...READING, oomKills: 6 };
  expect(await kills()).toEqual([6]);
  expect(meter.notesOf('a').pressure).toEqual(['memory']);
});

it('a kill is a note for 15 minutes', async () => {
  const { meter, world } = await scene();
  meter.seen([app()]);
  await meter.read();
  world.reading = { ...READING, oomKills: 1 };
  await meter.oomKilled('a');
  expect([meter.notesOf('a').pressure, world.changes]).toEqual([['memory'], 1]);
  await meter.oomKilled('unknown');
  world.minute = 14;
  await meter.read();
  expect(meter.notesOf('a').pressure).toEqual(['memory']);
  world.minute = 15;
  await meter.read();
  expect([meter.notesOf('a').pressure, world.changes]).toEqual([undefined, 2]);
  // The clock of the machine was set back.
  world.minute = -60;
  await meter.read();
  expect(meter.notesOf('a').pressure).toBeUndefined();
});

it('throttling is a note after five minutes above a half, until it is below a quarter', async () => {
  const { meter, world } = await scene();
  meter.seen([app()]);
  let [periods, throttled] = [0, 0];
  const minutes = async (count: number, share: number): Promise<string[]> => {
    const seen: string[] = [];
    for (let i = 0; i < count; i++) {
      periods += 600;
      throttled += 600 * share;
      world.minute += 1;
      world.reading = { ...READING, periods, throttledPeriods: throttled };
      await meter.read();
      seen.push((meter.notesOf('a').pressure ?? []).join());
    }
    return seen;
  };
  expect(await minutes(6, 0.9)).toEqual(['', '', '', '', '', 'cpu']);
  expect((await minutes(5, 0.3)).at(-1)).toBe('cpu');
  expect((await minutes(5, 0.1)).at(-1)).toBe('');
  expect((await minutes(5, 0.4)).at(-1)).toBe('');
  await minutes(5, 0.9);
  meter.seen([app({ startedAt: at(99) })]);
  expect(meter.notesOf('a')).toEqual({});
});

it('values of a container that restarted during the reading are dropped', async () => {
  const { meter, world } = await scene();
  meter.seen([app()]);
  const reading = meter.read();
  meter.seen([app({ startedAt: at(1) })]);
  expect(await reading).toEqual([]);
  expect(meter.notesOf('a')).toEqual({});
  world.reading = null;
  expect(await meter.read()).toEqual([]);
});

it('two containers of a deployment are two points if they are two instances', async () => {
  const { meter } = await scene();
  const labels = {
    ...app().labels,
    'berth.instance': 'i2',
    'berth.process': 'web',
    'berth.number': '2',
  };
  meter.seen([
    app(),
    app({ id: 'b', labels, startedAt: at(1) }),
    // The container that replaces the second one.
    app({ id: 'c', labels, startedAt: at(2) }),
  ]);
  const points = (await meter.read()).map(({ point }) => [point.instance, point.started_at]);
  expect(points).toEqual([
    [undefined, at(0)],
    [{ id: 'i2', process: 'web', number: 2 }, at(2)],
  ]);
});
