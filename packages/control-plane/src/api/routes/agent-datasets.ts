/** What agents ask about datasets while they copy and prove them, and how they tell how far they are. */
import { standingView } from '../dataset-views.ts';
import type { Define } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import { requiredToken } from '../lease-token.ts';

export function agentDatasetRoutes(route: Define, { stores, changes, now }: Pick<ApiDeps, 'stores' | 'changes' | 'now'>): void {
  route('agentDataset', async ({ params }) => standingView(await stores.datasets.get(params.id)));

  route('agentRescan', async ({ params }) => {
    const dataset = await stores.datasets.requestScan(params.id, { full: false, acceptLoss: false }, now());
    changes.notify('datasets');
    return standingView(dataset);
  });

  route('agentTrees', async ({ params, body }) => {
    await stores.datasets.get(params.id);
    return { objects: Object.fromEntries(await stores.datasets.trees(params.id, body.digests)) };
  });

  route('agentProgress', async ({ params, body, request }) => {
    await stores.tasks.progress(params.id, requiredToken(request), body);
    return { status: 'ok' as const };
  });
}
