/** Routes of deployments. The flow decides what happens to a deployment. */
import { defined } from '@berth/kit/defined';
import type { CreatedBy, Deployment, DeploymentItem } from '@berth/wire/deployment';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { ProjectAccess } from '../../domain/identity/access.ts';
import type { DeploymentRecord, DeploymentSummary } from '../../domain/platform/records.ts';
import type { DeploymentFilter } from '../../domain/deployments/deployment-store.ts';
import type { NewDeployment } from '../../flow/driver.ts';
import { undeployedSettings } from '../../flow/observe.ts';
import type { Caller } from '../auth/callers.ts';
import { type Define, SENT } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import { etagOf, matchesEtag } from '../etag.ts';
import { createHoldWhile } from '../hold-while.ts';
import type { Holds } from '../long-poll.ts';
import { deploymentKey, keyOf } from '../idempotency.ts';
import { pageOf } from '../page.ts';
import {
  type DeploymentContext,
  type DeploymentData,
  deploymentItem,
  deploymentView,
} from '../views.ts';

type RequestedDeployment = Pick<NewDeployment, 'commit' | 'note' | 'rollbackOf' | 'trigger'>;

export function deploymentRoutes(route: Define, deps: ApiDeps & { holds: Holds }): void {
  const { stores, driver, changes, settings } = deps;
  const holdWhile = createHoldWhile(deps);

  /**
   * Reads the related records of several deployments. `running`: complete records of those that
   * run.
   */
  async function contextsOf(
    records: readonly DeploymentSummary[],
    running: readonly DeploymentRecord[],
  ): Promise<(d: DeploymentSummary) => DeploymentContext> {
    const placed = new Set(records.flatMap((d) => (d.node_id === null ? [] : [d.node_id])));
    const nodes = new Map((await stores.nodes.getMany([...placed])).map((n) => [n.id, n]));
    const drifts = await driftsOf(running);
    const data = await dataOf(records);
    return (d) => ({
      node: nodes.get(d.node_id ?? '') ?? null,
      undeployed: drifts.get(d.id) ?? null,
      data,
    });
  }
  /** Reads nothing if no deployment mounts a dataset. */
  async function dataOf(records: readonly DeploymentSummary[]): Promise<DeploymentData> {
    const mounting = records.filter((d) => d.datasets !== null && d.datasets.length > 0);
    const copying = mounting.filter((d) => d.status === 'deploying').map((d) => d.id);
    return {
      datasets: new Map(
        (mounting.length === 0 ? [] : await stores.datasets.facts()).map((d) => [d.id, d]),
      ),
      progress: copying.length === 0 ? new Map() : await stores.tasks.progressOf(copying),
    };
  }
  /** Returns by deployment which project settings are not deployed yet. */
  async function driftsOf(
    running: readonly DeploymentRecord[],
  ): Promise<Map<string, DeploymentContext['undeployed']>> {
    const projects = new Map(
      (await stores.projects.getMany(running.map((d) => d.project_id))).map((p) => [p.id, p]),
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
  async function view(record: DeploymentRecord): Promise<Deployment> {
    const summary = { ...record, domain_prefix: record.settings.domain_prefix };
    const contextOf = await contextsOf([summary], record.status === 'running' ? [record] : []);
    const events = await stores.deployments.events([record.id]);
    const status = await stores.commitStatuses.ofDeployment(record.id);
    return deploymentView(
      record,
      events.get(record.id) ?? [],
      contextOf(summary),
      settings,
      status,
    );
  }

  type Creating = {
    user: Caller;
    request: FastifyRequest;
    reply: FastifyReply;
    params: { id: string };
  };
  /**
   * Creates a deployment, which stores the Idempotency-Key too (deploymentKey in idempotency.ts).
   * `meaning`: the requested values.
   */
  async function create(
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
    const { deployment, created } = await driver.request({
      ...requested,
      projectId: params.id,
      idempotency,
      by: byOf(user),
    });
    if (!created) void call.reply.header('idempotent-replayed', 'true');
    return view(deployment);
  }

  route('createDeployment', (call) => {
    const { commit = null, note = null } = call.body;
    return create(call, 'deploy', [commit, note], { commit, note, rollbackOf: null });
  });

  route('rollback', async (call) => {
    const named = call.body.deployment_id;
    return again(call, 'rollback', named ?? { find: 'older' });
  });

  route('restartProject', (call) => again(call, 'restart', { find: 'last' }));

  route('startProject', (call) => again(call, 'start', { find: 'last' }));

  /** Deploys a release again. */
  async function again(
    call: Creating,
    what: 'rollback' | 'restart' | 'start',
    rollbackOf: NewDeployment['rollbackOf'],
  ): Promise<Deployment> {
    const deployment = await create(
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
    // The release may have a host name that the project no longer has.
    changes.notify('policy');
    return deployment;
  }

  async function list(
    filter: DeploymentFilter,
    query: { limit?: number; cursor?: string },
    access?: ProjectAccess,
  ): Promise<{ items: DeploymentItem[]; next_cursor: string | null }> {
    const { items, next } = await stores.deployments.list(filter, pageOf(query), access);
    const running = await stores.deployments.getMany(
      items.filter((d) => d.status === 'running').map((d) => d.id),
    );
    const contextOf = await contextsOf(items, running);
    return {
      items: items.map((d) => deploymentItem(d, contextOf(d), settings)),
      next_cursor: next,
    };
  }
  const stateFilter = (query: Pick<DeploymentFilter, 'status'>): DeploymentFilter =>
    query.status === undefined ? {} : { status: query.status };

  route('listDeployments', ({ query, access }) =>
    list(
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
    ),
  );

  route('projectDeployments', ({ params, query }) =>
    list({ ...stateFilter(query), project_id: params.id }, query),
  );

  route('getDeployment', async ({ params, query, user, recheck, setEtag, request, reply }) => {
    const knownEtag = request.headers['if-none-match'];
    const read = async () => {
      const deployment = await view(await stores.deployments.get(params.id));
      return { deployment, etag: etagOf(JSON.stringify(deployment)) };
    };
    const result = await holdWhile(
      read,
      { knownEtag, waitSeconds: query.wait ?? 0, topic: `logs:${params.id}`, holder: user.id },
      reply,
    );
    // The rights may have ended while the request was held.
    if ((query.wait ?? 0) > 0) await recheck();
    setEtag(result.etag);
    if (!matchesEtag(knownEtag, result.etag)) return result.deployment;
    void reply.code(304).send();
    return SENT;
  });

  route('cancelDeployment', async ({ params }) =>
    view(await driver.advance(params.id, { type: 'cancel' })),
  );
}

export const byOf = ({ id, email, credential }: Caller): CreatedBy =>
  credential.kind === 'api_token'
    ? { kind: 'token', id: credential.id, name: `${credential.name} (${email})` }
    : { kind: 'user', id, name: email };
