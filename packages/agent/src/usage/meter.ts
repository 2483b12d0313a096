/**
 * Measures what the containers of this node use. Registrations tell it which containers exist, the
 * engine's events tell it about kills out of memory, and a reading reads the control groups.
 */
import { defined } from '@berth/kit/defined';
import type { ObservedContainer } from '@berth/wire/node';
import { MEMORY_PRESSURE_MS, type Pressure, type SentPoint } from '@berth/wire/metrics';
import { LABELS } from '@berth/wire/vocabulary';
import type { Container } from '../engine/docker.ts';
import {
  type ControlGroups,
  type Group,
  type GroupReading,
  readNetwork,
} from './control-groups.ts';
import type { OomMemory } from './oom-memory.ts';

/** `readAt`: monotonic clock in ms. */
export type Measured = { readAt: number; project: string; point: Omit<SentPoint, 'age_ms'> };

export type Meter = {
  /** Takes over a new list of this node's containers. */
  seen(containers: readonly Container[]): void;
  /**
   * The engine reported that memory ran out in this container, or in one that is not ours. Resolves
   * when the kills are counted.
   */
  oomKilled(id: string): Promise<void>;
  /** Reads the values of all running containers, one for each deployment. */
  read(): Promise<Measured[]>;
  /** The last reading. */
  last(): readonly Measured[];
  /** Returns the fields that a registration adds to a container. */
  notesOf(id: string): Pick<ObservedContainer, 'pressure' | 'metrics_problem'>;
  /** Resolves when what must survive this process is on disk. */
  saved(): Promise<void>;
};
export type MeterDeps = {
  groups: ControlGroups;
  memory: OomMemory;
  network?: typeof readNetwork;
  /** Called when `notesOf` of a container changed. */
  onChange: () => void;
  now?: () => number;
  clock?: () => number;
};

type Throttling = { at: number; periods: number; throttled: number };
type Known = {
  container: Container;
  group: Group | null;
  /**
   * Events of this run. With control groups of version 1, there may be several for one kill, so the
   * group's own number counts.
   */
  reported: number;
  /** Kills by the last reading of the group. */
  kills: number;
  /** An event came, and the group was not read since. */
  isOpen: boolean;
  wasRead: boolean;
  window: Throttling[];
  slowed: boolean;
  problem: string | null;
};

/** The share of throttled periods is taken over this time. */
const WINDOW_MS = 5 * 60_000;
/**
 * Begins at the first share, and ends below the second one, so that it does not change all the
 * time.
 */
const SLOWED = { from: 0.5, below: 0.25 };
const NO_GROUP =
  'the agent finds no control group of the container; an agent in a container needs the ' +
  'control groups of the machine (cgroup: host)';

