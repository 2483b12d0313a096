/**
 * The operations of the container engine that the agent uses. An engine that does not answer is an
 * error, never an empty list.
 */
import { randomUUID } from 'node:crypto';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { defined } from '@berth/kit/defined';
import { failPoint } from '@berth/kit/fail-point';
import { ExecError } from '@berth/kit/exec';
import { pause } from '../stopped.ts';
import type { DockerCli } from './docker-cli.ts';
import { classify, outputTail, PULL_FAILURES, TaskFailure } from '../failures.ts';
import { startHint } from './start-failures.ts';
import { type ImageConfig, type RawImageConfig, readImageConfig } from './image-config.ts';

export type Container = {
  id: string;
  name: string;
  /** The reference that `docker run` received. */
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
  pull(
    ref: string,
    options: { signal: AbortSignal; timeoutMs: number; onLine: (line: string) => void },
  ): Promise<void>;
  /**
   * Starts a detached container without a restart policy and returns its id. Throws TaskFailure
   * container_start_failed; an unstarted container may remain.
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
   * Resolves with the docker command's own error, or null.
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
  /** Version of the engine, not of the docker command. Throws TaskFailure engine_unavailable. */
  version(signal: AbortSignal): Promise<{ version: string; arch: string }>;
};

/** A clean-up restarts the registry, also while a rollback or a drain pulls. */
const PULL_PAUSES_MS = [1_000, 2_000, 5_000];
/** Traefik’s answer for a registry in a container that restarts. */
const NO_ROUTE = /404 page not found/;
/**
 * Longest answer of the engine that is parsed, in characters. A longer answer about several
 * containers is requested in halves.
 */
const MAX_ANSWER = 64 * 1024 * 1024;
const CONTAINER_GONE =
  /no such (container|object)|is not running|removal of container .* is already in progress/i;
const filters = (labels: LabelFilter): string[] =>
  Object.entries(labels).flatMap(([k, v]) => [
    '--filter',
    v === null ? `label=${k}` : `label=${k}=${v}`,
  ]);
const lines = (text: string): string[] => text.split('\n').filter((l) => l !== '');

