/** The loop sends `node_lost` once for each deployment and lost node. */
import { silentLogger } from '@berth/kit/log';
import { beforeEach, expect, it } from 'vitest';
import type { UnmovedInstance } from '../../src/domain/deployments/instance-store.ts';
import type { SilentNode } from '../../src/domain/nodes/failover.ts';
import type { FlowEvent } from '../../src/flow/events.ts';
import { failover } from '../../src/loops/failover.ts';

let silent: SilentNode[] = [];
let unmoved: UnmovedInstance[] = [];
let sent: [string, FlowEvent][] = [];
let asked: string[][] = [];
let taken = new Map<string, string>();
let routed: { deployment_id: string; node_id: string }[] = [];
let time = 0;
let failsFor: string | null = null;
let onSend: () => void;
let run: () => Promise<unknown>;

beforeEach(() => {
  [silent, unmoved, sent, asked, time, failsFor] = [[], [], [], [], 0, null];
  [taken, routed, onSend] = [new Map(), [], () => {}];
  const loop = failover({
    failover: { silent: () => Promise.resolve(silent), taken: () => taken },
    instances: {
      routedTo: (ids) => Promise.resolve(routed.filter(({ node_id }) => ids.includes(node_id))),
      unmoved: (ids) => {
        asked.push([...ids]);
        return Promise.resolve(unmoved.filter(({ node_id }) => ids.includes(node_id)));
      },
    },
    driver: {
      advance: (id, event) => {
        sent.push([id, event]);
        onSend();
        return id === failsFor
          ? Promise.reject(new Error('no database'))
          : Promise.resolve({} as never);
      },
    },
    log: silentLogger(),
    monotonic: () => time,
  });
  run = () => loop(new AbortController().signal);
});

const node = (id: string, over: Partial<SilentNode> = {}): SilentNode => ({
  id,
  hostname: id,
  silentMs: 30_000,
  isLost: true,
  isOverdue: true,
  brake: null,
  ...over,
});
const on = (node_id: string, deployment_id: string, is_lost = false): UnmovedInstance => ({
  node_id,
  deployment_id,
  project_id: `p-${deployment_id}`,
  project: deployment_id,
  process: 'web',
  number: 1,
  is_lost,
});

it('asks nothing while all nodes are heard', async () => {
  await run();
  expect([asked, sent]).toEqual([[], []]);
});
it('sends one event for each deployment and node, with all silent nodes', async () => {
  silent = [node('n1'), node('n2', { isLost: false })];
  unmoved = [on('n1', 'd1'), on('n1', 'd1'), on('n1', 'd2'), on('n2', 'd3')];
  await run();
  const event = { type: 'node_lost', node_id: 'n1', silent: ['n1', 'n2'] };
  expect(sent).toEqual([
    ['d1', event],
    ['d2', event],
  ]);
});
it('sends no further event in a slow round once the brake holds the node', async () => {
  silent = [node('n1')];
  unmoved = [on('n1', 'd1'), on('n1', 'd2'), on('n1', 'd3')];
  // The first decision takes 20 s. Meanwhile most other nodes become silent.
  onSend = () => {
    time += 20_000;
    silent = [node('n1', { isLost: false, brake: { silent: 3, nodes: 4 } })];
  };
  await run();
  expect(sent.map(([id]) => id)).toEqual(['d1']);
});
it('an instance that waits gets the event again after 10 s only', async () => {
  silent = [node('n1')];
  unmoved = [on('n1', 'd1')];
  await run();
  time = 9_999;
  await run();
  expect(sent).toHaveLength(1);
  time = 10_000;
  await run();
  expect(sent).toHaveLength(2);
});
it('a machine whose address another one has gets the event again after 2 s', async () => {
  // The other machine lists its containers a moment later, and only then the flow decides.
  taken = new Map([['n1', 'n2']]);
  routed = [{ deployment_id: 'd1', node_id: 'n1' }];
  await run();
  time = 1_999;
  await run();
  expect(sent).toHaveLength(1);
  time = 2_000;
  await run();
  const event = { type: 'node_replaced', node_id: 'n1' };
  expect(sent).toEqual([
    ['d1', event],
    ['d1', event],
  ]);
});
it('a node that returned and is lost again gets the event at once', async () => {
  silent = [node('n1')];
  unmoved = [on('n1', 'd1')];
  await run();
  silent = [];
  await run();
  silent = [node('n1')];
  await run();
  expect(sent).toHaveLength(2);
});
it('the brake: nothing is sent', async () => {
  const brake = { silent: 2, nodes: 3 };
  silent = [node('n1', { isLost: false, brake }), node('n2', { isLost: false, brake })];
  unmoved = [on('n1', 'd1')];
  await run();
  expect([asked, sent]).toEqual([[], []]);
});
it('an instance that is lost and waits for its node gets no event', async () => {
  silent = [node('n1')];
  unmoved = [on('n1', 'd1', true)];
  await run();
  expect(sent).toEqual([]);
});
it('a failure is retried at the next run, and does not stop the others', async () => {
  silent = [node('n1')];
  unmoved = [on('n1', 'd1'), on('n1', 'd2')];
  failsFor = 'd1';
  await run();
  failsFor = null;
  await run();
  expect(sent.map(([id]) => id)).toEqual(['d1', 'd2', 'd1']);
});
it('a node whose address another machine has: what gets requests there hears of it, also under the brake', async () => {
  silent = [node('n1', { isLost: false, brake: { silent: 2, nodes: 3 } }), node('n2')];
  taken = new Map([['n1', 'n9']]);
  routed = [
    { deployment_id: 'd1', node_id: 'n1' },
    { deployment_id: 'd1', node_id: 'n1' },
    { deployment_id: 'd2', node_id: 'n2' },
  ];
  unmoved = [on('n2', 'd1')];
  await run();
  expect(sent).toEqual([
    ['d1', { type: 'node_replaced', node_id: 'n1' }],
    ['d1', { type: 'node_lost', node_id: 'n2', silent: ['n1', 'n2'] }],
  ]);
});
