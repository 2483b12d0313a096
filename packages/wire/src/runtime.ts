/**
 * Runtime logs: the output of a project's containers. Berth does not store them. An agent with the
 * capability `logs` reads them from its container engine while a person watches, with one reader
 * per container. Berth stores only the end of a container (`ContainerExit`).
 */
import { type Static, Type } from 'typebox';
import { EnginePosition, LogCursor } from './log-cursor.ts';
import { INSTANCE_FIELDS, INSTANCE_QUERY, LabelledInstance } from './instance-fields.ts';
import { ById, ByName, type Route } from './route.ts';
import { Id, literals, orNull, Time } from './vocabulary.ts';

/** Capability of agents that read the logs of their containers and report when a container ends. */
export const LOGS_CAPABILITY = 'logs';

export const MAX_TAIL = 10_000;
export const DEFAULT_TAIL = 100;
/** Limits of a batch. An agent cuts longer lines. */
export const MAX_BATCH_LINES = 1_000;
export const MAX_LINE_CHARS = 16_000;
/** Limits of stored ends: lines and characters per end of a container, and ends per deployment. */
export const EXIT_LINES = 200;
export const EXIT_CHARS = 262_144;
export const EXITS_KEPT = 5;

const Stream = literals(['stdout', 'stderr']);
export type RuntimeStream = Static<typeof Stream>;

export const RuntimeLine = Type.Object({
  at: Type.Unsafe<Time>({
    ...Time,
    description:
      'when the container wrote it, by the clock of its node; corrected if that clock is wrong',
  }),
  deployment_id: Id,
  ...INSTANCE_FIELDS,
  stream: Stream,
  text: Type.String(),
});
export type RuntimeLine = Static<typeof RuntimeLine>;

export const RuntimeLogs = Type.Object({
  lines: Type.Array(RuntimeLine),
  truncated: Type.Boolean({
    description: 'the range of the request has older lines that are not in the answer',
  }),
  unavailable: Type.Optional(
    Type.String({ description: 'why lines could not be read; absent if all could' }),
  ),
});
export type RuntimeLogs = Static<typeof RuntimeLogs>;

/**
 * Data of `event: lost`: lines might be missing between `from` and `to`. `from` is null if no line
 * came before.
 */
export type LostLines = {
  deployment_id: string;
  process?: string;
  instance?: number;
  /** Fixed text for clients of 0.1.0, which print it before "lines are missing here". */
  count: 'some';
  from: Time | null;
  to: Time | null;
};
/**
 * Data of `event: gone`: the node is not available, or no container runs. The stream continues when
 * this changes.
 */
export type GoneNode = { deployment_id: string | null; node: string | null; message: string };

export const ExitLine = Type.Object({
  at: Time,
  stream: Stream,
  text: Type.String({ maxLength: MAX_LINE_CHARS + 100 }),
});
export type ExitLine = Static<typeof ExitLine>;

const exit = {
  container: Type.String({ maxLength: 255, description: 'name of the container' }),
  exit_code: orNull(
    Type.Integer({ description: 'null: Berth removed the container while it ran' }),
  ),
  out_of_memory: Type.Boolean(),
  error: orNull(
    Type.String({
      maxLength: 1_000,
      description: 'the engine’s error if the container could not start',
    }),
  ),
  started_at: orNull(Time),
  finished_at: orNull(Time),
  lines: Type.Array(ExitLine, { maxItems: EXIT_LINES }),
  truncated: Type.Boolean({ description: 'the container wrote older lines' }),
};
/** The end of a container: its exit code and its last lines. */
export const ContainerExit = Type.Object({
  deployment_id: Id,
  ...INSTANCE_FIELDS,
  node_id: orNull(Id),
  ...exit,
});
export type ContainerExit = Static<typeof ContainerExit>;
export const Exits = Type.Object({ items: Type.Array(ContainerExit) });

export const ExitReport = Type.Object({
  deployment_id: Id,
  container_id: Type.String({ maxLength: 128 }),
  instance: Type.Optional(LabelledInstance),
  ...exit,
});
export type ExitReport = Static<typeof ExitReport>;

const Key = Type.String({ minLength: 1, maxLength: 80, pattern: '^[A-Za-z0-9_-]+$' });

/**
 * One log that a node must read. `follow`: from `since_ago_ms` before the first request, until
 * nobody requests it. `read`: once. The fields are ages instead of times, because the clock of a
 * node might be wrong.
 */
export const LogWant = Type.Object({
  key: Key,
  mode: literals(['follow', 'read']),
  deployment_id: Id,
  /**
   * Id of the instance whose container to read; null: the container without the labels of an
   * instance; absent: any container of the deployment.
   */
  instance: Type.Optional(orNull(Id)),
  tail: Type.Integer({ minimum: 0, maximum: MAX_TAIL }),
  since_ago_ms: orNull(Type.Integer({ minimum: 0 })),
  until_ago_ms: orNull(Type.Integer({ minimum: 0 })),
  /**
   * Timestamp of a cursor from which to read, by the clock of the node. A `read` ignores
   * `since_ago_ms` if this is set; a `follow` begins at the earlier of both. The control plane
   * drops lines with this timestamp that it already has.
   */
  after: orNull(EnginePosition),
  stream: orNull(Stream),
});
export type LogWant = Static<typeof LogWant>;
export const LogWants = Type.Object({ items: Type.Array(LogWant) });

