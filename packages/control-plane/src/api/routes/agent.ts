/**
 * Routes of agents (docs/contract.md "Agent API", docs/interfaces.md
 * "Agent API beyond the contract"). They ignore unknown fields.
 */
import { createHmac, randomBytes } from 'node:crypto';
import { defined } from '@berth/kit/defined';
import { failPoint } from '@berth/kit/fail-point';
import { derived } from '@berth/kit/live';
import type { NodeRegister } from '@berth/wire/node';
import { EXEC_HEADER } from '@berth/wire/exec';
import { LOGS_WANTED_HEADER } from '@berth/wire/runtime';
import { isOpenTask } from '@berth/wire/vocabulary';
import type { FastifyRequest } from 'fastify';
import { canonicalAddress } from '../../domain/nodes/address.ts';
import type { NodeSecret } from '../../domain/nodes/agent-identity.ts';
import { DomainError, invalid } from '../../domain/platform/errors.ts';
import { beatSeconds } from '../../domain/nodes/failover.ts';
import { hostProblem } from '../../domain/nodes/host.ts';
import { isOnline } from '../../domain/nodes/placement.ts';
import type { NodeRecord, TaskRecord } from '../../domain/platform/records.ts';
import type { Uptime, UptimeClock } from '../../domain/platform/uptime.ts';
import type { Registered, NodeStore } from '../../domain/nodes/node-store.ts';
import { type Agents, proofOf } from '../agents.ts';
import type { Beats } from '../beats.ts';
import { type Define, SENT, type Call } from '../define.ts';
import { etagOf, matchesEtag } from '../etag.ts';
import { createDelivery, type SecretDeliveries, type Deps as DeliveryDeps } from '../delivery.ts';
import {
  createDeletedDatasets,
  type DeletedDatasets,
  type Deps as DeletedDatasetDeps,
} from '../deleted-datasets.ts';
import {
  createGitAccess,
  createHostKeysSeen,
  type AccessDeps,
  type GitAccessOf,
  type HostKeyDeps,
  type HostKeysSeen,
} from '../git-access.ts';
import { type Holds, readUntil } from '../long-poll.ts';
import { changesOf, type NodeChangeLog } from '../node-changes.ts';
import type { NodeNotes } from '../node-notes.ts';
import type { Quarantine } from '../node-quarantine.ts';
import {
  createVolumeReports,
  type Deps as VolumeReportDeps,
  type VolumeReports,
} from '../volume-reports.ts';
import { leaseToken, requiredToken } from '../lease-token.ts';
import { sha256Of, newNodeSecret } from '../auth/secrets.ts';
import type { Readers } from '../runtime-logs/readers.ts';
import type { ExecSessions } from '../exec/sessions.ts';
import {
  createDatasetPins,
  type DatasetPinsFor,
  type Deps as DatasetPinsDeps,
} from '../dataset-pins.ts';
import { createNeighbours, type NeighboursFor } from '../neighbours.ts';
import { nodeView, taskView, time } from '../views.ts';
import type { TaskStore } from '../../domain/deployments/task-store.ts';
import { runIdOf, type RunStore } from '../../domain/runs/run-store.ts';
import type { LogStore } from '../../domain/deployments/log-store.ts';
import type { ApiSettings } from '../settings.ts';
import type { Limits } from '../../domain/deployments/facts.ts';
import type { Driver } from '../../flow/driver.ts';
import type { Changes } from '../../domain/platform/changes.ts';
import type { Live } from '@berth/kit/live';

/**
 * Body limit in bytes. A registration lists all containers and cached datasets of a node. Log lines
 * arrive in batches of up to 1,000.
 */
const LARGE = { bodyLimit: 8 * 1_048_576 };

/** ETag of the empty list, computed once because this is by far the most common answer. */
const NO_TASKS = etagOf('[]');

