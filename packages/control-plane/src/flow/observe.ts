/**
 * Handles the event `observed` of flow/deployment.ts: updates ports, routes and health from the
 * containers that agents report. Pure. A container belongs only on the node that its deployment is
 * assigned to. Berth removes other containers of known deployments, and keeps containers of unknown
 * deployments (quarantine).
 */
import { webSettings } from '../domain/projects/processes.ts';
import { defined } from '@berth/kit/defined';
import { type HealthCause, type HealthState, isTerminal, LABELS } from '@berth/wire/vocabulary';
import { finalName } from '../domain/projects/container-name.ts';
import { type InstanceRecord, ownLabel, WEB } from '../domain/deployments/instance.ts';
import type { Facts } from '../domain/deployments/facts.ts';
import { failingCheckOf } from '../domain/deployments/failing-check.ts';
import { awaitsContainer, waitingFor } from '../domain/deployments/wait-reason.ts';
import { isOnline } from '../domain/nodes/placement.ts';
import { needsDevices } from '../domain/nodes/room.ts';
import { currentCopy } from '../domain/data/volumes.ts';
import type {
  DeploymentRecord,
  NodeRecord,
  ProjectRecord,
  RouteRecord,
} from '../domain/platform/records.ts';
import { type Draft, isBerthAgent } from './plan-draft.ts';
import type { EventOf } from './events.ts';
import { degradedDetail, isFirstLost, withServers } from './instance-route.ts';
import { instanceOfTask, reconcile } from './instances.ts';
import { isStoppedContainer } from './reported-containers.ts';
import { namesToDeploy } from './release.ts';
import { type Rival, rivalAt, routeTo } from './route.ts';
import { endRetries, mayTry } from './retry.ts';
import { isStoppedFirst } from './single-writer.ts';
import { isProjectStopped, isStopping, keepStopped, restsAsExpected } from './stop.ts';
import { createRetireTask, removes } from './tasks.ts';

/** Updates health, port and name of a deployment that is running or whose route is published. */
export function observed(draft: Draft, d: DeploymentRecord, event: EventOf<'observed'>): void {
  if (event.node_id !== d.node_id) return observedElsewhere(draft, d, event);
  // Before its deploy task reports, the deployment has no port and no route.
  if (d.host_port === null) return;
  if (d.route_published_at === null) return followPort(draft, d, event.container);
  if (d.status === 'running' && isProjectStopped(draft))
    return keepStopped(draft, d, event, mayBeRenaming(draft.facts, d, event));
  const { container } = event;
  if (container !== null && d.status === 'running' && withholdOlderData(draft, d, container))
    return;
  if (
    container?.state === 'running' &&
    container.host_port !== null &&
    container.host_port !== d.host_port
  )
    movePort(draft, d, container.host_port);
  const { squatter, rival } = othersAt(draft, d, container);
  updateRoute(draft, d, container, squatter ?? rival);
  const retiring = mayBeRenaming(draft.facts, d, event);
  const holder = holderOfName(draft.node(d.node_id), d);
  const others = [...draft.instances(d), ...draft.workers(d)];
  const creates = isBerthAgent(draft.node(d.node_id));
  const present = withRetries(draft, d, container);
  const { status, detail, cause } = withOthers(
    d,
    judge(present, container, { now: draft.facts.now, retiring, holder, squatter, rival, creates }),
    others,
  );
  if (container !== null && d.stopped_first === null && awaitsContainer(d))
    draft.set(d, waitingFor(null));
  firstReturned(draft, d, container);
  if (d.status !== 'running' || (d.health?.status === status && d.health.detail === detail)) return;
  // The open retire task might still fix the drift, so keep `drifted` until that task ends.
  if (retiring && status === 'healthy' && d.health?.status === 'drifted') return;
  draft.set(d, { health: { status, since: draft.facts.now, detail, ...defined({ cause }) } });
  draft.addLine(
    d,
    'health',
    detail === null ? 'healthy again: the container runs as configured' : `${status}: ${detail}`,
  );
  // Rename the container if an earlier retire task was lost and no other container has the name.
  if (!retiring && container !== null && isMisnamed(d, container) && holder === null)
    createRetireTask(draft, draft.node(d.node_id), { of: d, remove: [], keep: d, drain: false });
}

