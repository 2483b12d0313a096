/** The context that a task handler receives, and the product that it returns. */
import type { CopyProgress } from '@berth/wire/dataset';
import type { GitAccess } from '@berth/wire/git';
import type { ClaimedSecret, LogLineIn, TaskFacts, TaskOf, TaskReport } from '@berth/wire/task';
import type { TaskKind } from '@berth/wire/vocabulary';

export type TaskContext = {
  attempt: number;
  /** The lease token, for requests of the work itself. */
  lease?: string;
  /** Access to the repository; absent or null if the control plane sends none. Never log it. */
  git?: GitAccess | null;
  /** Aborted with `Stopped` as its reason. The handler then cleans up and rejects. */
  signal: AbortSignal;
  log(line: LogLineIn): void;
  /**
   * For a program that prints a lot: it waits while the promise is pending. Null: the log has room.
   */
  room(): Promise<void> | null;
  /** Adds a line of the agent itself to the deployment log. */
  logStep(step: string, text: string): void;
  /** Begins a span of the trace; call the returned function at its end. Absent: traces are off. */
  span?: (name: string) => (failed?: boolean) => void;
  /**
   * Secrets of the claim. Everything that is logged or reported passes a filter that removes their
   * values.
   */
  secrets: readonly ClaimedSecret[];
  /** Changes with a name or a value of `secrets`; null without secrets. */
  secretsDigest: string | null;
  /** Reports the progress of the copies of datasets. Only the newest report is sent. */
  progress(datasets: readonly CopyProgress[]): void;
  /**
   * Sends facts at once, and again with the report, so that a failed, cancelled or lost attempt
   * keeps them.
   */
  learned(facts: TaskFacts): void;
  /**
   * Reports that a container of the failed or cancelled attempt can still run, because removing it
   * failed: its id or its name.
   */
  leaves?: (container: string) => void;
  /**
   * Adds a line to the story of the deployment; it is sent with the report, whatever the end is.
   */
  note(kind: string, message: string): void;
};

/** Runs one step of a task as a span of its trace. */
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
   * Undoes the work when the control plane refuses the report, because another attempt has the
   * task.
   */
  discard(): Promise<void>;
};

/**
 * Rejects with TaskFailure (reported), Stopped (stopped.ts) or any other error (reported as
 * task_failed).
 */
export type Handler<K extends TaskKind> = (
  task: TaskOf<K>,
  context: TaskContext,
) => Promise<Product>;
export type Handlers = { [K in TaskKind]: Handler<K> };

/** The failure text on a node without a dataset cache. */
export const NO_DATASETS =
  'this node takes no datasets: it is not a deploy node, or its agent cannot write to SVC_ROOT ' +
  '(see the agent’s log)';

export const nothingToDiscard = async (): Promise<void> => undefined;
