/**
 * Measures the resource usage of this node's containers. Registrations tell it which containers
 * exist, the engine's events report out-of-memory kills, and each reading reads the control groups.
 */
import { defined } from '@berth/kit/defined';
import type { ObservedContainer } from '@berth/wire/node';
import { MEMORY_PRESSURE_MS, type Pressure, type SentPoint } from '@berth/wire/metrics';
import { instanceOfLabels, LABELS } from '@berth/wire/vocabulary';
import type { Container } from '../engine/docker.ts';
import {
  type ControlGroups,
  type Group,
  type GroupReading,
  readNetwork,
} from './control-groups.ts';
import type { OomMemory } from './oom-memory.ts';

export type Measured = {
  /** Time of the reading on the monotonic clock in ms. */
  readAt: number;
  project: string;
  point: Omit<SentPoint, 'age_ms'>;
};

export type Meter = {
  /** Sets the new list of this node's containers. */
  seen(containers: readonly Container[]): void;
  /**
   * Handles an out-of-memory event of the engine, possibly for a container that is not Berth's.
   * Resolves when the kills are counted.
   */
  oomKilled(id: string): Promise<void>;
  /** Reads the values of all running containers, one per instance of a deployment. */
  read(): Promise<Measured[]>;
  /** Returns the last reading. */
  last(): readonly Measured[];
  /** Returns the fields that a registration adds to a container. */
  notesOf(id: string): Pick<ObservedContainer, 'pressure' | 'metrics_problem'>;
  /** Resolves when the counts that must survive a restart are on disk. */
  saved(): Promise<void>;
};
export type MeterDeps = {
  groups: ControlGroups;
  memory: OomMemory;
  network?: typeof readNetwork;
  /** Called when `notesOf` of a container has changed. */
  onChange: () => void;
  now?: () => number;
  clock?: () => number;
};

type Throttling = { at: number; periods: number; throttled: number };
type MeteredContainer = {
  container: Container;
  group: Group | null;
  /**
   * Number of events in this run. In control groups version 1, one kill can cause several events,
   * so the counter of the control group is preferred.
   */
  reported: number;
  /** Number of OOM kills in the last reading of the group. */
  kills: number;
  /** True if an event has arrived since the last reading of the group. */
  isOpen: boolean;
  wasRead: boolean;
  window: Throttling[];
  slowed: boolean;
  problem: string | null;
};

/** Period in ms over which the share of throttled periods is measured. */
const WINDOW_MS = 5 * 60_000;
/**
 * A container counts as throttled from the first share on, until it falls below the second, so that
 * the state does not flap.
 */
const SLOWED = { from: 0.5, below: 0.25 };
const NO_GROUP =
  'the agent finds no control group of the container; an agent in a container needs the ' +
  'control groups of the machine (cgroup: host)';

/** The dependencies with defaults, and the state of the meter. */
type Metering = Required<MeterDeps> & {
  byId: Map<string, MeteredContainer>;
  last: Measured[];
  /** The notes of all containers at the last comparison; empty before. */
  notes: string;
};

export function createMeter({
  network = readNetwork,
  now = Date.now,
  clock = () => performance.now(),
  ...deps
}: MeterDeps): Meter {
  const metering: Metering = {
    ...deps,
    network,
    now,
    clock,
    byId: new Map(),
    last: [],
    notes: '',
  };
  return {
    seen: (containers) => takeOver(metering, containers),
    oomKilled: (id) => countOomKill(metering, id),
    read: () => readAll(metering),
    last: () => metering.last,
    notesOf: (id) => notesOf(metering, id),
    saved: deps.memory.saved,
  };
}

function takeOver(metering: Metering, containers: readonly Container[]): void {
  const { byId: earlierById, memory } = metering;
  metering.byId = new Map(
    containers.map((container): [string, MeteredContainer] => {
      const earlier = earlierById.get(container.id);
      if (earlier !== undefined && earlier.container.startedAt === container.startedAt)
        return [container.id, Object.assign(earlier, { container })];
      if (earlier?.isOpen === true) count(metering, earlier, killsByEvents(earlier));
      return [container.id, newRun(container)];
    }),
  );
  memory.retainOnly(new Set(metering.byId.keys()));
  // Also count kills in ended runs that the engine reports, even from a time when no agent ran.
  for (const one of metering.byId.values())
    if (one.container.state !== 'running' && one.container.oomKilled)
      count(metering, one, Math.max(1, killsByEvents(one)));
}

const newRun = (container: Container): MeteredContainer => ({
  container,
  group: null,
  reported: 0,
  kills: 0,
  isOpen: false,
  wasRead: false,
  window: [],
  slowed: false,
  problem: null,
});

async function countOomKill(metering: Metering, id: string): Promise<void> {
  const { byId, groups } = metering;
  const one = byId.get(id);
  if (one === undefined) return;
  one.reported += 1;
  one.isOpen = true;
  one.group ??= (await groups.find([id])).get(id) ?? null;
  const reading = one.group === null ? null : await groups.read(one.group);
  // A new run, or a faster reading, has already counted this kill.
  if (metering.byId.get(id) !== one || !one.isOpen) return;
  one.isOpen = false;
  if (reading !== null && reading.oomKills !== null) one.kills = reading.oomKills;
  count(metering, one, reading?.oomKills ?? killsByEvents(one));
  announce(metering);
}

async function readAll(metering: Metering): Promise<Measured[]> {
  const running = [...metering.byId.values()].filter(
    ({ container }) => container.state === 'running',
  );
  await findGroups(metering, running);
  const newest = new Map<string, Measured>();
  for (const one of running.toSorted(byStart)) {
    const measured = await measure(metering, one);
    if (metering.byId.get(one.container.id) === one)
      one.problem = measured === null ? NO_GROUP : null;
    if (measured !== null) newest.set(instanceKey(measured.point), measured);
  }
  metering.last = [...newest.values()];
  announce(metering);
  return metering.last;
}

