/** The flow as tables: every state x every event, every row of TRANSITIONS, and what else a plan must say. */
import { describe, expect, it } from 'vitest';
import type { ObservedContainer } from '@berth/wire/node';
import type { TaskReport } from '@berth/wire/task';
import { TERMINAL_STATES } from '@berth/wire/vocabulary';
import { DomainError } from '../../src/domain/errors.ts';
import { DEFAULT_LIMITS, type Facts } from '../../src/domain/facts.ts';
import { isEmptyPlan, type Plan } from '../../src/domain/plan.ts';
import type { DeploymentRecord } from '../../src/domain/records.ts';
import { advance, request } from '../../src/flow/deployment.ts';
import type { FlowEvent } from '../../src/flow/events.ts';
import { TRANSITIONS } from '../../src/flow/transitions.ts';
import { builder, changeOf, COMMIT, DIGEST, facts, NOW, node, old, on, project, routeTo, SETTINGS, stateOf, task } from './fixtures.ts';

const L = DEFAULT_LIMITS;
const report = {
  built: { status: 'completed', image_tag: `registry:5000/shop:${COMMIT}`, image_digest: DIGEST, commit: COMMIT },
  deployed: { status: 'completed', host_port: 32_002, container_id: 'c2' },
  retired: { status: 'completed' },
  failed: { status: 'failed', result: { error: { code: 'build_step_failed', message: 'RUN npm ci: exit 1' } } },
  dead: { status: 'failed', result: { error: { code: 'engine_unavailable', message: 'Cannot connect to the Docker daemon' } } },
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
  /** Next state; `same`: stays and nothing else; `stays`: stays, but something changes; `refused`: wrong_state. */
  to: DeploymentRecord['status'] | 'same' | 'stays' | 'refused';
  error?: string;
};
const deleted = (reachable = true, node_id = 'n1'): FlowEvent => ({ type: 'node_deleted', node_id, reachable });
const lost = (kind: 'build' | 'deploy', why: 'queue' | 'lease' | 'wall' | 'attempts' = 'lease'): FlowEvent => ({
  type: 'task_lost',
  task: task(kind),
  why,
});
const reported = (kind: 'build' | 'deploy' | 'retire', r: TaskReport): FlowEvent => ({
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

const ROWS: Row[] = [
  // pending
  { name: 'a builder has room', d: on.pending(), event: { type: 'tick' }, to: 'building' },
  {
    name: 'an earlier release needs no build',
    d: on.pending({ rollback_of: 'd0', image_tag: 'registry:5000/shop:x' }),
    event: { type: 'tick' },
    to: 'built',
  },
  { name: 'no builder yet: it says so', d: on.pending(), event: { type: 'tick' }, facts: { nodes: [node()] }, to: 'stays' },
  {
    name: 'said already: nothing new',
    d: on.pending({ waiting: 'no builder node has ever registered' }),
    event: { type: 'tick' },
    facts: { nodes: [node()] },
    to: 'same',
  },
  {
    name: 'no builder in time',
    d: on.pending({ state_since: tooLate }),
    event: { type: 'tick' },
    facts: { nodes: [] },
    to: 'failed',
    error: 'no_builder',
  },
  {
    name: 'a login is required, no auth service',
    d: on.pending({ settings: { ...SETTINGS, auth_required: true } }),
    event: { type: 'tick' },
    to: 'failed',
    error: 'auth_service_missing',
  },
  {
    name: 'there is no registry',
    d: on.pending(),
    event: { type: 'tick' },
    facts: { platform: { registryAddr: '', authServiceUrl: null, reservedPrefixes: [] } },
    to: 'failed',
    error: 'registry_missing',
  },
  { name: 'cancel', d: on.pending(), event: { type: 'cancel' }, to: 'cancelled' },
  { name: 'project deleted', d: on.pending(), event: { type: 'project_deleted' }, to: 'cancelled', error: 'project_deleted' },
  { name: 'a report means nothing but the end of its task', d: on.pending(), event: reported('build', report.built), to: 'stays' },
  { name: 'a loss means nothing but the end of its task', d: on.pending(), event: lost('build'), to: 'stays' },
  { name: 'a confirmation means nothing', d: on.pending(), event: confirmed, to: 'same' },
  { name: 'a check means nothing', d: on.pending(), event: unreachable, to: 'same' },
  { name: 'a node’s deletion means nothing', d: on.pending(), event: deleted(), to: 'same' },
  { name: 'silence means nothing', d: on.pending(), event: { type: 'node_silent' }, to: 'same' },
  { name: 'a container of a lost attempt is removed', d: on.pending(), event: seen(), to: 'stays' },
  // building
  { name: 'built', d: on.building(), event: reported('build', report.built), facts: { tasks: [task('build')] }, to: 'built' },
  {
    name: 'build failed',
    d: on.building(),
    event: reported('build', report.failed),
    facts: { tasks: [task('build')] },
    to: 'failed',
    error: 'build_step_failed',
  },
  {
    name: 'its builder’s engine is dead: another builder gets it',
    d: on.building(),
    event: reported('build', report.dead),
    facts: { tasks: [task('build')], nodes: [builder(), builder({ id: 'b2', hostname: 'builder-2' })] },
    to: 'pending',
  },
  {
    name: 'its builder’s engine is dead, and there is no other one',
    d: on.building(),
    event: reported('build', report.dead),
    facts: { tasks: [task('build')] },
    to: 'failed',
    error: 'engine_unavailable',
  },
  {
    name: 'one dead engine after the other',
    d: on.building({ losses: seenOnce }),
    event: reported('build', report.dead),
    facts: { tasks: [task('build')], nodes: [builder(), builder({ id: 'b2', hostname: 'builder-2' })] },
    to: 'failed',
    error: 'engine_unavailable',
  },
  {
    name: 'its node’s engine is dead: another node gets it',
    d: on.deploying(),
    event: reported('deploy', report.dead),
    facts: { tasks: [task('deploy')], nodes: [node(), node({ id: 'n2', hostname: 'node-2' })] },
    to: 'built',
  },
  {
    name: 'its node’s engine is dead, stop-first: a container of it may be there',
    d: on.deploying({ settings: { ...SETTINGS, replace: 'recreate' } }),
    event: reported('deploy', report.dead),
    facts: { tasks: [task('deploy')], nodes: [node(), node({ id: 'n2', hostname: 'node-2' })] },
    to: 'failed',
    error: 'engine_unavailable',
  },
  {
    name: 'every builder reports a dead engine',
    d: on.pending({ state_since: tooLate }),
    event: { type: 'tick' },
    facts: { nodes: [builder({ engine: { ok: false, version: null, error: 'no socket' } }), node()] },
    to: 'failed',
    error: 'engine_unavailable',
  },
  {
    name: 'every deploy node reports a dead engine',
    d: on.built({ state_since: tooLate }),
    event: { type: 'tick' },
    facts: { nodes: [builder(), node({ engine: { ok: false, version: null, error: 'no socket' } })] },
    to: 'failed',
    error: 'engine_unavailable',
  },
  {
    name: 'cancellation acknowledged',
    d: on.building(cancelling),
    event: reported('build', report.cancelled),
    facts: { tasks: [task('build')] },
    to: 'cancelled',
  },
  {
    name: 'completed although cancelled',
    d: on.building(cancelling),
    event: reported('build', report.built),
    facts: { tasks: [task('build')] },
    to: 'cancelled',
  },
  { name: 'lease lost', d: on.building(), event: lost('build'), facts: { tasks: [task('build')] }, to: 'pending' },
  {
    name: 'not claimed',
    d: on.building(),
    event: lost('build', 'queue'),
    facts: { tasks: [task('build', { attempt: 0 })] },
    to: 'pending',
  },
  {
    name: 'lost too often',
    d: on.building({ losses: seenOnce }),
    event: lost('build'),
    facts: { tasks: [task('build')] },
    to: 'failed',
    error: 'node_lost',
  },
  {
    name: 'never claimed, too often',
    d: on.building({ losses: seenOnce }),
    event: lost('build', 'queue'),
    facts: { tasks: [task('build')] },
    to: 'failed',
    error: 'task_not_claimed',
  },
  {
    name: 'too long',
    d: on.building(),
    event: lost('build', 'wall'),
    facts: { tasks: [task('build')] },
    to: 'failed',
    error: 'task_timeout',
  },
  {
    name: 'begun too often',
    d: on.building(),
    event: lost('build', 'attempts'),
    facts: { tasks: [task('build')] },
    to: 'failed',
    error: 'too_many_attempts',
  },
  { name: 'lost while cancelling', d: on.building(cancelling), event: lost('build'), facts: { tasks: [task('build')] }, to: 'cancelled' },
  {
    name: 'cancel before an agent began',
    d: on.building(),
    event: { type: 'cancel' },
    facts: { tasks: [task('build', { attempt: 0 })] },
    to: 'cancelled',
  },
  { name: 'cancel: the agent is told', d: on.building(), event: { type: 'cancel' }, facts: { tasks: [task('build')] }, to: 'stays' },
  { name: 'cancel again', d: on.building(cancelling), event: { type: 'cancel' }, facts: { tasks: [task('build')] }, to: 'same' },
  {
    name: 'cancel with an agent that cannot be told',
    d: on.building(),
    event: { type: 'cancel' },
    facts: { tasks: [task('build', { attempt: 0 })], nodes: [builder({ agent_version: null })] },
    to: 'cancelled',
  },
  { name: 'builder deleted', d: on.building(), event: deleted(true, 'b1'), facts: { tasks: [task('build')] }, to: 'pending' },
  { name: 'another node deleted', d: on.building(), event: deleted(), facts: { tasks: [task('build')] }, to: 'same' },
  {
    name: 'project deleted',
    d: on.building(),
    event: { type: 'project_deleted' },
    facts: { tasks: [task('build')] },
    to: 'cancelled',
    error: 'project_deleted',
  },
  { name: 'tick means nothing', d: on.building(), event: { type: 'tick' }, to: 'same' },
  { name: 'a confirmation means nothing', d: on.building(), event: confirmed, to: 'same' },
  { name: 'a check means nothing', d: on.building(), event: unreachable, to: 'same' },
  { name: 'silence means nothing', d: on.building(), event: { type: 'node_silent' }, to: 'same' },
  { name: 'nothing seen, nothing to do', d: on.building(), event: gone, to: 'same' },
  {
    name: 'its builder deleted while a cancellation waits',
    d: on.building(cancelling),
    event: deleted(true, 'b1'),
    facts: { tasks: [task('build')] },
    to: 'cancelled',
  },
  {
    name: 'its node deleted while a cancellation waits',
    d: on.deploying(cancelling),
    event: deleted(),
    facts: { tasks: [task('deploy')] },
    to: 'cancelled',
  },
  // built
  { name: 'a node is eligible', d: on.built(), event: { type: 'tick' }, to: 'deploying' },
  {
    name: 'another one is deploying',
    d: on.built(),
    event: { type: 'tick' },
    facts: { live: [on.deploying({ id: 'd1', generation: 1 })] },
    to: 'stays',
  },
  { name: 'no node yet', d: on.built(), event: { type: 'tick' }, facts: { nodes: [builder()] }, to: 'stays' },
  {
    name: 'no node in time',
    d: on.built({ state_since: tooLate }),
    event: { type: 'tick' },
    facts: { nodes: [node({ schedulable: false })] },
    to: 'failed',
    error: 'no_deploy_node',
  },
  {
    name: 'a login was required meanwhile',
    d: on.built(),
    event: { type: 'tick' },
    facts: { project: project({ auth_required: true }) },
    to: 'failed',
    error: 'auth_service_missing',
  },
  { name: 'cancel', d: on.built(), event: { type: 'cancel' }, to: 'cancelled' },
  { name: 'project deleted', d: on.built(), event: { type: 'project_deleted' }, to: 'cancelled', error: 'project_deleted' },
  { name: 'a late report ends its task only', d: on.built(), event: reported('build', report.built), to: 'stays' },
  { name: 'a late loss ends its task only', d: on.built(), event: lost('build'), to: 'stays' },
  { name: 'a confirmation means nothing', d: on.built(), event: confirmed, to: 'same' },
  { name: 'a check means nothing', d: on.built(), event: unreachable, to: 'same' },
  { name: 'a node’s deletion means nothing', d: on.built(), event: deleted(), to: 'same' },
  { name: 'silence means nothing', d: on.built(), event: { type: 'node_silent' }, to: 'same' },
  { name: 'a container of a lost attempt is removed', d: on.built(), event: seen(), to: 'stays' },
  // deploying
  {
    name: 'reported: its route is published',
    d: on.deploying(),
    event: reported('deploy', report.deployed),
    facts: { tasks: [task('deploy')] },
    to: 'stays',
  },
  {
    name: 'the proxy serves it',
    d: on.published(),
    event: confirmed,
    facts: { live: [on.published()], route: routeTo(on.published()) },
    to: 'running',
  },
  {
    name: 'a confirmation before the report means nothing',
    d: on.deploying(),
    event: confirmed,
    facts: { live: [on.deploying()] },
    to: 'same',
  },
  {
    name: 'a confirmation of another route means nothing',
    d: on.published(),
    event: confirmed,
    facts: { route: routeTo(old()) },
    to: 'same',
  },
  {
    name: 'a confirmation of where it was before its node got another address means nothing',
    d: on.published(),
    event: { ...confirmed, host_ip: '10.0.0.99' },
    facts: { live: [on.published()], route: routeTo(on.published()) },
    to: 'same',
  },
  {
    name: 'a confirmation of the port that it had before it was restarted means nothing',
    d: on.published({ host_port: 32_003 }),
    event: confirmed,
    facts: { live: [on.published({ host_port: 32_003 })], route: routeTo(on.published({ host_port: 32_003 })) },
    to: 'same',
  },
  {
    name: 'its node sees it on another port already: not confirmed',
    d: on.published(),
    event: confirmed,
    facts: { live: [on.published()], route: routeTo(on.published()), nodes: [node({ containers: [ofD2({ host_port: 32_003 })] })] },
    to: 'same',
  },
  {
    name: 'its node sees it down: not confirmed',
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
    name: 'what an earlier attempt left says nothing about it',
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
    name: 'its container stayed down until the deadline',
    d: on.published({ route_published_at: NOW - L.routeMs - 1 }),
    event: { type: 'tick' },
    facts: { live: [old()], route: routeTo(on.published()), nodes: [node({ containers: [ofD2({ state: 'exited', host_port: null })] })] },
    to: 'failed',
    error: 'container_exited',
  },
  {
    name: 'the proxy did not follow',
    d: on.published({ route_published_at: NOW - L.routeMs - 1 }),
    event: { type: 'tick' },
    facts: { live: [old()], route: routeTo(on.published()) },
    to: 'failed',
    error: 'proxy_unconfirmed',
  },
  {
    name: 'the proxy does not reach the node',
    d: on.published(),
    event: unreachable,
    facts: { live: [old(), on.published()], route: routeTo(on.published()) },
    to: 'failed',
    error: 'proxy_cannot_reach_node',
  },
  {
    name: 'the proxy does not reach where it was before it was restarted: nothing is known of where it is now',
    d: on.published({ host_port: 32_003 }),
    event: unreachable,
    facts: { live: [on.published({ host_port: 32_003 })], route: routeTo(on.published({ host_port: 32_003 })) },
    to: 'same',
  },
  {
    name: 'the proxy does not reach a container that is down just now',
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
    name: 'the proxy does not reach a contract-only node yet: its agent probes nothing, the application may be starting',
    d: on.published(),
    event: unreachable,
    facts: { live: [on.published()], route: routeTo(on.published()), nodes: [node({ agent_version: null })] },
    to: 'same',
  },
  {
    name: 'the proxy still does not reach a contract-only node after the time of a probe',
    d: on.published({ route_published_at: NOW - L.probeSeconds * 1000 - 1 }),
    event: unreachable,
    facts: { live: [on.published()], route: routeTo(on.published()), nodes: [node({ agent_version: null })] },
    to: 'failed',
    error: 'proxy_cannot_reach_node',
  },
  {
    name: 'so it is right after a control plane has started: Berth asks by itself, and nobody has to be heard of first',
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
    name: 'the proxy may follow a grace period after a control plane has started',
    d: on.published({ route_published_at: NOW - L.routeMs - 1 }),
    event: { type: 'tick' },
    facts: { live: [old()], route: routeTo(on.published()), uptime: { at: NOW, since: NOW - 1000 } },
    to: 'same',
  },
  { name: 'the proxy has time still', d: on.published(), event: { type: 'tick' }, to: 'same' },
  {
    name: 'deploy failed',
    d: on.deploying(),
    event: reported('deploy', { status: 'failed', result: { error: { code: 'build_step_failed', message: 'x' } } }),
    facts: { tasks: [task('deploy')] },
    to: 'failed',
    error: 'build_step_failed',
  },
  {
    name: 'cancellation acknowledged',
    d: on.deploying(cancelling),
    event: reported('deploy', report.cancelled),
    facts: { tasks: [task('deploy')] },
    to: 'cancelled',
  },
  {
    name: 'started although cancelled',
    d: on.deploying(cancelling),
    event: reported('deploy', report.deployed),
    facts: { tasks: [task('deploy')] },
    to: 'cancelled',
  },
  {
    name: 'its node is not there any more',
    d: on.deploying(),
    event: reported('deploy', report.deployed),
    facts: { nodes: [], tasks: [task('deploy')] },
    to: 'failed',
    error: 'node_deleted',
  },
  { name: 'lease lost', d: on.deploying(), event: lost('deploy'), facts: { tasks: [task('deploy')] }, to: 'built' },
  {
    name: 'lost too often',
    d: on.deploying({ losses: seenOnce }),
    event: lost('deploy'),
    facts: { tasks: [task('deploy')] },
    to: 'failed',
    error: 'node_lost',
  },
  {
    name: 'lost while cancelling',
    d: on.deploying(cancelling),
    event: lost('deploy'),
    facts: { tasks: [task('deploy')] },
    to: 'cancelled',
  },
  {
    name: 'cancel before an agent began',
    d: on.deploying(),
    event: { type: 'cancel' },
    facts: { tasks: [task('deploy', { attempt: 0 })] },
    to: 'cancelled',
  },
  { name: 'cancel: the agent is told', d: on.deploying(), event: { type: 'cancel' }, facts: { tasks: [task('deploy')] }, to: 'stays' },
  { name: 'cancel after its route was published', d: on.published(), event: { type: 'cancel' }, to: 'refused' },
  {
    name: 'cancel with an agent that cannot be told',
    d: on.deploying(),
    event: { type: 'cancel' },
    facts: { tasks: [task('deploy', { attempt: 0 })], nodes: [node({ agent_version: null })] },
    to: 'refused',
  },
  {
    name: 'its node deleted',
    d: on.published(),
    event: deleted(),
    facts: { live: [old(), on.published()], route: routeTo(on.published()) },
    to: 'built',
  },
  {
    name: 'project deleted',
    d: on.published(),
    event: { type: 'project_deleted' },
    facts: { route: routeTo(on.published()) },
    to: 'cancelled',
    error: 'project_deleted',
  },
  { name: 'silence means nothing', d: on.deploying(), event: { type: 'node_silent' }, to: 'same' },
  { name: 'seen as expected', d: on.published(), event: seen(), facts: { route: routeTo(on.published()) }, to: 'same' },
  { name: 'seen before its report', d: on.deploying(), event: seen(), facts: { tasks: [task('deploy')] }, to: 'same' },
  {
    name: 'its port changed before the switch',
    d: on.published(),
    event: seen({ host_port: 33_000 }),
    facts: { route: routeTo(on.published()) },
    to: 'stays',
  },
  {
    name: 'a second one on another node is removed',
    d: on.deploying(),
    event: seen({}, 'n2'),
    facts: { nodes: [node(), node({ id: 'n2' })] },
    to: 'stays',
  },
  // running
  { name: 'seen as expected', d: on.running(), event: seen(), facts: { route: routeTo(on.running()) }, to: 'same' },
  { name: 'its port changed', d: on.running(), event: seen({ host_port: 33_000 }), facts: { route: routeTo(on.running()) }, to: 'stays' },
  { name: 'its container is gone', d: on.running(), event: gone, to: 'stays' },
  { name: 'its container stopped', d: on.running(), event: seen({ state: 'exited' }), to: 'stays' },
  { name: 'it has not its final name', d: on.running(), event: seen({ name: 'svc-shop-g2' }), to: 'stays' },
  { name: 'its node is silent', d: on.running(), event: { type: 'node_silent' }, to: 'stays' },
  {
    name: 'silent still',
    d: on.running({ health: { status: 'unknown', since: 1, detail: null } }),
    event: { type: 'node_silent' },
    to: 'same',
  },
  {
    name: 'its node deleted by force',
    d: on.running(),
    event: deleted(false),
    facts: { live: [on.running()], route: routeTo(on.running()) },
    to: 'retired',
    error: 'node_deleted',
  },
  { name: 'its node to be deleted: it serves until it has moved', d: on.running(), event: deleted(), to: 'same' },
  { name: 'another node deleted', d: on.running(), event: deleted(false, 'n9'), to: 'same' },
  {
    name: 'project deleted',
    d: on.running(),
    event: { type: 'project_deleted' },
    facts: { live: [on.running()], route: routeTo(on.running()) },
    to: 'retired',
    error: 'project_deleted',
  },
  { name: 'tick means nothing', d: on.running(), event: { type: 'tick' }, to: 'same' },
  { name: 'cancel is too late', d: on.running(), event: { type: 'cancel' }, to: 'refused' },
  { name: 'it is live: another control plane reached it', d: on.running(), event: unreachable, to: 'same' },
  { name: 'a confirmation again means nothing', d: on.running(), event: confirmed, to: 'same' },
  { name: 'the end of retiring is told', d: on.running(), event: reported('retire', report.retired), to: 'stays' },
  { name: 'the loss of retiring is told', d: on.running(), event: { type: 'task_lost', task: task('retire'), why: 'lease' }, to: 'stays' },
  // the ends: nothing changes them
  ...TERMINAL_STATES.flatMap((status): Row[] => [
    { name: 'tick', d: on.ended(status), event: { type: 'tick' }, to: 'same' },
    { name: 'cancel', d: on.ended(status), event: { type: 'cancel' }, to: 'refused' },
    { name: 'a late report ends its task only', d: on.ended(status), event: reported('build', report.built), to: 'stays' },
    { name: 'a late loss ends its task only', d: on.ended(status), event: lost('deploy'), to: 'stays' },
    { name: 'a late confirmation', d: on.ended(status), event: confirmed, to: 'same' },
    { name: 'a late check', d: on.ended(status), event: unreachable, to: 'same' },
    { name: 'node deleted', d: on.ended(status), event: deleted(), to: 'same' },
    { name: 'project deleted', d: on.ended(status), event: { type: 'project_deleted' }, to: 'same' },
    { name: 'silence', d: on.ended(status), event: { type: 'node_silent' }, to: 'same' },
    { name: 'a container that is left is removed', d: on.ended(status), event: seen(), to: 'stays' },
    { name: 'no container is left', d: on.ended(status), event: gone, to: 'same' },
  ]),
];

const outcome = (row: Row): { to: Row['to']; plan: Plan | null } => {
  try {
    const plan = advance(row.d, row.event, facts({ live: [row.d], ...row.facts }));
    const next = stateOf(plan, row.d.id);
    return { to: next === null ? (isEmptyPlan(plan) ? 'same' : 'stays') : (next as Row['to']), plan };
  } catch (error) {
    if (error instanceof DomainError && error.code === 'wrong_state') return { to: 'refused', plan: null };
    throw error;
  }
};

describe('a proxy that does not reach the node', () => {
  it('gets the route of the old version back, and the failure names both addresses', () => {
    const before = old();
    const plan = advance(on.published(), unreachable, facts({ live: [before, on.published()], route: routeTo(on.published()) }));
    expect(plan.route).toMatchObject({ set: { deployment_id: before.id, host_port: before.host_port } });
    const { error } = changeOf(plan, on.published().id);
    expect(error?.message).toContain('https://10.0.0.9');
    expect(error?.message).toContain('10.0.0.1:32002');
    expect(plan.createTasks.map((t) => t.kind)).toEqual(['retire']);
  });
  it('has the first deployment of a project fail too', () => {
    const plan = advance(on.published(), unreachable, facts({ live: [on.published()], route: routeTo(on.published()) }));
    expect(plan.route).toEqual({ remove: { project_id: on.published().project_id } });
    expect(changeOf(plan, on.published().id).error?.code).toBe('proxy_cannot_reach_node');
  });
});

describe('every state x every event', () => {
  it.each(ROWS.map((row) => [`${row.d.status} · ${row.event.type} · ${row.name}`, row] as const))('%s', (_, row) => {
    const { to, plan } = outcome(row);
    expect(to).toBe(row.to);
    if (plan !== null) expect(changeOf(plan, row.d.id).error?.code ?? null).toBe(row.error ?? null);
  });

  it('has a row for each pair', () => {
    const events = [
      'tick',
      'task_reported',
      'task_lost',
      'cancel',
      'route_confirmed',
      'route_unreachable',
      'node_deleted',
      'project_deleted',
      'observed',
      'node_silent',
    ];
    const states = ['pending', 'building', 'built', 'deploying', 'running', ...TERMINAL_STATES];
    const have = new Set(ROWS.map((r) => `${r.d.status} ${r.event.type}`));
    expect(states.flatMap((s) => events.map((e) => `${s} ${e}`)).filter((pair) => !have.has(pair))).toEqual([]);
  });

  it('takes every transition that docs/states.md lists', () => {
    const taken = new Set(
      ROWS.filter((r) => TRANSITIONS.some((t) => t.from === r.d.status && t.event === r.event.type && t.to === r.to)).map(
        (r) => `${r.d.status} ${r.event.type} ${r.to}`,
      ),
    );
    // These two happen to another deployment than the one the event is about; see "superseding" and "the switch" below.
    const elsewhere = ['superseded', 'replaced'];
    expect(TRANSITIONS.filter((t) => !elsewhere.includes(t.event) && !taken.has(`${t.from} ${t.event} ${t.to}`))).toEqual([]);
  });
});

describe('superseding', () => {
  it.each(['pending', 'building', 'built'] as const)('a newer deployment ends an older one that is %s', (state) => {
    const older = on[state]({ id: 'd1', generation: 2 });
    const plan = request(
      { id: 'd3', commit: null, note: 'why', release: null },
      facts({ live: [older], tasks: state === 'building' ? [task('build', { deployment_id: 'd1' })] : [] }),
    );
    expect(stateOf(plan, 'd1')).toBe('superseded');
    expect(plan.createDeployment).toMatchObject({ id: 'd3', generation: 3, status: 'pending', note: 'why', settings: SETTINGS });
    // The lease is void at once: what the agent reports later is refused.
    expect(plan.tasks).toEqual(state === 'building' ? [{ id: 't1', attempt: 1, end: 'cancelled' }] : []);
  });
  it('lets one that is deploying finish, and one that runs serve', () => {
    const plan = request({ id: 'd3', commit: null, note: null, release: null }, facts({ live: [old(), on.deploying()] }));
    expect(plan.deployments).toEqual([]);
  });
  it('is refused while the project is being deleted', () => {
    expect(() => request({ id: 'd3', commit: null, note: null, release: null }, facts({ project: project({ deleting_at: NOW }) }))).toThrow(
      expect.objectContaining({ code: 'being_deleted' }),
    );
  });
  it('a host name that the platform has taken for itself is not brought back, but what serves under it is moved', () => {
    const platform = { registryAddr: 'registry:5000', authServiceUrl: null, reservedPrefixes: ['shop'] };
    const to = (release: DeploymentRecord) => () => request({ id: 'd3', commit: null, note: null, release }, facts({ platform }));
    expect(to(old({ status: 'retired' }))).toThrow(
      expect.objectContaining({ code: 'no_release', message: 'its domain prefix shop is now a host of the platform itself' }),
    );
    expect(to(old())().createDeployment).toMatchObject({ rollback_of: 'd1', settings: { domain_prefix: 'shop' } });
  });
  it('brings back only what ran, and only of the same project', () => {
    const to = (release: DeploymentRecord) => () => request({ id: 'd3', commit: null, note: null, release }, facts());
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

it('tells the node that the project was deleted, so that its images go too', () => {
  const deleted = facts({ live: [on.running()], project: { ...facts().project, deleting_at: facts().now } });
  const plan = advance(on.running(), { type: 'project_deleted' }, deleted);
  expect(plan.createTasks[0]?.payload).toMatchObject({ project_deleted: true });
  expect(advance(on.running(), { type: 'project_deleted' }, facts({ live: [on.running()] })).createTasks[0]?.payload).not.toHaveProperty(
    'project_deleted',
  );
});

describe('replaced stop-first', () => {
  const container = (name: string, deployment: string, over: Partial<ObservedContainer> = {}): ObservedContainer => ({
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
              container('svc-blog', 'other', { labels: { 'berth.deployment': 'other', 'berth.project': 'p9' } }),
            ],
          }),
        ],
      }),
    );
  it('what runs there of the project and of no live deployment is stopped too, and the story says so before', () => {
    const plan = dispatch(on.built({ settings: { ...SETTINGS, replace: 'recreate' } }));
    expect(plan.createTasks).toMatchObject([{ kind: 'deploy', payload: { replace: 'recreate', replaces: 'd1' } }]);
    expect(plan.events.filter((e) => e.kind === 'stopped_first').map((e) => e.message)).toEqual([
      'svc-shop-g7 on node-1 belongs to no live deployment; the agent stops it before this deployment starts, and keeps it',
    ]);
  });
  it('rolled over, nothing is', () => {
    expect(dispatch(on.built()).events.map((e) => e.kind)).toEqual(['deploying']);
  });
});

describe('the switch', () => {
  it('publishes the route when the new container answered, and touches nothing else', () => {
    const plan = advance(
      on.deploying(),
      { type: 'task_reported', task: task('deploy'), report: report.deployed },
      facts({ live: [old(), on.deploying()], tasks: [task('deploy')], route: routeTo(old()) }),
    );
    expect(plan.route).toEqual({ set: expect.objectContaining({ deployment_id: 'd2', host_ip: '10.0.0.1', host_port: 32_002 }) });
    expect(stateOf(plan, 'd1')).toBeNull();
    expect(plan.createTasks).toEqual([]);
  });
  it('retires the old one only when the proxy serves the new one', () => {
    const plan = advance(on.published(), confirmed, facts({ live: [old(), on.published()], route: routeTo(on.published()) }));
    // The old one leaves `running` before the new one enters it: at most one runs at any moment.
    expect(plan.deployments.map((c) => [c.id, c.set.status])).toEqual([
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
  it('with the old one on another node: one task for each node', () => {
    const plan = advance(
      on.published(),
      confirmed,
      facts({ live: [old({ node_id: 'n2' }), on.published()], route: routeTo(on.published()), nodes: [node(), node({ id: 'n2' })] }),
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
  it('gives an agent that knows the contract alone no other task', () => {
    const plan = advance(
      on.published(),
      confirmed,
      facts({ live: [old(), on.published()], route: routeTo(on.published()), nodes: [node({ agent_version: null })] }),
    );
    expect(plan.createTasks).toEqual([]);
    expect(stateOf(plan, 'd2')).toBe('running');
  });
  it('goes back to the old version when the proxy did not follow, and removes the new container', () => {
    const late = on.published({ route_published_at: NOW - L.routeMs - 1 });
    const plan = advance(late, { type: 'tick' }, facts({ live: [old(), late], route: routeTo(late) }));
    expect(plan.route).toEqual({ set: expect.objectContaining({ deployment_id: 'd1', host_port: 32_001 }) });
    expect(plan.createTasks).toEqual([
      expect.objectContaining({
        kind: 'retire',
        payload: expect.objectContaining({ remove: [expect.objectContaining({ deployment_id: 'd2' })], keep: null, drain_seconds: 5 }),
      }),
    ]);
    expect(stateOf(plan, 'd1')).toBeNull();
  });
  it('a failed deploy leaves the old version and its route alone', () => {
    const plan = advance(
      on.deploying(),
      { type: 'task_reported', task: task('deploy'), report: report.failed },
      facts({ live: [old(), on.deploying()], tasks: [task('deploy')], route: routeTo(old()) }),
    );
    expect(plan.route).toBeNull();
    expect(plan.deployments.map((c) => c.id)).toEqual(['d2']);
  });
  it('removes the host from the proxy with the project, and its container after the route', () => {
    const plan = advance(on.running(), { type: 'project_deleted' }, facts({ live: [on.running()], route: routeTo(on.running()) }));
    expect(plan.route).toEqual({ remove: { project_id: 'p1' } });
    expect(plan.createTasks[0]?.payload).toMatchObject({ remove: [{ deployment_id: 'd2' }], drain_seconds: 5 });
  });
});

describe('tasks are complete', () => {
  it('build: the contract’s image name, branch, Dockerfile', () => {
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
  it('deploy: by digest where one is known, under the generation’s name', () => {
    const payload = (d: DeploymentRecord) => advance(d, { type: 'tick' }, facts({ live: [d] })).createTasks[0]?.payload;
    expect(payload(on.built())).toMatchObject({
      image: `registry:5000/shop@${DIGEST}`,
      container_name: 'svc-shop-g2',
      container_port: 8080,
      replace: 'rolling',
    });
    expect(payload(on.built({ image_digest: null }))).toMatchObject({ image: `registry:5000/shop:${COMMIT}` });
  });
  it('a lost build goes to another builder, and to the lost one only when it was seen again', () => {
    const losses = [{ node_id: 'b1', at: NOW - 500 }];
    const chosen = (...builders: ReturnType<typeof builder>[]) =>
      changeOf(advance(on.pending({ losses }), { type: 'tick' }, facts({ nodes: builders })), 'd2').builder_id;
    expect(chosen(builder(), builder({ id: 'b2' }))).toBe('b2');
    expect(chosen(builder())).toBeUndefined();
    expect(chosen(builder({ last_seen_at: NOW }))).toBe('b1');
  });
  it('an agent that knows the contract alone may fail with plain text', () => {
    const plan = advance(
      on.building(),
      { type: 'task_reported', task: task('build', { attempt: 0 }), report: { status: 'failed', result: 'make: *** [all] Error 2' } },
      facts({ tasks: [task('build', { attempt: 0 })] }),
    );
    expect(changeOf(plan, 'd2').error).toEqual({ code: 'task_failed', message: 'The agent reported a failure: make: *** [all] Error 2' });
  });
});

describe('what agents see', () => {
  it('a changed port moves the route', () => {
    const plan = advance(on.running(), seen({ host_port: 33_000 }), facts({ live: [on.running()], route: routeTo(on.running()) }));
    expect(plan.route).toEqual({ set: expect.objectContaining({ deployment_id: 'd2', host_port: 33_000 }) });
    expect(changeOf(plan, 'd2').host_port).toBe(33_000);
  });
  it.each([
    ['gone', gone, 'unhealthy'],
    ['exited', seen({ state: 'exited', host_port: null as never }), 'unhealthy'],
  ] as const)('a container that is %s is unhealthy, and its route stays', (_, event, status) => {
    const plan = advance(on.running(), event, facts({ live: [on.running()], route: routeTo(on.running()) }));
    expect(changeOf(plan, 'd2').health?.status).toBe(status);
    expect(plan.route).toBeNull();
    expect(plan.createTasks).toEqual([]);
  });
  it('does not remove twice what is being removed', () => {
    const retire = task('retire', { payload: { remove: [{ deployment_id: 'd2', reason: '' }] } as never });
    expect(isEmptyPlan(advance(on.ended('failed', { node_id: 'n1' }), seen(), facts({ tasks: [retire] })))).toBe(true);
  });
  it('a silent node is not a dead one: its route stays', () => {
    const plan = advance(on.running(), { type: 'node_silent' }, facts({ live: [on.running()], route: routeTo(on.running()) }));
    expect(changeOf(plan, 'd2').health?.status).toBe('unknown');
    expect(plan.route).toBeNull();
  });
});
