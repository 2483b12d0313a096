/**
 * A small fake control plane: tasks in memory, leases, held polls, logs, and the faults that tests
 * ask for.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { CopyProgress, DatasetSource, DatasetStanding } from '@berth/wire/dataset';
import type { NodeRegister } from '@berth/wire/node';
import type { AgentConfig, LogLineIn, Task, TaskFacts, TaskReport } from '@berth/wire/task';

export type TaskState = {
  task: Task;
  attempt: number;
  token: string | null;
  lines: LogLineIn[];
  report: TaskReport | null;
  renewals: number;
  /** All progress reports of its copies. */
  progress: CopyProgress[][];
  /** All facts that came before the report. */
  learned: TaskFacts[];
};
/** A dataset of the control plane. `scan` reads its folder again. */
export type FakeDataset = {
  source: DatasetSource & { version: number; manifest_digest: string };
  objects: ReadonlyMap<string, string>;
  scans: number;
  status: DatasetStanding['status'];
  scan(): Promise<void>;
};
export type FakeControlPlane = {
  url: string;
  nodeId: string;
  registers: NodeRegister[];
  requests: string[];
  datasets: Map<string, FakeDataset>;
  /** Sent in the answer to a registration. */
  forget: string[];
  give(task: Task): TaskState;
  state(id: string): TaskState;
  /** Waits for the report of a task. */
  reported(id: string, ms?: number): Promise<TaskReport>;
  cancel(id: string): void;
  /** Voids the lease and removes the task, as for a node that counts as offline. */
  takeAway(id: string): void;
  /**
   * All matching requests are answered with this status (0: the connection is cut), until it is
   * null.
   */
  fail: { match: RegExp; status: number } | null;
  /** The `wait` of each poll, in seconds. */
  waits: number[];
  /** Held polls are not answered, as if their connections had died unnoticed. */
  deaf: boolean;
  /** Held polls are cut after this time, as by a proxy with an idle timeout. */
  cutAfterMs: number;
  text(id: string): string;
  stop(): Promise<void>;
};

const sleep = (ms: number): Promise<void> => new Promise((r) => setTimeout(r, ms));

export async function until<T>(
  what: string,
  look: () => T | null | undefined | false,
  ms = 40_000,
): Promise<T> {
  const end = Date.now() + ms;
  for (;;) {
    const seen = look();
    if (seen !== null && seen !== undefined && seen !== false) return seen;
    if (Date.now() > end) throw new Error(`${what}: not reached within ${ms} ms`);
    await sleep(20);
  }
}

