/**
 * Jobs: commands with a schedule. Each time gives one run, or one record that says why not.
 * Implemented in store/jobs.ts.
 */
import type { DeviceCounts } from '@berth/wire/machine';
import type { Overlap } from '@berth/wire/job';
import type { NewRun, RunRecord } from './run-store.ts';

export type JobRecord = {
  project_id: string;
  name: string;
  schedule: string;
  timezone: string;
  command: string[];
  enabled: boolean;
  overlap: Overlap;
  timeout_seconds: number;
  memory_bytes: number | null;
  cpus: number | null;
  /** Null in a row of an earlier version: none. */
  devices: DeviceCounts | null;
  retries: number;
  /** The next time, by the machine's clock; null: disabled. Each time belongs to one claim of it. */
  next_at: number | null;
  /** The file of the repository that sets the job, and its commit; null: people do. */
  config_file: string | null;
  config_commit: string | null;
  created_by: string | null;
  created_at: number;
  updated_at: number;
};
export type JobSettings = Omit<
  JobRecord,
  | 'project_id'
  | 'name'
  | 'next_at'
  | 'config_file'
  | 'config_commit'
  | 'created_by'
  | 'created_at'
  | 'updated_at'
>;

/** A run to record for a scheduled time. `not`: why it does not run. */
export type DueRun = NewRun & {
  not: { status: 'missed' | 'skipped'; reason: string } | null;
};

/** The reason of an earlier run that ends because the next one begins (overlap: cancel). */
export const NEXT_BEGAN = 'the next run of the job began (overlap: cancel)';

/** A job as the caller has read it. */
export type DueJob = Pick<JobRecord, 'project_id' | 'name' | 'schedule' | 'timezone'>;

/** A failed run, with the name of its project. */
export type FailingRun = RunRecord & { project: string };

/** A run of a job. */
export type JobRun = NewRun & { job: string };
/** `cancelled`: the earlier runs, whose nodes stop them. */
export type BegunRun = { run: RunRecord; cancelled: readonly RunRecord[] };

export type JobStore = {
  /** Throws name_taken, too_many_requests (MAX_JOBS). */
  create(job: JobRecord): Promise<void>;
  /** Throws not_found. */
  get(projectId: string, name: string): Promise<JobRecord>;
  list(projectId: string): Promise<JobRecord[]>;
  /** Throws not_found, set_by_file. */
  change(
    projectId: string,
    name: string,
    set: JobSettings & Pick<JobRecord, 'next_at' | 'updated_at'>,
  ): Promise<void>;
  /** Throws not_found, set_by_file. */
  delete(projectId: string, name: string): Promise<void>;
  /** Returns the enabled jobs of all projects that are not being deleted. */
  enabled(): Promise<JobRecord[]>;
  /** Returns the runs of the job that have not ended, oldest first. */
  openRuns(projectId: string, name: string): Promise<RunRecord[]>;
  /**
   * Creates a run that a person asked for, and cancels the earlier ones if `overlap` says so, in one
   * transaction. Throws wrong_state if `overlap` refuses it, too_many_requests.
   */
  begin(run: JobRun, overlap: JobRecord['overlap'], now: number): Promise<BegunRun>;
  /** Returns the newest run of each job of the project, by name. */
  lastRuns(projectId: string): Promise<Map<string, RunRecord>>;
  /**
   * Records the runs of a job and moves its next time, if that is still `from` and the schedule is
   * still that of `job`: one control plane does this for each time. A time that has a run already
   * gets no second one. The earlier runs `cancel` end if a new one begins. Does nothing if a run
   * that is not in `open` has begun meanwhile: the job is due again.
   */
  due(
    job: DueJob,
    times: { from: number | null; next: number | null },
    plan: { runs: readonly DueRun[]; cancel: readonly string[]; open?: readonly string[] },
    now: number,
  ): Promise<boolean>;
  /**
   * Returns the newest run of each job that has failed since its last success. Skipped, missed and
   * cancelled runs say nothing about the command.
   */
  failing(): Promise<FailingRun[]>;
};