export type Deps = AccessDeps &
  HostKeyDeps &
  DeletedDatasetDeps &
  DatasetPinsDeps &
  DeliveryDeps &
  VolumeReportDeps & {
    beats: Pick<Beats, 'accepted'>;
    nodeNotes: readonly NodeNotes[];
    nodeChanges: Pick<NodeChangeLog, 'record'>;
    tasks: Pick<TaskStore, 'claim' | 'get' | 'lastOpen' | 'openFor' | 'renew'>;
    nodes: Pick<NodeStore, 'all' | 'heard' | 'heardOnce' | 'register'>;
    quarantine: Quarantine;
    readers: Pick<Readers, 'tagOf'>;
    execSessions: Pick<ExecSessions, 'waitingFor'>;
    logs: Pick<LogStore, 'append' | 'loggedUntil'>;
    runs: Pick<RunStore, 'appendLog' | 'get'>;
    settings: Pick<ApiSettings, 'baseDomain' | 'clean' | 'registry' | 'requireSecrets'>;
    limits: Limits;
    driver: Pick<Driver, 'configFile' | 'observed' | 'report'>;
    changes: Pick<Changes, 'notify' | 'on'>;
    holds: Pick<Holds, 'begin'>;
    agents: Pick<Agents, 'checkBeat' | 'checkNode' | 'checkRequest' | 'checkTask'>;
    now: () => number;
    uptime: Pick<UptimeClock, 'estimate' | 'now'>;
  };

/** State shared by all requests. */
type Context = Deps & {
  deletedDatasets: DeletedDatasets;
  volumeReports: VolumeReports;
  neighboursFor: NeighboursFor;
  datasetPinsFor: DatasetPinsFor;
  gitAccess: GitAccessOf;
  hostKeysSeen: HostKeysSeen;
  delivery: SecretDeliveries;
  configEtag: Live<string>;
  /** Interval in s at which agents of deploy nodes send beats. */
  beatSeconds: number;
};

export function agentRoutes(route: Define, deps: Deps): void {
  const deletedDatasets = createDeletedDatasets(deps);
  const volumeReports = createVolumeReports(deps);
  const neighboursFor = createNeighbours(deps.nodes);
  const datasetPinsFor = createDatasetPins(deps);
  const gitAccess = createGitAccess(deps);
  const hostKeysSeen = createHostKeysSeen(deps);
  const delivery = createDelivery(deps);
  /**
   * ETag of the agent configuration; every control plane computes the same one. It reveals nothing:
   * whoever gets it can also request the password.
   */
  const configEtag = derived(deps.settings.registry, ({ addr, user, password }) =>
    createHmac('sha256', password)
      .update(JSON.stringify(['berth registry', addr, user, deps.settings.clean.keepReleases]))
      .digest('base64url')
      .slice(0, 16),
  );
  const context: Context = {
    ...deps,
    deletedDatasets,
    volumeReports,
    neighboursFor,
    datasetPinsFor,
    gitAccess,
    hostKeysSeen,
    delivery,
    configEtag,
    beatSeconds: beatSeconds(deps.limits.failoverMs),
  };
  route('agentRegister', (call) => agentRegister(context, call), LARGE);
  route('agentConfig', (call) => agentConfig(deps, call));
  route('agentBeat', (call) => agentBeat(context, call));
  route('agentTasks', (call) => agentTasks(context, call));
  route('agentStart', (call) => agentStart(context, call));
  route('agentRenew', (call) => agentRenew(deps, call));
  route('agentLogs', (call) => agentLogs(deps, call), LARGE);
  route('agentConfigFile', (call) => agentConfigFile(deps, call));
  route('agentComplete', (call) => agentComplete(context, call));
}

