/** Routes of deployments. The flow decides what happens to a deployment. */
import { defined } from '@berth/kit/defined';
import type { CreatedBy, Deployment, DeploymentItem } from '@berth/wire/deployment';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { ProjectAccess } from '../../domain/identity/access.ts';
import type { InstanceStore } from '../../domain/deployments/instance-store.ts';
import type { DeploymentRecord, DeploymentSummary } from '../../domain/platform/records.ts';
import type {
  DeploymentFilter,
  DeploymentStore,
} from '../../domain/deployments/deployment-store.ts';
import type { NewDeployment, Driver } from '../../flow/driver.ts';
import { undeployedSettings } from '../../flow/observe.ts';
import type { Caller } from '../auth/callers.ts';
import { type Define, SENT, type Call } from '../define.ts';
import { etagOf, matchesEtag } from '../etag.ts';
import { createHoldWhile, type HoldWhile } from '../hold-while.ts';
import type { Holds } from '../long-poll.ts';
import { instancesWithNodes } from './instances.ts';
import { deploymentKey, keyOf } from '../idempotency.ts';
import { pageOf } from '../page.ts';
import {
  type DeploymentContext,
  type DeploymentData,
  deploymentItem,
  deploymentView,
} from '../views.ts';
import type { NodeStore } from '../../domain/nodes/node-store.ts';
import type { DatasetStore } from '../../domain/data/dataset-stores.ts';
import type { TaskStore } from '../../domain/deployments/task-store.ts';
import type { ProjectStore } from '../../domain/projects/project-store.ts';
import type { StatusStore } from '../../domain/git/commit-statuses.ts';
import type { ApiSettings } from '../settings.ts';
import type { Changes } from '../../domain/platform/changes.ts';

type RequestedDeployment = Pick<NewDeployment, 'commit' | 'note' | 'rollbackOf' | 'trigger'>;

export type Deps = {
  holds: Pick<Holds, 'begin'>;
  nodes: Pick<NodeStore, 'getMany'>;
  datasets: Pick<DatasetStore, 'facts'>;
  tasks: Pick<TaskStore, 'progressOf'>;
  projects: Pick<ProjectStore, 'getMany'>;
  deployments: Pick<DeploymentStore, 'events' | 'get' | 'getMany' | 'list'>;
  commitStatuses: Pick<StatusStore, 'ofDeployment'>;
  instances: Pick<InstanceStore, 'ofDeployments'>;
  settings: Pick<ApiSettings, 'baseDomain' | 'publicUrl'>;
  driver: Pick<Driver, 'advance' | 'request'>;
  changes: Pick<Changes, 'notify' | 'on'>;
};

/** State shared by all requests. */
type Context = Deps & {
  holdWhile: HoldWhile;
};

export function deploymentRoutes(route: Define, deps: Deps): void {
  const holdWhile = createHoldWhile(deps);
  const context: Context = { ...deps, holdWhile };
  route('createDeployment', (call) => createDeployment(deps, call));
  route('rollback', (call) => rollback(deps, call));
  route('restartProject', (call) => again(deps, call, 'restart', { find: 'last' }));
  route('startProject', (call) => again(deps, call, 'start', { find: 'last' }));
  route('listDeployments', (call) => listDeployments(deps, call));
  route('projectDeployments', ({ params, query }) =>
    list(deps, { ...stateFilter(query), project_id: params.id }, query),
  );
  route('getDeployment', (call) => getDeployment(context, call));
  route('cancelDeployment', async ({ params }) =>
    view(deps, await deps.driver.advance(params.id, { type: 'cancel' })),
  );
}

/**
 * Reads the related records of several deployments. `running`: the full records of the running
 * ones.
 */
async function contextsOf(
  deps: Deps,
  records: readonly DeploymentSummary[],
  running: readonly DeploymentRecord[],
): Promise<(d: DeploymentSummary) => DeploymentContext> {
  const placed = new Set(records.flatMap((d) => (d.node_id === null ? [] : [d.node_id])));
  const nodes = new Map((await deps.nodes.getMany([...placed])).map((n) => [n.id, n]));
  const drifts = await driftsOf(deps, running);
  const data = await dataOf(deps, records);
  return (d) => ({
    node: nodes.get(d.node_id ?? '') ?? null,
    undeployed: drifts.get(d.id) ?? null,
    data,
  });
}

/** Reads the datasets of the deployments; no query if none mounts a dataset. */
async function dataOf(deps: Deps, records: readonly DeploymentSummary[]): Promise<DeploymentData> {
  const mounting = records.filter((d) => d.datasets !== null && d.datasets.length > 0);
  const copying = mounting.filter((d) => d.status === 'deploying').map((d) => d.id);
  return {
    datasets: new Map(
      (mounting.length === 0 ? [] : await deps.datasets.facts()).map((d) => [d.id, d]),
    ),
    progress: copying.length === 0 ? new Map() : await deps.tasks.progressOf(copying),
  };
}

