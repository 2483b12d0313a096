/** Tests each state with each event, each row of TRANSITIONS, and the other contents of a plan. */
import { describe, expect, it } from 'vitest';
import type { ObservedContainer } from '@berth/wire/node';
import type { TaskReport } from '@berth/wire/task';
import { TERMINAL_STATES } from '@berth/wire/vocabulary';
import { DomainError } from '../../src/domain/platform/errors.ts';
import { DEFAULT_LIMITS, type Facts, type NodeFact } from '../../src/domain/deployments/facts.ts';
import { isEmptyPlan, type Plan } from '../../src/domain/deployments/plan.ts';
import type { DeploymentRecord, RouteRecord } from '../../src/domain/platform/records.ts';
import { advance, request, stop } from '../../src/flow/deployment.ts';
import type { FlowEvent } from '../../src/flow/events.ts';
import { TRANSITIONS } from '../../src/flow/transitions.ts';
import {
  builder,
  changeOf,
  COMMIT,
  DIGEST,
  facts,
  NOW,
  node,
  old,
  on,
  project,
  routeTo,
  SETTINGS,
  stateOf,
  task,
} from './fixtures.ts';

const L = DEFAULT_LIMITS;
const report = {
  built: {
    status: 'completed',
    image_tag: `registry:5000/shop:${COMMIT}`,
    image_digest: DIGEST,
    commit: COMMIT,
  },
  deployed: { status: 'completed', host_port: 32_002, container_id: 'c2' },
  retired: { status: 'completed' },
  failed: {
    status: 'failed',
    result: { error: { code: 'build_step_failed', message: 'RUN npm ci: exit 1' } },
  },
  dead: {
    status: 'failed',
    result: {
      error: { code: 'engine_unavailable', message: 'Cannot connect to the Docker daemon' },
    },
  },
  cancelled: { status: 'failed', result: { error: { code: 'cancelled', message: 'cancelled' } } },
} as const;
const container = { name: 'svc-shop', labels: {}, host_port: 32_002, state: 'running' };
const ofD2 = (over: Partial<ObservedContainer> = {}): ObservedContainer => ({
  ...container,
  id: 'c2',
  name: 'svc-shop-g2',
  labels: { 'berth.deployment': 'd2' },
  ...over,
});
const STOP_PAYLOAD = {
  remove: [],
  keep: null,
  stop: [{ deployment_id: 'd2', reason: 'the project is stopped' }],
} as never;
const cancelling = { cancel_requested_at: NOW - 100 };
const tooLate = NOW - L.queueMs - 10_000;
const seenOnce = [
  { node_id: 'z', at: 1 },
  { node_id: 'y', at: 1 },
];

type Row = {
  name: string;
  d: DeploymentRecord;
  event: FlowEvent;
  facts?: Partial<Facts>;
  /**
   * Next state. `same`: no change; `stays`: the state stays, but the plan changes something;
   * `refused`: wrong_state.
   */
  to: DeploymentRecord['status'] | 'same' | 'stays' | 'refused';
  error?: string;
};
const deleted = (reachable = true, node_id = 'n1'): FlowEvent => ({
  type: 'node_deleted',
  node_id,
  reachable,
});
const lost = (
  kind: 'build' | 'deploy' | 'move' | 'run',
  why: 'queue' | 'lease' | 'wall' | 'attempts' = 'lease',
): FlowEvent => ({
  type: 'task_lost',
  task: task(kind),
  why,
});
const learned = (kind: 'build' | 'deploy'): FlowEvent => ({
  type: 'task_learned',
  task: task(kind),
  facts: { commit: COMMIT },
});
const reported = (kind: 'build' | 'deploy' | 'retire' | 'move', r: TaskReport): FlowEvent => ({
  type: 'task_reported',
  task: task(kind),
  report: r,
});
const seen = (over: Partial<typeof container> = {}, node_id = 'n1'): FlowEvent => ({
  type: 'observed',
  node_id,
  container: { ...container, ...over },
});
const confirmed: FlowEvent = { type: 'route_confirmed', host_ip: '10.0.0.1', host_port: 32_002 };
const unreachable: FlowEvent = {
  type: 'route_unreachable',
  host_ip: '10.0.0.1',
  host_port: 32_002,
  proxy: 'https://10.0.0.9',
  saw: 'no answer',
};
const gone: FlowEvent = { type: 'observed', node_id: 'n1', container: null };

const STOPPED_PROJECT: Partial<Facts> = { project: project({ stopped_at: NOW - 50 }) };
/** The running deployment of a stopped project, whose container is stopped. */
const atRest = (over: Partial<DeploymentRecord> = {}): DeploymentRecord =>
  on.running({
    health: null,
    stopped_first: 'stopped',
    waiting: 'the project is stopped; start it to serve again',
    ...over,
  });
const page = (d: DeploymentRecord): RouteRecord => ({ ...routeTo(d), stopped: true });