/**
 * Follows the port of a container that answered and waits for other instances of its version: the
 * engine can have restarted it with another port.
 */
function followPort(draft: Draft, d: DeploymentRecord, container: Container | null): void {
  const { state, host_port } = container ?? { state: 'gone', host_port: null };
  if (state === 'running' && host_port !== null && host_port !== d.host_port)
    movePort(draft, d, host_port);
}

/**
 * Withdraws the route of a running container that mounts an old copy of the volumes, and stops it.
 * A person started such a container after the volumes moved to another node. Returns whether the
 * container is of this kind.
 */
function withholdOlderData(draft: Draft, d: DeploymentRecord, container: Container): boolean {
  const data = d.settings.volumes.length === 0 ? null : currentCopy(draft.volumes());
  const mounted = container.labels[LABELS.volumes];
  if (
    data === null ||
    mounted === undefined ||
    mounted === data.id ||
    isStoppedContainer(container)
  )
    return false;
  if (draft.facts.route?.deployment_id === d.id)
    draft.plan.route = { remove: { project_id: d.project_id } };
  const now = `the project’s volumes are on ${data.hostname} now`;
  const detail =
    `its container has an older copy of them: ${now}, so it gets no requests; deploy the project ` +
    'again';
  if (d.health?.detail !== detail) {
    draft.set(d, { health: { status: 'unhealthy', since: draft.facts.now, detail } });
    draft.addLine(d, 'health', `unhealthy: ${detail}`);
  }
  if (isStopping(draft, d) || !mayTry(draft, d)) return true;
  draft.set(d, { stopped_first: 'asked' });
  const stop = [{ deployment_id: d.id, reason: now }];
  createRetireTask(draft, draft.node(d.node_id), {
    of: d,
    remove: [],
    keep: null,
    drain: false,
    stop,
  });
  return true;
}

/**
 * Returns containers of other deployments at this deployment's address. `squatter`: on the
 * deployment's node, while the deployment's container is down. `rival`: on a different node with
 * the same address. While the deployment's container runs, `rival` is set only if the project has
 * no route.
 */
function othersAt(
  draft: Draft,
  d: DeploymentRecord,
  own: Container | null,
): { squatter: Container | null; rival: Rival | null } {
  const node = draft.node(d.node_id);
  const squatter = holderOfPort(node, d, own);
  if (node === undefined || squatter !== null) return { squatter, rival: null };
  const isServing = own?.state === 'running';
  if (isServing && draft.facts.route !== null) return { squatter, rival: null };
  const rival = rivalAt(draft, d, node, isServing ? own.host_port : d.host_port);
  return { squatter, rival: rival?.node.id === node.id ? null : rival };
}

/**
 * Withdraws a route that leads to another container, and publishes it again when the deployment's
 * own container runs.
 */
function updateRoute(
  draft: Draft,
  d: DeploymentRecord,
  container: Container | null,
  other: Container | Rival | null,
): void {
  if (d.status !== 'running') return;
  const { route, project } = draft.facts;
  const node = draft.node(d.node_id);
  if (container?.state !== 'running' || container.host_port === null) {
    if (other !== null && route?.deployment_id === d.id)
      draft.plan.route = { remove: { project_id: d.project_id } };
    return;
  }
  if (node === undefined || project.deleting_at !== null || other !== null) return;
  const expected = routeTo(draft, d, node, container.host_port).set;
  if (route === null || (route.deployment_id === d.id && !hasAddress(route, expected)))
    draft.plan.route = { set: withServers(draft, d, expected) };
}

const hasAddress = (
  route: RouteRecord,
  { node_id, host_ip, host_port }: Pick<RouteRecord, 'node_id' | 'host_ip' | 'host_port'>,
): boolean =>
  route.node_id === node_id &&
  route.host_ip === host_ip &&
  route.host_port === host_port &&
  route.stopped !== true;

/**
 * Returns whether a retire task on the node is open, or the container list might be older than the
 * end of the last task. If so, a wrong name, or a container that still runs, does not count as
 * drift. The agent sends the report of the task and the list on two connections, so either can
 * arrive first.
 */