export async function startFakeControlPlane(
  options: {
    address?: string;
    config?: Partial<AgentConfig>;
    leaseMs?: number;
    secret?: string;
  } = {},
): Promise<FakeControlPlane> {
  const tasks = new Map<string, TaskState>();
  const nodeId = 'node-1';
  let version = 0;
  let wakers: (() => void)[] = [];
  const changed = (): void => {
    version += 1;
    for (const w of wakers) w();
    wakers = [];
  };
  const problem = (code: string): object => ({
    type: 'about:blank',
    title: code,
    status: 0,
    detail: code,
    code,
  });
  const lease = (): string => new Date(Date.now() + (options.leaseMs ?? 30_000)).toISOString();
  const config: AgentConfig = {
    registry_addr: '',
    registry_user: '',
    registry_password: '',
    base_domain: 'berth.localhost',
    ...options.config,
  };

  async function body(request: IncomingMessage): Promise<unknown> {
    let text = '';
    for await (const chunk of request) text += String(chunk);
    return text === '' ? undefined : JSON.parse(text);
  }
  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? '/', 'http://x');
    const name = `${request.method} ${url.pathname}`;
    plane.requests.push(name);
    const reply = (status: number, content: unknown, headers: Record<string, string> = {}): void =>
      void response
        .writeHead(status, { 'content-type': 'application/json', ...headers })
        .end(status === 304 ? undefined : JSON.stringify(content));
    const given = await body(request);
    if (plane.fail?.match.test(name) === true) {
      if (plane.fail.status === 0) return void request.socket.destroy();
      return reply(plane.fail.status, problem('asked_for'));
    }
    if (options.secret !== undefined && request.headers['x-agent-secret'] !== options.secret)
      return reply(401, problem('agent_secret'));
    if (name === 'POST /api/agent/register') {
      const register = given as NodeRegister;
      plane.registers.push(register);
      return reply(200, {
        id: nodeId,
        hostname: register.hostname,
        role: register.role,
        host_ip: register.host_ip,
        forget: plane.forget,
      });
    }
    if (name === 'GET /api/agent/config') return reply(200, config);
    if (name === 'GET /api/agent/tasks') {
      const began = Date.now();
      const wait = Number(url.searchParams.get('wait') ?? 0);
      const end = began + wait * 1000;
      plane.waits.push(wait);
      const same = (): boolean => request.headers['if-none-match'] === `"${version}"`;
      const deaf = (): boolean => plane.deaf && request.headers['if-none-match'] !== undefined;
      while ((same() || deaf()) && Date.now() < end && !response.destroyed) {
        if (Date.now() - began >= plane.cutAfterMs) return void request.socket.destroy();
        await Promise.race([
          new Promise<void>((r) => wakers.push(r)),
          sleep(Math.min(200, plane.cutAfterMs)),
        ]);
      }
      if (same()) return reply(304, null, { etag: `"${version}"` });
      const open = [...tasks.values()].filter((t) => t.report === null).map((t) => t.task);
      return reply(200, open, { etag: `"${version}"` });
    }
    const [, datasetId = '', what = ''] =
      /^\w+ \/api\/agent\/datasets\/([^/]+)(?:\/(\w+))?$/.exec(name) ?? [];
    if (datasetId !== '') {
      const dataset = plane.datasets.get(datasetId);
      if (dataset === undefined) return reply(404, problem('not_found'));
      return reply(what === 'rescan' ? 202 : 200, await answerDataset(dataset, what, given));
    }
    const [, id = '', verb = ''] = /^POST \/api\/agent\/tasks\/([^/]+)\/(\w+)$/.exec(name) ?? [];
    const state = tasks.get(id);
    if (state === undefined) return reply(404, problem('not_found'));
    if (verb === 'start') {
      state.attempt += 1;
      state.token = `token-${id}-${state.attempt}`;
      return reply(200, {
        attempt: state.attempt,
        lease_token: state.token,
        lease_expires_at: lease(),
      });
    }
    if (request.headers['x-lease-token'] !== state.token) return reply(409, problem('stale_lease'));
    if (verb === 'renew') {
      state.renewals += 1;
      return reply(200, {
        lease_expires_at: lease(),
        cancel_requested: state.task.cancel_requested,
      });
    }
    if (verb === 'logs') {
      const { first = state.lines.length, lines } = given as { first?: number; lines: LogLineIn[] };
      lines.forEach((line, i) => (state.lines[first + i] = line));
      return reply(200, { stored: lines.length });
    }
    if (verb === 'progress') {
      const { datasets, learned } = given as { datasets: CopyProgress[]; learned?: TaskFacts };
      state.progress.push(datasets);
      if (learned !== undefined) state.learned.push(learned);
      return reply(200, { status: 'ok' });
    }
    if (verb === 'complete') {
      state.report = given as TaskReport;
      changed();
      return reply(200, { status: state.report.status });
    }
    reply(404, problem('not_found'));
  }

  const server = createServer((request, response) => void answer(request, response));
  await new Promise<void>((resolve) => server.listen(0, options.address ?? '127.0.0.1', resolve));
  const { address, port } = server.address() as AddressInfo;
  const state = (id: string): TaskState => {
    const found = tasks.get(id);
    if (found === undefined) throw new Error(`no task ${id}`);
    return found;
  };
  const plane: FakeControlPlane = {
    url: `http://${address}:${port}`,
    nodeId,
    registers: [],
    requests: [],
    datasets: new Map(),
    forget: [],
    fail: null,
    waits: [],
    deaf: false,
    cutAfterMs: Number.POSITIVE_INFINITY,
    give(task) {
      const made: TaskState = {
        task,
        attempt: 0,
        token: null,
        lines: [],
        report: null,
        renewals: 0,
        progress: [],
        learned: [],
      };
      tasks.set(task.id, made);
      changed();
      return made;
    },
    state,
    reported: (id, ms) => until(`report of ${id}`, () => state(id).report, ms),
    cancel(id) {
      state(id).task.cancel_requested = true;
      changed();
    },
    takeAway(id) {
      state(id).token = null;
      tasks.delete(id);
      changed();
    },
    text: (id) =>
      state(id)
        .lines.map((l) => `${l.step ?? ''}| ${l.text}`)
        .join('\n'),
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
  return plane;
}