const ROWS: Row[] = [
  // every state: only a deployment at rest moves its volumes alone (leave.test.ts)
  ...[on.pending(), on.building(), on.built(), on.deploying(), on.running()].map(
    (d): Row => ({
      name: 'only the volumes of a stopped project move alone',
      d,
      event: { type: 'volumes_leave' },
      to: 'same',
    }),
  ),
  // every state: only a build that goes on learns facts
  ...[
    on.pending(),
    on.built(),
    on.deploying(),
    on.running(),
    ...TERMINAL_STATES.map((status) => on.ended(status)),
  ].map(
    (d): Row => ({
      name: 'facts of a build that ended change nothing',
      d,
      event: learned('build'),
      to: 'same',
    }),
  ),
  {
    name: 'the commit is shown while the build goes on',
    d: on.building(),
    event: learned('build'),
    to: 'stays',
  },
  {
    name: 'known facts change nothing',
    d: on.building({ commit: COMMIT }),
    event: learned('build'),
    to: 'same',
  },
  // pending
  {
    name: 'a builder with a free slot gets the build',
    d: on.pending(),
    event: { type: 'tick' },
    to: 'building',
  },
  {
    name: 'an earlier release needs no build',
    d: on.pending({ rollback_of: 'd0', image_tag: 'registry:5000/shop:x' }),
    event: { type: 'tick' },
    to: 'built',
  },
  {
    name: 'it waits without a builder, and the story says so',
    d: on.pending(),
    event: { type: 'tick' },
    facts: { nodes: [node()] },
    to: 'stays',
  },
  {
    name: 'an unchanged reason to wait adds no line',
    d: on.pending({ waiting: 'no builder node has ever registered' }),
    event: { type: 'tick' },
    facts: { nodes: [node()] },
    to: 'same',
  },
  {
    name: 'it fails when no builder is eligible in time',
    d: on.pending({ state_since: tooLate }),
    event: { type: 'tick' },
    facts: { nodes: [] },
    to: 'failed',
    error: 'no_builder',
  },
  {
    name: 'it fails if a login is required and AUTH_SERVICE_URL is not set',
    d: on.pending({ settings: { ...SETTINGS, auth_required: true } }),
    event: { type: 'tick' },
    to: 'failed',
    error: 'auth_service_missing',
  },
  {
    name: 'it fails without a registry',
    d: on.pending(),
    event: { type: 'tick' },
    facts: { platform: { registryAddr: '', authServiceUrl: null, reservedPrefixes: [] } },
    to: 'failed',
    error: 'registry_missing',
  },
  {
    name: 'it is cancelled on request',
    d: on.pending(),
    event: { type: 'cancel' },
    to: 'cancelled',
  },
  {
    name: 'it ends when its project is deleted',
    d: on.pending(),
    event: { type: 'project_deleted' },
    to: 'cancelled',
    error: 'project_deleted',
  },
  {
    name: 'it is cancelled when its project is stopped',
    d: on.pending(),
    event: { type: 'project_stopped' },
    to: 'cancelled',
  },
  {
    name: 'a report only ends its task',
    d: on.pending(),
    event: reported('build', report.built),
    to: 'stays',
  },
  { name: 'a loss only ends its task', d: on.pending(), event: lost('build'), to: 'stays' },
  { name: 'it ignores a confirmed route', d: on.pending(), event: confirmed, to: 'same' },
  { name: 'it ignores an unreachable route', d: on.pending(), event: unreachable, to: 'same' },
  { name: 'it ignores the deletion of a node', d: on.pending(), event: deleted(), to: 'same' },
  { name: 'it ignores a silent node', d: on.pending(), event: { type: 'node_silent' }, to: 'same' },
  { name: 'a container of a lost attempt is removed', d: on.pending(), event: seen(), to: 'stays' },
  // building
  {
    name: 'a completed build makes it built',
    d: on.building(),
    event: reported('build', report.built),
    facts: { tasks: [task('build')] },
    to: 'built',
  },
  {
    name: 'it fails when the build fails',
    d: on.building(),
    event: reported('build', report.failed),
    facts: { tasks: [task('build')] },
    to: 'failed',
    error: 'build_step_failed',
  },
  {
    name: 'another builder gets the build when the engine of its builder is down',
    d: on.building(),
    event: reported('build', report.dead),
    facts: {
      tasks: [task('build')],
      nodes: [builder(), builder({ id: 'b2', hostname: 'builder-2' })],
    },
    to: 'pending',
  },
  {
    name: 'it fails when the engine of the only builder is down',
    d: on.building(),
    event: reported('build', report.dead),
    facts: { tasks: [task('build')] },
    to: 'failed',
    error: 'engine_unavailable',
  },
  {
    name: 'it fails after too many builders with an engine that is down',
    d: on.building({ losses: seenOnce }),
    event: reported('build', report.dead),
    facts: {
      tasks: [task('build')],
      nodes: [builder(), builder({ id: 'b2', hostname: 'builder-2' })],
    },
    to: 'failed',
    error: 'engine_unavailable',
  },
  {
    name: 'another node gets it when the engine of its node is down',
    d: on.deploying(),
    event: reported('deploy', report.dead),
    facts: { tasks: [task('deploy')], nodes: [node(), node({ id: 'n2', hostname: 'node-2' })] },
    to: 'built',
  },
  {
    name:
      'stop-first: it fails when the engine of its node is down, because a container may still ' +
      'run there',
    d: on.deploying({ settings: { ...SETTINGS, replace: 'recreate' } }),
    event: reported('deploy', report.dead),
    facts: { tasks: [task('deploy')], nodes: [node(), node({ id: 'n2', hostname: 'node-2' })] },
    to: 'failed',
    error: 'engine_unavailable',
  },
  {
    name: 'it fails with engine_unavailable when the engines of all builders are down',
    d: on.pending({ state_since: tooLate }),
    event: { type: 'tick' },
    facts: {
      nodes: [builder({ engine: { ok: false, version: null, error: 'no socket' } }), node()],
    },
    to: 'failed',
    error: 'engine_unavailable',
  },
  {
    name: 'it fails with engine_unavailable when the engines of all deploy nodes are down',
    d: on.built({ state_since: tooLate }),
    event: { type: 'tick' },
    facts: {
      nodes: [builder(), node({ engine: { ok: false, version: null, error: 'no socket' } })],
    },
    to: 'failed',
    error: 'engine_unavailable',
  },
  {
    name: 'it is cancelled when the agent confirms the cancellation',
    d: on.building(cancelling),
    event: reported('build', report.cancelled),
    facts: { tasks: [task('build')] },
    to: 'cancelled',
  },
  {
    name: 'it is cancelled although the build completed',
    d: on.building(cancelling),
    event: reported('build', report.built),
    facts: { tasks: [task('build')] },
    to: 'cancelled',
  },
  {
    name: 'an expired lease reassigns the task',
    d: on.building(),
    event: lost('build'),
    facts: { tasks: [task('build')] },
    to: 'pending',
  },
  {
    name: 'an unclaimed task is reassigned',
    d: on.building(),
    event: lost('build', 'queue'),
    facts: { tasks: [task('build', { attempt: 0 })] },
    to: 'pending',
  },
  {
    name: 'it fails after too many losses',
    d: on.building({ losses: seenOnce }),
    event: lost('build'),
    facts: { tasks: [task('build')] },
    to: 'failed',
    error: 'node_lost',
  },
  {
    name: 'it fails after too many unclaimed tasks',
    d: on.building({ losses: seenOnce }),
    event: lost('build', 'queue'),
    facts: { tasks: [task('build')] },
    to: 'failed',
    error: 'task_not_claimed',
  },
  {
    name: 'it fails at the time limit of the build',
    d: on.building(),
    event: lost('build', 'wall'),
    facts: { tasks: [task('build')] },
    to: 'failed',
    error: 'task_timeout',
  },
  {
    name: 'it fails after too many attempts',
    d: on.building(),
    event: lost('build', 'attempts'),
    facts: { tasks: [task('build')] },
    to: 'failed',
    error: 'too_many_attempts',
  },
  {
    name: 'it is cancelled when its task is lost during a cancellation',
    d: on.building(cancelling),
    event: lost('build'),
    facts: { tasks: [task('build')] },
    to: 'cancelled',
  },
  {
    name: 'it is cancelled at once before an agent claimed the task',
    d: on.building(),
    event: { type: 'cancel' },
    facts: { tasks: [task('build', { attempt: 0 })] },
    to: 'cancelled',
  },
  {
    name: 'a cancellation is requested from the agent',
    d: on.building(),
    event: { type: 'cancel' },
    facts: { tasks: [task('build')] },
    to: 'stays',
  },
  {
    name: 'a second cancellation changes nothing',
    d: on.building(cancelling),
    event: { type: 'cancel' },
    facts: { tasks: [task('build')] },
    to: 'same',
  },
  {
    name: 'it is cancelled at once if its agent does not support cancellation',
    d: on.building(),
    event: { type: 'cancel' },
    facts: { tasks: [task('build', { attempt: 0 })], nodes: [builder({ agent_version: null })] },
    to: 'cancelled',
  },
  {
    name: 'another builder gets the build when its builder is deleted',
    d: on.building(),
    event: deleted(true, 'b1'),
    facts: { tasks: [task('build')] },
    to: 'pending',
  },
  {
    name: 'it ignores the deletion of another node',
    d: on.building(),
    event: deleted(),
    facts: { tasks: [task('build')] },
    to: 'same',
  },
  {
    name: 'it ends when its project is deleted',
    d: on.building(),
    event: { type: 'project_deleted' },
    facts: { tasks: [task('build')] },
    to: 'cancelled',
    error: 'project_deleted',
  },
  {
    name: 'it is cancelled when its project is stopped',
    d: on.building(),
    event: { type: 'project_stopped' },
    facts: { tasks: [task('build')] },
    to: 'cancelled',
  },
  { name: 'it ignores a tick', d: on.building(), event: { type: 'tick' }, to: 'same' },
  { name: 'it ignores a confirmed route', d: on.building(), event: confirmed, to: 'same' },
  { name: 'it ignores an unreachable route', d: on.building(), event: unreachable, to: 'same' },
  {
    name: 'it ignores a silent node',
    d: on.building(),
    event: { type: 'node_silent' },
    to: 'same',
  },
  {
    name: 'a report without a container changes nothing',
    d: on.building(),
    event: gone,
    to: 'same',
  },
  {
    name: 'it is cancelled when its builder is deleted during a cancellation',
    d: on.building(cancelling),
    event: deleted(true, 'b1'),
    facts: { tasks: [task('build')] },
    to: 'cancelled',
  },
  {
    name: 'it is cancelled when its node is deleted during a cancellation',
    d: on.deploying(cancelling),
    event: deleted(),
    facts: { tasks: [task('deploy')] },
    to: 'cancelled',
  },
  // built
  {
    name: 'it fails when its volumes cannot be copied',
    d: on.built(),
    event: reported('move', {
      status: 'failed',
      result: { error: { code: 'volume_failed', message: 'tar exited with 2' } },
    }),
    to: 'failed',
    error: 'volume_failed',
  },
  {
    name: 'it fails when too many nodes were lost during the copy of its volumes',
    d: on.built({ losses: seenOnce }),
    event: lost('move'),
    facts: { live: [on.built({ losses: seenOnce })] },
    to: 'failed',
    error: 'node_lost',
  },
  {
    name: 'it fails when a node of the copy is deleted after too many losses',
    d: on.built({ losses: seenOnce }),
    event: deleted(false),
    facts: { tasks: [task('move')] },
    to: 'failed',
    error: 'volume_failed',
  },
  { name: 'an eligible node gets it', d: on.built(), event: { type: 'tick' }, to: 'deploying' },
  {
    name: 'a newer deployment went live while it looked for another node',
    d: on.built({ generation: 3 }),
    event: { type: 'tick' },
    facts: { live: [on.built({ generation: 3 }), on.running({ id: 'newer', generation: 4 })] },
    to: 'superseded',
  },
  {
    name: 'it waits while another deployment of the project is deploying',
    d: on.built(),
    event: { type: 'tick' },
    facts: { live: [on.deploying({ id: 'd1', generation: 1 })] },
    to: 'stays',
  },
  {
    name: 'it waits without an eligible node',
    d: on.built(),
    event: { type: 'tick' },
    facts: { nodes: [builder()] },
    to: 'stays',
  },
  {
    name: 'it fails when no node is eligible in time',
    d: on.built({ state_since: tooLate }),
    event: { type: 'tick' },
    facts: { nodes: [node({ schedulable: false })] },
    to: 'failed',
    error: 'no_deploy_node',
  },
  {
    name: 'it fails if a login became required and AUTH_SERVICE_URL is not set',
    d: on.built(),
    event: { type: 'tick' },
    facts: { project: project({ auth_required: true }) },
    to: 'failed',
    error: 'auth_service_missing',
  },
  { name: 'it is cancelled on request', d: on.built(), event: { type: 'cancel' }, to: 'cancelled' },
  {
    name: 'the release command of a cancelled deployment has ended',
    d: on.built({ cancel_requested_at: NOW }),
    event: { type: 'tick' },
    to: 'cancelled',
  },
  {
    name: 'the stopped release command of a cancelled deployment is reported',
    d: on.built({ cancel_requested_at: NOW }),
    event: {
      type: 'task_reported',
      task: task('run'),
      report: { status: 'failed', result: { error: { code: 'cancelled', message: '' } } },
    },
    facts: { tasks: [task('run')] },
    to: 'cancelled',
  },
  {
    name: 'the release command of a cancelled deployment is lost',
    d: on.built({ cancel_requested_at: NOW }),
    event: lost('run'),
    facts: { tasks: [task('run')] },
    to: 'cancelled',
  },
  {
    name: 'it ends when its project is deleted',
    d: on.built(),
    event: { type: 'project_deleted' },
    to: 'cancelled',
    error: 'project_deleted',
  },
  {
    name: 'it is cancelled when its project is stopped',
    d: on.built(),
    event: { type: 'project_stopped' },
    to: 'cancelled',
  },
  {
    name: 'a late report only ends its task',
    d: on.built(),
    event: reported('build', report.built),
    to: 'stays',
  },
  { name: 'a late loss only ends its task', d: on.built(), event: lost('build'), to: 'stays' },
  { name: 'it ignores a confirmed route', d: on.built(), event: confirmed, to: 'same' },
  { name: 'it ignores an unreachable route', d: on.built(), event: unreachable, to: 'same' },
  { name: 'it ignores the deletion of a node', d: on.built(), event: deleted(), to: 'same' },
  { name: 'it ignores a silent node', d: on.built(), event: { type: 'node_silent' }, to: 'same' },
  { name: 'a container of a lost attempt is removed', d: on.built(), event: seen(), to: 'stays' },
  // deploying
  {
    name: 'a completed deploy task publishes its route',
    d: on.deploying(),
    event: reported('deploy', report.deployed),
    facts: { tasks: [task('deploy')] },
    to: 'stays',
  },
  {
    name: 'it runs when the proxy serves its route',
    d: on.published(),
    event: confirmed,
    facts: { live: [on.published()], route: routeTo(on.published()) },
    to: 'running',
  },
  {
    name: 'it ignores a confirmation before its report',
    d: on.deploying(),
    event: confirmed,
    facts: { live: [on.deploying()] },
    to: 'same',
  },
  {
    name: 'it ignores a confirmation of another route',
    d: on.published(),
    event: confirmed,
    facts: { route: routeTo(old()) },
    to: 'same',
  },
  {
    name: 'it ignores a confirmation of the old address of its node',
    d: on.published(),
    event: { ...confirmed, host_ip: '10.0.0.99' },
    facts: { live: [on.published()], route: routeTo(on.published()) },
    to: 'same',
  },
  {
    name: 'it ignores a confirmation of the port before a restart',
    d: on.published({ host_port: 32_003 }),
    event: confirmed,
    facts: {
      live: [on.published({ host_port: 32_003 })],
      route: routeTo(on.published({ host_port: 32_003 })),
    },
    to: 'same',
  },
  {
    name: 'it ignores a confirmation if its node already reports another port',
    d: on.published(),
    event: confirmed,
    facts: {
      live: [on.published()],
      route: routeTo(on.published()),
      nodes: [node({ containers: [ofD2({ host_port: 32_003 })] })],
    },
    to: 'same',
  },
  {
    name: 'it ignores a confirmation if its node reports a stopped container',
    d: on.published(),
    event: confirmed,
    facts: {
      live: [on.published()],
      route: routeTo(on.published()),
      nodes: [node({ containers: [ofD2({ state: 'exited', host_port: null })] })],
    },
    to: 'same',
  },
  {
    name: 'a container of an earlier attempt does not affect the confirmation',
    d: on.published(),
    event: confirmed,
    facts: {
      live: [on.published()],
      route: routeTo(on.published()),
      nodes: [node({ containers: [ofD2({ id: 'c0', state: 'exited', host_port: null })] })],
    },
    to: 'running',
  },
  {
    name: 'it fails when its container is down at the deadline',
    d: on.published({ route_published_at: NOW - L.routeMs - 1 }),
    event: { type: 'tick' },
    facts: {
      live: [old()],
      route: routeTo(on.published()),
      nodes: [node({ containers: [ofD2({ state: 'exited', host_port: null })] })],
    },
    to: 'failed',
    error: 'container_exited',
  },
  {
    name: 'it fails when the proxy does not apply the route in time',
    d: on.published({ route_published_at: NOW - L.routeMs - 1 }),
    event: { type: 'tick' },
    facts: { live: [old()], route: routeTo(on.published()) },
    to: 'failed',
    error: 'proxy_unconfirmed',
  },
  {
    name: 'it fails when the proxy cannot reach the node',
    d: on.published(),
    event: unreachable,
    facts: { live: [old(), on.published()], route: routeTo(on.published()) },
    to: 'failed',
    error: 'proxy_cannot_reach_node',
  },
  {
    name: 'it ignores that the proxy cannot reach the port before a restart',
    d: on.published({ host_port: 32_003 }),
    event: unreachable,
    facts: {
      live: [on.published({ host_port: 32_003 })],
      route: routeTo(on.published({ host_port: 32_003 })),
    },
    to: 'same',
  },
  {
    name: 'it ignores that the proxy cannot reach a stopped container',
    d: on.published(),
    event: unreachable,
    facts: {
      live: [on.published()],
      route: routeTo(on.published()),
      nodes: [node({ containers: [ofD2({ state: 'exited', host_port: null })] })],
    },
    to: 'same',
  },
  {
    name:
      'it gives an application on a contract-only node time to start, because its agent runs no ' +
      'probe',
    d: on.published(),
    event: unreachable,
    facts: {
      live: [on.published()],
      route: routeTo(on.published()),
      nodes: [node({ agent_version: null })],
    },
    to: 'same',
  },
  {
    name: 'it fails when the proxy cannot reach a contract-only node after the time of a probe',
    d: on.published({ route_published_at: NOW - L.probeSeconds * 1000 - 1 }),
    event: unreachable,
    facts: {
      live: [on.published()],
      route: routeTo(on.published()),
      nodes: [node({ agent_version: null })],
    },
    to: 'failed',
    error: 'proxy_cannot_reach_node',
  },
  {
    name: 'it gives a slow application on a contract-only node its start_seconds',
    d: on.published({
      settings: { ...SETTINGS, start_seconds: 600 },
      route_published_at: NOW - L.probeSeconds * 1000 - 1,
    }),
    event: unreachable,
    facts: {
      live: [on.published()],
      route: routeTo(on.published()),
      nodes: [node({ agent_version: null })],
    },
    to: 'same',
  },
  {
    name:
      'an unreachable node needs no grace period after a start of the control plane, because ' +
      'Berth checks it itself',
    d: on.published({ route_published_at: NOW - L.probeSeconds * 1000 - 1 }),
    event: unreachable,
    facts: {
      live: [on.published()],
      route: routeTo(on.published()),
      nodes: [node({ agent_version: null })],
      uptime: { at: NOW, since: NOW - 1000 },
    },
    to: 'failed',
    error: 'proxy_cannot_reach_node',
  },
  {
    name: 'the proxy gets a grace period after a start of the control plane',
    d: on.published({ route_published_at: NOW - L.routeMs - 1 }),
    event: { type: 'tick' },
    facts: {
      live: [old()],
      route: routeTo(on.published()),
      uptime: { at: NOW, since: NOW - 1000 },
    },
    to: 'same',
  },
  {
    name: 'it waits until the deadline of the proxy',
    d: on.published(),
    event: { type: 'tick' },
    to: 'same',
  },
  {
    name: 'it fails when the deploy task fails',
    d: on.deploying(),
    event: reported('deploy', {
      status: 'failed',
      result: { error: { code: 'build_step_failed', message: 'x' } },
    }),
    facts: { tasks: [task('deploy')] },
    to: 'failed',
    error: 'build_step_failed',
  },
  {
    name: 'it is cancelled when the agent confirms the cancellation',
    d: on.deploying(cancelling),
    event: reported('deploy', report.cancelled),
    facts: { tasks: [task('deploy')] },
    to: 'cancelled',
  },
  {
    name: 'it is cancelled although the container started',
    d: on.deploying(cancelling),
    event: reported('deploy', report.deployed),
    facts: { tasks: [task('deploy')] },
    to: 'cancelled',
  },
  {
    name: 'it fails when its node no longer exists',
    d: on.deploying(),
    event: reported('deploy', report.deployed),
    facts: { nodes: [], tasks: [task('deploy')] },
    to: 'failed',
    error: 'node_deleted',
  },
  {
    name: 'an expired lease reassigns the task',
    d: on.deploying(),
    event: lost('deploy'),
    facts: { tasks: [task('deploy')] },
    to: 'built',
  },
  {
    name: 'it fails after too many losses',
    d: on.deploying({ losses: seenOnce }),
    event: lost('deploy'),
    facts: { tasks: [task('deploy')] },
    to: 'failed',
    error: 'node_lost',
  },
  {
    name: 'it is cancelled when its task is lost during a cancellation',
    d: on.deploying(cancelling),
    event: lost('deploy'),
    facts: { tasks: [task('deploy')] },
    to: 'cancelled',
  },
  {
    name: 'it is cancelled at once before an agent claimed the task',
    d: on.deploying(),
    event: { type: 'cancel' },
    facts: { tasks: [task('deploy', { attempt: 0 })] },
    to: 'cancelled',
  },
  {
    name: 'a cancellation is requested from the agent',
    d: on.deploying(),
    event: { type: 'cancel' },
    facts: { tasks: [task('deploy')] },
    to: 'stays',
  },
  {
    name: 'a cancellation is rejected after its route is published',
    d: on.published(),
    event: { type: 'cancel' },
    to: 'refused',
  },
  {
    name: 'a cancellation is rejected if its agent does not support it',
    d: on.deploying(),
    event: { type: 'cancel' },
    facts: { tasks: [task('deploy', { attempt: 0 })], nodes: [node({ agent_version: null })] },
    to: 'refused',
  },
  {
    name: 'another node is chosen when its node is deleted',
    d: on.published(),
    event: deleted(),
    facts: { live: [old(), on.published()], route: routeTo(on.published()) },
    to: 'built',
  },
  {
    name: 'it ends when its project is deleted',
    d: on.published(),
    event: { type: 'project_deleted' },
    facts: { route: routeTo(on.published()) },
    to: 'cancelled',
    error: 'project_deleted',
  },
  {
    name: 'it is cancelled when its project is stopped',
    d: on.published(),
    event: { type: 'project_stopped' },
    facts: { route: routeTo(on.published()) },
    to: 'cancelled',
  },
  {
    name: 'it ignores a silent node',
    d: on.deploying(),
    event: { type: 'node_silent' },
    to: 'same',
  },
  {
    name: 'an expected container changes nothing',
    d: on.published(),
    event: seen(),
    facts: { route: routeTo(on.published()) },
    to: 'same',
  },
  {
    name: 'a container before its report changes nothing',
    d: on.deploying(),
    event: seen(),
    facts: { tasks: [task('deploy')] },
    to: 'same',
  },
  {
    name: 'a changed port moves the route before it is confirmed',
    d: on.published(),
    event: seen({ host_port: 33_000 }),
    facts: { route: routeTo(on.published()) },
    to: 'stays',
  },
  {
    name: 'a second container on another node is removed',
    d: on.deploying(),
    event: seen({}, 'n2'),
    facts: { nodes: [node(), node({ id: 'n2' })] },
    to: 'stays',
  },
  // running
  {
    name: 'an expected container changes nothing',
    d: on.running(),
    event: seen(),
    facts: { route: routeTo(on.running()) },
    to: 'same',
  },
  {
    name: 'a changed port moves the route',
    d: on.running(),
    event: seen({ host_port: 33_000 }),
    facts: { route: routeTo(on.running()) },
    to: 'stays',
  },
  {
    name: 'it is unhealthy when its container is missing',
    d: on.running(),
    event: gone,
    to: 'stays',
  },
  {
    name: 'it is unhealthy when its container stopped',
    d: on.running(),
    event: seen({ state: 'exited' }),
    to: 'stays',
  },
  {
    name: 'it is drifted when its container has the wrong name',
    d: on.running(),
    event: seen({ name: 'svc-shop-g2' }),
    to: 'stays',
  },
  {
    name: 'its health is unknown when its node is silent',
    d: on.running(),
    event: { type: 'node_silent' },
    to: 'stays',
  },
  {
    name: 'a node that stays silent changes nothing',
    d: on.running({ health: { status: 'unknown', since: 1, detail: null } }),
    event: { type: 'node_silent' },
    to: 'same',
  },
  {
    name: 'it retires when its node is deleted with force',
    d: on.running(),
    event: deleted(false),
    facts: { live: [on.running()], route: routeTo(on.running()) },
    to: 'retired',
    error: 'node_deleted',
  },
  {
    name: 'it serves until it has moved when its node is deleted',
    d: on.running(),
    event: deleted(),
    to: 'same',
  },
  {
    name: 'it ignores the deletion of another node',
    d: on.running(),
    event: deleted(false, 'n9'),
    to: 'same',
  },
  {
    name: 'it ends when its project is deleted',
    d: on.running(),
    event: { type: 'project_deleted' },
    facts: { live: [on.running()], route: routeTo(on.running()) },
    to: 'retired',
    error: 'project_deleted',
  },
  {
    name: 'its container stops when its project is stopped',
    d: on.running(),
    event: { type: 'project_stopped' },
    to: 'stays',
  },
  // a stopped project
  {
    name: 'a second stop changes nothing',
    d: atRest(),
    event: { type: 'project_stopped' },
    facts: { ...STOPPED_PROJECT, route: page(atRest()) },
    to: 'same',
  },
  {
    name: 'at rest, it ignores a stopped container',
    d: atRest(),
    event: seen({ state: 'exited' }),
    facts: STOPPED_PROJECT,
    to: 'same',
  },
  {
    name: 'at rest, it needs no container',
    d: atRest(),
    event: gone,
    facts: STOPPED_PROJECT,
    to: 'same',
  },
  {
    name: 'at rest, a container that runs again is stopped',
    d: atRest(),
    event: seen(),
    facts: STOPPED_PROJECT,
    to: 'stays',
  },
  {
    name: 'at rest, it has no health to lose',
    d: atRest(),
    event: { type: 'node_silent' },
    facts: STOPPED_PROJECT,
    to: 'same',
  },
  {
    name: 'at rest, it retires with its node, and the project keeps its page',
    d: atRest(),
    event: deleted(),
    facts: { ...STOPPED_PROJECT, route: page(atRest()) },
    to: 'retired',
    error: 'node_deleted',
  },
  {
    name: 'at rest, the end of its stop adds a line',
    d: atRest({ stopped_first: 'asked' }),
    event: {
      type: 'task_reported',
      task: task('retire', { payload: STOP_PAYLOAD }),
      report: report.retired,
    },
    facts: STOPPED_PROJECT,
    to: 'stays',
  },
  {
    name: 'at rest, a lost stop is tried again at the next report',
    d: atRest({ stopped_first: 'asked' }),
    event: { type: 'task_lost', task: task('retire', { payload: STOP_PAYLOAD }), why: 'lease' },
    facts: STOPPED_PROJECT,
    to: 'stays',
  },
  {
    name: 'a start goes live: the project is not stopped any more',
    d: on.published({ trigger: 'start' }),
    event: confirmed,
    facts: {
      ...STOPPED_PROJECT,
      live: [atRest({ id: 'd1', generation: 1 }), on.published()],
      route: routeTo(on.published()),
    },
    to: 'running',
  },
  {
    name: 'a start that fails leaves the project stopped',
    d: on.published({ trigger: 'start' }),
    event: unreachable,
    facts: {
      ...STOPPED_PROJECT,
      live: [atRest({ id: 'd1', generation: 1 }), on.published()],
      route: routeTo(on.published()),
    },
    to: 'failed',
    error: 'proxy_cannot_reach_node',
  },
  { name: 'it ignores a tick', d: on.running(), event: { type: 'tick' }, to: 'same' },
  { name: 'a cancellation is rejected', d: on.running(), event: { type: 'cancel' }, to: 'refused' },
  {
    name: 'it ignores an unreachable route, because another control plane reached it',
    d: on.running(),
    event: unreachable,
    to: 'same',
  },
  { name: 'it ignores a repeated confirmation', d: on.running(), event: confirmed, to: 'same' },
  {
    name: 'the end of a retire task adds a line',
    d: on.running(),
    event: reported('retire', report.retired),
    to: 'stays',
  },
  {
    name: 'the loss of a retire task adds a line',
    d: on.running(),
    event: { type: 'task_lost', task: task('retire'), why: 'lease' },
    to: 'stays',
  },
  // terminal states
  ...TERMINAL_STATES.flatMap((status): Row[] => [
    { name: 'it ignores a tick', d: on.ended(status), event: { type: 'tick' }, to: 'same' },
    {
      name: 'a cancellation is rejected',
      d: on.ended(status),
      event: { type: 'cancel' },
      to: 'refused',
    },
    {
      name: 'a late report only ends its task',
      d: on.ended(status),
      event: reported('build', report.built),
      to: 'stays',
    },
    {
      name: 'a late loss only ends its task',
      d: on.ended(status),
      event: lost('deploy'),
      to: 'stays',
    },
    { name: 'it ignores a late confirmation', d: on.ended(status), event: confirmed, to: 'same' },
    {
      name: 'it ignores a late unreachable route',
      d: on.ended(status),
      event: unreachable,
      to: 'same',
    },
    {
      name: 'it ignores the deletion of a node',
      d: on.ended(status),
      event: deleted(),
      to: 'same',
    },
    {
      name: 'it ignores the deletion of its project',
      d: on.ended(status),
      event: { type: 'project_deleted' },
      to: 'same',
    },
    {
      name: 'it ignores the stop of its project',
      d: on.ended(status),
      event: { type: 'project_stopped' },
      to: 'same',
    },
    {
      name: 'it moves no volumes',
      d: on.ended(status),
      event: { type: 'volumes_leave' },
      facts: STOPPED_PROJECT,
      to: 'same',
    },
    {
      name: 'it ignores a silent node',
      d: on.ended(status),
      event: { type: 'node_silent' },
      to: 'same',
    },
    { name: 'a leftover container is removed', d: on.ended(status), event: seen(), to: 'stays' },
    {
      name: 'a report without a container changes nothing',
      d: on.ended(status),
      event: gone,
      to: 'same',
    },
  ]),
];