const instanceKey = ({ deployment_id, instance }: Measured['point']): string =>
  `${deployment_id} ${instance?.id ?? ''}`;

const byStart = (a: MeteredContainer, b: MeteredContainer): number =>
  (a.container.startedAt ?? '').localeCompare(b.container.startedAt ?? '');

async function findGroups(
  { groups }: Metering,
  running: readonly MeteredContainer[],
): Promise<void> {
  const ungrouped = running.filter(({ group }) => group === null);
  const groupById = await groups.find(ungrouped.map(({ container }) => container.id));
  for (const one of ungrouped) one.group = groupById.get(one.container.id) ?? null;
}

async function measure(metering: Metering, one: MeteredContainer): Promise<Measured | null> {
  const { groups, network, clock } = metering;
  const { container } = one;
  const deployment_id = container.labels[LABELS.deployment];
  const reading = one.group === null ? null : await groups.read(one.group);
  if (reading === null || deployment_id === undefined) {
    one.group = null;
    return null;
  }
  const readAt = clock();
  const traffic = reading.pid === null ? null : await network(reading.pid);
  // Skip these values: the container was restarted or removed meanwhile, so they belong to a
  // previous run.
  if (metering.byId.get(container.id) !== one) return null;
  throttle(one, reading, readAt);
  if (reading.oomKills !== null) one.kills = reading.oomKills;
  one.isOpen = false;
  count(metering, one, reading.oomKills ?? one.reported);
  one.wasRead = true;
  return {
    readAt,
    project: container.labels[LABELS.project_name] ?? container.labels[LABELS.project] ?? '',
    point: {
      deployment_id,
      ...defined({ instance: instanceOfLabels(container.labels) ?? undefined }),
      started_at: container.startedAt,
      cpu_seconds: reading.cpuSeconds,
      throttled_seconds: reading.throttledSeconds,
      memory_bytes: reading.memoryBytes,
      memory_limit: reading.memoryLimit,
      restarts: container.restarts,
      oom_kills: killsOf(metering, container.id),
      net_rx: traffic?.rx ?? null,
      net_tx: traffic?.tx ?? null,
    },
  };
}

function throttle(
  one: MeteredContainer,
  { periods, throttledPeriods }: GroupReading,
  at: number,
): void {
  if (periods === null || throttledPeriods === null) {
    one.window = [];
    one.slowed = false;
    return;
  }
  one.window.push({ at, periods, throttled: throttledPeriods });
  // Keep the newest value that is at least as old as the window, for comparison.
  while ((one.window[1]?.at ?? Number.POSITIVE_INFINITY) <= at - WINDOW_MS) one.window.shift();
  const [first] = one.window;
  if (first === undefined || at - first.at < WINDOW_MS * 0.9) return;
  const share = (throttledPeriods - first.throttled) / Math.max(1, periods - first.periods);
  one.slowed = one.slowed ? share >= SLOWED.below : share >= SLOWED.from;
}

/**
 * Records the kills of a run. Ignores a count below the recorded one, because the group might no
 * longer exist.
 */
function count(
  { memory, now }: Metering,
  { container: { id, startedAt }, reported, wasRead }: MeteredContainer,
  inRun: number,
): void {
  const recorded = memory.get(id);
  if (recorded === undefined) {
    // A first reading can count old kills, so their time is unknown.
    const last_at = wasRead || reported > 0 ? now() : 0;
    if (inRun > 0) memory.set(id, { run: startedAt, before: 0, inRun, last_at });
  } else if (recorded.run !== startedAt) {
    const before = recorded.before + recorded.inRun;
    const last_at = inRun > 0 ? now() : recorded.last_at;
    memory.set(id, { run: startedAt, before, inRun, last_at });
  } else if (inRun > recorded.inRun) memory.set(id, { ...recorded, inRun, last_at: now() });
}

/**
 * Returns the number of kills when the group no longer exists or has no counter. Without any
 * reading of the group, only events count.
 */
const killsByEvents = ({ reported, kills, problem }: MeteredContainer): number =>
  problem !== null ? Math.max(reported, kills) : kills + (reported > kills ? 1 : 0);

function killsOf({ memory }: Metering, id: string): number {
  const recorded = memory.get(id);
  return recorded === undefined ? 0 : recorded.before + recorded.inRun;
}

function notesOf(metering: Metering, id: string): ReturnType<Meter['notesOf']> {
  const one = metering.byId.get(id);
  if (one === undefined) return {};
  const pressure = pressureOf(metering, one);
  return defined({
    pressure: pressure.length === 0 ? undefined : pressure,
    metrics_problem: one.problem ?? undefined,
  });
}

function pressureOf({ memory, now }: Metering, one: MeteredContainer): Pressure[] {
  const age = now() - (memory.get(one.container.id)?.last_at ?? Number.NEGATIVE_INFINITY);
  const pressure: Pressure[] = [];
  if (age >= 0 && age < MEMORY_PRESSURE_MS) pressure.push('memory');
  if (one.slowed) pressure.push('cpu');
  return pressure;
}

/** Calls `onChange` if the notes have changed since the last call. */
function announce(metering: Metering): void {
  const ids = [...metering.byId.keys()].sort();
  const text = JSON.stringify(ids.map((id) => [id, notesOf(metering, id)]));
  if (text !== metering.notes && metering.notes !== '') metering.onChange();
  metering.notes = text;
}
