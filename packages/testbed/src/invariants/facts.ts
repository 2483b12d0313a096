/** Facts that the checks of invariants read: the events of a history, by type. */
import type { HistoryEvent } from '../history.ts';
import type { InvariantId } from './list.ts';

export type Violation = { invariant: InvariantId; at: number; message: string };
export type Of<T extends HistoryEvent['type']> = Extract<HistoryEvent, { type: T }>;

/** A message can arrive this late, and twice. */
export const LATE_MS = 10_000;

export type HistoryFacts = {
  history: readonly HistoryEvent[];
  /** Returns every event of a type. */
  all: <T extends HistoryEvent['type']>(type: T) => Of<T>[];
  /** Records a violation. */
  broken: (invariant: InvariantId, at: number, message: string) => void;
  /** Reads of each deployment by clients. */
  reads: ReadonlyMap<string, Of<'read'>[]>;
  /** The acceptance of each deployment. */
  accepted: ReadonlyMap<string, Of<'accepted'>>;
  /** Whether the deletion of a project or node was requested by then. */
  isGone: (id: string, at: number) => boolean;
  /** null if the history was recorded before the faults stopped. */
  end: Of<'ended'> | null;
};

export function factsOf(history: readonly HistoryEvent[], violations: Violation[]): HistoryFacts {
  const all = <T extends HistoryEvent['type']>(type: T): Of<T>[] =>
    history.filter((e): e is Of<T> => e.type === type);
  const deletedAt = new Map(all('deleting').map((e) => [e.id, e.at]));
  return {
    history,
    all,
    broken: (invariant, at, message) => void violations.push({ invariant, at, message }),
    reads: groupBy(all('read'), (e) => e.deployment),
    accepted: new Map(all('accepted').map((e) => [e.deployment, e])),
    isGone: (id, at) => {
      const deleted = deletedAt.get(id);
      return deleted !== undefined && deleted <= at;
    },
    end: all('ended').at(-1) ?? null,
  };
}

export function groupBy<T>(items: readonly T[], key: (item: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const item of items) {
    const group = groups.get(key(item));
    if (group === undefined) groups.set(key(item), [item]);
    else group.push(item);
  }
  return groups;
}

export function upsert(map: Map<string, Set<string>>, key: string): Set<string> {
  const set = map.get(key) ?? new Set<string>();
  map.set(key, set);
  return set;
}