const outcome = (row: Row): { to: Row['to']; plan: Plan | null } => {
  try {
    const plan = advance(row.d, row.event, facts({ live: [row.d], ...row.facts }));
    const next = stateOf(plan, row.d.id);
    return {
      to: next === null ? (isEmptyPlan(plan) ? 'same' : 'stays') : (next as Row['to']),
      plan,
    };
  } catch (error) {
    if (error instanceof DomainError && error.code === 'wrong_state')
      return { to: 'refused', plan: null };
    throw error;
  }
};

/** The container of `old()`, and one of another project. */
const ofD1 = (over: Partial<ObservedContainer> = {}): ObservedContainer => ({
  id: 'c1',
  name: 'svc-shop',
  labels: { 'berth.project': 'p1', 'berth.deployment': 'd1' },
  host_port: 32_001,
  state: 'running',
  ...over,
});
const ofBlog = (host_port: number | null, state = 'running'): ObservedContainer =>
  ofD1({
    id: 'cb',
    name: 'svc-blog',
    labels: { 'berth.project': 'blog', 'berth.deployment': 'db' },
    host_port,
    state,
  });
const failedRoute = (given: Partial<Facts>, of: Partial<DeploymentRecord> = {}): Plan => {
  const late = on.published({ route_published_at: NOW - L.routeMs - 1, ...of });
  return advance(
    late,
    { type: 'tick' },
    facts({ live: [old(), late], route: routeTo(late), ...given }),
  );
};

