/** Which nodes keep the datasets of a project: the decision, without a database. */
import { DATASET_PINS } from '@berth/wire/data-copies';
import { describe, expect, it } from 'vitest';
import {
  changedPins,
  type CopiesPlan,
  type CopiesQuestion,
  copiesToStart,
  copyVersions,
  type CopyVersion,
  MAX_BACKGROUND_COPIES,
  planCopies,
  RETRY_MS,
} from '../../src/domain/data/data-copies.ts';
import { DEFAULT_LIMITS, type NodeFact } from '../../src/domain/deployments/facts.ts';
import { createCacheIndex } from '../../src/domain/nodes/cache-index.ts';
import type { TaskRecord } from '../../src/domain/platform/records.ts';
import { node, NOW, task } from './fixtures.ts';

const GB = 1e9;
const held = (...versions: [string, number][]): NodeFact['cached'] =>
  versions.map(([dataset_id, version]) => ({
    dataset_id,
    version,
    bytes: 1,
    last_used_at: '2026-11-21T00:00:00Z',
  }));
const has = held(['genomes', 3]);
const agent = (id: string, over: Partial<NodeFact> = {}): NodeFact =>
  node({
    id,
    hostname: id,
    free_storage: 100 * GB,
    max_storage: 100 * GB,
    capabilities: [DATASET_PINS],
    ...over,
  });
const silent = { last_seen_at: NOW - DEFAULT_LIMITS.offlineMs - 1 };
const drained = {
  schedulable: false,
  drain: { started_at: NOW, finished_at: null, moved: 0, tries: {}, problems: {} } as never,
};
const version = (name: string, number: number, problem: string | null = null): CopyVersion => {
  const base = { dataset_id: name, name, version: number };
  if (problem !== null) return { ...base, source: null, problem };
  const source = {
    ...base,
    nfs_path: name,
    manifest_digest: `sha256:${'a'.repeat(64)}`,
    bytes: GB,
    files: 1,
  };
  return { ...base, source, problem: null };
};
const GONE = 'genomes v3 cannot be copied any more, because the share has v4';
const sync = (nodeId: string, over: Partial<TaskRecord<'sync'>> = {}): TaskRecord<'sync'> =>
  ({
    ...task('sync', { node_id: nodeId, status: 'running' }),
    payload: { dataset: { ...version('genomes', 3).source }, background: true },
    finished_at: null,
    ...over,
  }) as TaskRecord<'sync'>;
const failed = (nodeId: string, ago = 1_000): TaskRecord<'sync'> =>
  sync(nodeId, {
    status: 'failed',
    finished_at: NOW - ago,
    report: {
      status: 'failed',
      result: { error: { code: 'no_room', message: 'the copy needs 1.0 GB' } },
    },
  });

function plan(nodes: readonly NodeFact[], over: Partial<CopiesQuestion> = {}): CopiesPlan {
  return planCopies(
    {
      wanted: 2,
      versions: [version('genomes', 3)],
      runsOn: ['a'],
      pinned: new Set(),
      arch: null,
      home: null,
      syncs: [],
      ...over,
    },
    nodes,
    { now: NOW, limits: DEFAULT_LIMITS, cacheIndex: createCacheIndex() },
  );
}
const pinnedOn = ({ pins }: CopiesPlan): string[] => pins.map((pin) => pin.node_id);
const copiedTo = ({ copies }: CopiesPlan): string[] => copies.map((copy) => copy.node_id);
const states = ({ view }: CopiesPlan): string[] =>
  view.nodes.map((one) => `${one.node} ${one.state}`);

