/**
 * Resource usage of containers: the points that agents send, and the answer of `GET
 * /api/projects/{id}/metrics` (docs/runtime.md).
 */
import { type Static, Type } from 'typebox';
import { INSTANCE_QUERY, LabelledInstance } from './instance-fields.ts';
import { ByName, type Route } from './route.ts';
import { Id, literals, orNull, Time } from './vocabulary.ts';

/** Agents with this capability send one point per minute for each running container. */
export const METRICS_CAPABILITY = 'metrics';

/**
 * Resources that a container can be short of. `memory`: the kernel killed one of its processes.
 * `cpu`: its CPU limit throttles it.
 */
export const PRESSURES = ['memory', 'cpu'] as const;
export type Pressure = (typeof PRESSURES)[number];
/** Time in ms after the last kill during which an agent reports `memory`. */
export const MEMORY_PRESSURE_MS = 15 * 60_000;

const counter = (description: string) =>
  orNull(Type.Number({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, description }));

/**
 * A value is null if the node cannot read it. Counters restart at 0 with each start of the
 * container.
 */
const VALUES = {
  started_at: orNull({
    ...Time,
    description:
      'last start of the container; counters begin at 0 there, `restarts` and `oom_kills` do not',
  }),
  cpu_seconds: counter('CPU time'),
  throttled_seconds: counter('time that processes waited because of the CPU limit'),
  memory_bytes: counter(
    'memory without the part of the file cache that the kernel can drop at once',
  ),
  memory_limit: counter('null: no limit'),
  restarts: counter('restarts by the engine'),
  oom_kills: counter(
    'processes that the kernel killed because the container reached its memory limit',
  ),
  net_rx: counter('bytes received over the network'),
  net_tx: counter('bytes sent over the network'),
};
export const METRIC_VALUES = [
  'cpu_seconds',
  'throttled_seconds',
  'memory_bytes',
  'memory_limit',
  'restarts',
  'oom_kills',
  'net_rx',
  'net_tx',
] as const;

/**
 * A point of one container. It has an age instead of a time, because the clock of the node can be
 * wrong.
 */
export const SentPoint = Type.Object({
  deployment_id: Id,
  age_ms: Type.Number({
    minimum: 0,
    maximum: 86_400_000,
    description: 'time since the agent read the values',
  }),
  instance: Type.Optional(LabelledInstance),
  ...VALUES,
});
export type SentPoint = Static<typeof SentPoint>;

export const MAX_SENT_POINTS = 1_000;
export const AgentMetrics = Type.Object({
  node_id: Id,
  points: Type.Array(SentPoint, { maxItems: MAX_SENT_POINTS }),
});

/** `next_ms`: delay before the agent reads the next values, so that each minute has one point. */
export const AgentMetricsAnswer = Type.Object({ stored: Type.Integer(), next_ms: Type.Number() });

/** The sum of those instances of a deployment that match the query. */
export const MetricPoint = Type.Object({
  at: Time,
  deployment_id: Id,
  process: Type.Optional(
    Type.String({ description: 'absent: the point is a sum of several processes' }),
  ),
  instance: Type.Optional(
    Type.Integer({ description: 'absent: the point is a sum of several instances' }),
  ),
  ...VALUES,
});
export type MetricPoint = Static<typeof MetricPoint>;

export const MAX_METRIC_POINTS = 10_000;
export const ProjectMetrics = Type.Object({
  points: Type.Array(MetricPoint, { description: `oldest first; at most ${MAX_METRIC_POINTS}` }),
  from: Time,
  to: Time,
  step_seconds: Type.Integer({
    description: '60 for the last day, 900 for a range that begins earlier',
  }),
  truncated: Type.Boolean({ description: 'true: older points of the range are left out' }),
  unavailable: Type.Optional(Type.String({ description: 'why there are no new points' })),
});
export type ProjectMetrics = Static<typeof ProjectMetrics>;

export const ObservedPressure = Type.Array(literals(PRESSURES), {
  maxItems: PRESSURES.length,
  uniqueItems: true,
});

export const METRIC_ROUTES = {
  projectMetrics: {
    method: 'GET',
    path: '/api/projects/:id/metrics',
    who: 'viewer',
    scope: 'project',
    summary:
      'Get what the containers of a project use: CPU, memory, network, restarts; without ' +
      '`from` the last hour; a point is the sum of the instances',
    params: ByName,
    query: Type.Object({
      from: Type.Optional(Time),
      to: Type.Optional(Time),
      ...INSTANCE_QUERY,
    }),
    status: 200,
    answer: ProjectMetrics,
  },
  agentMetrics: {
    method: 'POST',
    path: '/api/agent/metrics',
    who: 'agent',
    scope: 'none',
    summary: 'Report what the containers of a node use; sent once a minute',
    body: AgentMetrics,
    status: 200,
    answer: AgentMetricsAnswer,
  },
} as const satisfies Record<string, Route>;
