/**
 * Routes of agents for datasets: the current version, a rescan, the trees of a version, and the
 * progress of a copy together with facts about a build.
 */
import { standingView } from '../dataset-views.ts';
import type { Agents } from '../agents.ts';
import type { Define, Call } from '../define.ts';
import { createHostKeysSeen, type HostKeyDeps, type HostKeysSeen } from '../git-access.ts';
import { requiredToken } from '../lease-token.ts';
import type { DatasetStore } from '../../domain/data/dataset-stores.ts';
import type { TaskStore } from '../../domain/deployments/task-store.ts';
import type { Driver } from '../../flow/driver.ts';
import type { Changes } from '../../domain/platform/changes.ts';

export type Deps = HostKeyDeps & {
  datasets: Pick<DatasetStore, 'get' | 'requestScan' | 'trees'>;
  tasks: Pick<TaskStore, 'progress'>;
  driver: Pick<Driver, 'learned'>;
  changes: Pick<Changes, 'notify'>;
  agents: Pick<Agents, 'checkRequest' | 'checkTask'>;
  now: () => number;
};

/** State shared by all requests. */
type Context = Deps & { hostKeysSeen: HostKeysSeen };

export function agentDatasetRoutes(route: Define, deps: Deps): void {
  const hostKeysSeen = createHostKeysSeen(deps);
  const context: Context = { ...deps, hostKeysSeen };
  route('agentDataset', (call) => agentDataset(deps, call));
  route('agentRescan', (call) => agentRescan(deps, call));
  route('agentTrees', (call) => agentTrees(deps, call));
  route('agentProgress', (call) => agentProgress(context, call));
}

async function agentDataset(deps: Deps, { params, request }: Call<'agentDataset'>) {
  await deps.agents.checkRequest(request);
  return standingView(await deps.datasets.get(params.id));
}

async function agentRescan(deps: Deps, { params, request }: Call<'agentRescan'>) {
  await deps.agents.checkRequest(request);
  const dataset = await deps.datasets.requestScan(
    params.id,
    { full: false, acceptLoss: false },
    deps.now(),
  );
  deps.changes.notify('datasets');
  return standingView(dataset);
}

async function agentTrees(deps: Deps, { params, body, request }: Call<'agentTrees'>) {
  await deps.agents.checkRequest(request);
  await deps.datasets.get(params.id);
  return { objects: Object.fromEntries(await deps.datasets.trees(params.id, body.digests)) };
}

async function agentProgress(context: Context, { params, body, request }: Call<'agentProgress'>) {
  await context.agents.checkTask(request, params.id);
  const { learned, ...progress } = body;
  const token = requiredToken(request);
  if (learned !== undefined) {
    await context.driver.learned(params.id, token, learned);
    await context.hostKeysSeen(params.id, learned.host_keys ?? []);
  }
  // Skip the progress of a build, which copies no datasets.
  if (learned === undefined || progress.datasets.length > 0)
    await context.tasks.progress(params.id, token, progress, context.now());
  return { status: 'ok' as const };
}
