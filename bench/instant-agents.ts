/**
 * Agents for benchmarks of the control plane and the proxy. They complete every task at once and do
 * nothing. Their API is the real one.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Client, createClient } from '@berth/wire/client';
import type { Task } from '@berth/wire/task';

const COMMIT = 'c'.repeat(40);
const DIGEST = `sha256:${'d'.repeat(64)}`;

export type InstantAgents = {
  /** Sets the port that the next deploy task of a project reports. */
  portOf(choose: (project: string) => number | Promise<number>): void;
  /** Calls `listener` right before the report that publishes a route. */
  beforeReport(listener: (project: string) => void): void;
  stop(): Promise<void>;
};

export async function startInstantAgents(url: string, secret: string): Promise<InstantAgents> {
  const client = createClient({ baseUrl: url, headers: () => ({ 'x-agent-secret': secret }) });
  const end = new AbortController();
  // Two projects never have one address.
  const projects = new Map<string, number>();
  let choose: (project: string) => number | Promise<number> = (project) => {
    if (!projects.has(project)) projects.set(project, 1 + projects.size);
    return projects.get(project) ?? 1;
  };
  let before: (project: string) => void = () => undefined;
  const report = async (task: Task) => {
    if (task.kind === 'build')
      return {
        status: 'completed' as const,
        image_tag: `${task.payload.image_repository}:${COMMIT}`,
        image_digest: DIGEST,
        commit: COMMIT,
      };
    if (task.kind === 'deploy')
      return {
        status: 'completed' as const,
        host_port: await choose(task.payload.project),
        container_id: 'none',
      };
    return { status: 'completed' as const };
  };
  const loops = (['builder', 'deploy'] as const).map((role) =>
    agent(client, role, end.signal, async (task) => {
      const { lease_token } = await client.call('agentStart', { params: { id: task.id } });
      if (task.kind === 'deploy') before(task.payload.project);
      await client.call('agentComplete', {
        params: { id: task.id },
        body: await report(task),
        headers: { 'x-lease-token': lease_token },
      });
    }),
  );
  return {
    portOf: (f) => void (choose = f),
    beforeReport: (f) => void (before = f),
    async stop() {
      end.abort();
      await Promise.all(loops);
    },
  };
}

async function agent(
  client: Client,
  role: 'builder' | 'deploy',
  signal: AbortSignal,
  work: (task: Task) => Promise<void>,
): Promise<void> {
  const register = () =>
    client.call('agentRegister', {
      body: {
        hostname: `instant-${role}`,
        role,
        host_ip: '127.0.0.1',
        max_storage: 1e12,
        max_builds: 50,
        agent_version: 'instant',
      },
    });
  const node = await register();
  const again = setInterval(() => void register().catch(() => undefined), 30_000);
  const done = new Set<string>();
  let etag: string | null = null;
  try {
    while (!signal.aborted) {
      try {
        const headers: Record<string, string> = etag === null ? {} : { 'if-none-match': etag };
        const answer = await client.exchange('agentTasks', {
          query: { node_id: node.id, wait: 20 },
          headers,
          signal,
          timeoutMs: 30_000,
        });
        etag = answer.etag;
        const fresh = (answer.answer ?? []).filter((task) => !done.has(task.id));
        for (const task of fresh) done.add(task.id);
        await Promise.all(fresh.map(work));
      } catch (error) {
        if (signal.aborted) return;
        // The report of a task that has ended (superseded) is refused. Any other error shows as a
        // benchmark that does not end.
        etag = null;
        await sleep(50);
        if (!(error instanceof Error)) throw error;
      }
    }
  } finally {
    clearInterval(again);
  }
}