describe('the route of the old version after a failure', () => {
  const elsewhere = (over: Partial<NodeFact>): NodeFact =>
    node({ id: 'n3', hostname: 'node-3', containers: [ofBlog(32_001)], ...over });
  const BACK = { set: { deployment_id: 'd1', host_ip: '10.0.0.1', host_port: 32_001 } };
  const NONE = { remove: { project_id: 'p1' } };
  it.each<[string, NodeFact[], object]>([
    ['comes back if its node reports the container there', [node({ containers: [ofD1()] })], BACK],
    [
      'follows a port that its node reports',
      [node({ containers: [ofD1({ host_port: 32_009 })] })],
      { set: { host_port: 32_009 } },
    ],
    [
      'is off while the container is down',
      [node({ containers: [ofD1({ host_port: null, state: 'exited' })] })],
      NONE,
    ],
    ['is off while the container is missing', [node()], NONE],
    [
      'is off while another project has its port',
      [node({ containers: [ofD1({ host_port: null, state: 'exited' }), ofBlog(32_001)] })],
      NONE,
    ],
    [
      'is off if a contract-only agent removed the container for the new one',
      [node({ agent_version: null, observed_at: null })],
      NONE,
    ],
    [
      'is off if another machine with the address reports the port',
      [node({ containers: [ofD1()] }), elsewhere({})],
      NONE,
    ],
    [
      'comes back if that machine is silent',
      [node({ containers: [ofD1()] }), elsewhere({ last_seen_at: NOW - 1e6 })],
      BACK,
    ],
    [
      'comes back if that machine has another address',
      [node({ containers: [ofD1()] }), elsewhere({ host_ip: '10.0.0.3' })],
      BACK,
    ],
    [
      'comes back if the other container is down',
      [node({ containers: [ofD1()] }), elsewhere({ containers: [ofBlog(null, 'exited')] })],
      BACK,
    ],
  ])('%s', (_, nodes, route) => {
    const plan = failedRoute({ nodes });
    expect(plan.route).toMatchObject(route);
    expect(
      plan.storyLines.some(
        (line) => line.deployment_id === 'd1' && line.kind === 'route_withdrawn',
      ),
    ).toBe(route === NONE);
  });
  it.each<[string, Partial<DeploymentRecord>]>([
    ['the new version was on another node', { node_id: 'n2' }],
    ['the new version had another name', { settings: { ...SETTINGS, domain_prefix: 'moved' } }],
  ])(
    'comes back on a contract-only node if %s, and counts as old: whose container was observed there later keeps the address',
    (_, of) => {
      const nodes = [
        node({ agent_version: null, observed_at: null }),
        node({ id: 'n2', hostname: 'node-2', host_ip: '10.0.0.2' }),
      ];
      expect(failedRoute({ nodes }, of).route).toMatchObject({
        ...BACK,
        set: { published_at: old().route_published_at },
      });
    },
  );
});

