/**
 * Routes of agents for datasets: current version, rescan, trees of a version, progress of a copy
 * with the facts of a build.
 */
import { standingView } from '../dataset-views.ts';
import type { Agents } from '../agents.ts';
import type { Define } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import { createHostKeysSeen } from '../git-access.ts';
import { requiredToken } from '../lease-token.ts';

export function agentDatasetRoutes(
  route: Define,
  deps: Pick<ApiDeps, 'stores' | 'changes' | 'now' | 'driver' | 'vault'> & { agents: Agents },
): void {
  const { stores, changes, now, agents } = deps;
  const hostKeysSeen = createHostKeysSeen(deps);

  route('agentDataset', async ({ params, request }) => {
    await agents.checkRequest(request);
    return standingView(await stores.datasets.get(params.id));
  });

  route('agentRescan', async ({ params, request }) => {
    await agents.checkRequest(request);
    const dataset = await stores.datasets.requestScan(
      params.id,
      { full: false, acceptLoss: false },
      now(),
    );
    changes.notify('datasets');
    return standingView(dataset);
  });

  route('agentTrees', async ({ params, body, request }) => {
    await agents.checkRequest(request);
    await stores.datasets.get(params.id);
    return { objects: Object.fromEntries(await stores.datasets.trees(params.id, body.digests)) };
  });

  route('agentProgress', async ({ params, body, request }) => {
    await agents.checkTask(request, params.id);
    const { learned, ...progress } = body;
    const token = requiredToken(request);
    if (learned !== undefined) {
      await deps.driver.learned(params.id, token, learned);
      await hostKeysSeen(params.id, learned.host_keys ?? []);
    }
    // A build copies no datasets.
    if (learned === undefined || progress.datasets.length > 0)
      await stores.tasks.progress(params.id, token, progress, deps.now());
    return { status: 'ok' as const };
  });
}
