/**
 * The addresses of the deploy nodes, for the firewall rules of agents: a container must not reach
 * the published ports of another node. A registration returns the list if it differs from the
 * agent's list.
 */
import { isIPv4 } from 'node:net';
import { MAX_NEIGHBOURS, type Neighbours } from '@berth/wire/node';
import { etagOf } from './etag.ts';
import type { NodeStore } from '../domain/nodes/node-store.ts';

/**
 * Cache time of the list. A new node is protected from containers of the existing nodes after this
 * time plus one registration.
 */
const KEPT_MS = 15_000;

export type NeighboursFor = ReturnType<typeof createNeighbours>;

/**
 * Returns a function of the agent's ETag. It returns undefined if the agent has the current list,
 * or does not ask for it.
 */
export function createNeighbours(nodes: Pick<NodeStore, 'all'>, clock = () => performance.now()) {
  let at = Number.NEGATIVE_INFINITY;
  let last: Promise<Neighbours> | null = null;
  async function read(): Promise<Neighbours> {
    const addresses = (await nodes.all('deploy'))
      .filter(({ deleting_at }) => deleting_at === null)
      .map(({ host_ip }) => host_ip);
    const list = [...new Set(addresses.filter((one) => isIPv4(one) && !one.startsWith('127.')))]
      .toSorted()
      .slice(0, MAX_NEIGHBOURS);
    return { etag: etagOf(list.join()), addresses: list };
  }
  return async (known: string | undefined): Promise<Neighbours | undefined> => {
    if (known === undefined) return undefined;
    if (last === null || clock() - at > KEPT_MS) {
      at = clock();
      last = read();
      // If the read fails, the next registration reads again.
      last.catch(() => (at = Number.NEGATIVE_INFINITY));
    }
    const present = await last;
    return present.etag === known ? undefined : present;
  };
}