describe('an address that another container has', () => {
  const taken = (over: Partial<Extract<FlowEvent, { type: 'address_taken' }>> = {}): FlowEvent => ({
    type: 'address_taken',
    host_ip: '10.0.0.1',
    host_port: 32_002,
    holder: 'svc-blog on node-3',
    isRouted: false,
    ...over,
  });
  const silent = node({ last_seen_at: NOW - 1e6 });
  const decide = (event: FlowEvent, given: Partial<Facts> = {}): Plan =>
    advance(
      on.running(),
      event,
      facts({ live: [on.running()], route: routeTo(on.running()), nodes: [silent], ...given }),
    );
  it('ends the route of a silent node, and its health says why', () => {
    const plan = decide(taken());
    expect(plan.route).toEqual({ remove: { project_id: 'p1' } });
    expect(changeOf(plan, 'd2').health).toMatchObject({
      status: 'unknown',
      detail:
        'node-1 is offline; its address 10.0.0.1:32002 now belongs to svc-blog on node-3, so ' +
        'it gets no requests',
    });
    expect(plan.storyLines).toMatchObject([{ deployment_id: 'd2', kind: 'route_withdrawn' }]);
  });
  it.each<[string, FlowEvent, Partial<Facts>]>([
    [
      'its own node reports the container there',
      taken(),
      {
        nodes: [
          node({
            containers: [
              ofD1({ labels: { 'berth.deployment': 'd2' }, id: 'c2', host_port: 32_002 }),
            ],
          }),
        ],
      },
    ],
    ['the route is not the one that was read', taken({ host_port: 32_003 }), {}],
    ['the address is another one', taken({ host_ip: '10.0.0.3' }), {}],
    ['a newer version has the route', taken(), { route: routeTo(old()) }],
    ['the host shows the page of a stopped project', taken(), { route: page(on.running()) }],
  ])('changes nothing if %s', (_, event, given) => {
    expect(isEmptyPlan(decide(event, given))).toBe(true);
  });
  it('ends the route even then if a later route leads there', () => {
    const plan = decide(taken({ isRouted: true, holder: 'project blog' }), { nodes: [node()] });
    expect(plan.route).toEqual({ remove: { project_id: 'p1' } });
    expect(changeOf(plan, 'd2').health).toMatchObject({
      status: 'unhealthy',
      detail: expect.stringContaining('now belongs to project blog'),
    });
  });
});

describe('a proxy that cannot reach the node', () => {
  it('gets the route of the old version again, and the failure names both addresses', () => {
    const before = old();
    const nodes = [node({ containers: [ofD1()] })];
    const plan = advance(
      on.published(),
      unreachable,
      facts({ live: [before, on.published()], route: routeTo(on.published()), nodes }),
    );
    expect(plan.route).toMatchObject({
      set: { deployment_id: before.id, host_port: before.host_port },
    });
    const { error } = changeOf(plan, on.published().id);
    expect(error?.message).toContain('https://10.0.0.9');
    expect(error?.message).toContain('10.0.0.1:32002');
    expect(plan.createTasks.map((t) => t.kind)).toEqual(['retire']);
  });
  it('also fails the first deployment of a project', () => {
    const plan = advance(
      on.published(),
      unreachable,
      facts({ live: [on.published()], route: routeTo(on.published()) }),
    );
    expect(plan.route).toEqual({ remove: { project_id: on.published().project_id } });
    expect(changeOf(plan, on.published().id).error?.code).toBe('proxy_cannot_reach_node');
  });
});

