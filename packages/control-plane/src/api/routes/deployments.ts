/** Deployments: requested here, decided by the flow. */
import type { CreatedBy, Deployment, DeploymentItem } from '@berth/wire/deployment';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Topic } from '../../domain/changes.ts';
import type { DeploymentRecord, DeploymentSummary } from '../../domain/records.ts';
import type { DeploymentStore } from '../../domain/stores.ts';
import type { NewDeployment } from '../../flow/drive.ts';
import { undeployedSettings } from '../../flow/observe.ts';
import type { Caller, Callers } from '../auth/callers.ts';
import { type Define, SENT } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import { etagOf, matchesEtag } from '../etag.ts';
import { type Holds, lookUntil } from '../holds.ts';
import { deploymentKey, keyOf } from '../idempotency.ts';
import { pageOf } from '../page.ts';
import { type Beside, type DataNow, deploymentItem, deploymentView } from '../views.ts';

type Asked = Pick<NewDeployment, 'commit' | 'note' | 'rollbackOf'>;
type DeploymentFilter = Parameters<DeploymentStore['list']>[0];

/** How often a held request looks without being told. */
const LOOK_MS = 5_000;

export function deploymentRoutes(route: Define, deps: ApiDeps & { holds: Holds; callers: Callers }): void {
  const { stores, driver, changes, settings, holds, callers } = deps;

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

  type Creating = { user: Caller; request: FastifyRequest; reply: FastifyReply; params: { id: string } };
  /** The key stands with the deployment too (api/idempotency.ts, deploymentKey). `meaning`: what is asked for, beside the project. */
  async function create(
    call: Creating,
    what: 'deploy' | 'rollback',
    meaning: readonly (string | null)[],
    asked: Asked,
  ): Promise<Deployment> {
    const { user, params } = call;
    const key = keyOf(call.request);
    const path = `${what} ${params.id}`;
    const idempotency = key === null ? null : deploymentKey({ user: user.id, key, path }, [what, ...meaning]);
    const { deployment, created } = await driver.request({ ...asked, projectId: params.id, idempotency, by: byOf(user) });
    if (!created) void call.reply.header('idempotent-replayed', 'true');
    return view(deployment);
  }

  route('createDeployment', (call) => {
    const { commit = null, note = null } = call.body;
    return create(call, 'deploy', [commit, note], { commit, note, rollbackOf: null });
  });

  route('rollback', async (call) => {
    const rollbackOf = call.body.deployment_id;
    const deployment = await create(call, 'rollback', [rollbackOf], { commit: null, note: null, rollbackOf });
    // It may bring back a host name that the project has given up since.
    changes.notify('policy');
    return deployment;
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

  route('getDeployment', async ({ params, query, user, tag, request, reply }) => {
    const known = request.headers['if-none-match'];
    const look = async () => {
      const shown = await view(await stores.deployments.get(params.id));
      return { shown, etag: etagOf(JSON.stringify(shown)) };
    };
    const seen = await heldWhile(look, known, { waitSeconds: query.wait ?? 0, topic: `logs:${params.id}`, holder: user.id }, reply);
    // Who lost the right while it was held gets nothing.
    if ((query.wait ?? 0) > 0) await callers.user(request.headers.authorization);
    tag(seen.etag);
    if (!matchesEtag(known, seen.etag)) return seen.shown;
    void reply.code(304).send();
    return SENT;
  });

  /** Looks again at each change, and now and then without one: another control plane may be the one that changes it. */
  async function heldWhile<T extends { etag: string }>(
    look: () => Promise<T>,
    known: string | undefined,
    { waitSeconds, topic, holder }: { waitSeconds: number; topic: Topic; holder: string },
    reply: FastifyReply,
  ): Promise<T> {
    const hold = waitSeconds === 0 || known === undefined ? null : holds.begin('deployments', reply.raw, holder);
    if (hold === null) return look();
    const end = performance.now() + waitSeconds * 1000;
    const isNews = (seen: T): boolean => !matchesEtag(known, seen.etag);
    try {
      for (;;) {
        const waitMs = Math.min(LOOK_MS, end - performance.now());
        const seen = await lookUntil(look, isNews, { changes, topic, waitMs, hold });
        if (isNews(seen) || hold.ended() || performance.now() >= end) return seen;
      }
    } finally {
      hold.release();
    }
  }

  route('cancelDeployment', async ({ params }) => view(await driver.advance(params.id, { type: 'cancel' })));
}

const byOf = ({ id, email, credential }: Caller): CreatedBy =>
  credential.kind === 'api_token'
    ? { kind: 'token', id: credential.id, name: `${credential.name} (${email})` }
    : { kind: 'user', id, name: email };
