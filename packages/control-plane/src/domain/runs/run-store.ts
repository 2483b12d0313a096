/**
 * Runs: executions of commands in containers of their own (wire/run.ts). Their tasks belong to no
 * plan, and their rows name no project. Implemented in store/runs.ts.
 *
 *   pending ──offer──▶ pending with a task ──claim──▶ running ──report──▶ succeeded, failed,
 *      ▲                   │                             │                  cancelled, lost
 *      └── not claimed ────┘                             └─ lease lost: the same node gets it again
 *
 * A command is handed to another node only while no agent has claimed its task, or within
 * `retries`: after a claim it might have started.
 */
import type { DeviceCounts } from '@berth/wire/machine';
import type { RunPayload } from '@berth/wire/run-payload';
import type { RunState, RunTrigger } from '@berth/wire/run';
import type { LogLineIn, TaskReport } from '@berth/wire/task';
import type { TaskState } from '@berth/wire/vocabulary';
import type { Overdue } from '../deployments/task-store.ts';
import type { Guarded } from '../identity/access.ts';
import type { DeviceLease, DeviceTake } from '../nodes/room.ts';
import type { Page, Paged } from '../platform/page.ts';
import type { Failure, LogLineRecord, NodeLoss, TaskRecord } from '../platform/records.ts';

export type RunRecord = {
  id: string;
  project_id: string;
  /** Name of the job; null: no job. */
  job: string | null;
  trigger: RunTrigger;
  command: string[];
  /** Variables that the request added to those of the release; empty after the end. */
  env: Record<string, string>;
  env_names: string[];
  status: RunState;
  /** Why it waits or did not run, for people. */
  reason: string | null;
  scheduled_for: number | null;
  timeout_seconds: number;
  /** Null: the limit of the release; the same for `cpus`. */
  memory_bytes: number | null;
  cpus: number | null;
  /** Devices that only this run has while it has a node; null: none. */
  devices: DeviceCounts | null;
  /** The person sends standard input; the command starts when it is there. */
  stdin: boolean;
  /** How often a lost run can be handed to a node again. */
  retries: number;
  /** How often it was handed to a node. */
  attempt: number;
  losses: NodeLoss[];
  /** The deployment whose release it uses; null until a node was chosen. */
  deployment_id: string | null;
  node_id: string | null;
  /** Its present task; null: it waits for a node, or has ended. */
  task_id: string | null;
  cancel_requested_at: number | null;
  exit_code: number | null;
  error: Failure | null;
  /** The engine's time of the last stored line of the command, with nanoseconds. */
  logged_until: string | null;
  /** E-mail address. */
  created_by: string | null;
  created_at: number;
  /** Uptime clock: a run that has no node by then fails. Runs are in its order. */
  queue_deadline_at: number;
  started_at: number | null;
  ended_at: number | null;
};

export type NewRun = Pick<
  RunRecord,
  | 'id'
  | 'project_id'
  | 'job'
  | 'trigger'
  | 'command'
  | 'env'
  | 'scheduled_for'
  | 'timeout_seconds'
  | 'memory_bytes'
  | 'cpus'
  | 'devices'
  | 'stdin'
  | 'retries'
  | 'created_by'
  | 'queue_deadline_at'
>;

export type RunOffer = {
  run_id: string;
  deployment_id: string;
  task: {
    id: string;
    node_id: string;
    queue_deadline_at: number;
    wall_deadline_at: number;
    payload: RunPayload;
  };
  /** The devices of the payload. */
  takes: readonly DeviceTake[];
};

/** How a run ends without a report of an agent. */
export type RunEnd = {
  status: Exclude<RunState, 'pending' | 'running'>;
  reason: string | null;
  error: Failure | null;
};

/** A command that a node has or will get. `run_id`: null for a release command. */
export type RunOnNode = Pick<RunPayload, 'project_id' | 'project' | 'timeout_seconds'> & {
  run_id: string | null;
  deployment_id: string;
};

/** Error text for a missing run, and for one that the caller cannot see. */
export const noRun = (id: string): string => `no run has the id ${id}; see: berth runs list`;

/** Returns the id of the run that the task executes. */
export const runIdOf = (task: Pick<TaskRecord, 'payload'>): string =>
  (task.payload as RunPayload).run_id;

export type RunFilter = { status?: RunState; job?: string };

export type RunStore = {
  /** Throws too_many_requests if the project has MAX_OPEN_RUNS open runs. */
  create(run: NewRun, now: number): Promise<RunRecord>;
  /** Throws not_found. */
  get(id: string): Promise<RunRecord>;
  projectOf(id: string): Promise<Guarded | null>;
  list(projectId: string, filter: RunFilter, page: Page): Promise<Paged<RunRecord>>;
  /** Returns the runs that have not ended, oldest first by the uptime clock. */
  open(): Promise<RunRecord[]>;
  /** Returns the open commands of the node, oldest first. */
  onNode(nodeId: string): Promise<RunOnNode[]>;
  /**
   * Creates the task of a waiting run, and the leases of its devices. Returns false if the run does
   * not wait any more, or if another container has taken one of the devices.
   */
  offer(offer: RunOffer, now: number): Promise<boolean>;
  /**
   * Notes the ends of tasks whose runs have devices, however they ended. Returns how many devices
   * ended tasks still hold. `at`: by the uptime clock.
   */
  endDevices(at: number): Promise<number>;
  /** Frees devices of ended tasks. */
  freeDevices(leases: readonly DeviceLease[]): Promise<void>;
  setReason(id: string, reason: string): Promise<void>;
  /**
   * Cancels a run: at once if no agent has claimed its task, else through its agent. Throws
   * not_found, wrong_state if it has ended.
   */
  cancel(id: string, reason: string, now: number): Promise<RunRecord>;
  /** Ends an open run that has no open task. Returns false if it has one, or has ended. */
  end(id: string, end: RunEnd, now: number): Promise<boolean>;
  /** Ends the task with the report of its agent, and the run. Throws stale_lease, task_over. */
  endTask(
    taskId: string,
    leaseToken: string | null,
    report: TaskReport,
    now: number,
  ): Promise<{ status: TaskState }>;
  /**
   * Handles an overdue task. `offerUntil`: by the uptime clock, how long a claimed task is offered
   * to its node again. Returns false if the task has changed since it was read.
   */
  loseTask(task: TaskRecord, why: Overdue, now: number, offerUntil: number): Promise<boolean>;
  /** Stores output lines, as LogStore.append does. Throws not_found. */
  appendLog(
    runId: string,
    source: { task_id: string; attempt: number; first: number | null },
    lines: readonly LogLineIn[],
    now: number,
  ): Promise<number>;
  readLog(runId: string, after: number, limit: number): Promise<LogLineRecord[]>;
  /** Removes the oldest ended runs beyond those that are kept. Returns how many it removed. */
  sweep(): Promise<number>;
};