describe('every state x every event', () => {
  it.each(ROWS.map((row) => [`${row.d.status} · ${row.event.type} · ${row.name}`, row] as const))(
    '%s',
    (_, row) => {
      const { to, plan } = outcome(row);
      expect(to).toBe(row.to);
      if (plan !== null)
        expect(changeOf(plan, row.d.id).error?.code ?? null).toBe(row.error ?? null);
    },
  );

  it('has a row for each pair', () => {
    const events = [
      'tick',
      'task_reported',
      'task_lost',
      'task_learned',
      'cancel',
      'route_confirmed',
      'route_unreachable',
      'node_deleted',
      'project_deleted',
      'project_stopped',
      'volumes_leave',
      'observed',
      'node_silent',
    ];
    const states = ['pending', 'building', 'built', 'deploying', 'running', ...TERMINAL_STATES];
    const have = new Set(ROWS.map((r) => `${r.d.status} ${r.event.type}`));
    expect(
      states.flatMap((s) => events.map((e) => `${s} ${e}`)).filter((pair) => !have.has(pair)),
    ).toEqual([]);
  });

  it('takes every transition that docs/states.md lists', () => {
    const taken = new Set(
      ROWS.filter((r) =>
        TRANSITIONS.some((t) => t.from === r.d.status && t.event === r.event.type && t.to === r.to),
      ).map((r) => `${r.d.status} ${r.event.type} ${r.to}`),
    );
    // These two events change another deployment; see "a newer deployment" and
    // "the replacement of the running version" below.
    const elsewhere = ['superseded', 'replaced'];
    expect(
      TRANSITIONS.filter(
        (t) => !elsewhere.includes(t.event) && !taken.has(`${t.from} ${t.event} ${t.to}`),
      ),
    ).toEqual([]);
  });
});

describe('facts of a build that did not complete', () => {
  const FACTS = { commit: COMMIT, commit_message: 'Break the build', commit_author: 'Ada' };
  const PUSHED = { image_tag: `registry:5000/shop:${COMMIT}`, image_digest: DIGEST, arch: 'amd64' };
  it.each([
    ['failed', on.building(), { ...report.failed, ...FACTS }, 'failed'],
    ['was cancelled', on.building(cancelling), { ...report.cancelled, ...FACTS }, 'cancelled'],
    ['goes to another builder', on.building(), { ...report.dead, ...FACTS }, 'pending'],
  ] as const)('a build that %s keeps its commit, message and author', (_, d, r, status) => {
    const nodes = [builder(), builder({ id: 'b2', hostname: 'builder-2' })];
    const plan = advance(
      d,
      reported('build', r),
      facts({ live: [d], tasks: [task('build')], nodes }),
    );
    expect(changeOf(plan, 'd2')).toMatchObject({ status, ...FACTS });
  });
  it('a failure after the push keeps the image, if it is in the repository of the project', () => {
    const d = on.building();
    const own = task('build', { payload: { image_repository: 'registry:5000/shop' } as never });
    const after = (image_tag: string) => {
      const r = { ...report.failed, ...FACTS, ...PUSHED, image_tag };
      return changeOf(
        advance(
          d,
          { type: 'task_reported', task: own, report: r },
          facts({ live: [d], tasks: [own] }),
        ),
        'd2',
      );
    };
    expect(after(PUSHED.image_tag)).toMatchObject({
      status: 'failed',
      image_tag: PUSHED.image_tag,
      image_digest: DIGEST,
      image_arch: 'amd64',
    });
    const other = after(`registry:5000/bank:${COMMIT}`);
    expect(other).toMatchObject({ status: 'failed', ...FACTS });
    expect(other).not.toHaveProperty('image_tag');
    expect(other).not.toHaveProperty('image_digest');
  });
  it('another commit replaces the facts of an earlier attempt, with its image', () => {
    const d = on.building({
      ...FACTS,
      image_tag: PUSHED.image_tag,
      image_digest: DIGEST,
      image_arch: 'amd64',
    });
    const next = { commit: 'e'.repeat(40), commit_message: 'Next', commit_author: 'Bob' };
    const plan = advance(
      d,
      { type: 'task_learned', task: task('build'), facts: next },
      facts({ live: [d], tasks: [task('build')] }),
    );
    expect(changeOf(plan, 'd2')).toEqual({
      ...next,
      image_tag: null,
      image_digest: null,
      image_arch: null,
    });
  });
  it('a failure without facts (an earlier agent) removes none', () => {
    const d = on.building(FACTS);
    const plan = advance(
      d,
      reported('build', report.failed),
      facts({ live: [d], tasks: [task('build')] }),
    );
    expect({ ...d, ...changeOf(plan, 'd2') }).toMatchObject({ status: 'failed', ...FACTS });
  });
  it.each(['lost', 'failed'])(
    'the build phase of a %s build begins when the builder claimed it',
    (how) => {
      const d = on.building({
        phases: [
          { name: 'queue', started_at: NOW - 5000, ended_at: NOW - 4000 },
          { name: 'build', started_at: NOW - 4000, ended_at: null },
        ],
      });
      const event = how === 'lost' ? lost('build', 'wall') : reported('build', report.failed);
      const plan = advance(d, event, facts({ live: [d], tasks: [task('build')] }));
      expect(changeOf(plan, 'd2').phases).toEqual([
        { name: 'queue', started_at: NOW - 5000, ended_at: NOW - 3000 },
        { name: 'build', started_at: NOW - 3000, ended_at: NOW },
      ]);
    },
  );
  it.each(['lost', 'failed'])('a deploy task that %s in a copy says how much was copied', (how) => {
    const d = on.deploying();
    const row = { dataset_id: 's1', version: 1, bytes_per_second: null, remaining_seconds: null };
    const datasets = [
      { ...row, name: 'maps', step: 'copying', bytes_done: 1e9, bytes_total: 4e9 },
      { ...row, name: 'names', step: 'done', bytes_done: 5, bytes_total: 5 },
    ] as const;
    const own = task('deploy', { progress: { datasets: [...datasets] } });
    const event: FlowEvent =
      how === 'lost'
        ? { type: 'task_lost', task: own, why: 'wall' }
        : { type: 'task_reported', task: own, report: report.failed };
    const { storyLines } = advance(d, event, facts({ live: [d], tasks: [own] }));
    expect(storyLines.filter((line) => line.kind === 'copied').map((line) => line.message)).toEqual(
      ['dataset maps: 1.0 GB of 4.0 GB were copied (copying)'],
    );
  });
  it('the lines of the agent are in the story, whatever the end is', () => {
    const notes = [{ kind: 'git_lfs', message: '2 files are Git LFS pointers' }];
    for (const r of [report.built, report.failed]) {
      const d = on.building();
      const plan = advance(
        d,
        reported('build', { ...r, notes }),
        facts({ live: [d], tasks: [task('build')] }),
      );
      expect(plan.storyLines).toContainEqual({ deployment_id: 'd2', ...notes[0] });
    }
    const killed = [{ kind: 'killed', message: 'svc-shop did not end within 10 s after SIGTERM' }];
    const retired = advance(
      on.running(),
      reported('retire', { status: 'completed', notes: killed }),
      facts({ live: [on.running()], tasks: [task('retire')] }),
    );
    expect(retired.storyLines).toContainEqual({ deployment_id: 'd2', ...killed[0] });
  });
});

describe('a stop in each state', () => {
  const live: Record<string, { live: DeploymentRecord[]; more?: Partial<Facts> }> = {
    pending: { live: [on.pending()] },
    building: { live: [on.building()], more: { tasks: [task('build')] } },
    built: { live: [on.built()] },
    deploying: { live: [on.deploying()], more: { tasks: [task('deploy')] } },
    published: { live: [on.published()], more: { route: routeTo(on.published()) } },
  };
  it.each(Object.entries(live))(
    '%s: it is cancelled at once, and its task is void',
    (_, { live: own, more }) => {
      const plan = stop('Ada', facts({ live: own, ...more }));
      expect(stateOf(plan, 'd2')).toBe('cancelled');
      expect(plan.stopped).toMatchObject({ at: NOW });
      expect(plan.changeTasks.map((change) => 'end' in change && change.end)).toEqual(
        more?.tasks === undefined ? [] : ['cancelled'],
      );
    },
  );
  it.each(Object.entries(live))(
    '%s beside a running version: the old one is stopped, and its page is published',
    (_, { live: own, more }) => {
      const before = old();
      const plan = stop('Ada', facts({ live: [before, ...own], route: routeTo(before), ...more }));
      expect(plan.route).toMatchObject({ set: { stopped: true, deployment_id: 'd1' } });
      expect(changeOf(plan, 'd1')).toMatchObject({ stopped_first: 'asked', health: null });
      expect(
        plan.createTasks.filter(
          (t) => 'stop' in t.payload && t.payload.stop?.[0]?.deployment_id === 'd1',
        ),
      ).toHaveLength(1);
    },
  );
  it('stop-first: the version that waits for its restart stays stopped', () => {
    const before = old({
      settings: { ...SETTINGS, replace: 'recreate' },
      stopped_first: 'stopped',
    });
    const d = on.deploying({ settings: { ...SETTINGS, replace: 'recreate' } });
    const plan = stop(
      'Ada',
      facts({ live: [before, d], tasks: [task('deploy')], route: routeTo(before) }),
    );
    expect(plan.createTasks.filter((t) => 'start' in t.payload)).toEqual([]);
    expect(changeOf(plan, 'd1')).toMatchObject({ health: null });
  });
  it('a project without a version is stopped too', () => {
    expect(stop('Ada', facts())).toMatchObject({
      stopped: { at: NOW },
      createTasks: [],
      route: null,
    });
  });
  it('a project that is being deleted refuses it', () => {
    expect(() => stop('Ada', facts({ project: project({ deleting_at: NOW }) }))).toThrow(
      expect.objectContaining({ code: 'being_deleted' }),
    );
  });
});