async function agentRegister(context: Context, { body: given, request }: Call<'agentRegister'>) {
  const problem = hostProblem(given.host_ip, 'host_ip');
  if (problem !== null) throw invalid(problem.field, problem.rule, problem.message);
  const body = { ...given, host_ip: canonicalAddress(given.host_ip) };
  if (/\p{Cc}/u.test(body.hostname))
    throw invalid('hostname', 'no_control', 'must not contain control characters');
  const at = context.uptime.estimate();
  const registered = await register(context, body, request, at);
  const { node, secret } = registered;
  await failPoint('register.after');
  for (const notes of context.nodeNotes) notes.registered(node, body);
  notify(context, registered);
  for (const change of changesOf(registered, body.hostname))
    context.nodeChanges.record(change, sourceOf(request));
  try {
    warnAboutUnknown(context, node, await context.driver.observed(node, at.at), request);
  } catch (error) {
    // Only log the error: the registration succeeded, and the next one sends the observations
    // again.
    request.log.error({ err: error, node: node.id }, "could not apply the agent's observations");
  }
  const open = context.tasks.lastOpen(node.id);
  const forget = await context.deletedDatasets.among(body.cached ?? []);
  const { remove, setAside } = await context.volumeReports(node, body);
  const neighbours = await context.neighboursFor(body.neighbours_etag);
  const dataset_pins = await context.datasetPinsFor(node.id, body.dataset_pins_etag);
  return {
    ...nodeView(node, context.now(), context.limits),
    ...defined({
      node_secret: secret,
      open_tasks: open ?? undefined,
      forget: forget.length === 0 ? undefined : forget,
      remove_volumes: remove.length === 0 ? undefined : remove,
      set_aside_volumes: setAside.length === 0 ? undefined : setAside,
      neighbours,
      dataset_pins,
      beat_seconds: node.role === 'deploy' ? context.beatSeconds : undefined,
    }),
    config_etag: context.configEtag(),
  };
}

async function register(
  deps: Deps,
  body: NodeRegister,
  request: FastifyRequest,
  at: Uptime,
): Promise<Registered> {
  const proof = proofOf(request);
  const newSecret = proof.kind === 'open' ? null : secretFor;
  const { requireSecrets } = deps.settings;
  try {
    const entry = {
      proof,
      requireSecrets,
      address: request.ip,
      offlineMs: deps.limits.offlineMs,
      newSecret,
    };
    return await deps.nodes.register(body, deps.now(), entry, at);
  } catch (error) {
    if (error instanceof DomainError && error.code === 'node_doubled') {
      const node = { id: '', hostname: body.hostname, role: body.role };
      const message =
        `refused a second machine, with the address ${body.host_ip}, that registers as ` +
        body.hostname;
      deps.nodeChanges.record({ kind: 'doubled', node, message }, sourceOf(request));
    }
    throw error;
  }
}

function sourceOf(request: FastifyRequest): { address: string; requestId: string } {
  return {
    address: request.ip,
    requestId: request.id,
  };
}

function warnAboutUnknown(
  deps: Deps,
  node: NodeRecord,
  containers: readonly string[],
  request: FastifyRequest,
): void {
  // Log each set of containers only once: a registration arrives every 30 s.
  if (deps.quarantine.seen(node, containers) && containers.length > 0)
    request.log.warn(
      { node: node.hostname, containers },
      'found containers of unknown deployments; they are quarantined: only people remove them',
    );
}

function notify(deps: Deps, { node, before, routesMoved }: Registered): void {
  // Wake deployments that might be waiting for this node.
  if (
    before === null ||
    !isOnline(before, deps.now(), deps.limits) ||
    before.agent_version !== node.agent_version
  )
    deps.changes.notify('work');
  // Wake the node's poll: the version of the agent determines which tasks it can get.
  if (before !== null && before.agent_version !== node.agent_version)
    deps.changes.notify(`node:${node.id}`);
  if (routesMoved === true || (before !== null && before.host_ip !== node.host_ip))
    deps.changes.notify('routes');
}

async function agentConfig(deps: Deps, { request }: Call<'agentConfig'>) {
  await deps.agents.checkRequest(request);
  const { addr, user, password } = deps.settings.registry();
  return {
    registry_addr: addr,
    registry_user: user,
    registry_password: password,
    base_domain: deps.settings.baseDomain,
    keep_releases: deps.settings.clean.keepReleases,
  };
}

