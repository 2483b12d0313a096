/**
 * Nodes that implement only the contract and run nothing. The server that they report as built and
 * running is one that the caller started. For tests of the proxies in front of projects, not of
 * containers.
 */
import { defined } from '@berth/kit/defined';
import { setTimeout as pause } from 'node:timers/promises';

export type HandAgentOptions = {
  /** Address of the control plane. */
  url: string;
  /** AGENT_SECRET; a function for a test that changes it. */
  secret: string | (() => string);
  /** Registers again after this time, as agents do (default: never). */
  registerMs?: number;
  /** Address of the servers (default 127.0.0.1). */
  hostIp?: string;
  /**
   * Ports of the projects' servers, by `domain_prefix`. Read when a task is reported, so a test can
   * change them.
   */
  ports: Readonly<Record<string, number>>;
};
export type HandAgent = { stop(): Promise<void> };

type Task = {
  id: string;
  kind: string;
  payload: { image_repository: string; domain_prefix: string };
};

export async function startHandAgent(options: HandAgentOptions): Promise<HandAgent> {
  const abort = new AbortController();
  const { signal } = abort;
  const call = async (method: string, path: string, body?: unknown): Promise<unknown> => {
    const response = await fetch(options.url + path, {
      method,
      headers: {
        'x-agent-secret': typeof options.secret === 'string' ? options.secret : options.secret(),
        'content-type': 'application/json',
      },
      signal,
      ...defined({ body: body === undefined ? undefined : JSON.stringify(body) }),
    });
    if (!response.ok)
      throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    return response.json();
  };
  const reportOf = ({ kind, payload }: Task): object => {
    if (kind === 'build')
      return {
        status: 'completed',
        result: 'by hand',
        image_tag: `${payload.image_repository}:${'0'.repeat(40)}`,
      };
    const port = options.ports[payload.domain_prefix];
    return port === undefined
      ? { status: 'failed', result: 'no such server' }
      : { status: 'completed', host_port: port };
  };
  const serve = async (nodeId: string): Promise<void> => {
    while (!signal.aborted) {
      try {
        const tasks = (await call('GET', `/api/agent/tasks?node_id=${nodeId}&wait=20`)) as Task[];
        for (const task of tasks)
          await call('POST', `/api/agent/tasks/${task.id}/complete`, reportOf(task));
      } catch {
        // The control plane can be down: tests end it on purpose.
        await pause(500, undefined, { signal }).catch(() => undefined);
      }
    }
  };
  const nodes: string[] = [];
  const timers: NodeJS.Timeout[] = [];
  for (const role of ['builder', 'deploy'] as const) {
    const body = {
      hostname: `by-hand-${role}`,
      role,
      host_ip: options.hostIp ?? '127.0.0.1',
      max_storage: 10_000_000_000,
    };
    const register = async (): Promise<string> =>
      ((await call('POST', '/api/agent/register', body)) as { id: string }).id;
    nodes.push(await register());
    if (options.registerMs !== undefined)
      timers.push(setInterval(() => void register().catch(() => undefined), options.registerMs));
  }
  const serving = nodes.map(serve);
  return {
    async stop() {
      for (const timer of timers) clearInterval(timer);
      abort.abort();
      await Promise.all(serving);
    },
  };
}