function mayBeRenaming(
  { tasks, endedWork }: Facts,
  d: DeploymentRecord,
  { listed_after = null }: EventOf<'observed'>,
): boolean {
  if (tasks.some((t) => t.kind === 'retire' && t.node_id === d.node_id)) return true;
  const endedAt = endedWork.find((w) => w.node_id === d.node_id)?.claimed_at ?? null;
  return listed_after !== null && endedAt !== null && listed_after <= endedAt;
}

/**
 * Handles a container on a node that the deployment is not assigned to. If it is the deployment's
 * own container and the assigned node no longer reports it, the machine was renamed: deployment and
 * route move to the new node. A deployment that is stopped (stop-first) moves too, because only the
 * new node can restart its container. A node with its own secret keeps its deployments, because a
 * renamed machine would register with that secret.
 */
function observedElsewhere(draft: Draft, d: DeploymentRecord, event: EventOf<'observed'>): void {
  const { container } = event;
  if (container === null || d.container_id === null || container.id !== d.container_id)
    return sweep(draft, d, event);
  const [own, node] = [draft.node(d.node_id), draft.node(event.node_id)];
  const isServing = container.state === 'running' && container.host_port !== null;
  if (node === undefined || !(isServing || isStoppedFirst(d))) return;
  if (own !== undefined && (own.has_secret || stillHas(own, d.container_id, draft.facts))) return;
  const host_port = container.host_port ?? d.host_port;
  draft.set(d, { node_id: node.id, host_port });
  if (own !== undefined && needsDevices(d.settings))
    draft.plan.moveDevices = { deployment_id: d.id, from: own.id, to: node.id };
  if (own !== undefined) volumesFollow(draft, d, own, node);
  // End unclaimed tasks of the old node: no agent polls under its name, so they would never start.
  // A task of another instance ends by its queue time, which starts that instance elsewhere.
  for (const t of draft.openTasks(d))
    if (t.node_id === d.node_id && t.attempt === 0 && instanceOfTask(t) === null)
      draft.task({ id: t.id, attempt: t.attempt, end: 'cancelled' });
  const { route } = draft.facts;
  if (route?.deployment_id === d.id && host_port !== null)
    draft.plan.route = {
      set: {
        ...route,
        node_id: node.id,
        host_ip: node.host_ip,
        host_port,
        published_at: draft.facts.now,
      },
    };
  const from = own?.hostname ?? 'a deleted node';
  draft.addLine(
    d,
    'node_changed',
    `${node.hostname} (${node.host_ip}) now reports the container, and ${from} does not; the ` +
      'route follows',
  );
}

/**
 * Assigns the volumes to the node that reports their container: they are on the same machine. The
 * proof that the store needs (a container that both nodes have listed) can be absent.
 */
function volumesFollow(
  draft: Draft,
  { settings }: DeploymentRecord,
  from: Pick<NodeRecord, 'id'>,
  to: Pick<NodeRecord, 'id' | 'hostname'>,
): void {
  const copy = settings.volumes.length === 0 ? null : currentCopy(draft.volumes());
  if (copy?.node_id !== from.id) return;
  draft.putVolumes({
    ...copy,
    node_id: to.id,
    hostname: to.hostname,
    changed_at: draft.facts.now,
  });
}

/** The first instance of a lost node is back: its replacement is not needed any more. */
function firstReturned(draft: Draft, d: DeploymentRecord, container: Container | null): void {
  if (!isFirstLost(d) || container?.state !== 'running') return;
  draft.set(d, { lost_since: null });
  draft.addLine(d, 'instance', 'its node is back, and its container runs');
  reconcile(draft, d);
}

/** A healthy first instance is `degraded` while another instance does not serve. */
function withOthers(
  d: DeploymentRecord,
  judgement: Judgement,
  others: readonly InstanceRecord[],
): Judgement {
  const degraded = judgement.status === 'healthy' ? degradedDetail(d, others) : null;
  return degraded === null ? judgement : { status: 'degraded', detail: degraded };
}

/** Returns whether the node is online and might still have the container. */
export const stillHas = (node: NodeRecord, containerId: string, { now, limits }: Facts): boolean =>
  isOnline(node, now, limits) &&
  (node.observed_at === null || node.containers.some((c) => c.id === containerId));