type Row = {
  name: string;
  nodes: NodeFact[];
  over?: Partial<CopiesQuestion>;
  pins: string[];
  copies: string[];
  have: number;
  why?: string | null;
};
const ROWS: Row[] = [
  {
    name: 'the node that runs it comes first, then the best by score',
    nodes: [
      agent('a', { cached: has }),
      agent('b', { free_storage: 10 * GB }),
      agent('c', { free_storage: 90 * GB }),
    ],
    pins: ['a', 'c'],
    copies: ['c'],
    have: 1,
    why: 'the copy on c is not complete',
  },
  {
    name: 'a node that holds the version already wins over a better score',
    nodes: [
      agent('a', { cached: has }),
      agent('b', { free_storage: GB / 10, cached: has }),
      agent('c'),
    ],
    pins: ['a', 'b'],
    copies: [],
    have: 2,
    why: null,
  },
  {
    name: 'a pinned holder wins over another holder',
    nodes: [agent('a', { cached: has }), agent('b', { cached: has }), agent('c', { cached: has })],
    over: { pinned: new Set(['c']) },
    pins: ['a', 'c'],
    copies: [],
    have: 2,
  },
  {
    name: 'a pinned node keeps its copy in progress, although another one has the better score now',
    nodes: [
      agent('a', { cached: has }),
      agent('b', { free_storage: GB / 2 }),
      agent('c', { free_storage: 90 * GB }),
    ],
    over: { pinned: new Set(['b']), syncs: [sync('b')] },
    pins: ['a', 'b'],
    copies: [],
    have: 1,
  },
  {
    name: 'an older version does not count, and its node gets the new one',
    nodes: [agent('a', { cached: has }), agent('b', { cached: held(['genomes', 2]) })],
    over: { pinned: new Set(['b']) },
    pins: ['a', 'b'],
    copies: ['b'],
    have: 1,
  },
  {
    name: 'a silent holder is replaced, and keeps its pin until the other one is complete',
    nodes: [agent('a', { cached: has }), agent('b', { cached: has, ...silent }), agent('c')],
    over: { pinned: new Set(['a', 'b']) },
    pins: ['a', 'c', 'b'],
    copies: ['c'],
    have: 1,
  },
  {
    name: 'a silent holder loses its pin when the other one is complete',
    nodes: [
      agent('a', { cached: has }),
      agent('b', { cached: has, ...silent }),
      agent('c', { cached: has }),
    ],
    over: { pinned: new Set(['a', 'b', 'c']) },
    pins: ['a', 'c'],
    copies: [],
    have: 2,
  },
  {
    name: 'a cordoned holder is replaced',
    nodes: [
      agent('a', { cached: has }),
      agent('b', { cached: has, schedulable: false }),
      agent('c'),
    ],
    over: { pinned: new Set(['b']) },
    pins: ['a', 'c', 'b'],
    copies: ['c'],
    have: 1,
  },
  {
    name: 'a drained node that still runs the deployment does not count',
    nodes: [agent('a', { cached: has, ...drained }), agent('b', { cached: has }), agent('c')],
    over: { pinned: new Set(['a', 'b']) },
    pins: ['b', 'c', 'a'],
    copies: ['c'],
    have: 1,
  },
  {
    name: 'a node that is being deleted loses its pin at once',
    nodes: [agent('a', { cached: has }), agent('b', { cached: has, deleting_at: NOW }), agent('c')],
    over: { pinned: new Set(['b']) },
    pins: ['a', 'c'],
    copies: ['c'],
    have: 1,
  },
  {
    name: 'fewer copies release the surplus pins',
    nodes: [agent('a', { cached: has }), agent('b', { cached: has }), agent('c', { cached: has })],
    over: { wanted: 2, pinned: new Set(['a', 'b', 'c']) },
    pins: ['a', 'b'],
    copies: [],
    have: 2,
  },
  {
    name: 'contract-only agents and earlier agents are not chosen, even if they hold the version',
    nodes: [
      agent('a', { cached: has }),
      agent('b', { cached: has, agent_version: null, capabilities: null }),
      agent('c', { cached: has, capabilities: ['secrets'] }),
    ],
    pins: ['a'],
    copies: [],
    have: 1,
    why:
      'no further node can keep a copy: ' +
      'b its agent cannot keep copies of datasets for projects: it implements only the contract; ' +
      'c its agent cannot keep copies of datasets for projects: it is of an earlier version; ' +
      'update it',
  },
  {
    name: 'an earlier agent that runs the deployment counts, and gets no pin',
    nodes: [agent('a', { cached: has, capabilities: null }), agent('b', { cached: has })],
    pins: ['b'],
    copies: [],
    have: 2,
  },
  {
    name: 'builders, another architecture and nodes without room are not chosen',
    nodes: [
      agent('a', { cached: has, arch: 'amd64' }),
      agent('b', { role: 'builder' }),
      agent('c', { arch: 'arm64' }),
      agent('d', { arch: 'amd64', free_storage: GB / 2 }),
    ],
    over: { arch: 'amd64' },
    pins: ['a'],
    copies: [],
    have: 1,
    why:
      'no further node can keep a copy: c runs arm64, but the image is for amd64; ' +
      'd has too little storage for its missing datasets: 1.0 GB missing, 500 MB free, ' +
      '0 B more after eviction',
  },
  {
    name: 'only the node with the volumes can take the project, so other nodes keep no copy',
    nodes: [agent('a', { cached: has }), agent('b')],
    over: { home: 'a' },
    pins: ['a'],
    copies: [],
    have: 1,
    why: 'no further node can keep a copy: b does not have the volumes of the project',
  },
  {
    name: 'a version that the share no longer has cannot be copied',
    nodes: [agent('a', { cached: has }), agent('b')],
    over: { versions: [version('genomes', 3, GONE)], pinned: new Set(['b']) },
    pins: ['a'],
    copies: [],
    have: 1,
    why: `no further node can keep a copy: b lacks genomes v3; ${GONE}`,
  },
  {
    name: 'a version that the share no longer has stays where it is',
    nodes: [agent('a', { cached: has }), agent('b', { cached: has }), agent('c')],
    over: { versions: [version('genomes', 3, GONE)], pinned: new Set(['b']) },
    pins: ['a', 'b'],
    copies: [],
    have: 2,
  },
  {
    name: 'after a failed copy another node gets it',
    nodes: [agent('a', { cached: has }), agent('b', { free_storage: 90 * GB }), agent('c')],
    over: { pinned: new Set(['c']), syncs: [failed('c')] },
    pins: ['a', 'b'],
    copies: ['b'],
    have: 1,
  },
  {
    name: 'if no other node is left, the reason is the failure',
    nodes: [agent('a', { cached: has }), agent('b')],
    over: { pinned: new Set(['b']), syncs: [failed('b')] },
    pins: ['a'],
    copies: [],
    have: 1,
    why:
      'no further node can keep a copy: b the copy of genomes v3 failed: ' +
      'no_room: the copy needs 1.0 GB',
  },
  {
    name: 'a failed copy is tried again later',
    nodes: [agent('a', { cached: has }), agent('b')],
    over: { syncs: [failed('b', RETRY_MS)] },
    pins: ['a', 'b'],
    copies: ['b'],
    have: 1,
  },
  {
    name: 'a finished copy is not requested again before the node has reported it',
    nodes: [agent('a', { cached: has }), agent('b')],
    over: {
      pinned: new Set(['b']),
      syncs: [sync('b', { status: 'completed', finished_at: NOW - 1_000 })],
    },
    pins: ['a', 'b'],
    copies: [],
    have: 1,
  },
  {
    name: 'one node alone is not enough, and the answer says so',
    nodes: [agent('a', { cached: has })],
    pins: ['a'],
    copies: [],
    have: 1,
    why: 'the platform has no further deploy node',
  },
  {
    name: 'without datasets there is nothing to keep',
    nodes: [agent('a'), agent('b')],
    over: { versions: [] },
    pins: [],
    copies: [],
    have: 0,
    why: 'the running deployment mounts no dataset as dependency',
  },
  {
    name: 'one copy is the node that runs it',
    nodes: [agent('a', { cached: has }), agent('b', { cached: has })],
    over: { wanted: 1, pinned: new Set(['b']) },
    pins: ['a'],
    copies: [],
    have: 1,
  },
];

