/** Routes of exec sessions, tunnels (docs/console.md) and the standard input of runs. */
import { randomBytes, randomUUID, timingSafeEqual } from 'node:crypto';
import {
  type AgentOrder,
  CAN_EXEC,
  EXEC_ALLOWED,
  EXEC_PROTOCOL,
  type ExecTicket,
  TICKET_PROTOCOL,
} from '@berth/wire/exec';
import { trimOws } from '@berth/kit/ows';
import type { FastifyRequest } from 'fastify';
import type { DeploymentStore } from '../../domain/deployments/deployment-store.ts';
import type { Limits } from '../../domain/deployments/facts.ts';
import {
  allInstances,
  checkProcess,
  type InstanceRecord,
} from '../../domain/deployments/instance.ts';
import type { InstanceStore } from '../../domain/deployments/instance-store.ts';
import {
  checkExec,
  type ExecRecord,
  type ExecSessionStore,
} from '../../domain/exec/exec-sessions.ts';
import type { NodeStore } from '../../domain/nodes/node-store.ts';
import { isOnline } from '../../domain/nodes/placement.ts';
import { DomainError } from '../../domain/platform/errors.ts';
import type { NodeRecord, ProjectRecord } from '../../domain/platform/records.ts';
import type { UptimeClock } from '../../domain/platform/uptime.ts';
import { presentProject } from '../../domain/projects/present-project.ts';
import type { ProjectStore } from '../../domain/projects/project-store.ts';
import type { RunStore } from '../../domain/runs/run-store.ts';
import type { Agents } from '../agents.ts';
import { type Caller, type Callers, storedCredential } from '../auth/callers.ts';
import { sha256Of } from '../auth/secrets.ts';
import type { SessionCookies } from '../auth/session-cookie.ts';
import { type Call, type Define, SENT } from '../define.ts';
import { checkRights, type ExecSessions, orderText } from '../exec/sessions.ts';
import type { ApiSettings } from '../settings.ts';
import { acceptWebSocket, checkUpgrade } from '../upgrades.ts';

const TICKET_MS = 30_000;

export type Deps = {
  projects: Pick<ProjectStore, 'get' | 'configured' | 'runningDeployments'>;
  deployments: Pick<DeploymentStore, 'getMany'>;
  instances: Pick<InstanceStore, 'ofDeployments'>;
  nodes: Pick<NodeStore, 'getMany'>;
  runs: Pick<RunStore, 'get'>;
  stores: { execSessions: ExecSessionStore };
  execSessions: ExecSessions;
  agents: Pick<Agents, 'checkNode'>;
  callers: Pick<Callers, 'again' | 'user'>;
  cookies: Pick<SessionCookies, 'callerOf' | 'hasOwnOrigin'>;
  settings: Pick<ApiSettings, 'publicUrl'>;
  limits: Limits;
  uptime: Pick<UptimeClock, 'estimate'>;
  now: () => number;
};

export function execRoutes(route: Define, deps: Deps): void {
  route('execProject', (call) => execProject(deps, call));
  route('tunnelProject', (call) => tunnelProject(deps, call));
  route('runInput', (call) => runInput(deps, call));
  route('openExec', (call) => openExec(deps, call));
  route('agentExec', (call) => agentExec(deps, call));
}

async function execProject(deps: Deps, call: Call<'execProject'>): Promise<ExecTicket> {
  const { command, process = 'web', instance, tty = false, rows = null, cols = null } = call.body;
  return createTicket(deps, call, { process, instance }, (container) => ({
    type: 'start',
    kind: 'exec',
    container,
    command,
    tty,
    rows,
    cols,
  }));
}

async function tunnelProject(deps: Deps, call: Call<'tunnelProject'>): Promise<ExecTicket> {
  return createTicket(deps, call, { process: 'web', instance: undefined }, (container, project) => {
    const port = call.body.port ?? project.container_port;
    return {
      type: 'start',
      kind: 'tunnel',
      container,
      port,
      published: port === project.container_port,
    };
  });
}

type Wanted = { process: string; instance: number | undefined };