export function createDocker(cli: DockerCli, options: { scratchDir: string }): Docker {
  async function inspectAll(refs: readonly string[], signal?: AbortSignal): Promise<Container[]> {
    if (refs.length === 0) return [];
    const result = await cli.run(['container', 'inspect', '--', ...refs], {
      ...defined({ signal }),
      maxOutput: MAX_ANSWER,
    });
    if (result.stdoutCut && refs.length > 1) {
      const half = Math.ceil(refs.length / 2);
      return [
        ...(await inspectAll(refs.slice(0, half), signal)),
        ...(await inspectAll(refs.slice(half), signal)),
      ];
    }
    // A container that was removed since it was listed is left out. After any other error the
    // answer cannot be trusted.
    const otherErrors = lines(result.stderr).filter((l) => !CONTAINER_GONE.test(l));
    if (
      result.ended !== null ||
      otherErrors.length > 0 ||
      (result.code !== 0 && result.stderr.trim() === '')
    ) {
      throw new TaskFailure(
        classify(PULL_FAILURES, result.stderr, 'engine_unavailable'),
        outputTail(result.stderr),
      );
    }
    if (result.stdoutCut)
      throw new TaskFailure(
        'task_failed',
        `the engine’s description of container ${refs[0]} exceeds ${MAX_ANSWER} characters`,
      );
    return (JSON.parse(result.stdout) as RawContainer[]).map(readContainer);
  }
  /** Runs a command on one container. A missing container is not an error. */
  async function onContainer(
    args: readonly string[],
    timeoutMs = 60_000,
    signal?: AbortSignal,
  ): Promise<void> {
    try {
      await cli.runOrThrow(args, { timeoutMs, ...defined({ signal }) });
    } catch (error) {
      if (!(error instanceof ExecError && CONTAINER_GONE.test(error.result?.stderr ?? '')))
        throw error;
    }
  }

  return {
    async list(labels, signal) {
      const { stdout } = await cli.runOrThrow(
        ['ps', '--all', '--quiet', '--no-trunc', ...filters(labels)],
        signal === undefined ? {} : { signal },
      );
      return inspectAll(lines(stdout), signal);
    },
    async inspect(ref, signal) {
      return (await inspectAll([ref], signal))[0] ?? null;
    },
    async imageConfig(ref, signal) {
      const result = await cli.run(['image', 'inspect', '--', ref], {
        signal,
        maxOutput: MAX_ANSWER,
      });
      const [raw] = result.code === 0 ? (JSON.parse(result.stdout) as RawImageConfig[]) : [];
      if (raw !== undefined) return readImageConfig(raw);
      if (/no such image/i.test(result.stderr)) return null;
      throw new TaskFailure(
        classify(PULL_FAILURES, result.stderr, 'engine_unavailable'),
        outputTail(result.stderr),
      );
    },
    async imageSize(ref, signal) {
      const result = await cli.run(['image', 'inspect', '--format', '{{.Size}}', '--', ref], {
        signal,
      });
      return result.code === 0 && /^\d+$/.test(result.stdout.trim()) ? Number(result.stdout) : null;
    },
    async userOf(image, userAndGroup, labels, signal) {
      const user = userAndGroup.split(':')[0] ?? '';
      if (/^\d*$/.test(user)) return Number(user);
      const labelled = Object.entries(labels).flatMap(([k, v]) => ['--label', `${k}=${v}`]);
      // An image without a command needs one here. It never runs.
      const created = await cli.runOrThrow(
        ['create', '--pull', 'never', '--network', 'none', ...labelled, '--', image, 'none'],
        {
          signal,
        },
      );
      const id = created.stdout.trim();
      try {
        const copied = await cli.run(['cp', '--follow-link', `${id}:/etc/passwd`, '-'], {
          signal,
          maxOutput: 4 * 1024 * 1024,
        });
        const isMissing =
          copied.code !== 0 && /could not find the file|no such file/i.test(copied.stderr);
        if (copied.code !== 0 && !isMissing)
          throw new TaskFailure(
            classify(PULL_FAILURES, copied.stderr, 'engine_unavailable'),
            outputTail(copied.stderr),
          );
        const uid = (isMissing ? '' : copied.stdout)
          .split('\n')
          .map((line) => line.slice(line.lastIndexOf('\0') + 1).split(':'))
          .find(([name]) => name === user)?.[2];
        if (uid === undefined || !/^\d+$/.test(uid))
          throw new TaskFailure(
            'container_start_failed',
            `the image sets USER ${user}, but has no such user in /etc/passwd; add it in the ` +
              'Dockerfile (RUN adduser …), or set a numeric USER',
          );
        return Number(uid);
      } finally {
        await onContainer(['rm', '--force', '--volumes', id], 120_000);
      }
    },
    async pull(ref, { signal, timeoutMs, onLine }) {
      const until = performance.now() + timeoutMs;
      for (const pauseMs of [...PULL_PAUSES_MS, null]) {
        const leftMs = Math.max(1, until - performance.now());
        const result = await cli.run(['pull', '--', ref], {
          signal,
          timeoutMs: leftMs,
          onLine,
          dieWithParent: true,
        });
        if (result.ended === 'timeout')
          throw new TaskFailure(
            'image_pull_failed',
            `the pull did not end within ${Math.round(timeoutMs / 1000)} s (PULL_TIMEOUT)`,
          );
        if (result.code === 0) return;
        const code = classify(
          PULL_FAILURES,
          result.stderr.replaceAll(ref, '(image)'),
          'image_pull_failed',
        );
        const isAway =
          code === 'registry_unreachable' ||
          code === 'registry_failed' ||
          NO_ROUTE.test(result.stderr);
        if (!isAway || pauseMs === null) throw new TaskFailure(code, outputTail(result.stderr));
        onLine(`the registry does not answer; next attempt in ${pauseMs / 1000} s`);
        await pause(pauseMs, signal);
      }
    },
    run: (spec, signal) => runContainer(cli, options.scratchDir, spec, signal),
    async hostPort(id, containerPort, signal) {
      const result = await cli.run(['port', id, `${containerPort}/tcp`], { signal });
      // The output has a line for IPv4 and one for IPv6 with the same port, or an error if the
      // container does not run.
      const port = /:(\d+)$/m.exec(result.stdout)?.[1];
      if (port !== undefined) return Number(port);
      if (
        /no public port|is not running|no such container/i.test(result.stderr) ||
        result.code === 0
      )
        return null;
      throw new TaskFailure(
        classify(PULL_FAILURES, result.stderr, 'engine_unavailable'),
        outputTail(result.stderr),
      );
    },
    async waitExit(id, signal) {
      await cli.runOrThrow(['wait', id], { signal, timeoutMs: 2 ** 31 - 1, dieWithParent: true });
    },
    async restartUnlessStopped(id, signal) {
      await cli.runOrThrow(['update', '--restart', 'unless-stopped', id], { signal });
    },
    async restartPolicy(id, signal) {
      const result = await cli.run(
        ['container', 'inspect', '--format', '{{.HostConfig.RestartPolicy.Name}}', id],
        { signal },
      );
      if (result.code === 0) return result.stdout.trim();
      if (CONTAINER_GONE.test(result.stderr)) return '';
      throw new TaskFailure(
        classify(PULL_FAILURES, result.stderr, 'engine_unavailable'),
        outputTail(result.stderr),
      );
    },
    async engineStart(signal) {
      // The engine creates its default network again at each start; it reports no other mark of a
      // restart.
      const result = await cli.run(
        ['network', 'inspect', '--format', '{{.Id}} {{.Created}}', 'bridge'],
        { signal },
      );
      const [id, created] = result.code === 0 ? result.stdout.trim().split(' ') : [];
      const since = Date.parse(created ?? '');
      return id === undefined || Number.isNaN(since) ? null : { id, since };
    },
    async start(id) {
      await cli.runOrThrow(['start', id]);
    },
    stop: (id, graceSeconds, signal) =>
      onContainer(['stop', '--time', String(graceSeconds), id], (graceSeconds + 60) * 1000, signal),
    remove: (id) => onContainer(['rm', '--force', '--volumes', id], 120_000),
    async rename(id, name) {
      const result = await cli.run(['rename', '--', id, name]);
      if (result.code === 0) return true;
      if (CONTAINER_GONE.test(result.stderr)) return false;
      throw new TaskFailure(
        classify(RUN_FAILURES, result.stderr, 'task_failed'),
        outputTail(result.stderr),
      );
    },
    async lastLines(id, count) {
      const found: { stream: 'stdout' | 'stderr'; text: string }[] = [];
      await cli.run(['logs', '--tail', String(count), id], {
        onLine: (text, stream) => void found.push({ stream, text }),
        timeoutMs: 20_000,
      });
      return found;
    },
    async logs(id, { follow, tail, since, until, onChunk, signal }) {
      const range = [
        ...(since === null ? [] : ['--since', since]),
        ...(until === null ? [] : ['--until', until]),
      ];
      const args = [
        'logs',
        '--timestamps',
        ...(follow ? ['--follow'] : []),
        ...(tail === null ? [] : ['--tail', String(tail)]),
        ...range,
      ];
      const result = await cli.run([...args, id], {
        onChunk,
        signal,
        ...(follow ? { timeoutMs: 2 ** 31 - 1 } : { timeoutMs: 30_000 }),
        dieWithParent: true,
      });
      if (result.ended === 'timeout') return 'the engine did not answer in time';
      return result.code === 0 ? null : `docker logs exited with ${result.code}`;
    },
    async lastEnd(id, since) {
      const range = ['--since', since, '--until', new Date().toISOString()];
      const filters = [
        '--filter',
        `container=${id}`,
        '--filter',
        'event=die',
        '--filter',
        'event=oom',
      ];
      const format = '{{.Action}} {{index .Actor.Attributes "exitCode"}}';
      const { stdout } = await cli.runOrThrow(
        ['events', ...range, ...filters, '--format', format],
        { timeoutMs: 10_000 },
      );
      const events = stdout.split('\n').map((line) => line.split(' '));
      const [, code] = events.findLast(([action]) => action === 'die') ?? [];
      if (code === undefined) return null;
      return {
        exitCode: /^\d+$/.test(code) ? Number(code) : null,
        outOfMemory: events.some(([action]) => action === 'oom'),
      };
    },
    async envOf(id) {
      const { stdout } = await cli.runOrThrow(
        ['container', 'inspect', '--format', '{{json .Config.Env}}', id],
        { maxOutput: MAX_ANSWER },
      );
      return (JSON.parse(stdout) as string[] | null) ?? [];
    },
    async readInside(id, paths) {
      const result = await cli.run(['exec', id, 'cat', ...paths], { timeoutMs: 10_000 });
      return result.stdout === '' ? null : result.stdout;
    },
    async runInside(id, command, { timeoutMs, signal }) {
      const result = await cli.run(['exec', id, ...command], {
        timeoutMs,
        signal,
        maxOutput: 16 * 1024,
      });
      const output = `${result.stdout}${result.stderr}`;
      if (result.ended === 'timeout')
        return {
          ok: false,
          output: `${output}\nno result within ${Math.round(timeoutMs / 1000)} s`,
          isLate: true,
        };
      return { ok: result.code === 0, output, isLate: false };
    },
    async images(repository) {
      const { stdout } = await cli.runOrThrow(
        ['image', 'ls', '--no-trunc', '--digests', '--format', '{{json .}}', '--', repository],
        {
          maxOutput: 16 * 1024 * 1024,
        },
      );
      return readImages(lines(stdout).map((l) => JSON.parse(l) as RawImage));
    },
    async imagesInUse() {
      const { stdout } = await cli.runOrThrow(['ps', '--all', '--quiet', '--no-trunc']);
      return new Set((await inspectAll(lines(stdout))).map((c) => c.imageId));
    },
    async removeImageRef(ref) {
      const result = await cli.run(['image', 'rm', '--', ref], { timeoutMs: 120_000 });
      if (result.code === 0 || /no such image/i.test(result.stderr)) return true;
      if (/conflict|is being used|is in use/i.test(result.stderr)) return false;
      throw new TaskFailure(
        classify(PULL_FAILURES, result.stderr, 'engine_unavailable'),
        outputTail(result.stderr),
      );
    },
    async events(labels, onEvent, signal) {
      const args = [
        'events',
        '--filter',
        'type=container',
        ...filters(labels),
        '--format',
        '{{.Actor.ID}} {{.Action}}',
      ];
      await cli.runOrThrow(args, {
        signal,
        timeoutMs: 2 ** 31 - 1,
        maxOutput: 4096,
        dieWithParent: true,
        onLine(line, stream) {
          const [id = '', ...action] = line.split(' ');
          if (stream === 'stdout') onEvent(action.join(' '), id);
        },
      });
    },
    async version(signal) {
      const { stdout } = await cli.runOrThrow(
        ['version', '--format', '{{.Server.Version}} {{.Server.Arch}}'],
        { signal },
      );
      const [version = '', arch = ''] = stdout.trim().split(' ');
      return { version, arch };
    },
  };
}