describe('the nodes that keep the datasets', () => {
  it.each(ROWS)('$name', ({ nodes, over = {}, pins, copies, have, why }) => {
    const made = plan(nodes, over);
    expect({ pins: pinnedOn(made), copies: copiedTo(made), have: made.view.have }).toEqual({
      pins,
      copies,
      have,
    });
    if (why !== undefined) expect(made.view.why).toBe(why);
    // The same decision after its pins are stored chooses the same nodes.
    const again = plan(nodes, { ...over, pinned: new Set(pinnedOn(made)) });
    expect(pinnedOn(again)).toEqual(pinnedOn(made));
  });

  it('names the state of each node', () => {
    const versions = [version('genomes', 3), version('maps', 1)];
    const both = held(['genomes', 3], ['maps', 1]);
    const made = plan(
      [
        agent('a', { cached: both }),
        agent('b', { cached: both }),
        agent('c', { cached: held(['maps', 1]) }),
        agent('d'),
        agent('e', { cached: both, schedulable: false }),
      ],
      { versions, wanted: 4, pinned: new Set(['c', 'd', 'e']), syncs: [sync('c')] },
    );
    expect(states(made)).toEqual([
      'a serving',
      'b complete',
      'c copying',
      'd waiting',
      'e leaving',
    ]);
    expect(made.view.nodes[2]).toMatchObject({ missing: ['genomes v3'], detail: null });
    expect(made.view.nodes[4]).toMatchObject({ missing: [], detail: 'is cordoned' });
    expect(made.copies.map((c) => `${c.node_id} ${c.source.name}`)).toEqual([
      'd genomes',
      'd maps',
    ]);
  });
});

