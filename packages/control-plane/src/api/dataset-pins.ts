/**
 * The dataset versions that each node must keep for projects, for answers to registrations. Keeps
 * them in memory, because 10,000 nodes register every 30 s. Reads them again after a change, and
 * every few seconds because a notification from another control plane can be lost.
 */
import { MAX_DATASET_PINS, type DatasetPins, type PinnedVersion } from '@berth/wire/data-copies';
import type { DataCopyStore } from '../domain/data/data-copy-store.ts';
import type { Changes } from '../domain/platform/changes.ts';
import { etagOf } from './etag.ts';

const MAX_AGE_MS = 5_000;

export type Deps = {
  dataCopies: Pick<DataCopyStore, 'pins'>;
  changes: Pick<Changes, 'on'>;
};
export type DatasetPinsFor = ReturnType<typeof createDatasetPins>;

/**
 * Returns a function of a node and its ETag. It returns undefined if the agent has the current
 * list, or does not ask for it.
 */
export function createDatasetPins({ dataCopies, changes }: Deps, clock = () => performance.now()) {
  let byNode: Promise<ReadonlyMap<string, DatasetPins>> | null = null;
  let readAt = Number.NEGATIVE_INFINITY;
  changes.on('datasets', () => void (byNode = null));

  async function read(): Promise<ReadonlyMap<string, DatasetPins>> {
    const versions = new Map<string, PinnedVersion[]>();
    for (const { node_id, dataset_id, version } of await dataCopies.pins()) {
      const list = versions.get(node_id) ?? [];
      versions.set(node_id, list);
      list.push({ dataset_id, version });
    }
    return new Map(Array.from(versions, ([node, list]) => [node, pinsOf(list)]));
  }
  return async (node: string, known: string | undefined): Promise<DatasetPins | undefined> => {
    if (known === undefined) return undefined;
    if (byNode === null || clock() - readAt > MAX_AGE_MS) {
      readAt = clock();
      const reading = read();
      byNode = reading;
      // If the read fails, the next registration reads again.
      reading.catch(() => void (byNode === reading && (byNode = null)));
    }
    const pins = (await byNode).get(node) ?? NONE;
    return pins.etag === known ? undefined : pins;
  };
}

/** Several projects can want the same version. The order makes equal lists equal. */
function pinsOf(list: readonly PinnedVersion[]): DatasetPins {
  const distinct = new Map(list.map((one) => [`${one.dataset_id} ${one.version}`, one]));
  const items = Array.from(distinct)
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .slice(0, MAX_DATASET_PINS)
    .map(([, one]) => one);
  return { etag: etagOf(JSON.stringify(items)), items };
}

const NONE: DatasetPins = pinsOf([]);
