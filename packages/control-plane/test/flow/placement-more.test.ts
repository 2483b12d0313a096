/** Further instances cost little, and get the nodes that a choice for each of them would give. */
import { expect, it } from 'vitest';
import { DEFAULT_LIMITS } from '../../src/domain/deployments/facts.ts';
import { createCacheIndex } from '../../src/domain/nodes/cache-index.ts';
import { chooseMore, QUESTION, type Spread } from '../../src/domain/nodes/placement.ts';
import type { NodeRecord } from '../../src/domain/platform/records.ts';
import { node, NOW } from './fixtures.ts';

const NODES = 60;
const context = () => ({ now: NOW, limits: DEFAULT_LIMITS, cacheIndex: createCacheIndex() });
const nodesOf = (count: number): NodeRecord[] =>
  Array.from({ length: count }, (_, i) =>
    node({
      id: `n${i}`,
      hostname: `node-${i}`,
      last_seen_at: NOW,
      free_storage: ((i * 37) % 60) * 1e6,
      schedulable: i % 7 !== 0,
    }),
  );

it.each<Spread['mode']>(['nodes', 'pack'])(
  'instances that are placed together get the same choices as one after the other (%s)',
  (mode) => {
    const nodes = nodesOf(NODES);
    const taken = new Map<string, number>();
    const single = Array.from({ length: 70 }, () => {
      const [choice] = chooseMore(QUESTION, nodes, context(), 1, { mode, taken });
      const id = choice?.placement.winner ?? '';
      taken.set(id, (taken.get(id) ?? 0) + 1);
      return choice;
    });
    expect(chooseMore(QUESTION, nodes, context(), 70, { mode, taken: new Map() })).toEqual(single);
  },
);

it('a further instance does not read the hostname, role or state of every node again', () => {
  let reads = 0;
  const nodes = nodesOf(NODES).map(
    (one) =>
      new Proxy(one, {
        get(target, field, receiver) {
          reads += 1;
          return Reflect.get(target, field, receiver);
        },
      }),
  );
  const readsFor = (count: number): number => {
    reads = 0;
    chooseMore(QUESTION, nodes, context(), count, { mode: 'nodes', taken: new Map() });
    return reads;
  };
  const [one, two] = [readsFor(1), readsFor(2)];
  // The rows of the best 20 nodes are read for each choice.
  expect(two - one).toBeLessThan(one / 3);
});