describe('the versions of a deployment', () => {
  const fact = {
    id: 'genomes',
    name: 'genomes',
    nfs_path: 'lab/genomes',
    status: 'ok' as const,
    problem: null,
    version: 3,
    manifest_digest: 'sha256:x',
    bytes: 5,
    files: 2,
  };
  const pin = { dataset_id: 'genomes', name: 'genomes', mode: 'dependency' as const, version: 3 };
  it('are the pinned ones; those that the share still has can be copied', () => {
    expect(copyVersions([pin], [fact])).toMatchObject([
      { version: 3, source: { nfs_path: 'lab/genomes', version: 3, bytes: 5 }, problem: null },
    ]);
    expect(copyVersions([pin], [{ ...fact, version: 4 }])[0]?.problem).toBe(
      'genomes v3 cannot be copied any more, because the share has v4; the next deployment uses v4',
    );
    expect(copyVersions([pin], [{ ...fact, status: 'unreachable' }])[0]?.problem).toBe(
      'genomes v3 is unreachable on the share',
    );
    expect(copyVersions([pin], [])[0]?.problem).toBe('dataset genomes was deleted');
  });
  it('are not those of datasets that it mounts readwrite', () => {
    expect(copyVersions([{ ...pin, mode: 'readwrite', version: null }], [fact])).toEqual([]);
    expect(copyVersions(null, [fact])).toEqual([]);
  });
});

describe('the copies that start now', () => {
  const missing = ['b', 'b', 'c', 'd', 'e'].map((node_id) => ({ node_id }));
  const start = (syncs: TaskRecord<'sync'>[], deploying: string[] = []): string[] =>
    copiesToStart(missing, syncs, new Set(deploying)).map((one) => one.node_id);
  it('are few, and one for each node', () => {
    expect(MAX_BACKGROUND_COPIES).toBe(2);
    expect(start([])).toEqual(['b', 'c']);
    expect(start([sync('b')])).toEqual(['c']);
    expect(start([sync('x'), sync('y')])).toEqual([]);
  });
  it('are not on a node that works on a deployment', () => {
    expect(start([], ['b', 'd'])).toEqual(['c', 'e']);
  });
  it('do not wait for a prewarm that a person requested, or for ended copies', () => {
    const asked = sync('x', { payload: { dataset: sync('x').payload.dataset } });
    expect(start([asked, failed('y'), failed('z')])).toEqual(['b', 'c']);
  });
});

it('pins that did not change are neither added nor removed', () => {
  const pin = (node_id: string, number = 1) => ({
    project_id: 'p',
    node_id,
    dataset_id: 'd',
    version: number,
  });
  expect(changedPins([pin('a'), pin('b')], [pin('b'), pin('c')])).toEqual({
    add: [pin('c')],
    remove: [pin('a')],
  });
  expect(changedPins([pin('a')], [pin('a')])).toEqual({ add: [], remove: [] });
  expect(changedPins([pin('a', 1)], [pin('a', 2)])).toEqual({
    add: [pin('a', 2)],
    remove: [pin('a', 1)],
  });
});
