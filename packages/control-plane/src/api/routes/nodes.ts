/** Nodes as people see and steer them. */
import type { Node } from '@berth/wire/node';
import { LABELS } from '@berth/wire/vocabulary';
import type { Define } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import { pageOf } from '../page.ts';
import { nodeView } from '../views.ts';
import type { NodeRecord } from '../../domain/records.ts';

export function nodeRoutes(route: Define, deps: ApiDeps): void {
  const { stores, driver, changes, limits, now } = deps;

  /** With the containers that no deployment here stands for. */
  async function views(nodes: readonly NodeRecord[]): Promise<Node[]> {
    const named = new Set(nodes.flatMap((n) => n.containers.flatMap((c) => c.labels[LABELS.deployment] ?? [])));
    const known = new Set((await stores.deployments.getMany([...named])).map((d) => d.id));
    return nodes.map((node) => ({
      ...nodeView(node, now(), limits),
      quarantined: node.containers.filter((c) => !known.has(c.labels[LABELS.deployment] ?? '')).map((c) => c.name),
    }));
  }
  const view = async (node: NodeRecord): Promise<Node> => {
    const [one] = await views([node]);
    if (one === undefined) throw new Error('one node has one view');
    return one;
  };

  route('listNodes', async ({ query }) => {
    const { items, next } = await stores.nodes.list(pageOf(query));
    return { items: await views(items), next_cursor: next };
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
