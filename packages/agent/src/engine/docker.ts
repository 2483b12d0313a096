/**
 * The operations of the container engine that the agent uses. If the engine does not answer, they
 * throw and never return an empty list.
 */
import type { Duplex } from 'node:stream';
import type { ImageConfig } from './image-config.ts';

export type Container = {
  id: string;
  name: string;
  /** The image reference with which the container was created. */
  image: string;
  imageId: string;
  labels: Record<string, string>;
  /** One of created, running, paused, restarting, removing, exited, dead. */
  state: string;
  exitCode: number;
  oomKilled: boolean;
  /** RFC 3339; null if the container never started. */
  startedAt: string | null;
  /** RFC 3339; null if the container never ended. */
  finishedAt: string | null;
  memoryBytes: number | null;
  cpus: number | null;
  /** Number of restarts by the engine since a person or the agent last started the container. */
  restarts: number;
  /** The engine’s error when the container could not start. */
  error: string;
  /** The first published TCP port; null if no port is published. */
  hostPort: number | null;
  /**
   * The host port in the container's configuration, which it keeps after a restart and while
   * stopped. Null if the engine chooses a port at each start.
   */
  fixedPort: number | null;
  /**
   * Result of the image's HEALTHCHECK; null if the image has none. `output`: text that its last run
   * printed.
   */
  health: { status: 'starting' | 'healthy' | 'unhealthy'; output: string } | null;
  /** The first signal that `docker stop` sends (STOPSIGNAL of the image). */
  stopSignal: string;
};

/** Labels to match; null matches any value of the label. */
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

/** A container without a port. */
export type ContainerSpec = {
  name: string;
  image: string;
  mounts: readonly Mount[];
  /** Id of the network; null for the engine's default network. */
  network: string | null;
  labels: Record<string, string>;
  env: Record<string, string>;
  /** Secret variables, which are never written to disk. They override `env`. */
  secretEnv: Record<string, string>;
  memoryBytes: number | null;
  cpus: number | null;
  /** CDI devices, such as `nvidia.com/gpu=0`. */
  devices: readonly string[];
  pidsLimit: number;
  logMaxSize: string;
  logMaxFiles: number;
};
/**
 * A container of a deployment. `command` replaces ENTRYPOINT and CMD of the image; null: those of
 * the image. `port` is null for a process without HTTP.
 */
export type RunSpec = ContainerSpec & {
  command: readonly string[] | null;
  port: PublishedPort | null;
};
export type PublishedPort = {
  containerPort: number;
  publishIp: string | undefined;
  hostPort: number;
};
/** A container that executes a command, which replaces ENTRYPOINT and CMD of the image. */
export type CommandSpec = ContainerSpec & {
  command: readonly string[];
  /** True: the command has a standard input, which ends with the connection of `attachInput`. */
  stdin?: boolean;
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
/** Exit code, and the last 64 KiB of each stream. */
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
  /** Returns containers that carry all `labels`, running or stopped. */
  list(labels: LabelFilter, signal?: AbortSignal): Promise<Container[]>;
  /** Finds a container by id or name; null if there is none. */
  inspect(ref: string, signal?: AbortSignal): Promise<Container | null>;
  /** Returns the configuration of an image; null if there is no such image. */
  imageConfig(ref: string, signal: AbortSignal): Promise<ImageConfig | null>;
  /**
   * Returns the size of all layers in bytes, including layers shared with other images; null if the
   * image does not exist.
   */
  imageSize(ref: string, signal: AbortSignal): Promise<number | null>;
  /**
   * Returns the id of `user`. For a name, reads /etc/passwd of the image from a container that it
   * never starts.
   */
  userOf(
    image: string,
    user: string,
    labels: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<number>;
  /**
   * Pulls an image. Throws TaskFailure image_pull_failed, registry_unreachable, registry_failed,
   * registry_refused, disk_full, engine_unavailable.
   */
  pull(ref: string, options: PullOptions): Promise<void>;
  /**
   * Starts a detached container without a restart policy and returns its id. Throws TaskFailure
   * container_start_failed; a container that did not start can remain.
   */
  run(spec: RunSpec, signal: AbortSignal): Promise<string>;
  /**
   * Creates a container for a command and returns its id, without starting it. Throws TaskFailure
   * container_start_failed.
   */
  createCommand(spec: CommandSpec, signal: AbortSignal): Promise<string>;
  /** Connects to the standard input of a container, which may not have started yet. */
  attachInput(id: string, signal: AbortSignal): Promise<Duplex>;
  /** Returns the host port; null if no port is published. */
  hostPort(id: string, containerPort: number, signal: AbortSignal): Promise<number | null>;
  /** Resolves when the container has exited. */
  waitExit(id: string, signal: AbortSignal): Promise<void>;
  restartUnlessStopped(id: string, signal: AbortSignal): Promise<void>;
  /**
   * Returns the name of the policy (no, unless-stopped, …); empty if the container does not exist.
   */
  restartPolicy(id: string, signal: AbortSignal): Promise<string>;
  /** Identifies the engine process: the id changes whenever the engine starts. Null if unknown. */
  engineStart(signal: AbortSignal): Promise<{ id: string; since: number } | null>;
  start(id: string): Promise<void>;
  restart(ref: string, options: { signal: AbortSignal; timeoutMs: number }): Promise<void>;
  /**
   * Sends `stopSignal`, and SIGKILL after `graceSeconds`. Succeeds if the container is already
   * stopped or does not exist.
   */
  stop(id: string, graceSeconds: number, signal?: AbortSignal): Promise<void>;
  /**
   * Removes a container by id or name, by force, with its anonymous volumes. Succeeds if the
   * container does not exist.
   */
  remove(ref: string): Promise<void>;
  /** Returns false if the container does not exist. */
  rename(id: string, name: string): Promise<boolean>;
  lastLines(id: string, count: number): Promise<{ stream: 'stdout' | 'stderr'; text: string }[]>;
  /**
   * Reads the log of a container with the engine's timestamp before each line. `follow`: reads
   * until the container ends or the signal aborts. `since`, `until`: RFC 3339 by the clock of this
   * node. Resolves with the engine's error, or null.
   */
  logs(id: string, options: ReadLogOptions): Promise<string | null>;
  /**
   * Returns how the container last ended, from the engine's stored events; null if the engine no
   * longer has the event. The engine stores 256 events.
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
   * Runs a command inside the container, as the engine runs a HEALTHCHECK. `isLate`: the command
   * missed its deadline and keeps running.
   */
  runInside(
    id: string,
    command: readonly string[],
    options: { timeoutMs: number; signal: AbortSignal },
  ): Promise<{ ok: boolean; output: string; isLate: boolean }>;
  /**
   * Runs a command inside a container until it exits. Rejects if the deadline passed; the command
   * then keeps running.
   */
  execute(ref: string, command: readonly string[], options: ExecuteOptions): Promise<Executed>;
  images(repository: string): Promise<Image[]>;
  /**
   * Returns the ids of all images used by a container, including containers that Berth did not
   * start.
   */
  imagesInUse(): Promise<Set<string>>;
  /**
   * Removes an image reference without force. Returns false if the engine refuses because the image
   * is in use.
   */
  removeImageRef(ref: string): Promise<boolean>;
  /** Calls `onEvent` for each container event. Resolves or rejects when the stream ends. */
  events(
    labels: LabelFilter,
    onEvent: (action: string, id: string) => void,
    signal: AbortSignal,
  ): Promise<void>;
  /** Returns the version of the engine. Throws TaskFailure engine_unavailable. */
  version(signal: AbortSignal): Promise<{ version: string; arch: string }>;
};