type Container = NonNullable<EventOf<'observed'>['container']>;
type Judgement = { status: HealthState; detail: string | null; cause?: HealthCause };
/**
 * Input of `judge`. `holder`, `squatter` and `rival` are other containers: with the deployment's
 * container name, at its port, and at its address on another node.
 */
type At = {
  now: number;
  retiring: boolean;
  holder: Container | null;
  squatter: Container | null;
  rival?: Rival | null;
  /** A missing container is created again (flow/missing-container.ts). */
  creates?: boolean;
};

const MISSING = 'its container is missing on its node';
/**
 * Time in ms after which a missing container is created again: a single list can be outdated. Further
 * instances have the same time (flow/observed-instance.ts).
 */
const MISSING_MS = 10_000;
/** Time in ms that a container must run until its removal is no repetition any more. */
const RAN_LONG_MS = 600_000;

/** Returns whether the container has been missing for so long that it must be created again. */
export const isLongMissing = ({ facts }: Draft, d: DeploymentRecord): boolean =>
  awaitsContainer(d) ||
  (d.health?.status === 'unhealthy' &&
    d.health.detail?.startsWith(MISSING) === true &&
    facts.now - d.health.since >= MISSING_MS);

/** Returns the deployment without its earlier creations if its container then ran for long. */
function withRetries(
  draft: Draft,
  d: DeploymentRecord,
  container: Container | null,
): DeploymentRecord {
  const { retry, health } = d;
  const ranLong =
    (health?.status === 'healthy' ||
      health?.status === 'degraded' ||
      health?.status === 'drifted') &&
    draft.facts.now - health.since >= RAN_LONG_MS;
  if (container !== null || retry === null || !ranLong || isStoppedFirst(d)) return d;
  endRetries(draft, d);
  return { ...d, retry: null };
}

function missingText({ retry }: DeploymentRecord, creates: boolean): string {
  if (!creates) return `${MISSING}; deploy it again`;
  return retry !== null && retry.tries > 1
    ? `${MISSING} again: something removes it. Berth creates it again within 5 minutes`
    : `${MISSING}; Berth creates it again`;
}

/**
 * Time in ms that an unhealthy container must run to become healthy, so that a crash loop does not
 * look healthy between two crashes.
 */
const STEADY_MS = 10_000;

/**
 * Returns the health of a deployment from the container that the agent reported. For a healthy
 * container, `detail` names the resources that it is short of, or is null.
 */
export function judge(d: DeploymentRecord, container: Container | null, at: At): Judgement {
  const other =
    at.squatter?.name ??
    (at.rival ? `${at.rival.container.name} on ${at.rival.node.hostname}` : null);
  const taken =
    other === null
      ? ''
      : `; its port ${d.host_port} now belongs to ${other}, so it gets no requests`;
  if (container === null)
    return {
      status: 'unhealthy',
      // It is created again, or waits for that (flow/creation.ts).
      detail:
        isStoppedFirst(d) || awaitsContainer(d)
          ? d.waiting
          : `${missingText(d, at.creates === true)}${taken}`,
    };
  if (container.state !== 'running')
    return {
      status: 'unhealthy',
      detail: isStoppedFirst(d) ? d.waiting : `${whyDown(container)}${taken}`,
    };
  if (at.rival) {
    const { host_ip } = at.rival.node;
    const address = `${host_ip}:${container.host_port}`;
    return {
      status: 'unhealthy',
      detail:
        `${other} has its address ${address} too, so it gets no requests; give each machine its ` +
        'own HOST_IP',
    };
  }
  const age =
    container.started_at === undefined || container.started_at === null
      ? null
      : at.now - Date.parse(container.started_at);
  const isNew = age !== null && age >= 0 && age < STEADY_MS;
  if (d.health?.status === 'unhealthy' && (isNew || container.probe?.status === 'starting'))
    return d.health;
  const check = failingCheck(d, container, at.now);
  if (check !== null) return check;
  const differing = differences(d, container, at);
  const shortages = shortagesOf(container);
  const detail = [...differing, ...shortages].join('; ');
  return {
    status: differing.length === 0 ? 'healthy' : 'drifted',
    detail: detail === '' ? null : detail,
  };
}