async function agentBeat(deps: Deps, { query, request }: Call<'agentBeat'>) {
  await deps.agents.checkBeat(request, query.node_id);
  const { at } = deps.uptime.estimate();
  const { nodes } = deps;
  if (!nodes.heard(query.node_id, at) && !(await nodes.heardOnce(query.node_id, at)))
    throw new DomainError('not_found', 'the node does not exist; register again');
  const proof = proofOf(request);
  deps.beats.accepted(request.raw, query.node_id, proof.kind === 'node' ? proof.hash : null);
}

async function agentTasks(
  context: Context,
  { query, setEtag, request, reply }: Call<'agentTasks'>,
) {
  let isHeard = false;
  const read = async () => {
    await context.agents.checkNode(request, query.node_id);
    // The agent sent this request once: later reads of a held request say nothing about it.
    if (!isHeard) context.nodes.heard(query.node_id, context.uptime.estimate().at);
    isHeard = true;
    const open = await context.tasks.openFor(query.node_id, context.now());
    const tasks = (await context.delivery.forList(query.node_id, open)).map(taskView);
    const listed = tasks.length === 0 ? NO_TASKS : etagOf(JSON.stringify(tasks));
    const logs = context.readers.tagOf(query.node_id);
    const sessions = context.execSessions.waitingFor(query.node_id);
    const etag =
      logs === null && sessions === null
        ? listed
        : etagOf(`${listed} ${logs ?? ''} ${sessions ?? ''}`);
    return { tasks, logs, sessions, etag };
  };
  const knownEtag = request.headers['if-none-match'];
  const isNew = (result: Awaited<ReturnType<typeof read>>): boolean =>
    knownEtag === undefined
      ? result.tasks.length > 0 || result.logs !== null || result.sessions !== null
      : !matchesEtag(knownEtag, result.etag);
  const hold =
    query.wait === undefined || query.wait === 0 ? null : context.holds.begin('tasks', reply.raw);
  try {
    const { tasks, logs, sessions, etag } =
      hold === null
        ? await read()
        : await readUntil(read, isNew, {
            changes: context.changes,
            topic: `node:${query.node_id}`,
            waitMs: (query.wait ?? 0) * 1000,
            hold,
          });
    setEtag(etag);
    if (logs !== null) void reply.header(LOGS_WANTED_HEADER, logs);
    if (sessions !== null) void reply.header(EXEC_HEADER, sessions);
    if (!matchesEtag(knownEtag, etag)) return tasks;
    void reply.code(304).send();
    return SENT;
  } finally {
    hold?.release();
  }
}

/**
 * Returns when the lease expires by the wall clock, for the agent. The control plane itself uses
 * the uptime clock.
 */
function leaseEnd(deps: Deps): string {
  return time(deps.now() + deps.limits.leaseMs);
}

async function agentStart(context: Context, { params, request }: Call<'agentStart'>) {
  await context.agents.checkTask(request, params.id);
  const task = await context.tasks.get(params.id);
  // Build the answer before the claim: a claim without an answer would count as an attempt.
  const [git, delivered, loggedUntil] = await Promise.all([
    context.gitAccess(task),
    context.delivery.forClaim(task),
    loggedUntilOf(context, task),
  ]);
  const lease = {
    token: randomBytes(32).toString('base64url'),
    expires_at: (await context.uptime.now()).at + context.limits.leaseMs,
  };
  const claim = await context.tasks.claim(
    params.id,
    lease,
    context.now(),
    context.limits.maxAttempts,
  );
  await failPoint('claim.after');
  await delivered?.record();
  // The claim adds a line to the story of the deployment and changes the task list of the node.
  // Notify the readers of both.
  notifyLogs(context, task);
  context.changes.notify(`node:${task.node_id}`);
  const lease_expires_at = leaseEnd(context);
  return {
    attempt: claim.attempt,
    lease_token: claim.lease_token,
    lease_expires_at,
    lease_seconds: context.limits.leaseMs / 1000,
    ...defined({ git: git ?? undefined, logged_until: loggedUntil ?? undefined }),
    ...delivered?.claim,
  };
}

