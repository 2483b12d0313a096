/** Routes of runs: commands in containers of their own (docs/jobs.md). */
import { randomUUID } from 'node:crypto';
import { DEFAULT_RUN_SECONDS, isOpenRun, type Run } from '@berth/wire/run';
import type { DeviceCounts } from '@berth/wire/machine';
import { CAN_RUN_INPUT } from '@berth/wire/run-payload';
import type { DeploymentStore } from '../../domain/deployments/deployment-store.ts';
import type { Limits } from '../../domain/deployments/facts.ts';
import type { NodeStore } from '../../domain/nodes/node-store.ts';
import { isOnline } from '../../domain/nodes/placement.ts';
import type { Changes } from '../../domain/platform/changes.ts';
import { DomainError } from '../../domain/platform/errors.ts';
import type { UptimeClock } from '../../domain/platform/uptime.ts';
import { envNameProblem, envSizeProblems } from '../../domain/projects/env.ts';
import type { ProjectStore } from '../../domain/projects/project-store.ts';
import type { NodeRecord } from '../../domain/platform/records.ts';
import { countsOrNull } from '../../domain/runs/due-runs.ts';
import type { RunRecord, RunStore } from '../../domain/runs/run-store.ts';
import type { Call, Define } from '../define.ts';
import { SENT } from '../define.ts';
import { etagOf, matchesEtag } from '../etag.ts';
import { createHoldWhile, type HoldWhile } from '../hold-while.ts';
import { LOG_PAGE, pumpLog } from '../log-stream.ts';
import type { Holds } from '../long-poll.ts';
import { pageOf } from '../page.ts';
import { resumeAt } from '../sse.ts';
import { streamTo } from '../stream-answer.ts';
import { logLineView, time } from '../views.ts';

export type Deps = {
  runs: Pick<RunStore, 'cancel' | 'create' | 'get' | 'list' | 'readLog'>;
  projects: Pick<ProjectStore, 'get' | 'runningDeployments'>;
  deployments: Pick<DeploymentStore, 'ran'>;
  nodes: Pick<NodeStore, 'all' | 'getMany'>;
  limits: Limits;
  uptime: Pick<UptimeClock, 'now'>;
  changes: Pick<Changes, 'notify' | 'on' | 'wait'>;
  holds: Pick<Holds, 'begin'>;
  now: () => number;
};

type Context = Deps & { holdWhile: HoldWhile };

export function runRoutes(route: Define, deps: Deps): void {
  const context = { ...deps, holdWhile: createHoldWhile(deps) };
  route('createRun', (call) => createRun(deps, call));
  route('projectRuns', (call) => projectRuns(deps, call));
  route('getRun', (call) => getRun(context, call));
  route('cancelRun', (call) => cancelRun(deps, call));
  route('runLogs', (call) => runLogs(deps, call));
}

async function createRun(deps: Deps, { params, body, user }: Call<'createRun'>): Promise<Run> {
  const project = await deps.projects.get(params.id);
  if (project.deleting_at !== null) throw new DomainError('being_deleted');
  const env = body.env ?? {};
  checkEnv(env);
  const running = await deps.projects.runningDeployments([project.id]);
  if (!running.has(project.id)) {
    const ran = await deps.deployments.ran(project.id);
    throw nothingToRun(project.name, ran.length > 0);
  }
  if (body.stdin === true) await checkInput(deps);
  await checkDevices(deps, body.devices);
  const { at } = await deps.uptime.now();
  const run = await deps.runs.create(
    {
      id: randomUUID(),
      project_id: project.id,
      job: null,
      trigger: 'person',
      command: body.command,
      env,
      scheduled_for: null,
      timeout_seconds: body.timeout_seconds ?? DEFAULT_RUN_SECONDS,
      memory_bytes: body.memory_bytes ?? null,
      cpus: body.cpus ?? null,
      devices: countsOrNull(body.devices),
      stdin: body.stdin ?? false,
      retries: 0,
      created_by: user.email,
      queue_deadline_at: at + deps.limits.queueMs,
    },
    deps.now(),
  );
  deps.changes.notify('work');
  return runView(run, null);
}

function checkEnv(env: Record<string, string>): void {
  const problems = [
    ...Object.keys(env).flatMap((name) => envNameProblem(name) ?? []),
    ...envSizeProblems(env),
  ];
  if (problems.length > 0)
    throw new DomainError(
      'validation',
      problems.map(({ message }) => message).join('; '),
      problems,
    );
}

/** Throws agent_cannot if no agent could pass on the input: the run would wait in vain. */
async function checkInput({ nodes, limits, now }: Deps): Promise<void> {
  const able = (await nodes.all()).filter((node) => node.capabilities?.includes(CAN_RUN_INPUT));
  if (able.some((node) => isOnline(node, now(), limits))) return;
  throw new DomainError(
    'agent_cannot',
    able.length > 0
      ? 'every node whose agent passes on standard input is offline'
      : 'no agent can pass on standard input; upgrade the agents, or start the run without it',
  );
}

