/** Which nodes are lost, and when the brake holds them. */
import { describe, expect, it, test } from 'vitest';
import {
  beatSeconds,
  type FailoverLimits,
  type HeardNode,
  silentNodes,
} from '../../src/domain/nodes/failover.ts';
import { createFailoverWatch } from '../../src/domain/nodes/failover-watch.ts';

const S = 1_000;
const HOUR = 3_600 * S;
/** Both clocks show this time; the control plane serves since 0. */
const AT = 100 * HOUR;
const LIMITS: FailoverLimits = { failoverMs: 30 * S, offlineMs: 120 * S };

/** A node that was heard so many seconds ago. */
const node = (id: string, ago: number, over: Partial<HeardNode> = {}): HeardNode => ({
  id,
  hostname: `node-${id}`,
  host_ip: `10.0.0.${id}`,
  addressed_at: 0,
  beats: true,
  heard_at: AT - ago * S,
  observed_at: AT - ago * S,
  last_seen_at: AT - ago * S,
  ...over,
});
const older = (id: string, ago: number): HeardNode => node(id, ago, { beats: false });
const contractOnly = (id: string, ago: number): HeardNode =>
  node(id, ago, { beats: false, observed_at: null });

/** Returns `a` for a lost node, `a held 2/3` for one that the brake holds, `a silent` for others. */
const judged = (
  nodes: readonly HeardNode[],
  { since = 0, now = AT, limits = LIMITS } = {},
): string[] =>
  silentNodes(nodes, { now, uptime: { at: AT, since } }, limits).map(({ id, isLost, brake }) => {
    if (brake !== null) return `${id} held ${brake.silent}/${brake.nodes}`;
    return isLost ? id : `${id} silent`;
  });

test.each<[string, HeardNode[], string[]]>([
  ['all are heard', [node('a', 1), node('b', 9)], []],
  ['29 s of silence', [node('a', 29), node('b', 1)], []],
  ['30 s of silence', [node('a', 30), node('b', 1)], ['a']],
  ['a node alone', [node('a', 40)], ['a']],
  ['one of two is not more than half', [node('a', 40), node('b', 1)], ['a']],
  ['one of three', [node('a', 40), node('b', 1), node('c', 1)], ['a']],
  ['both of two', [node('a', 40), node('b', 31)], ['a held 2/2', 'b held 2/2']],
  ['two of three', [node('a', 40), node('b', 40), node('c', 1)], ['a held 2/3', 'b held 2/3']],
  ['two of four', [node('a', 40), node('b', 40), node('c', 1), node('d', 1)], ['a', 'b']],
  ['an older agent waits for the offline time', [older('a', 119), node('b', 1)], ['a silent']],
  ['an older agent after the offline time', [older('a', 120), node('b', 1)], ['a']],
  ['a contract-only agent', [contractOnly('a', 119), node('b', 1)], ['a silent']],
  [
    'contract-only nodes count for the brake before they are lost',
    [node('a', 40), contractOnly('b', 40), contractOnly('c', 1)],
    ['a held 2/3', 'b held 2/3'],
  ],
  [
    'two of three cut at once, whose last beats are an interval apart',
    [node('a', 30), node('b', 20), node('c', 9)],
    ['a held 2/3'],
  ],
  [
    'a node whose beat is late by little does not hold',
    [node('a', 30), node('b', 14), node('c', 9)],
    ['a'],
  ],
  [
    'a contract-only node may be silent between two requests',
    [node('a', 30), contractOnly('b', 29), node('c', 1)],
    ['a'],
  ],
  [
    'a node that went silent two hours earlier does not count',
    [node('a', 2 * 3_600), node('b', 40), node('c', 1)],
    ['a', 'b'],
  ],
  [
    'a node that went silent 20 minutes earlier counts',
    [node('a', 1_200), node('b', 40), node('c', 1)],
    ['a held 2/3', 'b held 2/3'],
  ],
  [
    'the brake holds for days',
    [node('a', 72 * 3_600), node('b', 72 * 3_600), node('c', 1)],
    ['a held 2/3', 'b held 2/3'],
  ],
])('%s', (_, nodes, expected) => expect(judged(nodes)).toEqual(expected));

