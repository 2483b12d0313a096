/**
 * Clients and agents that write to a control plane without a pause, and remember what was answered.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { ApiError, type Client, createClient, UnreachableError } from '@berth/wire/client';
import type { Task } from '@berth/wire/task';
import { isSettled } from '@berth/wire/vocabulary';
import type { Write } from './compare.ts';

export type Load = {
  /** Answered writes, oldest first. */
  writes: Write[];
  /** Times of requests of clients, in ms: of a write or a read. */
  latencies: { at: number; ms: number; kind: 'write' | 'read' }[];
  failures: string[];
  /** Waits until everything that was requested by now is answered and in `writes`. */
  flush(): Promise<void>;
  /** Lanes begin nothing new until `resume`; resolves when nothing runs any more. */
  pause(): Promise<void>;
  resume(): void;
  stop(): Promise<void>;
};

export type LoadOptions = {
  url: string;
  agentSecret: string;
  token: () => string;
  projects: number;
  /** Pause of each lane after a write. */
  pauseMs: number;
};

const COMMIT = 'c'.repeat(40);

/** Repeats a request without an answer: whether the first one took effect is not known. */
async function untilAnswered<T>(run: () => Promise<T>): Promise<T> {
  for (let left = 10; ; left--) {
    try {
      return await run();
    } catch (error) {
      if (!(error instanceof UnreachableError) || left === 0) throw error;
      await sleep(200);
    }
  }
}

export async function startLoad({
  url,
  agentSecret,
  token,
  projects,
  pauseMs,
}: LoadOptions): Promise<Load> {
  const api = createClient({
    baseUrl: url,
    headers: () => ({ authorization: `Bearer ${token()}` }),
  });
  const agents = createClient({ baseUrl: url, headers: () => ({ 'x-agent-secret': agentSecret }) });
  const end = new AbortController();
  const load: Pick<Load, 'writes' | 'latencies' | 'failures'> = {
    writes: [],
    latencies: [],
    failures: [],
  };
  const open = new Set<Promise<unknown>>();
  let gate = Promise.withResolvers<void>();
  gate.resolve();
  let paused = false;
  const busy = new Set<string>();

  async function timed<T>(
    kind: 'write' | 'read',
    run: () => Promise<T>,
  ): Promise<{ answer: T; from: number; to: number }> {
    const from = performance.now();
    const asked = untilAnswered(run);
    open.add(asked);
    try {
      const answer = await asked;
      const to = performance.now();
      load.latencies.push({ at: from, ms: to - from, kind });
      return { answer, from, to };
    } finally {
      open.delete(asked);
    }
  }
  async function write<T>(
    lane: string,
    replaced: boolean,
    run: () => Promise<T>,
    marker: (answer: T) => string | string[],
  ): Promise<T> {
    const { answer, from, to } = await timed('write', run);
    for (const one of [marker(answer)].flat())
      load.writes.push({ lane, marker: one, replaced, from, to });
    return answer;
  }
  async function lane(name: string, step: (n: number) => Promise<void>): Promise<void> {
    for (let n = 1; !end.signal.aborted; n++) {
      if (paused) await gate.promise;
      busy.add(name);
      await step(n).catch((error: unknown) => {
        // Another lane changed the project at the same moment; the next step asks again.
        const isBusy = error instanceof ApiError && error.code === 'busy';
        if (!end.signal.aborted && !isBusy) load.failures.push(`${name}: ${String(error)}`);
      });
      busy.delete(name);
      await sleep(pauseMs, undefined, { signal: end.signal }).catch(() => undefined);
    }
  }

  const ids = await Promise.all(
    Array.from({ length: projects }, async (_, i) => {
      const body = {
        name: `p${i}`,
        domain_prefix: `p${i}`,
        git_url: `https://git.test/p${i}.git`,
        drain_seconds: 0,
      };
      return (await api.call('createProject', { body })).id;
    }),
  );
  const stopAgents = (['builder', 'deploy'] as const).map((role) =>
    agent(agents, role, end.signal, { write }),
  );
  const lanes = [
    lane('users', async (n) => {
      const email = `u${n}@example.com`;
      await write(
        'users',
        false,
        () => api.call('createUser', { body: { email, role: 'viewer' } }),
        () => `user ${email}`,
      );
    }),
    ...ids.map((id, i) =>
      lane(`secret ${i}`, async (n) => {
        const params = { id, name: 'TOKEN' };
        const put = () => api.call('putSecret', { params, body: { value: `value ${n} of ${id}` } });
        await write(`secret ${i}`, true, put, (secret) => `secret ${id} ${secret.fingerprint}`);
      }),
    ),
    ...ids.map((id, i) =>
      lane(`env ${i}`, async (n) => {
        const patch = () =>
          api.call('patchProject', { params: { id }, body: { env: { N: String(n) } } });
        await write(`env ${i}`, true, patch, () => `env ${id} ${n}`);
      }),
    ),
    ...ids.map((id, i) =>
      lane(`deployments ${i}`, async (n) => {
        const note = `deployment ${n} of project ${i}`;
        const request = () => api.call('createDeployment', { params: { id }, body: { note } });
        const { id: deployment } = await write(
          `deployments ${i}`,
          false,
          request,
          () => `deployment ${note}`,
        );
        while (
          !end.signal.aborted &&
          !isSettled((await api.call('getDeployment', { params: { id: deployment } })).status)
        )
          await sleep(50);
      }),
    ),
    lane(
      'reads',
      async () => void (await timed('read', () => api.call('listProjects', { query: {} }))),
    ),
    // The proxy: without it, no route counts as live.
    (async () => {
      while (!end.signal.aborted) {
        await fetch(`${url}/api/traefik/config`).catch(() => undefined);
        await sleep(200);
      }
    })(),
  ];
  const flush = async (): Promise<void> => {
    await Promise.allSettled(open);
    // The write is noted right after its answer.
    await sleep(0);
  };
  return {
    ...load,
    flush,
    async pause() {
      paused = true;
      gate = Promise.withResolvers<void>();
      while (busy.size > 0) await sleep(20);
      await flush();
    },
    resume() {
      paused = false;
      gate.resolve();
    },
    async stop() {
      paused = false;
      gate.resolve();
      end.abort();
      await Promise.all([...lanes, ...stopAgents]);
    },
  };
}