async function createTicket(
  deps: Deps,
  call: Pick<Call<'execProject'>, 'params' | 'user' | 'request'>,
  wanted: Wanted,
  orderFor: (container: string, project: ProjectRecord) => AgentOrder,
): Promise<ExecTicket> {
  const { user, request } = call;
  const project = await presentProject(deps.projects, call.params.id);
  request.audited = { target: project.id };
  // The rights come first: a person without them learns nothing about containers and nodes.
  checkExec(project, user.role);
  deps.execSessions.checkRoom(user.id);
  const { instance, node } = await runningInstance(deps, project, wanted);
  checkNodeAllows(node);
  const { process, number } = instance;
  const session: NewSession = {
    kind: request.routeOptions.config.routeName === 'tunnelProject' ? 'tunnel' : 'exec',
    project_id: project.id,
    node_id: node.id,
    agent_order: orderFor(instance.container_id ?? '', project),
    credential: storedCredential(user),
    place: { project: project.name, process, number, node: node.hostname },
  };
  request.audited = { target: project.id, detail: orderText(session) };
  return ticketFor(deps, session);
}

/**
 * Gives the person of a run a ticket for its standard input. It requires the right to start runs, and
 * neither ALLOW_EXEC nor `allow_exec`: a person could put the same bytes into the command itself.
 */
async function runInput(deps: Deps, call: Call<'runInput'>): Promise<ExecTicket> {
  const { user, request } = call;
  const run = await deps.runs.get(call.params.id);
  if (run.created_by !== user.email)
    throw new DomainError('forbidden', 'only the person who started the run sends its input');
  if (!run.stdin)
    throw new DomainError('wrong_state', 'the run was started without `stdin`, so it has no input');
  if (run.status !== 'running' || run.node_id === null)
    throw new DomainError(
      'wrong_state',
      `the run takes its input while it is running; it is ${run.status}`,
    );
  deps.execSessions.checkRoom(user.id);
  const project = await deps.projects.get(run.project_id);
  const [node] = await deps.nodes.getMany([run.node_id]);
  const session: NewSession = {
    kind: 'input',
    project_id: project.id,
    node_id: run.node_id,
    agent_order: { type: 'start', kind: 'input', run: run.id },
    credential: storedCredential(user),
    place: { project: project.name, process: '', number: 0, node: node?.hostname ?? run.node_id },
  };
  request.audited = { target: project.id, detail: orderText(session) };
  return ticketFor(deps, session);
}

type NewSession = Pick<
  ExecRecord,
  'kind' | 'project_id' | 'node_id' | 'agent_order' | 'credential' | 'place'
>;

async function ticketFor(deps: Deps, session: NewSession): Promise<ExecTicket> {
  const { at } = deps.uptime.estimate();
  const ticket = randomBytes(32).toString('base64url');
  const record: ExecRecord = {
    ...session,
    id: randomUUID(),
    ticket_hash: sha256Of(ticket),
    expires_at: at + TICKET_MS,
    used_at: null,
  };
  await deps.stores.execSessions.create(record, at);
  const url = new URL(`/api/exec/${record.id}`, deps.settings.publicUrl);
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  return { ticket, url: url.href };
}

/** Returns the first instance that serves, or the wanted one. Throws wrong_state, validation. */
async function runningInstance(
  deps: Deps,
  project: ProjectRecord,
  { process, instance: number }: Wanted,
): Promise<{ instance: InstanceRecord; node: NodeRecord }> {
  checkProcess(project, { process });
  const id = (await deps.projects.runningDeployments([project.id])).get(project.id) ?? null;
  const [d] = id === null ? [] : await deps.deployments.getMany([id]);
  if (d === undefined)
    throw new DomainError(
      'wrong_state',
      `${project.name} has no running version; deploy it: berth deploy ${project.name}`,
    );
  const all = allInstances(d, await deps.instances.ofDeployments([d.id])).filter(
    (one) => one.process === process && (number === undefined || one.number === number),
  );
  const runs = (one: InstanceRecord): boolean =>
    one.container_id !== null &&
    one.node_id !== null &&
    (one.state === 'serving' || one.state === 'unhealthy' || one.state === 'draining');
  const instance = all.find(({ state }) => state === 'serving') ?? all.find(runs);
  const [node] =
    instance === undefined || !runs(instance)
      ? []
      : await deps.nodes.getMany([instance.node_id ?? '']);
  if (instance === undefined || node === undefined)
    throw new DomainError(
      'wrong_state',
      `no ${number === undefined ? 'instance' : `instance ${number}`} of ${process} runs; ` +
        `see: berth ps ${project.name}`,
    );
  if (!isOnline(node, deps.now(), deps.limits))
    throw new DomainError('wrong_state', `the node ${node.hostname} is offline`);
  return { instance, node };
}