async function answerDataset(dataset: FakeDataset, what: string, given: unknown): Promise<object> {
  if (what === 'trees') {
    const { digests } = given as { digests: string[] };
    return {
      objects: Object.fromEntries(
        digests.flatMap((d) => (dataset.objects.has(d) ? [[d, dataset.objects.get(d)]] : [])),
      ),
    };
  }
  const standing = (): DatasetStanding => ({
    ...dataset.source,
    status: dataset.status,
    problem: dataset.status === 'ok' ? null : `it is ${dataset.status}`,
    scanning: false,
    last_scanned_at: new Date(dataset.scans * 1000).toISOString(),
  });
  if (what !== 'rescan') return standing();
  const asked = { ...standing(), scanning: true };
  await dataset.scan();
  return asked;
}

let count = 0;
const base = (): {
  id: string;
  status: 'pending';
  node_id: string;
  attempt: number;
  cancel_requested: boolean;
  created_at: string;
} => ({
  id: `task-${Date.now().toString(36)}-${(count += 1)}`,
  status: 'pending',
  node_id: 'node-1',
  attempt: 0,
  cancel_requested: false,
  created_at: new Date().toISOString(),
});
export const buildTask = (
  payload: Partial<Extract<Task, { kind: 'build' }>['payload']>,
): Extract<Task, { kind: 'build' }> => ({
  ...base(),
  kind: 'build',
  deployment_id: `dep-${count}`,
  payload: {
    project_id: 'prj-1',
    project: 'app',
    git_url: '',
    branch: 'main',
    commit: null,
    dockerfile_path: 'Dockerfile',
    image_repository: '',
    ...payload,
  },
});
export const deployTask = (
  deployment: string,
  payload: Partial<Extract<Task, { kind: 'deploy' }>['payload']>,
): Extract<Task, { kind: 'deploy' }> => ({
  ...base(),
  kind: 'deploy',
  deployment_id: deployment,
  payload: {
    project_id: 'prj-1',
    project: 'app',
    generation: 1,
    domain_prefix: 'app',
    container_port: 8080,
    image: '',
    image_tag: '127.0.0.1:9/app:none',
    image_digest: null,
    container_name: 'svc-app-g1',
    replace: 'rolling',
    env: {},
    datasets: [],
    health_path: null,
    probe_seconds: 20,
    memory_bytes: null,
    cpus: null,
    stop_grace_seconds: 1,
    ...payload,
  },
});
export const retireTask = (
  payload: Partial<Extract<Task, { kind: 'retire' }>['payload']>,
): Extract<Task, { kind: 'retire' }> => ({
  ...base(),
  kind: 'retire',
  deployment_id: null,
  payload: {
    project_id: 'prj-1',
    project: 'app',
    domain_prefix: 'app',
    remove: [],
    keep: null,
    drain_seconds: 0,
    stop_grace_seconds: 1,
    ...payload,
  },
});
export const syncTask = (dataset: DatasetSource): Extract<Task, { kind: 'sync' }> => ({
  ...base(),
  kind: 'sync',
  deployment_id: null,
  payload: { dataset },
});