/** Throws wrong_state if no node has the devices: the run would wait in vain. */
export async function checkDevices(
  { nodes }: { nodes: Pick<NodeStore, 'all'> },
  devices: DeviceCounts | null | undefined,
): Promise<void> {
  const counts = Object.entries(devices ?? {});
  if (counts.length === 0) return;
  const all = (await nodes.all('deploy')).filter(({ deleting_at }) => deleting_at === null);
  const has = (node: NodeRecord, kind: string): number => node.devices[kind]?.length ?? 0;
  if (all.some((node) => counts.every(([kind, needed]) => has(node, kind) >= needed))) return;
  const most = counts.map(
    ([kind, needed]) =>
      `${kind}: ${needed} needed, at most ${Math.max(0, ...all.map((node) => has(node, kind)))} on one node`,
  );
  throw new DomainError('wrong_state', `no node has the devices of the run: ${most.join('; ')}`, [
    { field: 'devices', rule: 'no_node', message: most.join('; ') },
  ]);
}

const nothingToRun = (project: string, ran: boolean): DomainError =>
  new DomainError(
    'wrong_state',
    ran
      ? `no version of project ${project} runs now, so a command has no image; deploy it, or start ` +
          `it if it is stopped: berth start ${project}`
      : `no version of project ${project} ever ran, so a command has no image; deploy it first`,
  );

async function projectRuns(deps: Deps, { params, query }: Call<'projectRuns'>) {
  const { items, next } = await deps.runs.list(params.id, query, pageOf(query));
  return { items: await runViews(deps, items), next_cursor: next };
}

/** Returns the runs in the form of the API, with the names of their nodes. */
export async function runViews(
  deps: { nodes: Pick<NodeStore, 'getMany'> },
  runs: readonly RunRecord[],
): Promise<Run[]> {
  const ids = [...new Set(runs.flatMap(({ node_id }) => node_id ?? []))];
  const names = new Map((await deps.nodes.getMany(ids)).map((n) => [n.id, n.hostname]));
  return runs.map((run) => runView(run, names.get(run.node_id ?? '') ?? null));
}

async function view(deps: Deps, run: RunRecord): Promise<Run> {
  const [shown] = await runViews(deps, [run]);
  return shown as Run;
}

async function getRun(
  { holdWhile, ...deps }: Context,
  { params, query, user, request, reply, recheck, setEtag }: Call<'getRun'>,
) {
  const knownEtag = request.headers['if-none-match'];
  const read = async () => {
    await recheck();
    const run = await view(deps, await deps.runs.get(params.id));
    return { run, etag: etagOf(JSON.stringify(run)) };
  };
  const waited = {
    knownEtag,
    waitSeconds: query.wait ?? 0,
    topic: `logs:${params.id}` as const,
    holder: user.id,
  };
  const { run, etag } = await holdWhile(read, waited, reply);
  setEtag(etag);
  if (!matchesEtag(knownEtag, etag)) return run;
  void reply.code(304).send();
  return SENT;
}

async function cancelRun(deps: Deps, { params, user }: Call<'cancelRun'>): Promise<Run> {
  const run = await deps.runs.cancel(params.id, `cancelled by ${user.email}`, deps.now());
  deps.changes.notify(`logs:${run.id}`, 'work');
  if (run.node_id !== null) deps.changes.notify(`node:${run.node_id}`);
  return view(deps, run);
}

async function runLogs(
  deps: Deps,
  { params, query, user, recheck, stream, request, reply }: Call<'runLogs'>,
) {
  const { id } = await deps.runs.get(params.id);
  const after = query.after ?? 0;
  if (!stream) {
    const lines = await deps.runs.readLog(id, after, query.limit ?? LOG_PAGE);
    return { lines: lines.map(logLineView), next: lines.at(-1)?.seq ?? after };
  }
  const source = {
    id,
    state: async () => {
      const run = await deps.runs.get(id);
      const { status, reason, exit_code, error, node_name } = await view(deps, run);
      const data = { status, reason, exit_code, error, node_name };
      return { data, isOver: !isOpenRun(status), unavailable: null };
    },
    read: (from: number, limit: number) => deps.runs.readLog(id, from, limit),
    recheck,
  };
  return streamTo({
    holds: deps.holds,
    kind: 'logs',
    userId: user.id,
    request,
    reply,
    pump: (events, hold) => pumpLog(deps, source, resumeAt(request.raw, after), events, hold),
    onFault: (err) => request.log.error({ err, run: id }, 'log stream failed'),
  });
}

const timeOrNull = (ms: number | null): string | null => (ms === null ? null : time(ms));

const runView = (run: RunRecord, nodeName: string | null): Run => ({
  id: run.id,
  project_id: run.project_id,
  job: run.job,
  trigger: run.trigger,
  command: run.command,
  env_names: run.env_names,
  status: run.status,
  reason: run.reason,
  scheduled_for: timeOrNull(run.scheduled_for),
  created_at: time(run.created_at),
  started_at: timeOrNull(run.started_at),
  ended_at: timeOrNull(run.ended_at),
  exit_code: run.exit_code,
  deployment_id: run.deployment_id,
  node_id: run.node_id,
  node_name: nodeName,
  attempt: run.attempt,
  timeout_seconds: run.timeout_seconds,
  memory_bytes: run.memory_bytes,
  cpus: run.cpus,
  devices: run.devices ?? {},
  cancel_requested: run.cancel_requested_at !== null,
  error: run.error,
  created_by: run.created_by,
});