describe('a restart and a start in each state', () => {
  const ask = (trigger: 'restart' | 'start', isStopped: boolean, live: DeploymentRecord[]) => () =>
    request(
      { id: 'd9', commit: null, note: null, release: old(), trigger },
      facts({ live, ...(isStopped ? STOPPED_PROJECT : {}) }),
    );
  const others = [on.pending(), on.building(), on.built(), on.deploying(), on.published()];
  it('a restart needs a running version, a start a stopped project', () => {
    expect(ask('restart', false, [old()])().createDeployment).toMatchObject({
      rollback_of: 'd1',
      trigger: 'restart',
    });
    expect(
      ask('start', true, [atRest({ id: 'd1', generation: 1 })])().createDeployment,
    ).toMatchObject({
      rollback_of: 'd1',
      trigger: 'start',
    });
    // Its node was deleted.
    expect(ask('start', true, [])().createDeployment).toMatchObject({ rollback_of: 'd1' });
    for (const refused of [
      ask('restart', false, []),
      ask('restart', true, [atRest()]),
      ask('start', false, [old()]),
      ask('start', false, []),
    ])
      expect(refused).toThrow(expect.objectContaining({ code: 'wrong_state' }));
  });
  it.each(others.map((d) => [d.route_published_at === null ? d.status : 'published', d] as const))(
    'both wait for no other deployment: %s refuses them',
    (_, d) => {
      expect(ask('restart', false, [old(), d])).toThrow(
        expect.objectContaining({ code: 'wrong_state' }),
      );
      expect(ask('start', true, [atRest({ id: 'd1', generation: 1 }), d])).toThrow(
        expect.objectContaining({ code: 'wrong_state' }),
      );
    },
  );
  it('a deployment of a stopped project is accepted, and starts it', () => {
    const deploy = request(
      { id: 'd9', commit: null, note: null, release: null },
      facts({ ...STOPPED_PROJECT, live: [atRest()] }),
    );
    expect(deploy.createDeployment).toMatchObject({ status: 'pending' });
    const d = on.published();
    const live = advance(
      d,
      confirmed,
      facts({
        ...STOPPED_PROJECT,
        live: [atRest({ id: 'd1', generation: 1 }), d],
        route: routeTo(d),
      }),
    );
    expect(live.stopped).toMatchObject({ at: null });
    expect(stateOf(live, 'd1')).toBe('retired');
  });
});

describe('a newer deployment', () => {
  it.each(['pending', 'building', 'built'] as const)(
    'a newer deployment ends an older one that is %s',
    (state) => {
      const older = on[state]({ id: 'd1', generation: 2 });
      const plan = request(
        { id: 'd3', commit: null, note: 'why', release: null },
        facts({
          live: [older],
          tasks: state === 'building' ? [task('build', { deployment_id: 'd1' })] : [],
        }),
      );
      expect(stateOf(plan, 'd1')).toBe('superseded');
      expect(plan.createDeployment).toMatchObject({
        id: 'd3',
        generation: 3,
        status: 'pending',
        note: 'why',
        settings: SETTINGS,
      });
      // The lease is void at once, so a later report of the agent is refused.
      expect(plan.changeTasks).toEqual(
        state === 'building' ? [{ id: 't1', attempt: 1, end: 'cancelled' }] : [],
      );
    },
  );
  it('does not end a deployment that is deploying or running', () => {
    const plan = request(
      { id: 'd3', commit: null, note: null, release: null },
      facts({ live: [old(), on.deploying()] }),
    );
    expect(plan.changeDeployments).toEqual([]);
  });
  it('is refused while the project is being deleted', () => {
    expect(() =>
      request(
        { id: 'd3', commit: null, note: null, release: null },
        facts({ project: project({ deleting_at: NOW }) }),
      ),
    ).toThrow(expect.objectContaining({ code: 'being_deleted' }));
  });
  it('rejects a rollback to a host name that the platform reserved, but a running deployment with that name can move', () => {
    const platform = {
      registryAddr: 'registry:5000',
      authServiceUrl: null,
      reservedPrefixes: ['shop'],
    };
    const to = (release: DeploymentRecord) => () =>
      request({ id: 'd3', commit: null, note: null, release }, facts({ platform }));
    expect(to(old({ status: 'retired' }))).toThrow(
      expect.objectContaining({
        code: 'no_release',
        message: 'its domain prefix shop is now a host of the platform itself',
      }),
    );
    expect(to(old())().createDeployment).toMatchObject({
      rollback_of: 'd1',
      settings: { domain_prefix: 'shop' },
    });
  });
  it('rolls back only to a deployment of the same project that was live', () => {
    const to = (release: DeploymentRecord) => () =>
      request({ id: 'd3', commit: null, note: null, release }, facts());
    for (const status of ['failed', 'cancelled', 'superseded'] as const)
      expect(to(old({ status }))).toThrow(expect.objectContaining({ code: 'no_release' }));
    expect(to(on.ended('failed'))).toThrow(expect.objectContaining({ code: 'no_release' }));
    expect(to(old({ project_id: 'p2' }))).toThrow(expect.objectContaining({ code: 'no_release' }));
    expect(to(old())().createDeployment).toMatchObject({
      rollback_of: 'd1',
      image_tag: old().image_tag,
      image_digest: DIGEST,
      commit: COMMIT,
    });
  });
});

it('the retire task says that the project was deleted, so that the node removes its images', () => {
  const deleted = facts({
    live: [on.running()],
    project: { ...facts().project, deleting_at: facts().now },
  });
  const plan = advance(on.running(), { type: 'project_deleted' }, deleted);
  expect(plan.createTasks[0]?.payload).toMatchObject({ project_deleted: true });
  expect(
    advance(on.running(), { type: 'project_deleted' }, facts({ live: [on.running()] }))
      .createTasks[0]?.payload,
  ).not.toHaveProperty('project_deleted');
});

describe('stop-first', () => {
  const container = (
    name: string,
    deployment: string,
    over: Partial<ObservedContainer> = {},
  ): ObservedContainer => ({
    ...ofD2({ id: name, name, labels: { 'berth.deployment': deployment, 'berth.project': 'p1' } }),
    ...over,
  });
  const dispatch = (d: DeploymentRecord) =>
    advance(
      d,
      { type: 'tick' },
      facts({
        live: [old(), d],
        nodes: [
          node({
            containers: [
              container('svc-shop', 'd1'),
              container('svc-shop-g7', 'forgotten'),
              container('svc-shop-g8', 'also', { state: 'exited' }),
              container('svc-blog', 'other', {
                labels: { 'berth.deployment': 'other', 'berth.project': 'p9' },
              }),
            ],
          }),
        ],
      }),
    );
  it('also stops containers of the project that belong to no live deployment, and the story says so first', () => {
    const plan = dispatch(on.built({ settings: { ...SETTINGS, replace: 'recreate' } }));
    expect(plan.createTasks).toMatchObject([
      { kind: 'deploy', payload: { replace: 'recreate', replaces: 'd1' } },
    ]);
    expect(plan.storyLines.filter((e) => e.kind === 'stopped_first').map((e) => e.message)).toEqual(
      [
        'svc-shop-g7 on node-1 belongs to no live deployment; the agent stops it before this ' +
          'deployment starts, and keeps it',
      ],
    );
  });
  it('a rolling replacement stops none of them', () => {
    expect(dispatch(on.built()).storyLines.map((e) => e.kind)).toEqual(['deploying']);
  });
});

