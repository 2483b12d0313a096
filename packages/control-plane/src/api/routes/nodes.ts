/** Nodes as people see and steer them. */
import type { Define } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import { pageOf } from '../page.ts';
import { nodeView } from '../views.ts';
import type { NodeRecord } from '../../domain/records.ts';

export function nodeRoutes(route: Define, deps: ApiDeps): void {
  const { stores, driver, changes, limits, now } = deps;
  const view = (node: NodeRecord) => nodeView(node, now(), limits);

  route('listNodes', async ({ query }) => {
    const { items, next } = await stores.nodes.list(pageOf(query));
    return { items: items.map(view), next_cursor: next };
  });

  route('getNode', async ({ params }) => view(await stores.nodes.get(params.id)));

  route('cordonNode', async ({ params }) => view(await stores.nodes.setSchedulable(params.id, false)));

  route('uncordonNode', async ({ params }) => {
    const node = await stores.nodes.setSchedulable(params.id, true);
    // Something may be waiting for it.
    changes.notify('work');
    return view(node);
  });

  route('deleteNode', async ({ params, query }) => view(await driver.deleteNode(params.id, query.force ?? false)));
}
