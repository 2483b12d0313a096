/**
 * The operations of the container engine that the agent uses. An engine that does not answer is an
 * error, never an empty list.
 */
import type { ImageConfig } from './image-config.ts';

export type Container = {
  id: string;
  name: string;
  /** The reference with which it was created. */
  image: string;
  imageId: string;
  labels: Record<string, string>;
  /** created, running, paused, restarting, removing, exited, dead. */
  state: string;
  exitCode: number;
  oomKilled: boolean;
  /** RFC 3339; null if it never started. */
  startedAt: string | null;
  /** RFC 3339; null if it never ended. */
  finishedAt: string | null;
  memoryBytes: number | null;
  cpus: number | null;
  /** Restarts by the engine since the container was started by hand or by the agent. */
  restarts: number;
  /** The engine’s error when the container could not start. */
  error: string;
  /** The first published TCP port; null if no port is published. */
  hostPort: number | null;
  /**
   * The host port that its configuration names, also while it is stopped. A restart keeps it. Null:
   * the engine chooses at each start.
   */
  fixedPort: number | null;
  /**
   * The result of the image's HEALTHCHECK; null without one. `output` is what its last run printed.
   */
  health: { status: 'starting' | 'healthy' | 'unhealthy'; output: string } | null;
  /** The signal that `docker stop` sends first (STOPSIGNAL of the image). */
  stopSignal: string;
};

/** Null matches any value of the label. */
export type LabelFilter = Readonly<Record<string, string | null>>;

export type Image = {
  id: string;
  /** Seconds since 1970. */
  created: number;
  refs: readonly string[];
};

/**
 * Mounts a folder of this node at an absolute path in the container. The engine resolves symlinks
 * in `source` at each start.
 */
export type Mount = { source: string; target: string; readonly: boolean };

export type RunSpec = {
  name: string;
  image: string;
  containerPort: number;
  mounts: readonly Mount[];
  /** Id of the network; null for the engine's default network. */
  network: string | null;
  publishIp: string | undefined;
  hostPort: number;
  labels: Record<string, string>;
  env: Record<string, string>;
  /** Variables that touch no disk on their way to the engine. They win over `env`. */
  secretEnv: Record<string, string>;
  memoryBytes: number | null;
  cpus: number | null;
  pidsLimit: number;
  logMaxSize: string;
  logMaxFiles: number;
};

export type PullOptions = {
  signal: AbortSignal;
  timeoutMs: number;
  onLine: (line: string) => void;
};

export type ExecuteOptions = {
  signal: AbortSignal;
  timeoutMs: number;
  onLine?: (line: string) => void;
};
/** The last 64 KiB of each stream. */
export type Executed = { code: number; stdout: string; stderr: string };

export type ReadLogOptions = {
  follow: boolean;
  tail: number | null;
  since: string | null;
  until: string | null;
  onChunk: (chunk: Buffer, stream: 'stdout' | 'stderr') => void;
  signal: AbortSignal;
};

export type Docker = {
  /** Containers that carry all `labels`, running or not. */
  list(labels: LabelFilter, signal?: AbortSignal): Promise<Container[]>;
  /** Finds a container by id or name; null if there is none. */
  inspect(ref: string, signal?: AbortSignal): Promise<Container | null>;
  /** Returns the configuration of an image; null if there is no such image. */
  imageConfig(ref: string, signal: AbortSignal): Promise<ImageConfig | null>;
  /**
   * Returns the bytes of all layers, also of those that other images share; null if there is no
   * such image.
   */
  imageSize(ref: string, signal: AbortSignal): Promise<number | null>;
  /**
   * Returns the id of `user`. For a name, reads /etc/passwd of the image from a container that
   * never starts.
   */
  userOf(
    image: string,
    user: string,
    labels: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<number>;
  /**
   * Throws TaskFailure image_pull_failed, registry_unreachable, registry_failed, registry_refused,
   * disk_full, engine_unavailable.
   */
  pull(ref: string, options: PullOptions): Promise<void>;
  /**
   * Starts a detached container without a restart policy and returns its id. Throws TaskFailure
   * container_start_failed; an unstarted container can remain.
   */
  run(spec: RunSpec, signal: AbortSignal): Promise<string>;
  /** Returns the host port; null if no port is published. */
  hostPort(id: string, containerPort: number, signal: AbortSignal): Promise<number | null>;
  /** Resolves when the container has exited. */
  waitExit(id: string, signal: AbortSignal): Promise<void>;
  restartUnlessStopped(id: string, signal: AbortSignal): Promise<void>;
  /**
   * Returns the policy’s name: no, unless-stopped, …; an empty text if the container does not
   * exist.
   */
  restartPolicy(id: string, signal: AbortSignal): Promise<string>;
  /** Identifies the engine process: the id changes at each start of the engine. Null if unknown. */
  engineStart(signal: AbortSignal): Promise<{ id: string; since: number } | null>;
  start(id: string): Promise<void>;
  restart(ref: string, options: { signal: AbortSignal; timeoutMs: number }): Promise<void>;
  /**
   * Sends `stopSignal` and, after `graceSeconds`, SIGKILL. No error if the container is stopped or
   * does not exist.
   */
  stop(id: string, graceSeconds: number, signal?: AbortSignal): Promise<void>;
  /**
   * Removes a container by id or name, by force, with its anonymous volumes. No error if it does
   * not exist.
   */
  remove(ref: string): Promise<void>;
  /** Returns false if the container does not exist. */
  rename(id: string, name: string): Promise<boolean>;
  lastLines(id: string, count: number): Promise<{ stream: 'stdout' | 'stderr'; text: string }[]>;
  /**
   * Reads the log of a container with the engine's times before each line. `follow`: until the
   * container ends or the signal aborts. `since`, `until`: RFC 3339 by the clock of this node.
   * Resolves with the engine's error, or null.
   */
  logs(id: string, options: ReadLogOptions): Promise<string | null>;
  /**
   * How a container ended last, from the events that the engine still has; null if it has none. The
   * engine keeps 256 events.
   */
  lastEnd(
    id: string,
    since: string,
  ): Promise<{ exitCode: number | null; outOfMemory: boolean } | null>;
  /** Returns the environment of a container as `NAME=value`. */
  envOf(id: string): Promise<string[]>;
  /** Reads files inside the container with its own `cat`; null if that fails. */
  readInside(id: string, paths: readonly string[]): Promise<string | null>;
  /**
   * Runs a command inside the container, as the engine runs a HEALTHCHECK. `isLate`: it had no
   * result in time, and goes on to run.
   */
  runInside(
    id: string,
    command: readonly string[],
    options: { timeoutMs: number; signal: AbortSignal },
  ): Promise<{ ok: boolean; output: string; isLate: boolean }>;
  /**
   * Runs a command inside a container to its end. Rejects if its deadline passed, and it goes on to
   * run.
   */
  execute(ref: string, command: readonly string[], options: ExecuteOptions): Promise<Executed>;
  images(repository: string): Promise<Image[]>;
  /** Ids of all images that have a container, including containers that Berth did not start. */
  imagesInUse(): Promise<Set<string>>;
  /** Removes without force. Returns false if the engine refuses because the image is in use. */
  removeImageRef(ref: string): Promise<boolean>;
  /** Calls `onEvent` for each container event. Resolves or rejects when the stream ends. */
  events(
    labels: LabelFilter,
    onEvent: (action: string, id: string) => void,
    signal: AbortSignal,
  ): Promise<void>;
  /** Version of the engine. Throws TaskFailure engine_unavailable. */
  version(signal: AbortSignal): Promise<{ version: string; arch: string }>;
};
