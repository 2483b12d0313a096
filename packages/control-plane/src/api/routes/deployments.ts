/** Deployments: requested here, decided by the flow. */
import type { CreatedBy, Deployment, DeploymentItem } from '@berth/wire/deployment';
import type { DeploymentRecord, DeploymentSummary } from '../../domain/records.ts';
import type { DeploymentStore } from '../../domain/stores.ts';
import { undeployedSettings } from '../../flow/observe.ts';
import type { Caller } from '../callers.ts';
import type { Define } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import { idempotencyOf } from '../idempotency.ts';
import { pageOf } from '../page.ts';
import { type Beside, type DataNow, deploymentItem, deploymentView } from '../views.ts';

type DeploymentFilter = Parameters<DeploymentStore['list']>[0];

export function deploymentRoutes(route: Define, deps: ApiDeps): void {
  const { stores, driver, changes, settings } = deps;

  /** `running`: those of the records that run, whole. */
  async function besides(
    records: readonly DeploymentSummary[],
    running: readonly DeploymentRecord[],
  ): Promise<(d: DeploymentSummary) => Beside> {
    // One may be gone since.
    const placed = new Set(records.flatMap((d) => (d.node_id === null ? [] : [d.node_id])));
    const nodes = new Map((await stores.nodes.getMany([...placed])).map((n) => [n.id, n]));
    const drifts = await driftsOf(running);
    const data = await dataOf(records);
    return (d) => ({ node: nodes.get(d.node_id ?? '') ?? null, undeployed: drifts.get(d.id) ?? null, data });
  }
  /** Nothing is asked where no dataset is mounted. */
  async function dataOf(records: readonly DeploymentSummary[]): Promise<DataNow> {
    const mounting = records.filter((d) => d.datasets !== null && d.datasets.length > 0);
    const copying = mounting.filter((d) => d.status === 'deploying').map((d) => d.id);
    return {
      datasets: new Map((mounting.length === 0 ? [] : await stores.datasets.facts()).map((d) => [d.id, d])),
      progress: copying.length === 0 ? new Map() : await stores.tasks.progressOf(copying),
    };
  }
  /** A project has one running deployment at most. */
  async function driftsOf(running: readonly DeploymentRecord[]): Promise<Map<string, Beside['undeployed']>> {
    const projects = new Map((await stores.projects.getMany(running.map((d) => d.project_id))).map((p) => [p.id, p]));
    return new Map(
      running.map((d) => {
        const project = projects.get(d.project_id);
        const detail = project === undefined ? null : undeployedSettings(d, project);
        return [d.id, project === undefined || detail === null ? null : { detail, since: project.updated_at }];
      }),
    );
  }
  async function view(record: DeploymentRecord): Promise<Deployment> {
    const summary = { ...record, domain_prefix: record.settings.domain_prefix };
    const beside = await besides([summary], record.status === 'running' ? [record] : []);
    const events = await stores.deployments.events([record.id]);
    return deploymentView(record, events.get(record.id) ?? [], beside(summary), settings);
  }

  route('createDeployment', async ({ params, body, request, user }) => {
    const commit = body.commit ?? null;
    const note = body.note ?? null;
    const idempotency = idempotencyOf(request.headers['idempotency-key'], ['deploy', commit, note]);
    const { deployment } = await driver.request({ projectId: params.id, commit, note, rollbackOf: null, idempotency, by: byOf(user) });
    return view(deployment);
  });

  route('rollback', async ({ params, body, request, user }) => {
    const idempotency = idempotencyOf(request.headers['idempotency-key'], ['rollback', body.deployment_id]);
    const { deployment } = await driver.request({
      projectId: params.id,
      commit: null,
      note: null,
      rollbackOf: body.deployment_id,
      idempotency,
      by: byOf(user),
    });
    // It may bring back a host name that the project has given up since.
    changes.notify('policy');
    return view(deployment);
  });

  async function list(
    filter: DeploymentFilter,
    query: { limit?: number; cursor?: string },
  ): Promise<{ items: DeploymentItem[]; next_cursor: string | null }> {
    const { items, next } = await stores.deployments.list(filter, pageOf(query));
    const running = await stores.deployments.getMany(items.filter((d) => d.status === 'running').map((d) => d.id));
    const beside = await besides(items, running);
    return { items: items.map((d) => deploymentItem(d, beside(d), settings)), next_cursor: next };
  }
  const stateFilter = (query: DeploymentFilter): DeploymentFilter => (query.status === undefined ? {} : { status: query.status });

  route('listDeployments', ({ query }) =>
    list({ ...stateFilter(query), ...(query.project_id === undefined ? {} : { project_id: query.project_id }) }, query),
  );

  route('projectDeployments', ({ params, query }) => list({ ...stateFilter(query), project_id: params.id }, query));

  route('getDeployment', async ({ params }) => view(await stores.deployments.get(params.id)));

  route('cancelDeployment', async ({ params }) => view(await driver.advance(params.id, { type: 'cancel' })));
}

const byOf = ({ id, email, credential }: Caller): CreatedBy =>
  credential.kind === 'api_token'
    ? { kind: 'token', id: credential.id, name: `${credential.name} (${email})` }
    : { kind: 'user', id, name: email };