/**
 * Returns the detail for a failing health check. Keeps the first output while the check fails and
 * for a short time after it passes, so that changing output or a flapping check does not fill the
 * story.
 */
function failingCheck(
  { health: before }: DeploymentRecord,
  container: Container,
  now: number,
): Judgement | null {
  const failing = failingCheckOf(container);
  const cause = before?.cause;
  if (before?.status === 'unhealthy' && isCheck(cause)) {
    const result = container[cause === 'health_path' ? 'probe' : 'health'];
    const isSteady = result !== undefined && now - before.since < STEADY_MS;
    if (failing?.cause === cause || (failing === null && isSteady)) return before;
  }
  return failing === null
    ? null
    : { status: 'unhealthy', detail: failing.text, cause: failing.cause };
}

const isCheck = (cause: HealthCause | undefined): boolean =>
  cause === 'image_health_check' || cause === 'health_path';

/**
 * Lists the resources that a running container is short of. The container still serves requests.
 */
function shortagesOf({ pressure = [], memory_bytes = null, cpus = null }: Container): string[] {
  const of = (value: number | null, unit: string): string =>
    value === null ? '' : ` of ${value}${unit}`;
  return [
    ...(pressure.includes('memory')
      ? [
          'the kernel killed a process of its container, which reached its memory ' +
            `limit${of(memory_bytes, ' bytes')}`,
        ]
      : []),
    ...(pressure.includes('cpu')
      ? [`its CPU limit${of(cpus, '')} slows it down most of the time`]
      : []),
  ];
}

function whyDown({ state, exit_code, out_of_memory }: Container): string {
  const ended = exit_code === undefined || exit_code === null ? '' : ` with exit code ${exit_code}`;
  const memory = out_of_memory === true ? ', killed because it ran out of memory' : '';
  if (state === 'restarting')
    return `its container keeps exiting${ended}${memory}; the engine restarts it each time`;
  if (state === 'exited' || state === 'dead') return `its container exited${ended}${memory}`;
  return `its container is ${state}`;
}

/**
 * The first instance can have the name of another one, because it replaced an earlier first one
 * (flow/instances.ts `promote`).
 */
const isMisnamed = (d: DeploymentRecord, container: Container): boolean =>
  container.name !== finalName(d.settings) &&
  (ownLabel(d) === null || !container.name.startsWith(`${finalName(d.settings)}-${WEB}-`));

/**
 * Lists the differences between container and deployment. Ignores values that the agent does not
 * report.
 */
function differences(
  d: DeploymentRecord,
  container: Container,
  { retiring, holder }: At,
): string[] {
  const { image, labels, memory_bytes, cpus } = container;
  const expectedLimits = webSettings(d.settings);
  const expected = d.image_digest ?? d.image_tag;
  const differing: string[] = [];
  // Compare only the path of the image: the registry's address might have changed since the build
  // or the start.
  const path = d.image_tag?.slice(d.image_tag.indexOf('/')) ?? null;
  if (
    image !== undefined &&
    expected !== null &&
    !image.endsWith(expected) &&
    (path === null || !image.endsWith(path))
  )
    differing.push(`it runs the image ${image} instead of ${expected}`);
  for (const [label, want] of [
    [LABELS.project, d.project_id],
    [LABELS.generation, String(d.generation)],
  ] as const)
    if (labels[label] !== undefined && labels[label] !== want)
      differing.push(`its label ${label} is ${labels[label]} instead of ${want}`);
  if (memory_bytes !== undefined && memory_bytes !== expectedLimits.memory_bytes)
    differing.push(
      `its memory limit is ${limit(memory_bytes, ' bytes')} instead of ` +
        limit(expectedLimits.memory_bytes, ' bytes'),
    );
  if (cpus !== undefined && Math.abs((cpus ?? 0) - (expectedLimits.cpus ?? 0)) > 1e-6)
    differing.push(
      `its CPU limit is ${limit(cpus, '')} instead of ${limit(expectedLimits.cpus, '')}`,
    );
  if (!retiring && isMisnamed(d, container)) {
    const taken =
      holder === null
        ? ''
        : `; that name belongs to a container of deployment ${holder.labels[LABELS.deployment]}`;
    differing.push(
      `its container is named ${container.name} instead of ${finalName(d.settings)}${taken}`,
    );
  }
  return differing;
}