export function createMeter({
  groups,
  memory,
  network = readNetwork,
  onChange,
  now = Date.now,
  clock = () => performance.now(),
}: MeterDeps): Meter {
  let known = new Map<string, Known>();
  let last: Measured[] = [];
  /** Serves to notice a change of the notes. */
  let notes = '';

  /**
   * Records the kills of a run. A smaller count than before is of no interest: the group may be
   * gone.
   */
  function count({ container: { id, startedAt }, reported, wasRead }: Known, inRun: number): void {
    const before = memory.get(id);
    if (before === undefined) {
      // The first reading may count kills of last week.
      if (inRun > 0)
        memory.set(id, {
          run: startedAt,
          before: 0,
          inRun,
          last_at: wasRead || reported > 0 ? now() : 0,
        });
    } else if (before.run !== startedAt) {
      const earlier = before.before + before.inRun;
      memory.set(id, {
        run: startedAt,
        before: earlier,
        inRun,
        last_at: inRun > 0 ? now() : before.last_at,
      });
    } else if (inRun > before.inRun) memory.set(id, { ...before, inRun, last_at: now() });
  }
  /**
   * The group is gone or tells no number. Without any reading of it, the events are all there is.
   */
  const killsByEvents = ({ reported, kills, problem }: Known): number =>
    problem !== null ? Math.max(reported, kills) : kills + (reported > kills ? 1 : 0);
  const killsOf = (id: string): number => {
    const record = memory.get(id);
    return record === undefined ? 0 : record.before + record.inRun;
  };

  function pressureOf(one: Known): Pressure[] {
    const age = now() - (memory.get(one.container.id)?.last_at ?? Number.NEGATIVE_INFINITY);
    return [
      ...(age >= 0 && age < MEMORY_PRESSURE_MS ? (['memory'] as const) : []),
      ...(one.slowed ? (['cpu'] as const) : []),
    ];
  }
  const notesOf: Meter['notesOf'] = (id) => {
    const one = known.get(id);
    if (one === undefined) return {};
    const pressure = pressureOf(one);
    return {
      ...defined({
        pressure: pressure.length === 0 ? undefined : pressure,
        metrics_problem: one.problem ?? undefined,
      }),
    };
  };
  function announce(): void {
    const text = JSON.stringify([...known.keys()].sort().map((id) => [id, notesOf(id)]));
    if (text !== notes && notes !== '') onChange();
    notes = text;
  }

  function throttle(one: Known, { periods, throttledPeriods }: GroupReading, at: number): void {
    if (periods === null || throttledPeriods === null) {
      one.window = [];
      one.slowed = false;
      return;
    }
    one.window.push({ at, periods, throttled: throttledPeriods });
    // The newest value that is as old as the window stays, to compare with.
    while ((one.window[1]?.at ?? Number.POSITIVE_INFINITY) <= at - WINDOW_MS) one.window.shift();
    const [first] = one.window;
    if (first === undefined || at - first.at < WINDOW_MS * 0.9) return;
    const share = (throttledPeriods - first.throttled) / Math.max(1, periods - first.periods);
    one.slowed = one.slowed ? share >= SLOWED.below : share >= SLOWED.from;
  }

  async function measure(one: Known): Promise<Measured | null> {
    const { container } = one;
    const deployment_id = container.labels[LABELS.deployment];
    const reading = one.group === null ? null : await groups.read(one.group);
    if (reading === null || deployment_id === undefined) {
      one.group = null;
      return null;
    }
    const readAt = clock();
    const traffic = reading.pid === null ? null : await network(reading.pid);
    // The container was restarted or removed meanwhile: these values belong to another run.
    if (known.get(container.id) !== one) return null;
    throttle(one, reading, readAt);
    if (reading.oomKills !== null) one.kills = reading.oomKills;
    one.isOpen = false;
    count(one, reading.oomKills ?? one.reported);
    one.wasRead = true;
    return {
      readAt,
      project: container.labels[LABELS.project_name] ?? container.labels[LABELS.project] ?? '',
      point: {
        deployment_id,
        started_at: container.startedAt,
        cpu_seconds: reading.cpuSeconds,
        throttled_seconds: reading.throttledSeconds,
        memory_bytes: reading.memoryBytes,
        memory_limit: reading.memoryLimit,
        restarts: container.restarts,
        oom_kills: killsOf(container.id),
        net_rx: traffic?.rx ?? null,
        net_tx: traffic?.tx ?? null,
      },
    };
  }

  return {
    seen(containers) {
      const before = known;
      known = new Map(
        containers.map((container) => {
          const earlier = before.get(container.id);
          const same = earlier !== undefined && earlier.container.startedAt === container.startedAt;
          if (earlier?.isOpen === true && !same) count(earlier, killsByEvents(earlier));
          const one: Known = same
            ? Object.assign(earlier, { container })
            : {
                container,
                group: null,
                reported: 0,
                kills: 0,
                isOpen: false,
                wasRead: false,
                window: [],
                slowed: false,
                problem: null,
              };
          return [container.id, one];
        }),
      );
      memory.retainOnly(new Set(known.keys()));
      // The engine's word for a run that ended, also while this process did not run.
      for (const one of known.values())
        if (one.container.state !== 'running' && one.container.oomKilled)
          count(one, Math.max(1, killsByEvents(one)));
    },
    async oomKilled(id) {
      const one = known.get(id);
      if (one === undefined) return;
      one.reported += 1;
      one.isOpen = true;
      one.group ??= (await groups.find([id])).get(id) ?? null;
      const reading = one.group === null ? null : await groups.read(one.group);
      // A new run began, which counted this one; or a reading was faster.
      if (known.get(id) !== one || !one.isOpen) return;
      one.isOpen = false;
      if (reading !== null && reading.oomKills !== null) one.kills = reading.oomKills;
      count(one, reading?.oomKills ?? killsByEvents(one));
      announce();
    },
    async read() {
      const running = [...known.values()].filter(({ container }) => container.state === 'running');
      const unknown = running.filter(({ group }) => group === null);
      const found = await groups.find(unknown.map(({ container }) => container.id));
      for (const one of unknown) one.group = found.get(one.container.id) ?? null;
      const newest = new Map<string, Measured>();
      for (const one of running.toSorted((a, b) =>
        (a.container.startedAt ?? '').localeCompare(b.container.startedAt ?? ''),
      )) {
        const measured = await measure(one);
        if (known.get(one.container.id) === one) one.problem = measured === null ? NO_GROUP : null;
        if (measured !== null) newest.set(measured.point.deployment_id, measured);
      }
      last = [...newest.values()];
      announce();
      return last;
    },
    last: () => last,
    notesOf,
    saved: memory.saved,
  };
}
