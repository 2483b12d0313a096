/** Stores and transport of runtime logs (wire/runtime.ts). */
import type { RuntimeStream } from '@berth/wire/runtime';

/**
 * A log that one control plane (`owner`) requests from a node for its readers. Times are by the
 * machine's clock, except `expires_at` (uptime clock).
 */
export type WantRecord = {
  key: string;
  owner: string;
  node_id: string;
  deployment_id: string;
  /** Label of the container (LogWant); an earlier version stores null for every log. */
  instance: string | null;
  mode: 'follow' | 'read';
  tail: number;
  since_at: number | null;
  until_at: number | null;
  stream: RuntimeStream | null;
  /** Time of the owner's newest cursor, by the clock of the node. */
  position: string | null;
  expires_at: number;
};

export type LogWantStore = {
  /** Adds a request for a log, or renews it with its position. Also removes expired requests. */
  put(want: WantRecord, uptime: number): Promise<void>;
  remove(key: string, owner: string): Promise<void>;
  /** Removes the requests for logs of a control plane that is shutting down. */
  removeOwner(owner: string): Promise<void>;
  /** Returns the requests for logs that have not expired. `node_id`: only requests to this node. */
  list(uptime: number, node_id?: string): Promise<WantRecord[]>;
};

export type ExitLineRecord = { at: string; stream: RuntimeStream; text: string };
export type ExitRecord = {
  deployment_id: string;
  process: string;
  /** Number of its instance. */
  instance: number;
  node_id: string | null;
  container: string;
  exit_code: number | null;
  out_of_memory: boolean;
  error: string | null;
  started_at: number | null;
  finished_at: number | null;
  lines: ExitLineRecord[];
  truncated: boolean;
};
export type ExitStore = {
  /**
   * Stores the exit of a container; `run` identifies one run of one container. Keeps the newest
   * exits of each instance of a deployment. Returns false if the deployment does not exist or its log was
   * removed.
   */
  add(exit: ExitRecord & { run: string }, now: number): Promise<boolean>;
  /** Returns the ids of the given deployments that run on the node or had a task there. */
  ranOn(nodeId: string, deploymentIds: readonly string[]): Promise<Set<string>>;
  /** Returns the container exits of a deployment, newest first. */
  list(deploymentId: string): Promise<ExitRecord[]>;
};

/**
 * Carries batches of lines to another control plane of the same database. Stores nothing, so a lost
 * message is a gap in the chain of batches. Null if there is only one control plane.
 */
export type LogRelay = {
  /** Identifies this control plane. */
  owner: string;
  /**
   * Sends a message to another control plane. Never throws and never blocks. Drops the message if
   * the queue is full.
   */
  send(owner: string, message: string): void;
  subscribe(listener: (message: string) => void): void;
};