/**
 * Returns another container that has the name `svc-{domain_prefix}` on the node, often one in
 * quarantine.
 */
export const holderOfName = (
  node: Pick<NodeRecord, 'containers'> | undefined,
  d: DeploymentRecord,
): Container | null =>
  node?.containers.find(
    (c) => c.name === finalName(d.settings) && c.labels[LABELS.deployment] !== d.id,
  ) ?? null;

/**
 * Returns the container of another deployment that serves at the port of this deployment, whose own
 * container is down. The container engine reassigns free ports.
 */
export const holderOfPort = (
  node: Pick<NodeRecord, 'containers'> | undefined,
  d: DeploymentRecord,
  own: Container | null,
): Container | null =>
  own?.state === 'running'
    ? null
    : (node?.containers.find(
        (c) =>
          c.state === 'running' &&
          c.host_port === d.host_port &&
          c.labels[LABELS.deployment] !== d.id,
      ) ?? null);

const limit = (value: number | null, unit: string): string =>
  value === null ? 'none' : `${value}${unit}`;

/**
 * Adds a story line for containers of the project that belong to no live deployment (leftovers,
 * quarantine). With stop-first the deploy task stops and keeps them too, because two concurrent
 * writers are worse than a stopped container.
 */
export function addStopped(
  draft: Draft,
  d: DeploymentRecord,
  node: Pick<NodeRecord, 'hostname' | 'containers'>,
): void {
  const { project, live } = draft.facts;
  const ids = new Set<string | undefined>(live.map((o) => o.id));
  const strangers = node.containers.filter(
    (c) =>
      c.labels[LABELS.project] === project.id &&
      c.state === 'running' &&
      !ids.has(c.labels[LABELS.deployment]),
  );
  if (strangers.length === 0) return;
  const names = strangers.map((c) => c.name).join(', ');
  draft.addLine(
    d,
    'stopped_first',
    `${names} on ${node.hostname} ${strangers.length === 1 ? 'belongs' : 'belong'} to no live ` +
      `deployment; the agent stops ${strangers.length === 1 ? 'it' : 'them'} before this ` +
      `deployment starts, and keeps ${strangers.length === 1 ? 'it' : 'them'}`,
  );
}

/**
 * Returns a text with the names of the project settings that changed after the deployment was
 * requested, or null.
 */
export function undeployedSettings(d: DeploymentRecord, project: ProjectRecord): string | null {
  const names = namesToDeploy(d, project);
  if (names.length === 0) return null;
  const changed = `the project’s ${names.join(', ')} changed since`;
  // Do not suggest a deployment from source: it would bring back the version that somebody rolled
  // back.
  return d.rolled_back === null
    ? `${changed} this deployment; deploy the project to apply the change`
    : `${changed} the rollback from deployment ${d.rolled_back.from}; the next deployment from ` +
        'source applies it';
}

/**
 * Updates port and route: a restart of the container or of the engine changes the published port.
 */
function movePort(draft: Draft, d: DeploymentRecord, host_port: number): void {
  draft.set(d, { host_port });
  draft.addLine(
    d,
    'port_changed',
    `the port of its container is now ${host_port} (was ${d.host_port}); the route follows`,
  );
  const { route } = draft.facts;
  if (route?.deployment_id === d.id)
    draft.plan.route = { set: { ...route, host_port, published_at: draft.facts.now } };
}

/** Removes a container whose deployment ended or is assigned to another node. */
export function sweep(draft: Draft, d: DeploymentRecord, event: EventOf<'observed'>): void {
  const node = draft.node(event.node_id);
  if (event.container === null || !isBerthAgent(node) || !mayTry(draft, d)) return;
  const busy = draft.facts.tasks.some(
    (t) =>
      t.node_id === event.node_id &&
      ((t.kind === 'deploy' && t.deployment_id === d.id) || removes(t, d)),
  );
  if (busy) return;
  createRetireTask(draft, node, {
    of: d,
    remove: [
      {
        deployment: d,
        // Other instances of the deployment can run on the node.
        ...defined({ instance: hasInstanceOn(draft, d, event.node_id) ? ownLabel(d) : undefined }),
        reason:
          d.node_id === event.node_id || isTerminal(d.status)
            ? `its deployment is ${d.status}`
            : 'its deployment is assigned to another node',
      },
    ],
    keep: null,
    drain: false,
  });
}