type RawContainer = {
  Id: string;
  Name: string;
  Image: string;
  RestartCount?: number;
  Config: { Image: string; Labels: Record<string, string> | null; StopSignal?: string };
  State: {
    Status: string;
    ExitCode: number;
    OOMKilled: boolean;
    Error: string;
    StartedAt?: string;
    FinishedAt?: string;
    Health?: RawHealth;
  };
  HostConfig?: {
    Memory?: number;
    NanoCpus?: number;
    PortBindings?: Record<string, { HostPort: string }[] | null> | null;
  };
  NetworkSettings?: { Ports?: Record<string, { HostPort: string }[] | null> | null };
};
type RawHealth = { Status: string; Log?: { ExitCode: number; Output: string }[] | null } | null;

/**
 * The engine keeps the last five runs. After a success it is the last failure that a reader wants
 * to see, as long as it counts.
 */
function readHealth(raw: RawHealth | undefined): Container['health'] {
  const status = raw?.Status;
  if (status !== 'starting' && status !== 'healthy' && status !== 'unhealthy') return null;
  const run = raw?.Log?.findLast(({ ExitCode }) => (status === 'healthy') === (ExitCode === 0));
  return { status, output: run?.Output ?? '' };
}

function readContainer(raw: RawContainer): Container {
  return {
    id: raw.Id,
    name: raw.Name.replace(/^\//, ''),
    image: raw.Config.Image,
    imageId: raw.Image,
    labels: raw.Config.Labels ?? {},
    state: raw.State.Status,
    exitCode: raw.State.ExitCode,
    oomKilled: raw.State.OOMKilled,
    startedAt: toTime(raw.State.StartedAt),
    finishedAt: toTime(raw.State.FinishedAt),
    memoryBytes: raw.HostConfig?.Memory || null,
    cpus: (raw.HostConfig?.NanoCpus ?? 0) / 1e9 || null,
    restarts: raw.RestartCount ?? 0,
    error: raw.State.Error,
    hostPort: firstPort(raw.NetworkSettings?.Ports),
    fixedPort: firstPort(raw.HostConfig?.PortBindings),
    health: readHealth(raw.State.Health),
    stopSignal: raw.Config.StopSignal || 'SIGTERM',
  };
}

function firstPort(
  ports: Record<string, { HostPort: string }[] | null> | null | undefined,
): number | null {
  const published = Object.entries(ports ?? {}).find(
    ([port, hosts]) => port.endsWith('/tcp') && hosts !== null && hosts.length > 0,
  );
  const port = Number(published?.[1]?.[0]?.HostPort ?? 0);
  return port > 0 ? port : null;
}

/** Cuts the engine’s nanoseconds to milliseconds. The engine writes the year 1 for "never". */
function toTime(text: string | undefined): string | null {
  const ms = text === undefined || text.startsWith('0001-') ? Number.NaN : Date.parse(text);
  return Number.isNaN(ms) ? null : new Date(ms).toISOString();
}

type RawImage = { ID: string; Repository: string; Tag: string; Digest: string; CreatedAt: string };
/**
 * `image ls` prints a row for each tag and digest. Its time `2026-11-21 11:13:57 +0000 UTC` is cut
 * to a form that Date reads.
 */
function readImages(rows: readonly RawImage[]): Image[] {
  const byId = new Map<string, { id: string; created: number; refs: Set<string> }>();
  for (const row of rows) {
    const image = byId.get(row.ID) ?? {
      id: row.ID,
      created: Date.parse(row.CreatedAt.split(' ').slice(0, 3).join(' ')) / 1000 || 0,
      refs: new Set<string>(),
    };
    if (row.Tag !== '<none>') image.refs.add(`${row.Repository}:${row.Tag}`);
    if (row.Digest !== '' && row.Digest !== '<none>')
      image.refs.add(`${row.Repository}@${row.Digest}`);
    byId.set(row.ID, image);
  }
  return [...byId.values()].map((i) => ({ ...i, refs: [...i.refs] }));
}

/**
 * These variables control the docker command itself, or the C library that it uses: in its
 * environment they would redirect the call.
 */
const CONTROLS_CLI = new RegExp(
  `^(${[
    'PATH|HOME|DOCKER_.*|BUILDX_.*|BUILDKIT_.*|LD_.*|GO[A-Z]*|OTEL_.*|SSL_.*|SSH_.*|TMPDIR|.*_PROXY',
    'HOSTALIASES|LOCALDOMAIN|RES_OPTIONS|RESOLV_.*|NLSPATH|LOCPATH|GCONV_PATH|GETCONF_DIR|GLIBC_.*|MALLOC_.*',
  ].join('|')})$`,
  'i',
);

/** The docker command reads env-file lines of up to 64 KiB. In bytes, with room for the name. */
const MAX_ENV_LINE = 60_000;
/**
 * Longest `NAME=value` of a process on Linux in bytes, with the final zero (execve(2),
 * MAX_ARG_STRLEN).
 */
const MAX_ENV_STRING = 131_072;
/** Whether an env-file can hold the value. */
const fitsEnvFile = (value: string): boolean =>
  !/[\r\n]/.test(value) && Buffer.byteLength(value) <= MAX_ENV_LINE;

/**
 * Starts a container. Values of variables pass through an env-file of mode 0600, never through
 * argv. An env-file cannot hold line breaks or very long values: those pass through the docker
 * command's own environment.
 */
async function runContainer(
  cli: DockerCli,
  scratchDir: string,
  spec: RunSpec,
  signal: AbortSignal,
): Promise<string> {
  const env = Object.entries({ ...spec.env, ...spec.secretEnv });
  const tooLong = env.find(
    ([name, value]) => Buffer.byteLength(`${name}=${value}`) + 1 > MAX_ENV_STRING,
  );
  if (tooLong !== undefined)
    throw new TaskFailure(
      'container_start_failed',
      `the variable ${tooLong[0]} with its value exceeds ${MAX_ENV_STRING} bytes, the limit of ` +
        'Linux; shorten it',
    );
  // A secret goes into the file only if the docker command would read its variable.
  const inFile = ([name, value]: [string, string]): boolean =>
    fitsEnvFile(value) && (CONTROLS_CLI.test(name) || !Object.hasOwn(spec.secretEnv, name));
  const viaProcessEnv = env.filter((entry) => !inFile(entry));
  const viaEnvFile = env.filter(inFile);
  const readByDocker = viaProcessEnv.find(([name]) => CONTROLS_CLI.test(name));
  if (readByDocker !== undefined)
    throw new TaskFailure(
      'container_start_failed',
      `the value of ${readByDocker[0]} has line breaks or exceeds ${MAX_ENV_LINE} bytes, but ` +
        'the docker command itself reads a variable of this name; rename it, or use one shorter ' +
        'line',
    );

  const envFile = join(scratchDir, `env-${randomUUID()}`);
  const ip =
    spec.publishIp === undefined
      ? ''
      : spec.publishIp.includes(':')
        ? `[${spec.publishIp}]:`
        : `${spec.publishIp}:`;
  const labels = Object.entries(spec.labels).flatMap(([k, v]) => ['--label', `${k}=${v}`]);
  const logs = [
    '--log-driver',
    'json-file',
    '--log-opt',
    `max-size=${spec.logMaxSize}`,
    '--log-opt',
    `max-file=${spec.logMaxFiles}`,
  ];
  const limits = [
    '--pids-limit',
    String(spec.pidsLimit),
    // Set the swap limit too: by default the engine allows as much swap as memory.
    ...(spec.memoryBytes === null
      ? []
      : ['--memory', String(spec.memoryBytes), '--memory-swap', String(spec.memoryBytes)]),
    ...(spec.cpus === null ? [] : ['--cpus', String(spec.cpus)]),
  ];
  // Without --init, as with plain docker: an init process passes the stop signal to the entrypoint
  // only, and when a script without `exec` dies of it, the container ends and the program with it.
  // Some images also need their own init as process 1.
  const argv = ['run', '--detach', '--pull', 'never', '--security-opt', 'no-new-privileges'];
  // With NET_RAW a container could forge packets of its neighbours.
  argv.push(
    '--cap-drop',
    'NET_RAW',
    '--name',
    spec.name,
    ...(spec.network === null ? [] : ['--network', spec.network]),
  );
  argv.push(
    '--publish',
    `${ip}${spec.hostPort}:${spec.containerPort}`,
    ...labels,
    ...limits,
    ...logs,
  );
  argv.push(...spec.mounts.flatMap((mount) => ['--mount', mountOption(mount)]));
  argv.push(
    '--env-file',
    envFile,
    ...viaProcessEnv.flatMap(([name]) => ['--env', name]),
    '--',
    spec.image,
  );
  try {
    await writeFile(envFile, viaEnvFile.map(([name, value]) => `${name}=${value}\n`).join(''), {
      mode: 0o600,
      flag: 'wx',
    });
    await failPoint('run.before');
    const [result] = await Promise.all([
      cli.run(argv, { signal, env: Object.fromEntries(viaProcessEnv), timeoutMs: 120_000 }),
      failPoint('run.during'),
    ]);
    await failPoint('run.after');
    const id = /^[0-9a-f]{64}$/m.exec(result.stdout)?.[0];
    if (result.code === 0 && id !== undefined) return id;
    const tail = outputTail(result.stderr.replace(/^see 'docker run --help'.*$/gim, ''));
    throw new TaskFailure(
      classify(RUN_FAILURES, result.stderr, 'container_start_failed'),
      result.ended === 'timeout'
        ? 'the engine did not start the container within 120 s'
        : `${tail}${startHint(result.stderr)}`,
    );
  } finally {
    await rm(envFile, { force: true });
  }
}

/** Writes the value of `--mount`, which is a line of CSV: a path with a separator is quoted. */
export function mountOption({ source, target, readonly }: Mount): string {
  const field = (text: string): string =>
    /[",]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  return ['type=bind', `src=${source}`, `dst=${target}`, ...(readonly ? ['readonly'] : [])]
    .map(field)
    .join(',');
}

const RUN_FAILURES = PULL_FAILURES.filter(
  ([, code]) => code === 'disk_full' || code === 'engine_unavailable',
);