/** Returns, by deployment, which project settings are not deployed yet. */
async function driftsOf(
  deps: Deps,
  running: readonly DeploymentRecord[],
): Promise<Map<string, DeploymentContext['undeployed']>> {
  const projects = new Map(
    (await deps.projects.getMany(running.map((d) => d.project_id))).map((p) => [p.id, p]),
  );
  return new Map(
    running.map((d) => {
      const project = projects.get(d.project_id);
      const detail = project === undefined ? null : undeployedSettings(d, project);
      return [
        d.id,
        project === undefined || detail === null ? null : { detail, since: project.updated_at },
      ];
    }),
  );
}

async function view(deps: Deps, record: DeploymentRecord): Promise<Deployment> {
  const summary = { ...record, domain_prefix: record.settings.domain_prefix };
  const contextOf = await contextsOf(deps, [summary], record.status === 'running' ? [record] : []);
  const events = await deps.deployments.events([record.id]);
  const status = await deps.commitStatuses.ofDeployment(record.id);
  const instances = await instancesWithNodes(deps, [record]);
  return deploymentView(
    record,
    events.get(record.id) ?? [],
    contextOf(summary),
    deps.settings,
    status,
    instances(record),
  );
}

type Creating = {
  user: Caller;
  request: FastifyRequest;
  reply: FastifyReply;
  params: { id: string };
};

/**
 * Creates a deployment and stores the Idempotency-Key with it (deploymentKey in idempotency.ts).
 * `meaning`: the requested values.
 */
async function create(
  deps: Deps,
  call: Creating,
  what: 'deploy' | 'rollback' | 'restart' | 'start',
  meaning: readonly (string | null)[],
  requested: RequestedDeployment,
): Promise<Deployment> {
  const { user, params } = call;
  const key = keyOf(call.request);
  const path = `${what} ${params.id}`;
  const idempotency =
    key === null ? null : deploymentKey({ user: user.id, key, path }, [what, ...meaning]);
  const { deployment, created } = await deps.driver.request({
    ...requested,
    projectId: params.id,
    idempotency,
    by: byOf(user),
  });
  if (!created) void call.reply.header('idempotent-replayed', 'true');
  return view(deps, deployment);
}

function createDeployment(deps: Deps, call: Call<'createDeployment'>) {
  const { commit = null, note = null } = call.body;
  return create(deps, call, 'deploy', [commit, note], { commit, note, rollbackOf: null });
}

async function rollback(deps: Deps, call: Call<'rollback'>) {
  const named = call.body.deployment_id;
  return again(deps, call, 'rollback', named ?? { find: 'older' });
}

/** Deploys a release again. */
async function again(
  deps: Deps,
  call: Creating,
  what: 'rollback' | 'restart' | 'start',
  rollbackOf: NewDeployment['rollbackOf'],
): Promise<Deployment> {
  const deployment = await create(
    deps,
    call,
    what,
    typeof rollbackOf === 'string' ? [rollbackOf] : [],
    {
      commit: null,
      note: null,
      rollbackOf,
      trigger: what,
    },
  );
  // Publish the policy: the release can have a host name that the project no longer has.
  deps.changes.notify('policy');
  return deployment;
}

async function list(
  deps: Deps,
  filter: DeploymentFilter,
  query: { limit?: number; cursor?: string },
  access?: ProjectAccess,
): Promise<{ items: DeploymentItem[]; next_cursor: string | null }> {
  const { items, next } = await deps.deployments.list(filter, pageOf(query), access);
  const running = await deps.deployments.getMany(
    items.filter((d) => d.status === 'running').map((d) => d.id),
  );
  const contextOf = await contextsOf(deps, items, running);
  return {
    items: items.map((d) => deploymentItem(d, contextOf(d), deps.settings)),
    next_cursor: next,
  };
}

function stateFilter(query: Pick<DeploymentFilter, 'status'>): DeploymentFilter {
  return query.status === undefined ? {} : { status: query.status };
}

function listDeployments(deps: Deps, { query, access }: Call<'listDeployments'>) {
  return list(
    deps,
    {
      ...stateFilter(query),
      ...defined({
        project_id: query.project_id,
        dataset_id: query.dataset_id,
        ids: query.ids === undefined ? undefined : query.ids.split(','),
        attention: query.attention === true ? true : undefined,
      }),
    },
    query,
    access,
  );
}

async function getDeployment(
  context: Context,
  { params, query, user, recheck, setEtag, request, reply }: Call<'getDeployment'>,
) {
  const knownEtag = request.headers['if-none-match'];
  const read = async () => {
    const deployment = await view(context, await context.deployments.get(params.id));
    return { deployment, etag: etagOf(JSON.stringify(deployment)) };
  };
  const result = await context.holdWhile(
    read,
    { knownEtag, waitSeconds: query.wait ?? 0, topic: `logs:${params.id}`, holder: user.id },
    reply,
  );
  // The rights might have ended while the request was held.
  if ((query.wait ?? 0) > 0) await recheck();
  setEtag(result.etag);
  if (!matchesEtag(knownEtag, result.etag)) return result.deployment;
  void reply.code(304).send();
  return SENT;
}

export const byOf = ({ id, email, credential }: Caller): CreatedBy =>
  credential.kind === 'api_token'
    ? { kind: 'token', id: credential.id, name: `${credential.name} (${email})` }
    : { kind: 'user', id, name: email };