const hasInstanceOn = (draft: Draft, d: DeploymentRecord, nodeId: string): boolean =>
  !isTerminal(d.status) &&
  [...draft.instances(d), ...draft.workers(d)].some(({ node_id }) => node_id === nodeId);

/**
 * Returns whether the reported container needs no decision, as in almost every registration.
 * Compares everything that `observed` can change: node, port, route and health. `route` is the
 * project's route.
 */
export function isAsExpected(
  d: DeploymentRecord,
  node: NodeRecord,
  container: Container,
  route: RouteRecord | null,
  others: readonly InstanceRecord[] = [],
): boolean {
  if (isTerminal(d.status) || d.node_id !== node.id) return false;
  if (isStoppedFirst(d)) return restsAsExpected(d, container, route);
  if (d.status !== 'running') {
    const hasNoPort = d.host_port === null || container.state !== 'running';
    return (d.route_published_at === null && hasNoPort) || container.host_port === d.host_port;
  }
  if (container.state === 'running' && container.host_port !== d.host_port) return false;
  const squatter = holderOfPort(node, d, container);
  if (!isRoutedAsExpected(d, node, { container, squatter }, route)) return false;
  if (isFirstLost(d)) return false;
  const { status, detail } = withOthers(
    d,
    judge(d, container, {
      now: node.last_seen_at,
      retiring: false,
      holder: holderOfName(node, d),
      squatter,
    }),
    others,
  );
  return d.health?.status === status && d.health.detail === detail;
}

function isRoutedAsExpected(
  d: DeploymentRecord,
  node: NodeRecord,
  { container, squatter }: { container: Container; squatter: Container | null },
  route: RouteRecord | null,
): boolean {
  // The project's route leads to a different version, for example a newer one, so this version
  // needs no change.
  if (route !== null && route.deployment_id !== d.id) return true;
  if (container.state !== 'running') return squatter === null || route === null;
  return (
    route !== null &&
    hasAddress(route, {
      node_id: node.id,
      host_ip: node.host_ip,
      host_port: container.host_port ?? 0,
    })
  );
}

/** Routes by project id. */
export type Routes = ReadonlyMap<string, RouteRecord>;

/**
 * Returns whether an identical report needs no decision while these deployments and routes do not
 * change. Returns false if a container is unhealthy, because time alone can make it healthy
 * (STEADY_MS).
 */
export const areAsExpected = (
  node: NodeRecord,
  reported: ReadonlyMap<string, Container>,
  known: readonly DeploymentRecord[],
  routes: Routes,
  instances: readonly InstanceRecord[] = [],
): boolean =>
  known.length === reported.size &&
  known.every((d) => {
    const container = reported.get(d.id);
    const route = routes.get(d.project_id) ?? null;
    return (
      container !== undefined &&
      d.health?.status !== 'unhealthy' &&
      isAsExpected(
        d,
        node,
        container,
        route,
        instances.filter(({ deployment_id }) => deployment_id === d.id),
      )
    );
  });

/** An address of a route: of its first instance, or of another one. */
type RouteAddress = Pick<RouteRecord, 'host_ip' | 'host_port'>;

/**
 * Returns the routes with an address of other nodes that leads to a container of this node,
 * according to the report of this node.
 */
export const routesToOthers = (
  node: NodeRecord,
  elsewhere: readonly RouteRecord[],
): { route: RouteRecord; container: Container; address: RouteAddress }[] =>
  elsewhere.flatMap((route) =>
    [route, ...(route.servers ?? [])].flatMap((address) => {
      if (address.host_ip !== node.host_ip || address.node_id === node.id) return [];
      const container = node.containers.find(
        (c) =>
          c.state === 'running' &&
          c.host_port === address.host_port &&
          c.labels[LABELS.deployment] !== route.deployment_id,
      );
      return container === undefined ? [] : [{ route, container, address }];
    }),
  );
