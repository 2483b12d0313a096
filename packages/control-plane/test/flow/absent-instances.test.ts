/** The start of a control plane after a version that does not know instances. */
import { expect, it } from 'vitest';
import type { InstanceRecord } from '../../src/domain/deployments/instance.ts';
import { endAbsentInstances } from '../../src/flow/absent-instances.ts';
import { node, NOW } from './fixtures.ts';

it('instances whose container is not in the newest list of their node leave the route', async () => {
  const of = (id: string, over: Partial<InstanceRecord> = {}): InstanceRecord =>
    ({
      id,
      deployment_id: 'd1',
      labelled: true,
      state: 'serving',
      node_id: 'n1',
      since: NOW - 2_000,
      ...over,
    }) as InstanceRecord;
  const there = {
    name: 'svc-app',
    labels: { 'berth.deployment': 'd1', 'berth.instance': 'there' },
    host_port: 1,
    state: 'running',
  };
  const all = [
    of('there'),
    of('gone'),
    of('new', { since: NOW + 1 }),
    of('lost', { state: 'lost' }),
  ];
  const done: unknown[] = [];
  const stores = {
    instances: { repair: async () => void done.push('repaired'), all: async () => all },
    nodes: { all: async () => [node({ id: 'n1', last_seen_at: NOW, containers: [there] })] },
  };
  await endAbsentInstances(stores as never, {
    advance: async (...given: unknown[]) => void done.push(given) as never,
  });
  expect(done).toEqual([
    'repaired',
    ['d1', { type: 'observed', node_id: 'n1', container: null, instance_id: 'gone' }],
  ]);
});