type Writes = {
  write<T>(
    lane: string,
    replaced: boolean,
    run: () => Promise<T>,
    marker: (answer: T) => string | string[],
  ): Promise<T>;
};

/** Completes its tasks at once, with a log of three batches. */
async function agent(
  client: Client,
  role: 'builder' | 'deploy',
  signal: AbortSignal,
  { write }: Writes,
): Promise<void> {
  const body = {
    hostname: `${role}-1`,
    role,
    host_ip: '127.0.0.1',
    max_storage: 1e12,
    max_builds: 50,
    agent_version: 'instant',
  };
  const { id } = await client.call('agentRegister', { body });
  const again = setInterval(
    () => void client.call('agentRegister', { body }).catch(() => undefined),
    10_000,
  );
  const taken = new Set<string>();
  /** Two projects never have one address. */
  const projects = new Map<string, number>();
  const portOf = (project: string): number =>
    projects.get(project) ?? (projects.set(project, 4711 + projects.size), portOf(project));
  async function work(task: Task): Promise<void> {
    const { lease_token } = await untilAnswered(() =>
      client.call('agentStart', { params: { id: task.id } }),
    );
    const headers = { 'x-lease-token': lease_token };
    const lane = `task ${task.id}`;
    for (let batch = 0; batch < 3 && task.kind !== 'retire'; batch++) {
      const texts = [1, 2, 3].map((line) => `${task.id} ${batch}.${line}`);
      const lines = texts.map((text) => ({
        at: new Date().toISOString(),
        stream: 'stdout' as const,
        text,
      }));
      const send = () =>
        client.call('agentLogs', {
          params: { id: task.id },
          body: { first: batch * 3, lines },
          headers,
        });
      await write(lane, false, send, () => texts.map((text) => `log ${text}`));
    }
    const image =
      task.kind === 'build'
        ? { image_tag: `${task.payload.image_repository}:1`, commit: COMMIT }
        : {};
    const container =
      task.kind === 'deploy'
        ? { host_port: portOf(task.payload.project), container_id: `c-${task.deployment_id}` }
        : {};
    const report = { status: 'completed' as const, ...image, ...container };
    const complete = () =>
      client.call('agentComplete', { params: { id: task.id }, body: report, headers });
    await write(lane, false, complete, () => `task ${task.id}`);
  }
  try {
    while (!signal.aborted) {
      const tasks = await client
        .call('agentTasks', { query: { node_id: id, wait: 2 }, signal })
        .catch(() => []);
      const fresh = tasks.filter((task) => !taken.has(task.id));
      for (const task of fresh) taken.add(task.id);
      // The report of a task that ended meanwhile is refused.
      await Promise.all(
        fresh.map((task) =>
          work(task).catch((error: unknown) => error instanceof ApiError || Promise.reject(error)),
        ),
      );
      if (fresh.length === 0) await sleep(20);
    }
  } finally {
    clearInterval(again);
  }
}
