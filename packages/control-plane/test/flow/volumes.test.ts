/** A project with volumes runs where its data is, and nowhere else. */
import { describe, expect, it, test } from 'vitest';
import type { Facts, NodeFact } from '../../src/domain/deployments/facts.ts';
import type { Plan } from '../../src/domain/deployments/plan.ts';
import type { TaskReport } from '@berth/wire/task';
import type { DeploymentRecord } from '../../src/domain/platform/records.ts';
import { replaceProblem, settingsOf } from '../../src/domain/projects/project-rules.ts';
import { volumeProblems } from '../../src/domain/data/volumes.ts';
import { advance } from '../../src/flow/deployment.ts';
import {
  builder,
  changeOf,
  facts,
  node,
  NOW,
  old,
  on,
  project,
  routeTo,
  stateOf,
  task,
  waitingSince,
} from './fixtures.ts';
import {
  copy,
  done,
  from,
  incoming,
  move,
  proven,
  result,
  settings,
  to,
  volumes,
} from './moves.ts';

const next = on.built({ settings });
const able = { capabilities: ['volumes'] };
const home = node({ ...able, hostname: 'home', free_storage: 1 });
const away = node({ ...able, id: 'n2', hostname: 'away', host_ip: '10.0.0.2' });
const tick = (over: Partial<Facts>, d: DeploymentRecord = next): Plan =>
  advance(
    d,
    { type: 'tick' },
    facts({
      project: project({ volumes, replace: 'recreate' }),
      live: [d],
      nodes: [builder(), home, away],
      ...over,
    }),
  );
const copyIn = (plan: Plan, id: string) => plan.volumes.find((c) => c.id === id);
const why = (plan: Plan): string =>
  plan.storyLines.find((line) => line.kind === 'waiting')?.message ?? '';

describe('the first deployment', () => {
  it('begins a copy on the best node, and may create the folder', () => {
    const plan = tick({});
    expect(plan.createTasks).toMatchObject([
      {
        kind: 'deploy',
        node_id: 'n2',
        payload: {
          volumes: { copy: plan.volumes[0]?.id, mounts: [{ ...volumes[0], create: true }] },
        },
      },
    ]);
    expect(plan.volumes).toMatchObject([
      { node_id: 'n2', hostname: 'away', state: 'current', names: [] },
    ]);
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
    const given = facts({
      live: [d],
      tasks: [task('deploy')],
      nodes: [home],
      volumes: [{ ...copy, names: [] }],
    });
    const plan = advance(d, { type: 'task_reported', task: task('deploy'), report }, given);
    expect(plan.volumes).toMatchObject([{ id: 'v1', names: ['data'] }]);
  });
});

describe('a later deployment', () => {
  it('goes to the node of the copy despite better scores, and may not create the folder', () => {
    const plan = tick({ volumes: [copy] });
    expect(plan.createTasks).toMatchObject([
      {
        node_id: 'n1',
        payload: { volumes: { copy: 'v1', mounts: [{ name: 'data', create: false }] } },
      },
    ]);
    expect(plan.volumes).toEqual([]);
  });
  it('may create a volume that is new in the project', () => {
    const more = on.built({
      settings: { ...settings, volumes: [...volumes, { name: 'more', mount_path: '/more' }] },
    });
    const plan = tick({ volumes: [copy] }, more);
    expect(plan.createTasks).toMatchObject([
      { payload: { volumes: { mounts: [{ create: false }, { name: 'more', create: true }] } } },
    ]);
  });
  test.each([
    [
      'offline',
      [node({ ...home, last_seen_at: NOW - 1e6 }), away],
      'the volume data of shop (1.2 MB) on home: that node is offline',
    ],
    ['deleted', [away], 'the volume data of shop (1.2 MB) on home: that node was deleted'],
    [
      'cordoned',
      [node({ ...home, schedulable: false }), away],
      'away does not have the volumes of the project; home is cordoned',
    ],
  ])('waits while the node is %s', (_, nodes, text) => {
    const plan = tick({ volumes: [copy], nodes: [builder(), ...nodes] });
    expect([plan.createTasks, plan.volumes, stateOf(plan, next.id)]).toEqual([[], [], null]);
    expect(why(plan)).toContain(text);
  });
  it('names the ids with which a backup of the folders can be used on another node, when the node was deleted', () => {
    expect(why(tick({ volumes: [copy], nodes: [builder(), away] }))).toMatch(
      /from a backup on another node .*project p1, copy v1\)/,
    );
  });
});