/**
 * Header of the answer to a poll of tasks. Its value changes with the logs that the node must read;
 * absent if there are none.
 */
export const LOGS_WANTED_HEADER = 'x-logs-wanted';

/** A line of a batch. Its cursor is (`run` of the batch, `record` or `at`, `ordinal` or 0). */
const BatchLine = Type.Object({
  at: EnginePosition,
  stream: Stream,
  text: Type.String({ maxLength: MAX_LINE_CHARS + 100 }),
  /** Timestamp of the cursor, set if an earlier line has a newer timestamp than `at`. */
  record: Type.Optional(EnginePosition),
  ordinal: Type.Optional(Type.Integer({ minimum: 0 })),
});
export type BatchLine = Static<typeof BatchLine>;

/**
 * Consecutive lines of a container. Batches form a chain: `after` is the cursor of the line before
 * the first line, so a reader detects a missing batch.
 */
export const LogBatch = Type.Object({
  node_id: Id,
  /** Id of one run of the agent's reader. */
  epoch: Type.String({ minLength: 1, maxLength: 64 }),
  /**
   * Number of the first line within `epoch`, counting lines that the agent dropped. It orders the
   * batches of a reader. A control plane of 0.1.0 uses only this field.
   */
  first: Type.Integer({ minimum: 0 }),
  lines: Type.Array(BatchLine, { maxItems: MAX_BATCH_LINES }),
  /** Id of the container. Absent from an agent of 0.1.0, whose lines have no cursors. */
  run: Type.Optional(Type.String({ minLength: 1, maxLength: 64, pattern: '^[A-Za-z0-9]+$' })),
  /** The cursor before the first line; null if the first line is the first of the log. */
  after: Type.Optional(orNull(LogCursor)),
  /** True if the agent dropped lines between `after` and the first line. */
  gap: Type.Optional(Type.Boolean()),
  /**
   * True if the log does not contain the line after which to begin, because of log rotation or a
   * new container. Lines might be missing before the first line, and cursors of earlier batches
   * cannot be compared with these lines.
   */
  reset: Type.Optional(Type.Boolean()),
  /** With the end of a `read`: the cursor of the newest line in the log, sent or not. */
  last: Type.Optional(orNull(LogCursor)),
  /** Clock of the node when it sent the batch, in ms since 1970. */
  now: Type.Number(),
  /** True if a `read` is complete or the container of a `follow` is gone. */
  end: Type.Optional(Type.Boolean()),
  /**
   * With the end of a `read`: minimum number of older lines in the range that were not sent because
   * of `tail` or a limit.
   */
  left_out: Type.Optional(Type.Integer({ minimum: 0 })),
  /** Why the log cannot be read. */
  problem: Type.Optional(Type.String({ maxLength: 500 })),
});
export type LogBatch = Static<typeof LogBatch>;

export const LogBatchAnswer = Type.Object({
  wanted: Type.Boolean({ description: 'false: nobody wants this log any more' }),
  wait_ms: Type.Integer({ description: 'wait so long before the next batch' }),
});
export type LogBatchAnswer = Static<typeof LogBatchAnswer>;

export const RUNTIME_ROUTES = {
  projectLogs: {
    method: 'GET',
    path: '/api/projects/:id/logs',
    who: 'viewer',
    scope: 'project',
    summary:
      'Get what the containers of a project print; `Accept: text/event-stream` follows them ' +
      'across redeploys',
    params: ByName,
    query: Type.Object({
      tail: Type.Optional(Type.Integer({ minimum: 0, maximum: MAX_TAIL, default: DEFAULT_TAIL })),
      since: Type.Optional(Time),
      until: Type.Optional(Time),
      deployment_id: Type.Optional(Id),
      stream: Type.Optional(Stream),
      ...INSTANCE_QUERY,
    }),
    status: 200,
    answer: RuntimeLogs,
    streams: true,
  },
  deploymentExits: {
    method: 'GET',
    path: '/api/deployments/:id/exits',
    who: 'viewer',
    scope: 'deployment',
    summary:
      'List how the containers of a deployment ended, newest first: exit code and last lines',
    params: ById,
    query: Type.Object(INSTANCE_QUERY),
    status: 200,
    answer: Exits,
  },
  agentLogWants: {
    method: 'GET',
    path: '/api/agent/log-wants',
    who: 'agent',
    scope: 'none',
    summary: 'List the logs of containers that the node shall read',
    query: Type.Object({ node_id: Id }),
    status: 200,
    answer: LogWants,
  },
  agentLogBatch: {
    method: 'POST',
    path: '/api/agent/log-wants/:key/lines',
    who: 'agent',
    scope: 'none',
    summary: 'Send lines of a container; a batch that is sent twice has no further effect',
    params: Type.Object({ key: Key }),
    body: LogBatch,
    status: 200,
    answer: LogBatchAnswer,
  },
  agentExits: {
    method: 'POST',
    path: '/api/agent/exits',
    who: 'agent',
    scope: 'none',
    summary: 'Report how a container ended; a report that is sent twice has no further effect',
    body: Type.Object({ node_id: Id, exits: Type.Array(ExitReport, { maxItems: 10 }) }),
    status: 200,
    answer: Type.Object({ stored: Type.Integer() }),
  },
} as const satisfies Record<string, Route>;
