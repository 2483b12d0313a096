/** A project with volumes runs where its data is, and nowhere else. */
import { describe, expect, it, test } from 'vitest';
import type { Facts } from '../../src/domain/facts.ts';
import type { Plan } from '../../src/domain/plan.ts';
import type { DeploymentRecord } from '../../src/domain/records.ts';
import { replaceProblem, settingsOf } from '../../src/domain/project-rules.ts';
import type { VolumeCopy } from '../../src/domain/volume-copy.ts';
import { volumeProblems } from '../../src/domain/volumes.ts';
import { advance } from '../../src/flow/deployment.ts';
import { builder, facts, node, NOW, on, project, SETTINGS, stateOf, task } from './fixtures.ts';

const volumes = [{ name: 'data', mount_path: '/data' }];
const settings = { ...SETTINGS, replace: 'recreate' as const, volumes };
const next = on.built({ settings });
const able = { capabilities: ['volumes'] };
const home = node({ ...able, hostname: 'home', free_storage: 1 });
const away = node({ ...able, id: 'n2', hostname: 'away', host_ip: '10.0.0.2' });
const copy: VolumeCopy = {
  id: 'v1',
  project_id: 'p1',
  project: 'shop',
  node_id: 'n1',
  hostname: 'home',
  state: 'current',
  names: ['data'],
  bytes: 1_200_000,
  source: null,
  created_at: NOW,
  changed_at: NOW,
};
const tick = (over: Partial<Facts>, d: DeploymentRecord = next): Plan =>
  advance(
    d,
    { type: 'tick' },
    facts({ project: project({ volumes, replace: 'recreate' }), live: [d], nodes: [builder(), home, away], ...over }),
  );
const why = (plan: Plan): string => plan.storyLines.find((line) => line.kind === 'waiting')?.message ?? '';

describe('the first deployment', () => {
  it('begins a copy on the best node, and may create the folder', () => {
    const plan = tick({});
    expect(plan.createTasks).toMatchObject([
      { kind: 'deploy', node_id: 'n2', payload: { volumes: { copy: plan.volumes[0]?.id, mounts: [{ ...volumes[0], create: true }] } } },
    ]);
    expect(plan.volumes).toMatchObject([{ node_id: 'n2', hostname: 'away', state: 'current', names: [] }]);
  });
  it('may begin on another node as long as no container with the volume answered', () => {
    const plan = tick({ volumes: [{ ...copy, names: [] }] });
    expect(plan.createTasks).toMatchObject([{ node_id: 'n2' }]);
    expect(plan.volumes).toMatchObject([
      { id: 'v1', state: 'left' },
      { node_id: 'n2', state: 'current' },
    ]);
  });
  it('records the volume when its container answers', () => {
    const d = on.deploying({ settings });
    const report = { status: 'completed', host_port: 32_000, container_id: 'c' } as const;
    const given = facts({ live: [d], tasks: [task('deploy')], nodes: [home], volumes: [{ ...copy, names: [] }] });
    const plan = advance(d, { type: 'task_reported', task: task('deploy'), report }, given);
    expect(plan.volumes).toMatchObject([{ id: 'v1', names: ['data'] }]);
  });
});

describe('a later deployment', () => {
  it('goes to the node of the copy despite better scores, and may not create the folder', () => {
    const plan = tick({ volumes: [copy] });
    expect(plan.createTasks).toMatchObject([
      { node_id: 'n1', payload: { volumes: { copy: 'v1', mounts: [{ name: 'data', create: false }] } } },
    ]);
    expect(plan.volumes).toEqual([]);
  });
  it('may create a volume that is new in the project', () => {
    const more = on.built({ settings: { ...settings, volumes: [...volumes, { name: 'more', mount_path: '/more' }] } });
    const plan = tick({ volumes: [copy] }, more);
    expect(plan.createTasks).toMatchObject([{ payload: { volumes: { mounts: [{ create: false }, { name: 'more', create: true }] } } }]);
  });
  test.each([
    ['offline', [node({ ...home, last_seen_at: NOW - 1e6 }), away], 'the volume data of shop (1.2 MB) on home: that node is offline'],
    ['deleted', [away], 'the volume data of shop (1.2 MB) on home: that node was deleted'],
    ['cordoned', [node({ ...home, schedulable: false }), away], 'away does not have the volumes of the project; home is cordoned'],
  ])('waits while the node is %s', (_, nodes, text) => {
    const plan = tick({ volumes: [copy], nodes: [builder(), ...nodes] });
    expect([plan.createTasks, plan.volumes, stateOf(plan, next.id)]).toEqual([[], [], null]);
    expect(why(plan)).toContain(text);
  });
});

it('without an agent that mounts volumes the deployment fails with agent_cannot', () => {
  const plan = tick({ nodes: [builder(), node({ agent_version: null })] });
  expect(plan.changeDeployments).toMatchObject([{ set: { status: 'failed', error: { code: 'agent_cannot' } } }]);
});

describe('rules', () => {
  it('volumes make a project stop-first; rolling is refused', () => {
    const input = { name: 'shop', git_url: 'https://git.example/x', domain_prefix: 'shop' };
    expect([settingsOf(input).replace, settingsOf({ ...input, volumes }).replace]).toEqual(['rolling', 'recreate']);
    expect(replaceProblem({ ...settings, replace: 'rolling' })).toMatchObject({ field: 'replace', rule: 'single_writer' });
  });
  test.each([
    [[...volumes, { name: 'data', mount_path: '/other' }], 'volumes[1].name', 'unique'],
    [[...volumes, { name: 'other', mount_path: '/data' }], 'volumes[1].mount_path', 'unique'],
    [[...volumes, { name: 'other', mount_path: '/data/in' }], 'volumes[1].mount_path', 'nested'],
    [[{ name: 'data', mount_path: '/a/../b' }], 'volumes[0].mount_path', 'no_parent'],
    [[{ name: 'data', mount_path: '/proc/x' }], 'volumes[0].mount_path', 'mountable'],
    [[{ name: 'data', mount_path: '/a,readonly' }], 'volumes[0].mount_path', 'no_separator'],
    [[{ name: 'data', mount_path: '/maps/x' }], 'volumes[0].mount_path', 'nested'],
  ])('refuses %j', (given, field, rule) => {
    const datasets = [{ dataset_id: 's1', mode: 'dependency' as const, mount_path: '/maps' }];
    expect(volumeProblems({ volumes: given, datasets })).toMatchObject([{ field, rule }]);
  });
});
