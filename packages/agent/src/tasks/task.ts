/** What a task's work gets and gives. */
import type { CopyProgress } from '@berth/wire/dataset';
import type { LogLineIn, TaskOf, TaskReport } from '@berth/wire/task';
import type { TaskKind } from '@berth/wire/vocabulary';

export type TaskContext = {
  attempt: number;
  /** Aborted with `Stopped`. The work cleans up and rejects. */
  signal: AbortSignal;
  log(line: LogLineIn): void;
  /** A line of the agent's own. */
  say(step: string, text: string): void;
  /** How far its copies are; the newest is sent when it can be. */
  progress(datasets: readonly CopyProgress[]): void;
};

export type Product = {
  report: TaskReport;
  /** Undoes the work when the control plane did not want the report: somebody else has the task. */
  discard(): Promise<void>;
};

/** Rejects with TaskFailure (reported), Stopped (see there) or anything else (reported as task_failed). */
export type Handler<K extends TaskKind> = (task: TaskOf<K>, context: TaskContext) => Promise<Product>;
export type Handlers = { [K in TaskKind]: Handler<K> };

/** Why a node has no cache; its log says more. */
export const NO_DATASETS = 'this node takes no datasets: it is no deploy node, or its SVC_ROOT cannot be written';

export const nothingToDiscard = async (): Promise<void> => undefined;
