/** The context that a task handler receives, and the product that it returns. */
import type { CopyProgress } from '@berth/wire/dataset';
import type { GitAccess } from '@berth/wire/git';
import type { ClaimedSecret, LogLineIn, TaskFacts, TaskOf, TaskReport } from '@berth/wire/task';
import type { TaskKind } from '@berth/wire/vocabulary';

export type TaskContext = {
  attempt: number;
  /** The lease token, for requests that the work itself sends. */
  lease?: string;
  /** Access to the repository; absent or null if the control plane sends none. Never log it. */
  git?: GitAccess | null;
  /** Aborted with `Stopped` as its reason. The handler must then clean up and reject. */
  signal: AbortSignal;
  log(line: LogLineIn): void;
  /**
   * Returns a promise to wait for if the log is full, or null. A program with much output waits
   * until the promise resolves.
   */
  room(): Promise<void> | null;
  /** Adds a message of the agent to the deployment log. */
  logStep(step: string, text: string): void;
  /**
   * Begins a span of the trace. Call the returned function at the end of the span. Absent if traces
   * are off.
   */
  span?: (name: string) => (failed?: boolean) => void;
  /** Secrets of the claim. A filter removes their values from all logged or reported text. */
  secrets: readonly ClaimedSecret[];
  /** Digest that changes with the name or value of any secret; null without secrets. */
  secretsDigest: string | null;
  /**
   * Set for a run: the engine's time of the last line of the command that the control plane has;
   * null: none.
   */
  loggedUntil?: string | null;
  /** Reports the progress of dataset copies. Only the newest report is sent. */
  progress(datasets: readonly CopyProgress[]): void;
  /**
   * Sends facts at once, and again with the report, so that they are kept if the attempt fails, is
   * cancelled or is lost.
   */
  learned(facts: TaskFacts): void;
  /**
   * Reports the id or name of a container that might still run, because removing it failed, after a
   * failed or cancelled attempt.
   */
  leaves?: (container: string) => void;
  /** Adds a note to the deployment. The report includes the note, whatever the outcome is. */
  note(kind: string, message: string): void;
};

/** Runs one step of a task as a span of the trace. */
export async function traced<T>(
  { span }: Pick<TaskContext, 'span'>,
  name: string,
  work: () => Promise<T>,
): Promise<T> {
  const end = span?.(name);
  try {
    const result = await work();
    end?.();
    return result;
  } catch (error) {
    end?.(true);
    throw error;
  }
}

export type Product = {
  report: TaskReport;
  /**
   * Undoes the work if the control plane refuses the report because another attempt has the task.
   */
  discard(): Promise<void>;
  /** Called after the control plane has accepted the report. */
  accepted?(): Promise<void>;
};

/**
 * Does the work of a task. Rejects with TaskFailure (reported), Stopped (stopped.ts) or any other
 * error (reported as task_failed).
 */
export type Handler<K extends TaskKind> = (
  task: TaskOf<K>,
  context: TaskContext,
) => Promise<Product>;
export type Handlers = { [K in TaskKind]: Handler<K> };

/** The failure message on a node without a dataset cache. */
export const NO_DATASETS =
  'this node takes no datasets: it is not a deploy node, or its agent cannot write to SVC_ROOT ' +
  '(see the agent’s log)';

export const nothingToDiscard = async (): Promise<void> => undefined;
