/**
 * Proxy between agents and the control plane that records claims, renewals, reports and observed
 * containers. A request is recorded before it is passed on, because its answer may be lost although
 * it took effect. An answer is recorded when it has arrived. While the control plane is down, the
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
import type { Node, NodeRegister } from '@berth/wire/node';
import type { Task, TaskClaim, TaskReport } from '@berth/wire/task';
import type { History } from './history.ts';

export type AgentTap = {
  /** Value for an agent's CONTROL_PLANE_URL. */
  url: string;
  stop(): Promise<void>;
};

type Seen = { status: number; body: Buffer };

const TASK_CALL = /^\/api\/agent\/tasks\/([^/]+)\/(start|renew|complete)$/;

/** `address`: the address on which the proxy listens. */
export async function startAgentTap(
  upstream: string,
  history: History,
  address = '127.0.0.1',
): Promise<AgentTap> {
  const tasks = new Map<string, Task>();
  const hostIps = new Map<string, string>();
  const parse = (bytes: Buffer): unknown => {
    try {
      return JSON.parse(bytes.toString()) as unknown;
    } catch {
      // The body is cut off or is not JSON: the control plane answers with the error.
      return undefined;
    }
  };

  /** Records what a request says, before it is passed on. */
  function recordRequest(path: string, request: Buffer, lease: string | null): void {
    if (path === '/api/agent/register') {
      const body = parse(request) as NodeRegister | undefined;
      for (const { labels = {}, host_port: port } of body?.containers ?? []) {
        const [node, project, deployment] = [
          labels['berth.node'],
          labels['berth.project'],
          labels['berth.deployment'],
        ];
        if (
          typeof port === 'number' &&
          node !== undefined &&
          project !== undefined &&
          deployment !== undefined
        )
          history.record({
            type: 'observing',
            node,
            project,
            deployment,
            address: `${body?.host_ip}:${port}`,
          });
      }
      return;
    }
    const [, id = '', verb] = TASK_CALL.exec(path) ?? [];
    const task = tasks.get(id);
    const body = verb === 'complete' ? (parse(request) as TaskReport | undefined) : undefined;
    if (task === undefined || body === undefined) return;
    const address =
      typeof body.host_port === 'number' ? `${hostIps.get(task.node_id)}:${body.host_port}` : null;
    history.record({ type: 'reporting', ...about(task), lease, status: body.status, address });
  }

  /** Records an answer. */
  function recordAnswer(
    path: string,
    sent: number,
    request: Buffer,
    lease: string | null,
    answer: Seen,
  ): void {
    if (answer.status !== 200) return;
    if (path === '/api/agent/register') {
      const node = parse(answer.body) as Node | undefined;
      if (node !== undefined) hostIps.set(node.id, node.host_ip);
    }
    if (path === '/api/agent/tasks')
      for (const task of (parse(answer.body) as Task[] | undefined) ?? []) tasks.set(task.id, task);
    const [, id = '', verb] = TASK_CALL.exec(path) ?? [];
    const task = tasks.get(id);
    if (task === undefined) return;
    if (verb === 'start') {
      const given = parse(answer.body) as TaskClaim | undefined;
      if (given !== undefined)
        history.record({
          type: 'claimed',
          sent,
          task: id,
          attempt: given.attempt,
          lease: given.lease_token,
        });
    }
    if (verb === 'renew' && lease !== null)
      history.record({ type: 'renewed', sent, task: id, lease });
    if (verb === 'complete') {
      const { kind, deployment } = about(task);
      const { status } = (parse(request) as TaskReport | undefined) ?? { status: '' };
      history.record({
        type: 'reported',
        sent,
        task: id,
        kind,
        deployment,
        lease,
        status,
        content: request.toString(),
      });
    }
  }

  async function pass(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const sent = Date.now();
    const path = new URL(request.url ?? '/', upstream).pathname;
    const lease = request.headers['x-lease-token']?.toString() ?? null;
    const body = await buffer(request);
    recordRequest(path, body, lease);
    const onward = httpRequest(new URL(request.url ?? '/', upstream), {
      method: request.method ?? 'GET',
      headers: request.headers,
    });
    // When an agent hangs up, the connection to the control plane closes too.
    response.on('close', () => onward.destroy());
    const answered = Promise.withResolvers<IncomingMessage>();
    onward.on('response', answered.resolve).on('error', answered.reject);
    onward.end(body);
    const answer = await answered.promise;
    const seen = { status: answer.statusCode ?? 502, body: await buffer(answer) };
    recordAnswer(path, sent, body, lease, seen);
    response.writeHead(seen.status, answer.headers).end(seen.body);
  }

  const server = createServer(
    (request, response) => void pass(request, response).catch(() => response.destroy()),
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

function about(task: Task): { task: string; kind: string; project: string; deployment: string } {
  // A prewarm, a clean-up and a look before a project exists have no project.
  const project = 'project_id' in task.payload ? task.payload.project_id : '';
  return { task: task.id, kind: task.kind, project, deployment: task.deployment_id ?? '' };
}
