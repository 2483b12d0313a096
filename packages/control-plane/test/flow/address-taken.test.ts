/** A route never leads to an address that another machine has now. */
import { describe, expect, it, test } from 'vitest';
import type { Facts } from '../../src/domain/deployments/facts.ts';
import { isEmptyPlan, type Plan } from '../../src/domain/deployments/plan.ts';
import type { HeardNode } from '../../src/domain/nodes/failover.ts';
import { takenAddresses } from '../../src/domain/nodes/taken-address.ts';
import type { DeploymentRecord } from '../../src/domain/platform/records.ts';
import { advance } from '../../src/flow/deployment.ts';
import type { FlowEvent } from '../../src/flow/events.ts';
import { changeOf, facts, instance, node, NOW, on, project, routeTo } from './fixtures.ts';

const S = 1_000;
const AT = 3_600 * S;
const LIMITS = { failoverMs: 30 * S, offlineMs: 120 * S };

/** A node that was heard and got its address so many seconds ago. */
const heard = (
  id: string,
  ago: number,
  host_ip: string,
  addressedAgo: number | null,
  over: Partial<HeardNode> = {},
): HeardNode => ({
  id,
  hostname: id,
  host_ip,
  addressed_at: addressedAgo === null ? null : AT - addressedAgo * S,
  beats: true,
  heard_at: AT - ago * S,
  observed_at: null,
  last_seen_at: AT - ago * S,
  ...over,
});
const dead = (ago: number, over: Partial<HeardNode> = {}): HeardNode =>
  heard('dead', ago, '10.0.0.5', 3_000, over);

test.each<[string, HeardNode[], string[]]>([
  ['a new machine has the address', [dead(20), heard('new', 1, '10.0.0.5', 10)], ['dead new']],
  ['it is silent itself', [dead(90), heard('new', 60, '10.0.0.5', 80)], ['dead new']],
  [
    'its address has another form',
    [dead(20), heard('new', 1, '::ffff:10.0.0.5', 10)],
    ['dead new'],
  ],
  [
    'a long IPv6 address',
    [dead(20, { host_ip: 'FD00:0:0::5' }), heard('new', 1, 'fd00::5', 10)],
    ['dead new'],
  ],
  [
    'the newest of two',
    [dead(90), heard('older', 1, '10.0.0.5', 50), heard('new', 1, '10.0.0.5', 10)],
    ['dead new'],
  ],
  ['another address', [dead(20), heard('new', 1, '10.0.0.6', 10)], []],
  ['a second agent of the machine, from before', [dead(20), heard('b', 1, '10.0.0.5', 2_000)], []],
  ['a node from before this version', [dead(20), heard('b', 1, '10.0.0.5', null)], []],
  ['an agent that is between two beats', [dead(9), heard('new', 1, '10.0.0.5', 5)], []],
  [
    'an agent without beats, before the offline time',
    [dead(100, { beats: false }), heard('new', 1, '10.0.0.5', 5)],
    [],
  ],
  [
    'an agent without beats, after it',
    [dead(120, { beats: false }), heard('new', 1, '10.0.0.5', 5)],
    ['dead new'],
  ],
])('%s', (_, nodes, expected) => {
  const taken = takenAddresses(nodes, { now: AT, uptime: { at: AT, since: 0 } }, LIMITS);
  expect([...taken].map((pair) => pair.join(' '))).toEqual(expected);
});
test('a control plane that was away waits for the agents first', () => {
  const nodes = [dead(300), heard('new', 1, '10.0.0.5', 200)];
  const since = (ago: number) =>
    takenAddresses(nodes, { now: AT, uptime: { at: AT, since: AT - ago * S } }, LIMITS).size;
  expect([since(5), since(20)]).toEqual([0, 1]);
});

const NEW = node({ id: 'n9', hostname: 'node-9', host_ip: '::ffff:10.0.0.2' });
const NODES = [1, 2, 3].map((n) =>
  node({ id: `n${n}`, hostname: `node-${n}`, host_ip: `10.0.0.${n}`, capabilities: ['instances'] }),
);
const counted = (count: number): Facts['project'] =>
  project({ processes: [{ name: 'web', count }] });
const second = instance();
const third = instance({
  id: 'i3',
  number: 3,
  node_id: 'n3',
  host_port: 33_003,
  container_id: 'k3',
});
const server = (of: typeof second, host_ip: string) => ({
  instance_id: of.id,
  node_id: of.node_id ?? '',
  host_ip,
  host_port: of.host_port ?? 0,
});
const servers = [server(second, '10.0.0.2'), server(third, '10.0.0.3')];

