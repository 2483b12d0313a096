/**
 * Proxy between agents and the control plane that records claims, renewals, reports and observed
 * containers. It records a request before it passes it on, because the answer can be lost although
 * the request took effect. It records an answer when it has arrived. While the control plane is down, the
 * proxy resets connections.
 */
import {
  createServer,
  type IncomingMessage,
  request as httpRequest,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { defined } from '@berth/kit/defined';
import type { Node, NodeRegister } from '@berth/wire/node';
import type { Task, TaskClaim, TaskReport } from '@berth/wire/task';
import type { History } from './history.ts';

export type AgentTap = {
  /** Value for an agent's CONTROL_PLANE_URL. */
  url: string;
  stop(): Promise<void>;
};

const TASK_CALL = /^\/api\/agent\/tasks\/([^/]+)\/(start|renew|complete)$/;

/** Tasks and nodes that agents and the control plane told each other about. */
type Told = {
  history: History;
  tasks: Map<string, Task>;
  /** Node -> HOST_IP. */
  hostIps: Map<string, string>;
};

/** A request of an agent. */
type Asked = { path: string; sent: number; body: Buffer; lease: string | null };

/** `address`: the address on which the proxy listens. */
export async function startAgentTap(
  upstream: string,
  history: History,
  address = '127.0.0.1',
): Promise<AgentTap> {
  const told: Told = { history, tasks: new Map(), hostIps: new Map() };
  const server = createServer(
    (request, response) =>
      void pass(told, upstream, request, response).catch(() => response.destroy()),
  );
  // Agents keep an idle connection open for longer than the default of Node.js, 5 s.
  server.keepAliveTimeout = 60_000;
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(0, address, resolve);
  });
  return {
    url: `http://${address}:${(server.address() as AddressInfo).port}`,
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

/** Passes a request on, and records it before and its answer after. */
async function pass(
  told: Told,
  upstream: string,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const sent = Date.now();
  const url = new URL(request.url ?? '/', upstream);
  const lease = request.headers['x-lease-token']?.toString() ?? null;
  const asked: Asked = { path: url.pathname, sent, body: await buffer(request), lease };
  recordRequest(told, asked);
  const onward = httpRequest(url, { method: request.method ?? 'GET', headers: request.headers });
  // When an agent hangs up, the connection to the control plane closes too.
  response.on('close', () => onward.destroy());
  const answered = Promise.withResolvers<IncomingMessage>();
  onward.on('response', answered.resolve).on('error', answered.reject);
  onward.end(asked.body);
  const answer = await answered.promise;
  const status = answer.statusCode ?? 502;
  const body = await buffer(answer);
  if (status === 200) recordAnswer(told, asked, body);
  response.writeHead(status, answer.headers).end(body);
}

/** Records the content of a request, before it is passed on. */
function recordRequest(told: Told, { path, body, lease }: Asked): void {
  if (path === '/api/agent/register') return recordContainers(told, body);
  const { task, verb } = taskOf(told, path);
  const report = verb === 'complete' ? (parse(body) as TaskReport | undefined) : undefined;
  if (task === undefined || report === undefined) return;
  const address =
    typeof report.host_port === 'number'
      ? `${told.hostIps.get(task.node_id)}:${report.host_port}`
      : null;
  told.history.record({
    type: 'reporting',
    ...about(task),
    lease,
    status: report.status,
    address,
  });
}

/** Records the containers that an agent observes. */
function recordContainers({ history }: Told, request: Buffer): void {
  const body = parse(request) as NodeRegister | undefined;
  for (const { id: container, labels = {}, host_port: port } of body?.containers ?? []) {
    const node = labels['berth.node'];
    const project = labels['berth.project'];
    const deployment = labels['berth.deployment'];
    if (node === undefined || project === undefined || deployment === undefined) continue;
    if (typeof port !== 'number') continue;
    const address = `${body?.host_ip}:${port}`;
    history.record({
      type: 'observing',
      node,
      project,
      deployment,
      address,
      ...defined({ container }),
    });
  }
}

/** Records an answer with status 200. */
function recordAnswer(told: Told, { path, sent, body, lease }: Asked, answer: Buffer): void {
  const { history, tasks, hostIps } = told;
  if (path === '/api/agent/register') {
    const node = parse(answer) as Node | undefined;
    if (node !== undefined) hostIps.set(node.id, node.host_ip);
  }
  if (path === '/api/agent/tasks')
    for (const task of (parse(answer) as Task[] | undefined) ?? []) tasks.set(task.id, task);
  const { id, task, verb } = taskOf(told, path);
  if (task === undefined) return;
  if (verb === 'start') {
    const claim = parse(answer) as TaskClaim | undefined;
    if (claim === undefined) return;
    const { attempt, lease_token } = claim;
    history.record({ type: 'claimed', sent, task: id, attempt, lease: lease_token });
  }
  if (verb === 'renew' && lease !== null)
    history.record({ type: 'renewed', sent, task: id, lease });
  if (verb === 'complete') {
    const { kind, deployment } = about(task);
    const { status } = (parse(body) as TaskReport | undefined) ?? { status: '' };
    const content = body.toString();
    history.record({
      type: 'reported',
      sent,
      task: id,
      kind,
      deployment,
      lease,
      status,
      content,
    });
  }
}

function parse(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString()) as unknown;
  } catch {
    // The body is cut off or is not JSON: the control plane answers with the error.
    return undefined;
  }
}

/** Returns the task that a path names, if an agent got it, and the verb. */
function taskOf(
  { tasks }: Told,
  path: string,
): { id: string; task: Task | undefined; verb: string | undefined } {
  const [, id = '', verb] = TASK_CALL.exec(path) ?? [];
  return { id, task: tasks.get(id), verb };
}

function about(task: Task): { task: string; kind: string; project: string; deployment: string } {
  // A prewarm, a clean-up and a look before a project exists have no project.
  const project = 'project_id' in task.payload ? task.payload.project_id : '';
  return { task: task.id, kind: task.kind, project, deployment: task.deployment_id ?? '' };
}