describe('the replacement of the running version', () => {
  it('publishes the route when the new container answered, and changes nothing else', () => {
    const plan = advance(
      on.deploying(),
      { type: 'task_reported', task: task('deploy'), report: report.deployed },
      facts({ live: [old(), on.deploying()], tasks: [task('deploy')], route: routeTo(old()) }),
    );
    expect(plan.route).toEqual({
      set: expect.objectContaining({ deployment_id: 'd2', host_ip: '10.0.0.1', host_port: 32_002 }),
    });
    expect(stateOf(plan, 'd1')).toBeNull();
    expect(plan.createTasks).toEqual([]);
  });
  it('retires the old one only when the proxy serves the new one', () => {
    const plan = advance(
      on.published(),
      confirmed,
      facts({ live: [old(), on.published()], route: routeTo(on.published()) }),
    );
    // The old deployment leaves `running` before the new one enters it, so at most one is running.
    expect(plan.changeDeployments.map((c) => [c.id, c.set.status])).toEqual([
      ['d1', 'retired'],
      ['d2', 'running'],
    ]);
    expect(plan.createTasks).toEqual([
      expect.objectContaining({
        kind: 'retire',
        node_id: 'n1',
        payload: expect.objectContaining({
          remove: [expect.objectContaining({ deployment_id: 'd1' })],
          keep: { deployment_id: 'd2', name: 'svc-shop' },
          drain_seconds: 5,
          stop_grace_seconds: 10,
        }),
      }),
    ]);
  });
  it('creates one task for each node if the old version is on another node', () => {
    const plan = advance(
      on.published(),
      confirmed,
      facts({
        live: [old({ node_id: 'n2' }), on.published()],
        route: routeTo(on.published()),
        nodes: [node(), node({ id: 'n2' })],
      }),
    );
    expect(
      plan.createTasks.map((t) => [
        t.node_id,
        t.kind,
        'remove' in t.payload && t.payload.remove.length,
        'keep' in t.payload && t.payload.keep?.deployment_id,
      ]),
    ).toEqual([
      ['n1', 'retire', 0, 'd2'],
      ['n2', 'retire', 1, undefined],
    ]);
  });
  it('gives a contract-only agent no retire task', () => {
    const plan = advance(
      on.published(),
      confirmed,
      facts({
        live: [old(), on.published()],
        route: routeTo(on.published()),
        nodes: [node({ agent_version: null })],
      }),
    );
    expect(plan.createTasks).toEqual([]);
    expect(stateOf(plan, 'd2')).toBe('running');
  });
  it('restores the old route when the proxy does not apply the new one, and removes the new container', () => {
    const late = on.published({ route_published_at: NOW - L.routeMs - 1 });
    const nodes = [node({ containers: [ofD1()] })];
    const plan = advance(
      late,
      { type: 'tick' },
      facts({ live: [old(), late], route: routeTo(late), nodes }),
    );
    expect(plan.route).toEqual({
      set: expect.objectContaining({ deployment_id: 'd1', host_port: 32_001 }),
    });
    expect(plan.createTasks).toEqual([
      expect.objectContaining({
        kind: 'retire',
        payload: expect.objectContaining({
          remove: [expect.objectContaining({ deployment_id: 'd2' })],
          keep: null,
          drain_seconds: 5,
        }),
      }),
    ]);
    expect(stateOf(plan, 'd1')).toBeNull();
  });
  it('does not change the old version and its route when a deploy task fails', () => {
    const plan = advance(
      on.deploying(),
      { type: 'task_reported', task: task('deploy'), report: report.failed },
      facts({ live: [old(), on.deploying()], tasks: [task('deploy')], route: routeTo(old()) }),
    );
    expect(plan.route).toBeNull();
    expect(plan.changeDeployments.map((c) => c.id)).toEqual(['d2']);
  });
  it('removes the route of a deleted project first and then its container', () => {
    const plan = advance(
      on.running(),
      { type: 'project_deleted' },
      facts({ live: [on.running()], route: routeTo(on.running()) }),
    );
    expect(plan.route).toEqual({ remove: { project_id: 'p1' } });
    expect(plan.createTasks[0]?.payload).toMatchObject({
      remove: [{ deployment_id: 'd2' }],
      drain_seconds: 5,
    });
  });
});

describe('tasks', () => {
  it('a build task has the image name, the branch and the Dockerfile', () => {
    const plan = advance(on.pending({ requested_commit: COMMIT }), { type: 'tick' }, facts());
    expect(plan.createTasks).toEqual([
      {
        id: 'x1',
        kind: 'build',
        deployment_id: 'd2',
        node_id: 'b1',
        queue_deadline_at: NOW + L.claimMs,
        wall_deadline_at: NOW + L.buildMs,
        payload: {
          project_id: 'p1',
          project: 'shop',
          git_url: SETTINGS.git_url,
          branch: 'main',
          commit: COMMIT,
          dockerfile_path: 'Dockerfile',
          image_repository: 'registry:5000/shop',
        },
      },
    ]);
  });
  it('a deploy task has the image digest and the name of the generation', () => {
    const payload = (d: DeploymentRecord) =>
      advance(d, { type: 'tick' }, facts({ live: [d] })).createTasks[0]?.payload;
    expect(payload(on.built())).toMatchObject({
      image: `registry:5000/shop@${DIGEST}`,
      container_name: 'svc-shop-g2',
      container_port: 8080,
      replace: 'rolling',
    });
    expect(payload(on.built({ image_digest: null }))).toMatchObject({
      image: `registry:5000/shop:${COMMIT}`,
    });
  });
  it('pulls from the present address of the registry, also an image that was pushed to an earlier one, and says so', () => {
    const moved = { registryAddr: 'registry.new/path', authServiceUrl: null, reservedPrefixes: [] };
    const draining = on.built();
    const plan = advance(
      draining,
      { type: 'tick' },
      facts({ live: [draining], nodes: [node()], platform: moved }),
    );
    const [created] = plan.createTasks;
    expect(created?.payload).toMatchObject({
      image: `registry.new/shop@${DIGEST}`,
      image_tag: `registry:5000/shop:${COMMIT}`,
    });
    expect(plan.storyLines.map((l) => l.message).join()).toContain(
      'pushed to registry:5000; REGISTRY_ADDR is registry.new now',
    );
    const deploying = on.deploying();
    const pulling = task('deploy', { deployment_id: deploying.id });
    const report = {
      status: 'failed' as const,
      result: { error: { code: 'image_pull_failed', message: 'manifest unknown' } },
    };
    const given = facts({ live: [deploying], nodes: [node()], tasks: [pulling], platform: moved });
    const failed = changeOf(
      advance(deploying, { type: 'task_reported', task: pulling, report }, given),
      deploying.id,
    );
    expect(failed.error).toMatchObject({
      code: 'image_pull_failed',
      message: expect.stringMatching(/manifest unknown; its image was pushed to/),
    });
  });
  it('a lost build goes to another builder, and to the same builder only after its next report', () => {
    const losses = [{ node_id: 'b1', at: NOW - 500 }];
    const chosen = (...builders: ReturnType<typeof builder>[]) =>
      changeOf(advance(on.pending({ losses }), { type: 'tick' }, facts({ nodes: builders })), 'd2')
        .builder_id;
    expect(chosen(builder(), builder({ id: 'b2' }))).toBe('b2');
    expect(chosen(builder())).toBeUndefined();
    expect(chosen(builder({ last_seen_at: NOW }))).toBe('b1');
  });
  it('a contract-only agent may report a failure as plain text', () => {
    const plan = advance(
      on.building(),
      {
        type: 'task_reported',
        task: task('build', { attempt: 0 }),
        report: { status: 'failed', result: 'make: *** [all] Error 2' },
      },
      facts({ tasks: [task('build', { attempt: 0 })] }),
    );
    expect(changeOf(plan, 'd2').error).toEqual({
      code: 'task_failed',
      message: 'The agent reported a failure: make: *** [all] Error 2',
    });
  });
});

describe('containers in reports', () => {
  it('a changed port moves the route', () => {
    const plan = advance(
      on.running(),
      seen({ host_port: 33_000 }),
      facts({ live: [on.running()], route: routeTo(on.running()) }),
    );
    expect(plan.route).toEqual({
      set: expect.objectContaining({ deployment_id: 'd2', host_port: 33_000 }),
    });
    expect(changeOf(plan, 'd2').host_port).toBe(33_000);
  });
  it.each([
    ['gone', gone, 'unhealthy'],
    ['exited', seen({ state: 'exited', host_port: null as never }), 'unhealthy'],
  ] as const)('a container that is %s is unhealthy, and its route stays', (_, event, status) => {
    const plan = advance(
      on.running(),
      event,
      facts({ live: [on.running()], route: routeTo(on.running()) }),
    );
    expect(changeOf(plan, 'd2').health?.status).toBe(status);
    expect(plan.route).toBeNull();
    expect(plan.createTasks).toEqual([]);
  });
  it('creates no second task for a container that is being removed', () => {
    const retire = task('retire', {
      payload: { remove: [{ deployment_id: 'd2', reason: '' }] } as never,
    });
    expect(
      isEmptyPlan(
        advance(on.ended('failed', { node_id: 'n1' }), seen(), facts({ tasks: [retire] })),
      ),
    ).toBe(true);
  });
  it('the route of a silent node stays', () => {
    const plan = advance(
      on.running(),
      { type: 'node_silent' },
      facts({ live: [on.running()], route: routeTo(on.running()) }),
    );
    expect(changeOf(plan, 'd2').health?.status).toBe('unknown');
    expect(plan.route).toBeNull();
  });
});