test('an overdue node gets no new work: also under the brake, and a slower agent not at once', async () => {
  const heard = [
    node('a', 40),
    node('b', 40),
    contractOnly('c', 40),
    older('d', 120),
    node('e', 1),
  ];
  const watch = createFailoverWatch({
    nodes: { heardNodes: async () => heard },
    uptime: { now: async () => ({ at: AT, since: 0 }) },
    limits: LIMITS,
    now: () => AT,
  });
  expect([...watch.overdue()]).toEqual([]);
  expect((await watch.silent()).every(({ brake }) => brake !== null)).toBe(true);
  expect([...watch.overdue()]).toEqual(['a', 'b', 'd']);
  heard.splice(0, 4);
  await watch.silent();
  expect([...watch.overdue()]).toEqual([]);
});

describe('a control plane that was away', () => {
  const nodes = [node('a', 4 * 3_600), node('b', 1)];
  it('counts from its return', () => {
    expect(judged(nodes, { since: AT - 29 * S })).toEqual([]);
    expect(judged(nodes, { since: AT - 30 * S })).toEqual(['a']);
  });
  it('keeps the brake: only the times in the database are left', () => {
    const left = [node('a', 7_200), node('b', 7_200), node('c', 1)].map((one) => ({
      ...one,
      heard_at: null,
    }));
    expect(judged(left, { since: AT - 60 * S })).toEqual(['a held 2/3', 'b held 2/3']);
  });
  it('a contract-only node has only the time of the machine’s clock', () => {
    const known = { heard_at: null, observed_at: null, beats: false };
    expect(judged([node('a', 300, known), node('b', 1)], { since: AT - 119 * S })).toEqual([
      'a silent',
    ]);
    expect(judged([node('a', 300, known), node('b', 1)], { since: AT - 120 * S })).toEqual(['a']);
  });
});

it('a jump of the machine’s clock moves nothing', () => {
  expect(judged([node('a', 5), node('b', 5)], { now: AT + HOUR })).toEqual([]);
  expect(judged([node('a', 40), node('b', 5)], { now: AT - HOUR })).toEqual(['a']);
});
it('a time in the future is unknown', () => {
  const wrong = { heard_at: null, observed_at: AT + HOUR, last_seen_at: AT - 40 * S };
  expect(judged([node('a', 40, wrong), node('b', 5)])).toEqual(['a']);
});
it('a node that was never heard counts for the brake, also after the machine’s clock was set back', () => {
  const unknown = { heard_at: null, observed_at: null, last_seen_at: AT + HOUR };
  const nodes = [node('a', 40), node('b', 0, unknown), node('c', 5)];
  expect(judged(nodes, { since: AT - 40 * S })).toEqual(['a held 2/3', 'b held 2/3']);
});
it('the counts of the brake are those of a comparison of each node with all others', () => {
  const ages = Array.from({ length: 300 }, (_, i) => (i * 7_919) % 9_000);
  const nodes = ages.map((age, i) => node(`n${i}`, age));
  const lasts = nodes.map(({ heard_at }) => heard_at ?? 0);
  const uptime = { at: AT, since: 0 };
  for (const { id, brake } of silentNodes(nodes, { now: AT, uptime }, LIMITS)) {
    const last = lasts[nodes.findIndex((one) => one.id === id)] as number;
    const all = lasts.filter((other) => other >= last - HOUR).length;
    const silent = lasts.filter(
      (other) => AT - other >= 15 * S && other >= last - HOUR && other <= last + HOUR,
    ).length;
    expect(brake, id).toEqual(silent * 2 > all ? { silent, nodes: all } : null);
  }
});
it('with FAILOVER_AFTER=none nothing is lost or held, and silence is shown for a person', () => {
  const limits = { ...LIMITS, failoverMs: null };
  expect(judged([node('a', 40), node('b', 40)], { limits })).toEqual(['a silent', 'b silent']);
});
test.each([
  [30 * S, 10],
  [90 * S, 10],
  [6 * S, 2],
  [null, 10],
])('FAILOVER_AFTER %s: a beat every %s s', (failoverMs, seconds) =>
  expect(beatSeconds(failoverMs)).toBe(seconds),
);
