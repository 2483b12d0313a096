/** Deployments: requested here, decided by the flow. */
import type { Deployment } from '@berth/wire/deployment';
import type { DeploymentRecord, ProjectRecord } from '../../domain/records.ts';
import type { DeploymentStore } from '../../domain/stores.ts';
import type { Define } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import { idempotencyOf } from '../idempotency.ts';
import { pageOf } from '../page.ts';
import { type DataNow, deploymentView } from '../views.ts';

type DeploymentFilter = Parameters<DeploymentStore['list']>[0];

export function deploymentRoutes(route: Define, deps: ApiDeps): void {
  const { stores, driver, changes, settings } = deps;

  async function views(records: readonly DeploymentRecord[]): Promise<Deployment[]> {
    const events = await stores.deployments.events(records.map((d) => d.id));
    // One may be gone since.
    const placed = new Set(records.flatMap((d) => (d.node_id === null ? [] : [d.node_id])));
    const nodes = new Map((await stores.nodes.getMany([...placed])).map((n) => [n.id, n]));
    const projects = await projectsOf(records.filter((d) => d.status === 'running'));
    const data = await dataOf(records);
    return records.map((d) =>
      deploymentView(d, nodes.get(d.node_id ?? '') ?? null, events.get(d.id) ?? [], settings, projects.get(d.project_id) ?? null, data),
    );
  }
  /** Nothing is asked where no dataset is mounted. */
  async function dataOf(records: readonly DeploymentRecord[]): Promise<DataNow> {
    const mounting = records.filter((d) => d.datasets !== null && d.datasets.length > 0);
    const copying = mounting.filter((d) => d.status === 'deploying').map((d) => d.id);
    return {
      datasets: new Map((mounting.length === 0 ? [] : await stores.datasets.facts()).map((d) => [d.id, d])),
      progress: copying.length === 0 ? new Map() : await stores.tasks.progressOf(copying),
    };
  }
  /** A project has one running deployment at most. */
  async function projectsOf(running: readonly DeploymentRecord[]): Promise<Map<string, ProjectRecord>> {
    const projects = await stores.projects.getMany(running.map((d) => d.project_id));
    return new Map(projects.map((project) => [project.id, project]));
  }
  const view = async (record: DeploymentRecord): Promise<Deployment> => {
    const [only] = await views([record]);
    if (only === undefined) throw new Error('one record has one view');
    return only;
  };

  route('createDeployment', async ({ params, body, request }) => {
    const commit = body.commit ?? null;
    const note = body.note ?? null;
    const idempotency = idempotencyOf(request.headers['idempotency-key'], ['deploy', commit, note]);
    const { deployment } = await driver.request({ projectId: params.id, commit, note, rollbackOf: null, idempotency });
    return view(deployment);
  });

  route('rollback', async ({ params, body, request }) => {
    const idempotency = idempotencyOf(request.headers['idempotency-key'], ['rollback', body.deployment_id]);
    const { deployment } = await driver.request({
      projectId: params.id,
      commit: null,
      note: null,
      rollbackOf: body.deployment_id,
      idempotency,
    });
    // It may bring back a host name that the project has given up since.
    changes.notify('policy');
    return view(deployment);
  });

  async function list(filter: DeploymentFilter, query: { limit?: number; cursor?: string }) {
    const { items, next } = await stores.deployments.list(filter, pageOf(query));
    return { items: await views(items), next_cursor: next };
  }
  const stateFilter = (query: DeploymentFilter): DeploymentFilter => (query.status === undefined ? {} : { status: query.status });

  route('listDeployments', ({ query }) =>
    list({ ...stateFilter(query), ...(query.project_id === undefined ? {} : { project_id: query.project_id }) }, query),
  );

  route('projectDeployments', ({ params, query }) => list({ ...stateFilter(query), project_id: params.id }, query));

  route('getDeployment', async ({ params }) => view(await stores.deployments.get(params.id)));

  route('cancelDeployment', async ({ params }) => view(await driver.advance(params.id, { type: 'cancel' })));
}