async function agentRenew(deps: Deps, { params, request }: Call<'agentRenew'>) {
  await deps.agents.checkTask(request, params.id);
  const expiresAt = (await deps.uptime.now()).at + deps.limits.leaseMs;
  const { cancel_requested } = await deps.tasks.renew(
    params.id,
    requiredToken(request),
    expiresAt,
    deps.now(),
  );
  await failPoint('renew.after');
  return {
    lease_expires_at: leaseEnd(deps),
    lease_seconds: deps.limits.leaseMs / 1000,
    cancel_requested,
  };
}

async function agentLogs(deps: Deps, { params, body, request }: Call<'agentLogs'>) {
  await deps.agents.checkTask(request, params.id);
  const task = await deps.tasks.get(params.id);
  checkMayLog(task, requiredToken(request));
  const source = {
    task_id: task.id,
    attempt: task.attempt,
    first: body.first ?? null,
    keepsTime: task.kind === 'run',
  };
  if (isOwnRun(task)) {
    const stored = await deps.runs.appendLog(runIdOf(task), source, body.lines, deps.now());
    notifyLogs(deps, task);
    return { stored };
  }
  if (task.deployment_id === null) return { stored: 0 };
  // The log of the deployment has the output of its release command.
  const lines =
    task.kind === 'run'
      ? body.lines.map((line) => ({
          ...line,
          step: line.step === 'run' ? RELEASE : (line.step ?? RELEASE),
        }))
      : body.lines;
  const stored = await deps.logs.append(task.deployment_id, source, lines, deps.now());
  await failPoint('logs.after');
  notifyLogs(deps, task);
  return { stored };
}

async function agentConfigFile(deps: Deps, { params, body, request }: Call<'agentConfigFile'>) {
  await deps.agents.checkTask(request, params.id);
  return deps.driver.configFile(params.id, requiredToken(request), body);
}

async function agentComplete(context: Context, { params, body, request }: Call<'agentComplete'>) {
  await context.agents.checkTask(request, params.id);
  const answer = await context.driver.report(params.id, leaseToken(request), body);
  await context
    .hostKeysSeen(params.id, body.host_keys ?? [])
    .catch((err: unknown) =>
      request.log.error({ err }, 'could not record the host keys of git servers'),
    );
  return answer;
}

/** A run of a person or a job; the other ones are release commands of deployments. */
const isOwnRun = ({ kind, deployment_id }: TaskRecord): boolean =>
  kind === 'run' && deployment_id === null;

/** Returns the time of the last line of a command that earlier attempts have sent, or null. */
async function loggedUntilOf(
  { runs, logs }: Pick<Deps, 'logs' | 'runs'>,
  task: TaskRecord,
): Promise<string | null> {
  if (isOwnRun(task)) return (await runs.get(runIdOf(task))).logged_until;
  if (task.kind !== 'run' || task.deployment_id === null) return null;
  return logs.loggedUntil(task.deployment_id);
}

/** Step of the log of a deployment. */
const RELEASE = 'release';

function notifyLogs(deps: Deps, task: TaskRecord): void {
  if (isOwnRun(task)) deps.changes.notify(`logs:${runIdOf(task)}`);
  if (task.deployment_id !== null) deps.changes.notify(`logs:${task.deployment_id}`);
}

const secretFor = (nodeId: string): NodeSecret => {
  const text = newNodeSecret(nodeId);
  return { text, hash: sha256Of(text) };
};

/**
 * Throws if the task cannot accept log lines. Last lines are accepted even after the task's end,
 * but not if it was lost or cancelled.
 */
function checkMayLog(task: TaskRecord, token: string): void {
  if (task.lease_token !== token) throw new DomainError('stale_lease');
  if (!isOpenTask(task.status) && task.status !== 'completed' && task.status !== 'failed')
    throw new DomainError('stale_lease', `the task is ${task.status}`);
}