/** Throws agent_cannot for a contract-only or older agent, exec_off if its setting is off. */
function checkNodeAllows({ hostname, capabilities }: NodeRecord): void {
  if (capabilities?.includes(CAN_EXEC) !== true)
    throw new DomainError(
      'agent_cannot',
      `the agent of ${hostname} knows no exec sessions; upgrade it, or use a Berth agent`,
    );
  if (!capabilities.includes(EXEC_ALLOWED))
    throw new DomainError(
      'exec_off',
      `the node ${hostname} does not allow exec and tunnels; set ALLOW_EXEC=true for its agent ` +
        'and restart it',
    );
}

/** Opens the client's end. The ticket is the credential. */
async function openExec(
  deps: Deps,
  { params, request, reply }: Call<'openExec'>,
): Promise<typeof SENT> {
  checkUpgrade(request);
  if (!deps.cookies.hasOwnOrigin(request))
    throw new DomainError(
      'forbidden',
      `a page of ${request.headers.origin} must not open sessions of ${deps.settings.publicUrl}`,
    );
  const record = await deps.stores.execSessions.get(params.id);
  if (record === null || !isTicket(request, record)) throw badTicket();
  const other = await callerWith(deps, request);
  if (other !== null && other.id !== record.credential.user_id)
    throw new DomainError(
      'forbidden',
      'the ticket belongs to another person than the credentials of this request',
    );
  // The rights may have ended since the ticket was created.
  const user = await checkRights(deps, record);
  deps.execSessions.checkRoom(user.id);
  if (!(await deps.stores.execSessions.use(record.id, deps.uptime.estimate().at)))
    throw badTicket();
  const client = await acceptWebSocket(request, reply);
  const requestId = request.id;
  await deps.execSessions.open({ record, user, address: request.ip, requestId }, client);
  return SENT;
}

const badTicket = (): DomainError =>
  new DomainError(
    'unauthenticated',
    'the ticket is wrong, was used before, or is older than 30 s; get another one',
  );

function isTicket({ headers }: FastifyRequest, { ticket_hash }: ExecRecord): boolean {
  const protocols = (headers['sec-websocket-protocol'] ?? '').split(',').map(trimOws);
  const ticket = protocols.find((one) => one.startsWith(TICKET_PROTOCOL));
  if (ticket === undefined || !protocols.includes(EXEC_PROTOCOL)) return false;
  const hash = sha256Of(ticket.slice(TICKET_PROTOCOL.length));
  return timingSafeEqual(Buffer.from(hash), Buffer.from(ticket_hash));
}

/** Returns the person whose credentials came along; null if none did, or if they have expired. */
async function callerWith(
  { cookies, callers }: Deps,
  request: FastifyRequest,
): Promise<Caller | null> {
  try {
    return await cookies.callerOf(request, callers);
  } catch (error) {
    if (error instanceof DomainError && error.code === 'unauthenticated') return null;
    throw error;
  }
}

/** Opens the agent's end, at the control plane with the client's. */
async function agentExec(
  deps: Deps,
  { params, request, reply }: Call<'agentExec'>,
): Promise<typeof SENT> {
  checkUpgrade(request);
  const record = await deps.stores.execSessions.get(params.id);
  if (record === null || record.used_at === null)
    throw new DomainError('not_found', 'no exec session waits under this id');
  await deps.agents.checkNode(request, record.node_id);
  if (!deps.execSessions.isWaiting(record.id))
    throw new DomainError('wrong_state', 'the client of this session is at another control plane');
  const agent = await acceptWebSocket(request, reply);
  await deps.execSessions.join(record.id, agent);
  return SENT;
}
