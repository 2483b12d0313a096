/** Metrics of projects: agents send the resource usage of containers, and people read it. */
import { createHash } from 'node:crypto';
import {
  MAX_METRIC_POINTS,
  METRICS_CAPABILITY,
  type MetricPoint,
  type ProjectMetrics,
  type SentPoint,
} from '@berth/wire/metrics';
import { defined } from '@berth/kit/defined';
import { hasWeb } from '@berth/wire/project';
import type { ObservedContainer } from '@berth/wire/node';
import { LABELS } from '@berth/wire/vocabulary';
import { invalid } from '../../domain/platform/errors.ts';
import type { NodeRecord } from '../../domain/platform/records.ts';
import { checkProcess, instanceLabel, ownLabel, WEB } from '../../domain/deployments/instance.ts';
import type { InstanceStore } from '../../domain/deployments/instance-store.ts';
import {
  MINUTES,
  type ReportedPoint,
  stepFor,
  type SummedPoint,
  sumsOf,
  type UsagePoint,
  type UsageStep,
  type UsageStore,
} from '../../domain/nodes/usage.ts';
import type { Agents } from '../agents.ts';
import type { Define, Call } from '../define.ts';
import { time, timeOrNull } from '../views.ts';
import { presentProject } from '../../domain/projects/present-project.ts';
import type { ProjectStore } from '../../domain/projects/project-store.ts';
import type { DeploymentStore } from '../../domain/deployments/deployment-store.ts';
import type { NodeStore } from '../../domain/nodes/node-store.ts';

const HOUR_MS = 3_600_000;
/** Maximum age of a point: agents keep points for this long while they reach no control plane. */
const MAX_AGE_MS = HOUR_MS;
/** Minimum distance of a reading from the beginning and the end of its minute. */
const MARGIN_MS = 10_000;

export type Deps = {
  usage: Pick<UsageStore, 'read' | 'record'>;
  projects: Pick<ProjectStore, 'get' | 'configured' | 'runningDeployments'>;
  deployments: Pick<DeploymentStore, 'get'>;
  instances: Pick<InstanceStore, 'ofDeployments'>;
  nodes: Pick<NodeStore, 'getMany'>;
  agents: Pick<Agents, 'checkNode'>;
  now: () => number;
};

export function metricRoutes(route: Define, deps: Deps): void {
  route('agentMetrics', (call) => agentMetrics(deps, call));
  route('projectMetrics', (call) => projectMetrics(deps, call));
}

async function agentMetrics(deps: Deps, { body, request }: Call<'agentMetrics'>) {
  await deps.agents.checkNode(request, body.node_id);
  const at = deps.now();
  const fresh = body.points.filter((point) => point.age_ms <= MAX_AGE_MS);
  const stored = await deps.usage.record(
    body.node_id,
    fresh.map((point) => usagePoint(point, at)),
  );
  return { stored, next_ms: nextReading(body.node_id, at) };
}

async function projectMetrics(deps: Deps, { params, query }: Call<'projectMetrics'>) {
  const present = deps.now();
  const to = query.to === undefined ? present : Date.parse(query.to);
  const from = query.from === undefined ? to - HOUR_MS : Date.parse(query.from);
  if (from > to) throw invalid('from', 'range', 'must not be after `to`');
  const project = await presentProject(deps.projects, params.id);
  checkProcess(project, query);
  const step = stepFor(from, present);
  const points = await deps.usage.read(
    {
      project_id: project.id,
      step,
      from,
      to,
      ...defined({ process: query.process, number: query.instance }),
    },
    MAX_METRIC_POINTS + 1,
  );
  const unavailable = await problemOf(deps, project.id);
  return {
    points: sumsOf(wholeSlots(points, step), step, present).map(pointView),
    from: time(from),
    to: time(to),
    step_seconds: step.ms / 1000,
    truncated: points.length > MAX_METRIC_POINTS,
    ...defined({ unavailable: unavailable ?? undefined }),
  } satisfies ProjectMetrics;
}

/**
 * Returns the newest points of the answer. Leaves out the oldest slot of a deployment if it has
 * further points that do not fit.
 */
function wholeSlots(points: readonly UsagePoint[], step: UsageStep): UsagePoint[] {
  const kept = points.slice(-MAX_METRIC_POINTS);
  const cut = points.length > kept.length ? points[0] : undefined;
  if (cut === undefined) return kept;
  const slotOf = ({ at }: UsagePoint): number => Math.floor(at / step.ms);
  return kept.filter(
    (point) => point.deployment_id !== cut.deployment_id || slotOf(point) !== slotOf(cut),
  );
}

/**
 * Returns why an instance of the project's running deployment gets no points; null if all get points
 * or if no deployment runs.
 */
async function problemOf(deps: Deps, projectId: string): Promise<string | null> {
  const running = (await deps.projects.runningDeployments([projectId])).get(projectId);
  if (running === undefined) return null;
  const d = await deps.deployments.get(running);
  const others = await deps.instances.ofDeployments([running]);
  const ids = [d, ...others].flatMap(({ node_id }) => node_id ?? []);
  const nodes = new Map((await deps.nodes.getMany([...new Set(ids)])).map((n) => [n.id, n]));
  const instances = [
    ...(hasWeb(d.settings)
      ? [{ process: WEB, number: d.instance_number, node_id: d.node_id, label: ownLabel(d) }]
      : []),
    ...others.map(({ labelled, id, ...one }) => ({ ...one, label: labelled ? id : null })),
  ];
  for (const { process, number, node_id, label } of instances) {
    const node = nodes.get(node_id ?? '');
    const container = node?.containers.find(
      (c) => c.labels[LABELS.deployment] === running && instanceLabel(c) === label,
    );
    const problem = node === undefined ? null : problemOn(node, container);
    if (problem !== null) return others.length === 0 ? problem : `${process} ${number}: ${problem}`;
  }
  return null;
}

function problemOn(node: NodeRecord, container: ObservedContainer | undefined): string | null {
  if (node.capabilities?.includes(METRICS_CAPABILITY) !== true)
    return `the agent of node ${node.hostname} sends no metrics`;
  if (container?.metrics_problem === undefined) return null;
  return (
    `the agent of node ${node.hostname} cannot read what the container uses: ` +
    container.metrics_problem
  );
}

/**
 * Returns the time until a node's next reading. Each node reads at its own second, away from the
 * ends of the minute, so that each minute gets one point and the nodes are spread.
 */
function nextReading(nodeId: string, at: number): number {
  const spread =
    createHash('sha256').update(nodeId).digest().readUInt32BE() % (MINUTES.ms - 2 * MARGIN_MS);
  const wait = (MARGIN_MS + spread - (at % MINUTES.ms) + MINUTES.ms) % MINUTES.ms;
  // Skip a minute that already has a reading.
  return wait < MARGIN_MS ? wait + MINUTES.ms : wait;
}

const usagePoint = (
  { age_ms, started_at, instance, ...point }: SentPoint,
  now: number,
): ReportedPoint => ({
  ...point,
  instance_id: instance?.id ?? null,
  at: Math.round(now - age_ms),
  started_at: started_at === null ? null : Date.parse(started_at),
});
const pointView = ({ at, started_at, process, number, ...point }: SummedPoint): MetricPoint => ({
  ...point,
  ...defined({ process: process ?? undefined, instance: number ?? undefined }),
  at: time(at),
  started_at: timeOrNull(started_at),
});
