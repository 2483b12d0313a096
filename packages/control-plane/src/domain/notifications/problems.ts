/**
 * Problems that notifications report. Kind and subject identify a problem, so that it is reported
 * only once until it is over. Pure.
 *
 *   (none) ── observed ──▶ open
 *   open ── no longer observed ──▶ going
 *   going ── observed again ──▶ open (not reported)
 *   going ── after a quiet time, which is longer for a flapping problem ──▶ ended
 *   ended ── observed again ──▶ open
 */
import type { ProblemKind } from '@berth/wire/notification';

/** Texts for people about a problem or its end. */
export type Seen = {
  /** One sentence without a full stop. */
  title: string;
  detail: string | null;
  /** Advice on what to do; null for the end of a problem. */
  advice: string | null;
  /** Path below PUBLIC_URL; null: none. */
  path: string | null;
  /** Projects that the problem concerns. */
  project_ids: string[];
  /**
   * Projects that run on the node. `seenBy` adds their names to `detail`, but only those that the
   * readers of the notification are allowed to see.
   */
  runs?: { id: string; name: string }[];
  /** Text before the names of `runs`; the default is `Projects that run there`. */
  runs_text?: string;
};

export type Observation = {
  kind: ProblemKind;
  subject: string;
  /**
   * When a control plane observed it outside the database, so that other control planes might not
   * know it yet; null: it was derived from the database.
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
  /** Returns the problems that have not ended, by key. */
  open(): Promise<Map<string, ProblemRecord>>;
  /**
   * Judges the observations and writes the changes. Several control planes can call it
   * concurrently. Returns the number of changes.
   */
  observe(observations: readonly Observation[], clock: Clock): Promise<number>;
  /**
   * Returns the running deployment of each project, and its newest deployment that ran or failed.
   * `ids` null: all projects.
   */
  projects(ids: readonly string[] | null): Promise<ProjectStanding[]>;
  /** Returns the nodes with lost instances, each with the projects of these instances. */
  lostNodes(): Promise<LostNode[]>;
  /** Returns the projects with a running deployment on each of these nodes. */
  onNodes(nodeIds: readonly string[]): Promise<Map<string, { id: string; name: string }[]>>;
  /**
   * Returns, for each of these datasets, the ids of projects whose running deployments mount it.
   */
  onDatasets(datasetIds: readonly string[]): Promise<Map<string, string[]>>;
  /** Removes expired changes and expired ended problems. Returns the number of rows. */
  sweep(now: number): Promise<number>;
};
/** `hostname`: null for a deleted node. */
export type LostNode = {
  id: string;
  hostname: string | null;
  projects: { id: string; name: string }[];
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
  /**
   * An instance of a process without HTTP that is unhealthy, and why; null: there is none. The
   * project can answer requests all the same.
   */
  failing?: { process: string; number: number; detail: string | null } | null;
};

const MINUTE = 60_000;
/**
 * Quiet time: a problem is over after it has not been observed for this long. A failed deployment
 * is over as soon as a newer deployment runs.
 */
const QUIET_MS: Record<ProblemKind, number> = {
  failed: 0,
  unhealthy: 2 * MINUTE,
  node_offline: MINUTE,
  failover: MINUTE,
  disk: 5 * MINUTE,
  dataset: MINUTE,
  certificate: 0,
  job_failed: 0,
};
/** A problem that returns within this time after its end counts as flapping. */
const FLAP_MS = 60 * MINUTE;
const FREE_FLAPS = 2;
const LONGEST_QUIET_MS = 60 * MINUTE;

/**
 * Returns the quiet time in ms. It doubles with each return after the second, up to
 * LONGEST_QUIET_MS.
 */
export const quietMs = (kind: ProblemKind, flaps: number): number =>
  flaps <= FREE_FLAPS
    ? QUIET_MS[kind]
    : Math.min(LONGEST_QUIET_MS, Math.max(QUIET_MS[kind], MINUTE) * 2 ** (flaps - FREE_FLAPS));

/** Retention of ended problems, needed to detect flapping. */
export const ENDED_KEPT_MS = 24 * 60 * MINUTE;
/** Maximum number of changes that are kept for notifications whose target is down. */
export const KEPT_CHANGES = 20_000;

export const problemKey = ({ kind, subject }: Pick<ProblemRecord, 'kind' | 'subject'>): string =>
  `${kind} ${subject}`;

type Judged = { record: ProblemRecord; change: ProblemChange | null };

/** Returns the changes that an observation causes, or null. */
export function judge(
  before: ProblemRecord | null,
  observation: Observation,
  { now, uptime }: Clock,
): Judged | null {
  const { kind, subject, at, isProblem, seen } = observation;
  // An observation must not overwrite a newer one that a different control plane made.
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