/** `taken`: the node whose address node-9 has. */
const world = (of: DeploymentRecord, taken: string, over: Partial<Facts> = {}): Facts =>
  facts({
    nodes: [...NODES, NEW],
    freshIds: Array.from({ length: 40 }, (_, i) => `x${i}`),
    project: counted(3),
    live: [of],
    instances: [second, third],
    route: { ...routeTo(of), servers },
    takenAddresses: new Map([[taken, 'n9']]),
    ...over,
  });
const addresses = (plan: Plan): string[] | string => {
  if (plan.route === null) return 'unchanged';
  if (!('set' in plan.route)) return 'removed';
  const { set } = plan.route;
  return [set, ...(set.servers ?? [])].map((s) => `${s.host_ip}:${s.host_port}`);
};
const story = (plan: Plan): string[] => plan.storyLines.map(({ message }) => message);
const replaced = (node_id: string): FlowEvent => ({ type: 'node_replaced', node_id });

describe('a silent node whose address another machine has', () => {
  const d = on.running();
  it('a further instance there gets no requests, and the story says why', () => {
    const plan = advance(d, replaced('n2'), world(d, 'n2'));
    expect(addresses(plan)).toEqual(['10.0.0.1:32002', '10.0.0.3:33003']);
    expect(story(plan)[0]).toBe(
      'instance 2 gets no requests: node-2 is silent, and another machine, node-9, has its ' +
        'address 10.0.0.2 now',
    );
    expect(changeOf(plan, 'd2').health).toMatchObject({
      status: 'degraded',
      detail: '2 of 3 instances serve',
    });
    expect(plan.createTasks).toEqual([]);
  });
  it('another instance takes the place of the first one', () => {
    const plan = advance(d, replaced('n1'), world(d, 'n1'));
    expect(addresses(plan)).toEqual(['10.0.0.2:33002', '10.0.0.3:33003']);
    expect(changeOf(plan, 'd2')).toMatchObject({ node_id: 'n2', instance_number: 2 });
    expect(plan.createTasks).toEqual([]);
  });
  it('the route of the only instance ends', () => {
    const alone = { instances: [], project: counted(1), route: routeTo(d) };
    const plan = advance(d, replaced('n1'), world(d, 'n1', alone));
    expect(addresses(plan)).toBe('removed');
    expect(changeOf(plan, 'd2').health).toMatchObject({
      status: 'unhealthy',
      detail:
        'node-1 is silent, and another machine, node-9, has its address 10.0.0.1 now, so it gets ' +
        'no requests',
    });
    const lost = { ...d, lost_since: NOW };
    const again = advance(lost, replaced('n1'), world(lost, 'n1', alone));
    expect(addresses(again)).toBe('removed');
  });
  it('another change of the instances does not bring the address back', () => {
    const down = { type: 'node_lost', node_id: 'n3' } as const;
    expect(addresses(advance(d, down, world(d, 'n2')))).toEqual(['10.0.0.1:32002']);
    const first = { type: 'node_lost', node_id: 'n1' } as const;
    expect(addresses(advance(d, first, world(d, 'n2')))).toEqual(['10.0.0.3:33003']);
  });
  it.each<[string, Partial<Facts>]>([
    [
      'it lists the container: a renamed machine',
      {
        nodes: [
          ...NODES,
          {
            ...NEW,
            containers: [
              {
                id: second.container_id ?? '',
                name: 'svc',
                labels: {},
                host_port: 33_002,
                state: 'running',
              },
            ],
          },
        ],
      },
    ],
    ['it has listed nothing yet', { nodes: [...NODES, { ...NEW, observed_at: null }] }],
    ['it was deleted', { nodes: NODES }],
    ['the node is heard again', { takenAddresses: new Map() }],
    ['the project is stopped', { project: { ...counted(3), stopped_at: NOW } }],
  ])('nothing changes if %s', (_, over) => {
    expect(isEmptyPlan(advance(d, replaced('n2'), world(d, 'n2', over)))).toBe(true);
  });
});

it('another instance takes the place of a first one whose port another container has', () => {
  const d = on.running();
  const event: FlowEvent = {
    type: 'address_taken',
    host_ip: '10.0.0.1',
    host_port: 32_002,
    holder: 'project blog',
    isRouted: true,
  };
  const plan = advance(d, event, world(d, ''));
  expect(addresses(plan)).toEqual(['10.0.0.2:33002', '10.0.0.3:33003']);
});
