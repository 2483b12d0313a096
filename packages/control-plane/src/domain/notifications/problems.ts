/**
 * Problems that notifications report. A problem is identified by its kind and its subject, so that
 * it is reported once until it is over. Pure.
 *
 * (none) -> open, when it is observed. open -> going, when it is not observed any more. going ->
 * open, when it is observed again: nobody hears of it. going -> ended, after a quiet time, which is
 * longer for a problem that returned often (flapping). ended -> open, when it is observed again.
 */
import type { ProblemKind } from '@berth/wire/notification';

/** Texts for people about a problem or its end. */
export type Seen = {
  /** One sentence without a full stop. */
  title: string;
  detail: string | null;
  /** Says what to do. Null for an end. */
  advice: string | null;
  /** Path below PUBLIC_URL; null: none. */
  path: string | null;
  /** Projects that it concerns. */
  project_ids: string[];
  /**
   * Projects that run on the node. `seenBy` adds to the detail those of them that a notification
   * can name.
   */
  runs?: { id: string; name: string }[];
};

export type Observation = {
  kind: ProblemKind;
  subject: string;
  /**
   * When one control plane observed it, which another one might not know yet; null: it follows from
   * the database.
   */
  at: number | null;
  isProblem: boolean;
  seen: Seen;
};

export type ProblemRecord = {
  kind: ProblemKind;
  subject: string;
  seen: Seen;
  opened_at: number;
  observed_at: number;
  gone_since: number | null;
  ended_at: number | null;
  flaps: number;
};
export type ProblemChange = Pick<ProblemRecord, 'kind' | 'subject' | 'seen' | 'opened_at'> & {
  is_over: boolean;
  at: number;
};

export type ProblemStore = {
  /** Returns the problems that are not ended, by key. */
  open(): Promise<Map<string, ProblemRecord>>;
  /**
   * Judges the observations and writes what changed. Several control planes can call it at a time.
   * Returns the number of changes.
   */
  observe(observations: readonly Observation[], clock: Clock): Promise<number>;
  /**
   * Returns the newest deployment that ran or failed of each project, and what runs now; null: all
   * projects.
   */
  projects(ids: readonly string[] | null): Promise<ProjectStanding[]>;
  /** Returns the names of projects with a running deployment on each of these nodes. */
  onNodes(nodeIds: readonly string[]): Promise<Map<string, { id: string; name: string }[]>>;
  /** Returns the ids of projects whose running deployments mount each of these datasets. */
  onDatasets(datasetIds: readonly string[]): Promise<Map<string, string[]>>;
  /** Removes old changes, and problems that ended long ago. Returns the number of rows. */
  sweep(now: number): Promise<number>;
};
export type Clock = { now: number; uptime: number };

export type ProjectStanding = {
  id: string;
  name: string;
  newest: {
    id: string;
    generation: number;
    status: string;
    error_code: string | null;
    error_message: string | null;
  } | null;
  running: { id: string; health: string | null; detail: string | null } | null;
};

const MINUTE = 60_000;
/**
 * Time without the problem after which it is over. A failed deployment is over with the next one
 * that runs.
 */
const QUIET_MS: Record<ProblemKind, number> = {
  failed: 0,
  unhealthy: 2 * MINUTE,
  node_offline: MINUTE,
  disk: 5 * MINUTE,
  dataset: MINUTE,
  certificate: 0,
};
/** A problem that returns within this time after its end flaps. */
const FLAP_MS = 60 * MINUTE;
const FREE_FLAPS = 2;
const LONGEST_QUIET_MS = 60 * MINUTE;

/** Doubles with each return after the second. */
export const quietMs = (kind: ProblemKind, flaps: number): number =>
  flaps <= FREE_FLAPS
    ? QUIET_MS[kind]
    : Math.min(LONGEST_QUIET_MS, Math.max(QUIET_MS[kind], MINUTE) * 2 ** (flaps - FREE_FLAPS));

/** Ended problems are kept this long, to notice that they return. */
export const ENDED_KEPT_MS = 24 * 60 * MINUTE;
/** Changes that are kept for notifications whose target is down. */
export const KEPT_CHANGES = 20_000;

export const problemKey = ({ kind, subject }: Pick<ProblemRecord, 'kind' | 'subject'>): string =>
  `${kind} ${subject}`;

type Judged = { record: ProblemRecord; change: ProblemChange | null };

/** Returns what an observation changes, or null. */
export function judge(
  before: ProblemRecord | null,
  observation: Observation,
  { now, uptime }: Clock,
): Judged | null {
  const { kind, subject, at, isProblem, seen } = observation;
  // A control plane that has not looked again yet must not undo what a newer look of another one
  // found.
  if (at !== null && before !== null && at < before.observed_at) return null;
  const observed_at = at ?? now;
  if (isProblem) {
    if (before === null || before.ended_at !== null) {
      if (at !== null && before !== null && at === before.observed_at) return null;
      const flaps =
        before !== null && Math.abs(now - (before.ended_at ?? now)) <= FLAP_MS
          ? before.flaps + 1
          : 0;
      const record = {
        kind,
        subject,
        seen,
        opened_at: now,
        observed_at,
        gone_since: null,
        ended_at: null,
        flaps,
      };
      return { record, change: { kind, subject, seen, opened_at: now, is_over: false, at: now } };
    }
    if (before.gone_since === null && (at === null || at === before.observed_at)) return null;
    return { record: { ...before, seen, observed_at, gone_since: null }, change: null };
  }
  if (before === null || before.ended_at !== null) return null;
  const gone_since = before.gone_since ?? uptime;
  if (uptime - gone_since < quietMs(kind, before.flaps))
    return before.gone_since === null
      ? { record: { ...before, gone_since, observed_at }, change: null }
      : null;
  const record = { ...before, seen, observed_at, gone_since, ended_at: now };
  return {
    record,
    change: { kind, subject, seen, opened_at: before.opened_at, is_over: true, at: now },
  };
}
