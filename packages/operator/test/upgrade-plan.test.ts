import { expect, test } from 'vitest';
import type { SchemaReport } from '@berth/wire/schema-report';
import { type Build, compareVersions, planOf } from '../src/upgrade/plan.ts';

const MIB = 1024 ** 2;
const NOW = 1_800_000_000_000;
const state: SchemaReport = {
  version: '0.1.0',
  oldest_agent: '0.1.0',
  schema: [],
  engine: 'sqlite',
  database: '/var/lib/berth/berth.db',
  applied: ['0001_a', '0020_b'],
  needed: ['0001_a'],
  nodes: [
    { name: 'b1', role: 'builder', agent_version: '0.1.0', last_seen_at: NOW },
    { name: 'n1', role: 'deploy', agent_version: null, last_seen_at: NOW - 3_600_000 },
  ],
  open_deployments: 2,
  control_planes: ['process 7 on vm'],
  snapshot: {
    rule: 'required',
    folder: '/s',
    bytes: 80 * MIB,
    needed: 224 * MIB,
    free: 1024 * MIB,
    tool: null,
  },
};
const next: Build = {
  version: '0.2.0',
  commit: null,
  arch: 'amd64',
  oldest_agent: '0.1.0',
  schema: ['0001_a', '0020_b', '0021_c'].map((name) => ({ name, needed: name === '0001_a' })),
};
const plan = (
  changes: { state?: Partial<SchemaReport>; next?: Partial<Build>; units?: string[] } = {},
) =>
  planOf({
    state: { ...state, ...changes.state },
    next: { ...next, ...changes.next },
    running: '0.1.0',
    installed: '0.1.0',
    units: changes.units ?? [
      'berth-agent@b.service',
      'berth-control-plane.service',
      'berth-proxy.service',
      'berth-gateway.service',
    ],
    arch: 'amd64',
    now: NOW,
  });

test('a step that only adds: the snapshot, the order, and the way back', () => {
  expect(plan()).toEqual({
    running: '0.1.0',
    installed: '0.1.0',
    next: '0.2.0',
    database: '/var/lib/berth/berth.db',
    schema: [{ name: '0021_c', kind: 'expands', seconds: 1 }],
    snapshot: {
      taken: true,
      folder: '/s',
      bytes: 80 * MIB,
      needed: 224 * MIB,
      free: 1024 * MIB,
      seconds: 4,
    },
    way_back: 'start the previous version again; it works with this database',
    order: [
      'berth-control-plane.service restarts here',
      'berth-gateway.service restarts here',
      'berth-agent@b.service restarts here',
      'agents on other machines, one after the other',
    ],
    agents: { total: 2, work: 2, stop: [] },
    open_deployments: 2,
    notes: ['nodes that are silent: n1'],
    problems: [],
  });
});

test('a step that contracts: back only by the snapshot', () => {
  const made = plan({
    next: { schema: [...(next.schema ?? []), { name: '0022_d', needed: true }] },
  });
  expect(made.schema.at(-1)).toEqual({ name: '0022_d', kind: 'contracts', seconds: 2 });
  expect(made.way_back).toBe('restore the snapshot (docs/upgrade.md)');
});

test.each<[what: string, changes: Parameters<typeof plan>[0], problem: RegExp]>([
  ['no room', { state: { snapshot: { ...state.snapshot, free: 0 } } }, /no room for the snapshot/],
  [
    'no pg_dump',
    { state: { engine: 'postgres', snapshot: { ...state.snapshot, tool: '' } } },
    /pg_dump is missing/,
  ],
  [
    'old agents',
    { next: { oldest_agent: '0.1.1' } },
    /agents older than 0\.1\.1 stop working: b1 \(0\.1\.0\)/,
  ],
  ['another machine', { next: { arch: 'arm64' } }, /for arm64/],
  [
    'a newer database',
    { state: { needed: ['0001_a', '0099_z'] } },
    /0\.2\.0 would refuse to start/,
  ],
])('%s is a problem', (_, changes, problem) => {
  expect(plan(changes).problems).toEqual([expect.stringMatching(problem)]);
});

test('UPGRADE_SNAPSHOT=try makes them notes; without a new step there is no snapshot', () => {
  const made = plan({ state: { snapshot: { ...state.snapshot, rule: 'try', free: 0, tool: '' } } });
  expect([made.problems, made.notes.length]).toEqual([[], 3]);
  expect(
    plan({ next: { schema: state.applied.map((name) => ({ name, needed: false })) } }),
  ).toMatchObject({
    schema: [],
    snapshot: { taken: false },
  });
});

test('a version before this command: nothing is guessed', () => {
  const made = plan({ next: { version: '0.0.9', schema: null, oldest_agent: null } });
  expect(made.schema).toEqual([]);
  expect(made.notes).toContain('0.0.9 is older than 0.1.0: this is a way back');
});

test('versions are compared by their numbers', () => {
  expect(['0.10.0', '0.9.1', '0.9', '1.0.0'].sort(compareVersions)).toEqual([
    '0.9',
    '0.9.1',
    '0.10.0',
    '1.0.0',
  ]);
});
