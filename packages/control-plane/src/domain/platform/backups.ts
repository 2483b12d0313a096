/** Records of the last backups, and the schedule of the next one. */

export type BackupRecord = {
  id: string;
  scheduled: boolean;
  /** Folder or address, without credentials. */
  target: string;
  name: string | null;
  bytes: number | null;
  error: string | null;
  started_at: number;
  /** Null while the backup runs, or if its process died. */
  finished_at: number | null;
};

export type BackupStore = {
  /**
   * Records the start of a backup. `unlessRunning`: resolves with false and records nothing while
   * another backup runs.
   */
  begin(
    backup: Pick<BackupRecord, 'id' | 'scheduled' | 'target' | 'started_at'>,
    unlessRunning: boolean,
  ): Promise<boolean>;
  end(
    id: string,
    result: { name: string; bytes: number } | { error: string },
    now: number,
  ): Promise<void>;
  /** Returns the last backups, newest first. */
  list(): Promise<BackupRecord[]>;
};

/** Record of a restore in the database. */
export type Restored = {
  /** Name of the backup. */
  name: string;
  backup_at: string;
  restored_at: string;
  as_new: boolean;
};
/** Key in `meta` of the Restored record as JSON. */
export const RESTORED = 'restored';

/** Time limit of a backup. Berth then kills its process, and the backup has failed. */
export const LONGEST_BACKUP_MS = 2 * 3_600_000;
/** Pause before a retry after a failure, unless the interval is shorter. */
const RETRY_MS = 5 * 60_000;

export const lastGood = (backups: readonly BackupRecord[]): BackupRecord | null =>
  backups
    .filter((b) => b.finished_at !== null && b.error === null)
    .sort((a, b) => b.started_at - a.started_at)[0] ?? null;

/** Returns whether the last backup that ended has failed. `backups`: newest first. */
export const isFailing = (backups: readonly BackupRecord[]): boolean =>
  (backups.find((b) => b.finished_at !== null)?.error ?? null) !== null;

/** Returns when the next scheduled backup is due, in ms since the epoch. */
export function nextBackupAt(backups: readonly BackupRecord[], intervalMs: number): number {
  const scheduled = backups.filter((b) => b.scheduled);
  const good = lastGood(scheduled);
  const tried = Math.max(Number.NEGATIVE_INFINITY, ...scheduled.map((b) => b.started_at));
  const due = good === null ? Number.NEGATIVE_INFINITY : good.started_at + intervalMs;
  return Math.max(due, tried + Math.min(RETRY_MS, intervalMs));
}

/**
 * Returns whether the last good backup is older than two intervals plus the pause before a retry.
 */
export const isLate = (good: BackupRecord | null, intervalMs: number, now: number): boolean =>
  good === null || now - good.started_at > 2 * intervalMs + RETRY_MS;

/** Report of a scheduled backup. */
export type ScheduledBackup = { name: string; target: string; bytes: number; deleted: string[] };

/**
 * Settings of scheduled backups (BACKUP_TO and others). `run` makes one backup in another process;
 * returns null if another backup was running.
 */
export type BackupSettings = {
  intervalMs: number;
  run(signal: AbortSignal): Promise<ScheduledBackup | null>;
};