describe('a drain moves the volumes', () => {
  const nodes = [builder(), from, to];
  const stopped = old({ settings, stopped_first: 'stopped' });
  const moving: Partial<Facts> = {
    nodes,
    live: [stopped, next],
    tasks: [move('send'), move('receive')],
    volumes: [copy, incoming],
  };
  const deploys = task('deploy', {
    node_id: 'n2',
    payload: { volumes: { copy: 'v2', mounts: [] } } as never,
  });
  const arriving = on.deploying({ settings, node_id: 'n2' });
  const answered = (over: Partial<Facts> = {}): Plan =>
    advance(
      arriving,
      {
        type: 'task_reported',
        task: deploys,
        report: { status: 'completed', host_port: 32_000, container_id: 'c' },
      },
      facts({
        nodes,
        live: [stopped, arriving],
        tasks: [deploys],
        volumes: [copy, incoming],
        ...over,
      }),
    );
  const reported = (
    role: 'send' | 'receive',
    over: Partial<Facts> = {},
    report: TaskReport = done,
  ): Plan =>
    advance(
      next,
      { type: 'task_reported', task: move(role), report },
      facts({ ...moving, ...over }),
    );

  it('copies them to another node when nothing runs any more', () => {
    const plan = tick({ nodes, live: [stopped, next], volumes: [copy] });
    expect(plan.createTasks).toMatchObject([
      { kind: 'move', node_id: 'n1', payload: { role: 'send', copy: 'v1', other: 'away' } },
      { kind: 'move', node_id: 'n2', payload: { role: 'receive', copy: 'v1', other: 'home' } },
    ]);
    expect(plan.volumes).toMatchObject([
      { id: 'v1', state: 'current', digest: null },
      { node_id: 'n2', state: 'incoming', source: 'v1', names: ['data'] },
    ]);
    expect(why(plan)).toBe(
      'its volumes are being copied from home to away; the project is stopped meanwhile',
    );
  });
  it('waits for a run that uses them, while the old version serves', () => {
    const run = 'run r1 uses its volumes on home; they move when it has ended';
    const serves = old({ settings });
    const over = { nodes, live: [serves, next], volumes: [copy] };
    const plan = tick({ ...over, runs: [{ id: 'r1', node_id: 'n1' }] });
    expect(why(plan)).toContain(run);
    expect(why(plan)).toContain('berth runs cancel r1');
    expect(plan.createTasks).toEqual([]);
    // Runs elsewhere have no volumes.
    const other = { nodes, live: [stopped, next], volumes: [copy] };
    expect(tick({ ...other, runs: [{ id: 'r1', node_id: 'n2' }] }).createTasks).toHaveLength(2);
  });
  it('first stops the version that runs', () => {
    const container = {
      name: 'svc-shop',
      labels: { 'berth.project': 'p1', 'berth.deployment': 'd1' },
      host_port: 1,
      state: 'running',
    };
    const plan = tick({
      nodes: [{ ...from, containers: [container] }, to],
      live: [old({ settings }), next],
      volumes: [copy],
    });
    expect(plan.createTasks).toMatchObject([
      { kind: 'retire', node_id: 'n1', payload: { stop: [{ deployment_id: 'd1' }] } },
    ]);
    expect(plan.volumes).toEqual([]);
  });
  it('waits while they are copied', () => {
    const plan = tick({ ...moving });
    expect([plan.createTasks, plan.volumes]).toEqual([[], []]);
    expect(why(plan)).toContain('are being copied from home to away');
  });
  it.each([
    ['the sender only', { ...copy, digest: result.digest }, incoming],
    ['the receiver only', copy, { ...incoming, digest: result.digest }],
    [
      'both, and they differ',
      { ...copy, digest: 'b'.repeat(64) },
      { ...incoming, digest: result.digest },
    ],
  ])('starts nothing with the new copy when the proof is of %s', (_, source, target) => {
    const plan = tick({ nodes, live: [stopped, next], volumes: [source, target] });
    expect(plan.createTasks.map((t) => t.kind)).toEqual(['move', 'move']);
    expect(plan.volumes).toMatchObject([
      { id: 'v2', state: 'deleting' },
      { id: 'v1', digest: null },
      { state: 'incoming', digest: null },
    ]);
  });
  it('starts the new version with the proven copy, and switches when its container answers', () => {
    const plan = tick({ nodes, live: [stopped, next], volumes: proven });
    expect(plan.createTasks).toMatchObject([
      {
        kind: 'deploy',
        node_id: 'n2',
        payload: { volumes: { copy: 'v2', mounts: [{ name: 'data', create: false }] } },
      },
    ]);
    // Its container may write to the copy from now on.
    expect(plan.volumes).toMatchObject([
      { id: 'v1', digest: null },
      { id: 'v2', digest: null },
    ]);
    const after = answered({ volumes: plan.volumes });
    expect(after.volumes).toMatchObject([
      { id: 'v1', state: 'left' },
      { id: 'v2', state: 'current', names: ['data'] },
    ]);
  });
  it('says how much is equal when both ends have reported', () => {
    const plan = reported('receive', { volumes: [{ ...copy, digest: result.digest }, incoming] });
    expect(copyIn(plan, 'v2')).toMatchObject({ digest: result.digest, bytes: 1_200_000 });
    expect(plan.storyLines).toMatchObject([
      { message: expect.stringContaining('2 files, 1.2 MB, equal to those on home') },
    ]);
  });
  it('copies again if the files differ, and the copy is deleted', () => {
    const plan = reported('send', { volumes: [copy, { ...incoming, digest: 'b'.repeat(64) }] });
    expect(plan.volumes).toMatchObject([
      { id: 'v2', state: 'deleting' },
      { id: 'v1', state: 'current', digest: null },
    ]);
    expect(changeOf(plan, 'd2')).toMatchObject({ losses: [{ node_id: 'n1' }] });
    expect(plan.changeTasks).toMatchObject([
      { id: 'send', end: 'completed' },
      { id: 'receive', end: 'cancelled' },
    ]);
  });
  it('takes another node if the disk of the new one is full, and keeps the source', () => {
    const error = { code: 'disk_full', message: 'no space left' };
    const third = { ...to, id: 'n3', hostname: 'third' };
    const plan = reported(
      'receive',
      { nodes: [...nodes, third] },
      { status: 'failed', result: { error } },
    );
    expect(changeOf(plan, 'd2').losses).toMatchObject([
      { node_id: 'n2', error: { code: 'disk_full' } },
    ]);
    expect(copyIn(plan, 'v2')).toMatchObject({ state: 'deleting', digest: null });
  });
  it.each([
    ['there is none', []],
    ['the others are cordoned', [{ ...to, id: 'n3', hostname: 'third', schedulable: false }]],
    [
      'the agents of the others cannot move volumes',
      [{ ...to, id: 'n3', hostname: 'third', capabilities: ['volumes'] }],
    ],
  ])(
    'fails at once with a full disk if no other node can have it, so that the old version starts again: %s',
    (_, more) => {
      const error = { code: 'disk_full', message: 'no space left' };
      const plan = reported(
        'receive',
        { nodes: [...nodes, ...more] },
        { status: 'failed', result: { error } },
      );
      expect(changeOf(plan, 'd2')).toMatchObject({
        status: 'failed',
        error: { code: 'disk_full' },
      });
      expect(copyIn(plan, 'v2')).toMatchObject({ state: 'deleting', digest: null });
    },
  );
  it.each([
    [
      'the sender cannot read',
      (): Plan =>
        reported(
          'send',
          {},
          { status: 'failed', result: { error: { code: 'volume_failed', message: 'x' } } },
        ),
    ],
    ['it is cancelled', (): Plan => advance(next, { type: 'cancel' }, facts(moving))],
    [
      'the project is deleted',
      (): Plan => advance(next, { type: 'project_deleted' }, facts(moving)),
    ],
  ])('ends both ends and deletes the new copy only, when %s', (_, decide) => {
    const plan = decide();
    expect(copyIn(plan, 'v2')).toMatchObject({ state: 'deleting', digest: null });
    expect(plan.changeTasks.filter((t) => 'end' in t)).toHaveLength(2);
  });
  it('the old version never starts again once the new copy is in use', () => {
    const switched = [
      { ...copy, state: 'left' as const },
      { ...incoming, state: 'current' as const },
    ];
    const d = on.published({ settings, node_id: 'n2' });
    const given = facts({ nodes, live: [stopped, d], volumes: switched });
    const plan = advance(
      d,
      {
        type: 'route_unreachable',
        host_ip: '10.0.0.2',
        host_port: 32_002,
        proxy: 'https://p',
        saw: 'no answer',
      },
      {
        ...given,
        route: { ...routeTo(d), host_ip: '10.0.0.2' },
      },
    );
    expect(stateOf(plan, 'd2')).toBe('failed');
    expect(
      plan.createTasks.filter((t) => t.kind === 'retire' && t.payload.start !== undefined),
    ).toEqual([]);
    expect(changeOf(plan, 'd1').waiting).toContain('its volumes are on away now');
  });
  it('a lost end is tried again, and after too many losses the deployment fails', () => {
    const lost = (d: DeploymentRecord): Plan =>
      advance(
        d,
        { type: 'task_lost', task: move('receive'), why: 'lease' },
        facts({ ...moving, live: [stopped, d] }),
      );
    expect(stateOf(lost(next), 'd2')).toBeNull();
    const seen = [1, 2].map((at) => ({ node_id: 'z', at }));
    expect(changeOf(lost({ ...next, losses: seen }), 'd2')).toMatchObject({
      status: 'failed',
      error: { code: 'node_lost' },
    });
  });
  describe('no node can take them any more, and the old version was stopped', () => {
    const lost = waitingSince(
      on.built({ settings, losses: [{ node_id: 'n2', at: NOW - 200_000 }] }),
      NOW - 200_000,
    );
    const silentSince = (at: number): Partial<NodeFact> => ({
      last_seen_at: at,
      last_polled_at: at,
      observed_at: at,
    });
    const dead = { ...to, ...silentSince(NOW - 210_000) };
    const container = {
      name: 'svc-shop',
      labels: { 'berth.project': 'p1', 'berth.deployment': 'd1' },
      host_port: null,
      state: 'exited',
    };
    const home = { ...from, containers: [container] };
    const tried = (over: Partial<Facts> = {}): Plan =>
      tick(
        { nodes: [builder(), home, dead], live: [stopped, lost], volumes: [copy], ...over },
        lost,
      );
    const starts = (plan: Plan) =>
      plan.createTasks
        .filter((t) => t.kind === 'retire' && t.payload.start === 'd1')
        .map((t) => t.node_id);

    it('the move is given up, and the old version starts again where the data is', () => {
      const plan = tried();
      expect(changeOf(plan, 'd2')).toMatchObject({
        status: 'failed',
        error: { code: 'no_deploy_node' },
      });
      expect(changeOf(plan, 'd2').error?.message).toContain('away is offline');
      expect(starts(plan)).toEqual(['n1']);
      expect(plan.volumes).toEqual([]);
    });
    it('a copy on the lost node is deleted, also a complete one', () => {
      const plan = tried({ volumes: proven });
      expect([stateOf(plan, 'd2'), starts(plan)]).toEqual(['failed', ['n1']]);
      expect(copyIn(plan, 'v2')).toMatchObject({ state: 'deleting', digest: null });
    });
    it('the old version also starts again when the new one may run on the lost node, and an admin has deleted that node', () => {
      const work = [
        {
          node_id: 'n2',
          ended_at: NOW - 200_000,
          claimed_at: NOW - 200_000,
          unreported_at: NOW - 200_000,
        },
      ];
      const plan = tried({ nodes: [builder(), home], volumes: [copy, incoming], endedWork: work });
      expect([stateOf(plan, 'd2'), starts(plan)]).toEqual(['failed', ['n1']]);
    });
    it('another node takes them', () => {
      const plan = tried({
        nodes: [builder(), home, dead, { ...to, id: 'n3', hostname: 'third' }],
      });
      expect(stateOf(plan, 'd2')).toBeNull();
      expect(plan.createTasks).toMatchObject([
        { kind: 'move', node_id: 'n1' },
        { kind: 'move', node_id: 'n3' },
      ]);
    });
    it.each<[string, Partial<Facts>]>([
      [
        'the node is silent, but not offline yet',
        { nodes: [builder(), home, { ...to, ...silentSince(NOW - 60_000) }] },
      ],
      [
        'the new version may run on the lost node',
        {
          endedWork: [
            {
              node_id: 'n2',
              ended_at: NOW - 200_000,
              claimed_at: NOW - 200_000,
              unreported_at: NOW - 200_000,
            },
          ],
        },
      ],
      ['the nodes are silent because Berth was away', { uptime: { at: NOW - 199_000, since: 0 } }],
      [
        'the old version still stops',
        { tasks: [task('retire', { node_id: 'n1', payload: { remove: [], stop: [] } as never })] },
      ],
      [
        'the next try to start the old version is not due',
        { live: [{ ...stopped, retry: { tries: 3, not_before: NOW + 60_000 } }, lost] },
      ],
      ['the old version serves', { live: [old({ settings }), lost] }],
    ])('waits when %s', (_, over) => {
      const d = { ...lost, losses: [{ node_id: 'n2', at: NOW - 30_000 }] };
      const plan = tick(
        { nodes: [builder(), home, dead], live: [stopped, d], volumes: [copy], ...over },
        d,
      );
      expect([stateOf(plan, 'd2'), plan.createTasks, plan.volumes]).toEqual([null, [], []]);
      expect(why(plan)).not.toBe('');
    });
  });
  it('a node without the capability keeps them, and the stopped version starts there again', () => {
    const labels = { 'berth.project': 'p1', 'berth.deployment': stopped.id };
    const earlier = {
      ...from,
      capabilities: ['volumes'],
      containers: [{ name: 'svc-shop', labels, host_port: null, state: 'exited' }],
    };
    const plan = tick({ nodes: [builder(), earlier, to], live: [stopped, next], volumes: [copy] });
    expect(plan.createTasks).toMatchObject([
      { kind: 'retire', node_id: 'n1', payload: { start: stopped.id } },
    ]);
    expect([stateOf(plan, next.id), plan.volumes]).toEqual(['failed', []]);
    expect(changeOf(plan, next.id).error?.message).toContain('home is being drained');
  });
});

it('without an agent that mounts volumes the deployment fails with agent_cannot', () => {
  const plan = tick({ nodes: [builder(), node({ agent_version: null })] });
  expect(plan.changeDeployments).toMatchObject([
    { set: { status: 'failed', error: { code: 'agent_cannot' } } },
  ]);
});

describe('rules', () => {
  it('volumes make a project stop-first; rolling is refused', () => {
    const input = { name: 'shop', git_url: 'https://git.example/x', domain_prefix: 'shop' };
    expect([settingsOf(input).replace, settingsOf({ ...input, volumes }).replace]).toEqual([
      'rolling',
      'recreate',
    ]);
    expect(replaceProblem({ ...settings, replace: 'rolling' })).toMatchObject({
      field: 'replace',
      rule: 'single_writer',
    });
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
