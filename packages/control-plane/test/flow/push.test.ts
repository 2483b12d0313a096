/** Pushes of a project: when a look starts, and the decision after its report. */
import type { TaskReport } from '@berth/wire/task';
import { describe, expect, it } from 'vitest';
import type { DeliveryRecord, HookRecord, Pushes } from '../../src/domain/git/hooks.ts';
import type { Facts } from '../../src/domain/deployments/facts.ts';
import type { TaskRecord } from '../../src/domain/platform/records.ts';
import { judge } from '../../src/flow/delivery.ts';
import { checkPushes, lookLost, lookReported } from '../../src/flow/push.ts';
import { builder, COMMIT, facts, NOW, on, project, SETTINGS } from './fixtures.ts';

const TIP = 'c'.repeat(40);
const OTHER = 'd'.repeat(40);

const hook = (over: Partial<HookRecord> = {}): HookRecord => ({
  project_id: 'p1',
  forge: 'gitea',
  secret: 'sealed',
  refused: 0,
  look_upto: 0,
  look_tries: 0,
  look_not_before: 0,
  look_failed_on: null,
  created_at: NOW,
  updated_at: NOW,
  ...over,
});
const delivery = (seq: number, over: Partial<DeliveryRecord> = {}): DeliveryRecord => ({
  id: `e${seq}`,
  seq,
  project_id: 'p1',
  forge_id: null,
  at: NOW,
  event: 'push',
  branch: 'main',
  commit: null,
  verdict: null,
  reason: null,
  deployment_id: null,
  ...over,
});
const pushes = (waiting: DeliveryRecord[], over: Partial<HookRecord> = {}): Pushes => ({
  hook: hook({ look_upto: waiting.at(-1)?.seq ?? 0, ...over }),
  waiting,
});
const looker = builder({ capabilities: ['look'] });
const look = (over: Partial<TaskRecord<'look'>> = {}): TaskRecord<'look'> => ({
  id: 'l1',
  kind: 'look',
  status: 'running',
  project_id: 'p1',
  deployment_id: null,
  node_id: 'b1',
  attempt: 1,
  payload: {
    project_id: 'p1',
    project: 'shop',
    git_url: SETTINGS.git_url,
    branch: 'main',
    watch_paths: [],
    bases: [],
  },
  lease_token: 't',
  lease_expires_at: NOW + 1,
  queue_deadline_at: NOW,
  wall_deadline_at: NOW,
  cancel_requested_at: null,
  report: null,
  progress: null,
  created_at: NOW,
  started_at: NOW,
  finished_at: null,
  ...over,
});
/** A look that read the paths of the project. */
const lookOf = ({ watch_paths }: { watch_paths: string[] }): TaskRecord<'look'> =>
  look({ payload: { ...look().payload, watch_paths } as TaskRecord<'look'>['payload'] });
const found = (
  over: { skip_mark?: string | null; changes?: unknown[]; commit?: string } = {},
): TaskReport => ({
  status: 'completed',
  commit: over.commit ?? TIP,
  result: { skip_mark: over.skip_mark ?? null, changes: over.changes ?? [] } as NonNullable<
    TaskReport['result']
  >,
});
const failed = (code: string): TaskReport => ({
  status: 'failed',
  result: { error: { code, message: `message of ${code}` } },
});
const withLook = (over: Partial<Facts> = {}): Facts =>
  facts({ nodes: [looker], tasks: [look()], live: [], ...over });

/** The verdicts of a plan by delivery. */
const verdictsOf = (
  plan: {
    push: { verdicts: { delivery_id: string; verdict: string; reason: string | null }[] } | null;
  } | null,
) =>
  Object.fromEntries(
    (plan?.push?.verdicts ?? []).map((v) => [v.delivery_id, [v.verdict, v.reason]]),
  );

describe('a check of the branch', () => {
  it('starts for all deliveries that wait, on a builder that can look', () => {
    const plan = checkPushes(
      pushes([delivery(4), delivery(7)]),
      facts({ nodes: [builder({ id: 'b0', hostname: 'a' }), looker], live: [] }),
    );
    expect(plan?.createTasks).toMatchObject([
      { kind: 'look', node_id: 'b1', deployment_id: null, payload: { branch: 'main', bases: [] } },
    ]);
    expect(plan?.push).toEqual({ set: { look_upto: 7 }, verdicts: [], replaced: null });
  });
  it('names the commits that run or may run soon if the project watches paths', () => {
    const live = [
      on.running({ commit: COMMIT }),
      on.pending({ id: 'd3', generation: 3, requested_commit: OTHER }),
    ];
    const plan = checkPushes(
      pushes([delivery(1)]),
      facts({ nodes: [looker], live, project: project({ watch_paths: ['src'] }) }),
    );
    expect(plan?.createTasks).toMatchObject([
      { payload: { watch_paths: ['src'], bases: [COMMIT, OTHER] } },
    ]);
  });
  it.each([
    ['no delivery waits', pushes([]), {}],
    ['a look is open', pushes([delivery(1)]), { tasks: [look()] }],
    [
      'the last look failed a moment ago',
      pushes([delivery(1)], { look_not_before: NOW + 1e9 }),
      {},
    ],
    [
      'the project is being deleted',
      pushes([delivery(1)]),
      { project: project({ deleting_at: NOW }) },
    ],
    [
      'a build that newer requests do not supersede any more is running',
      pushes([delivery(1)]),
      { live: [on.building({ builds_given_up: 2 })] },
    ],
  ])('does not start while %s', (_, given, over) => {
    expect(checkPushes(given, facts({ nodes: [looker], live: [], ...over }))).toBeNull();
  });
  it('is left out if no builder can look: the branch is deployed, and the delivery says so', () => {
    const plan = checkPushes(
      pushes([delivery(1), delivery(2)]),
      facts({ nodes: [builder()], live: [] }),
    );
    expect(plan?.createDeployment).toMatchObject({
      requested_commit: null,
      trigger: 'hook',
      created_by: { kind: 'hook', id: 'e2', name: 'gitea' },
    });
    expect(verdictsOf(plan)).toEqual({
      e1: ['skipped', 'a newer push replaced it'],
      e2: ['deployed', 'not looked: no builder that can check the branch is online'],
    });
  });
  it('prefers another builder after a failure', () => {
    const other = builder({ id: 'b2', hostname: 'z', capabilities: ['look'] });
    const plan = checkPushes(
      pushes([delivery(1)], { look_failed_on: 'b1' }),
      facts({ nodes: [looker, other], live: [], lastBuilderId: 'b1' }),
    );
    expect(plan?.createTasks[0]?.node_id).toBe('b2');
  });
});

describe('the report of a look', () => {
  it('deploys the tip; the older pushes were replaced', () => {
    const given = pushes([delivery(1, { commit: OTHER }), delivery(2, { commit: TIP })]);
    const plan = lookReported(look(), found(), given, withLook());
    expect(plan.createDeployment).toMatchObject({ requested_commit: TIP, trigger: 'hook' });
    expect(plan.changeTasks).toMatchObject([{ id: 'l1', end: 'completed' }]);
    expect(verdictsOf(plan)).toEqual({
      e1: ['skipped', 'a newer push replaced it'],
      e2: ['deployed', null],
    });
    expect(plan.push?.verdicts.map((v) => v.deployment_id)).toEqual([
      plan.createDeployment?.id,
      plan.createDeployment?.id,
    ]);
  });
  it('names the commits that are not deployed, because the tip replaced them', () => {
    const given = pushes([
      delivery(1, { commit: OTHER }),
      delivery(2),
      delivery(3, { commit: TIP }),
      delivery(4, { commit: COMMIT }),
      delivery(5, { commit: OTHER }),
    ]);
    const live = [on.running({ commit: COMMIT })];
    const plan = lookReported(look(), found(), given, withLook({ live }));
    // COMMIT is live: its own deployment decides about its status.
    expect(plan.push?.replaced).toEqual({
      deployment_id: plan.createDeployment?.id,
      generation: 3,
      commits: [OTHER],
    });
  });
  it('leads from a push that is skipped to the deployment that has its commit or a newer one', () => {
    const live = [
      on.running({ commit: COMMIT }),
      on.building({ id: 'd3', generation: 3, requested_commit: TIP }),
    ];
    const given = pushes([delivery(1, { commit: OTHER }), delivery(2, { commit: TIP })]);
    const plan = lookReported(look(), found(), given, withLook({ live }));
    expect(plan.push?.verdicts).toEqual([
      {
        delivery_id: 'e1',
        verdict: 'skipped',
        reason: 'a newer push replaced it',
        deployment_id: 'd3',
      },
      {
        delivery_id: 'e2',
        verdict: 'skipped',
        reason: expect.stringContaining('deployment 3 already deploys'),
        deployment_id: 'd3',
      },
    ]);
    expect(plan.push?.replaced).toEqual({ deployment_id: 'd3', generation: 3, commits: [OTHER] });
  });
  it('reports no commit as replaced if nothing is deployed', () => {
    const given = pushes([delivery(1, { commit: OTHER }), delivery(2, { commit: TIP })]);
    expect(
      lookReported(look(), found({ skip_mark: '[skip ci]' }), given, withLook()).push?.replaced,
    ).toBeNull();
  });
  it('decides nothing about a delivery that arrived after the look was requested', () => {
    const given = pushes([delivery(1), delivery(9)], { look_upto: 1 });
    expect(Object.keys(verdictsOf(lookReported(look(), found(), given, withLook())))).toEqual([
      'e1',
    ]);
  });
  it.each([
    [
      'the tip is live',
      { live: [on.running({ commit: TIP })] },
      found(),
      /already live as deployment 2/,
    ],
    [
      'a deployment of the tip is in progress',
      { live: [on.building({ requested_commit: TIP })] },
      found(),
      /deployment 2 already deploys/,
    ],
    ['the commit has a skip mark', {}, found({ skip_mark: '[skip ci]' }), /contains \[skip ci\]/],
    [
      'nothing under watch_paths changed',
      {
        live: [on.running({ commit: COMMIT })],
        project: project({ watch_paths: ['src', 'docs'] }),
      },
      found({ changes: [{ base: COMMIT, changed: false }] }),
      /nothing under src, docs changed/,
    ],
  ])('skips the deliveries if %s', (_, over, report, reason) => {
    const given = withLook(over);
    const plan = lookReported(lookOf(given.project), report, pushes([delivery(1)]), given);
    expect(plan.createDeployment).toBeNull();
    expect(verdictsOf(plan)['e1']).toEqual(['skipped', expect.stringMatching(reason)]);
  });
  it.each([
    [
      'a path under watch_paths changed',
      [on.running({ commit: COMMIT })],
      [{ base: COMMIT, changed: true }],
    ],
    [
      'the server does not have the running commit',
      [on.running({ commit: COMMIT })],
      [{ base: COMMIT, changed: null }],
    ],
    [
      'the running version went live after the look was requested',
      [on.running({ commit: COMMIT })],
      [{ base: OTHER, changed: false }],
    ],
    ['nothing runs', [], []],
    [
      'a deployment in progress changes it',
      [
        on.running({ commit: COMMIT }),
        on.building({ id: 'd3', generation: 3, requested_commit: OTHER }),
      ],
      [
        { base: COMMIT, changed: false },
        { base: OTHER, changed: true },
      ],
    ],
    [
      'a deployment in progress has no known commit',
      [on.running({ commit: COMMIT }), on.pending({ id: 'd3', generation: 3 })],
      [{ base: COMMIT, changed: false }],
    ],
  ])('deploys if %s', (_, live, changes) => {
    const plan = lookReported(
      lookOf({ watch_paths: ['src'] }),
      found({ changes }),
      pushes([delivery(1)]),
      withLook({ live, project: project({ watch_paths: ['src'] }) }),
    );
    expect(plan.createDeployment).toMatchObject({ requested_commit: TIP });
  });
  it('only ends the task if the hook was deleted', () => {
    const plan = lookReported(look(), found(), null, withLook());
    expect(plan).toMatchObject({
      createDeployment: null,
      push: null,
      changeTasks: [{ id: 'l1', end: 'completed' }],
    });
  });
});

describe('a look that fails', () => {
  it('is repeated after a pause while the git server cannot be reached', () => {
    const plan = lookReported(look(), failed('git_unreachable'), pushes([delivery(1)]), withLook());
    expect(plan).toMatchObject({
      createDeployment: null,
      changeTasks: [{ end: 'failed' }],
      push: { verdicts: [] },
    });
    expect(plan.push?.set).toMatchObject({ look_tries: 1, look_failed_on: 'b1' });
    expect(plan.push?.set.look_not_before).toBeGreaterThan(NOW);
  });
  it.each([
    ['the fourth time', 'git_unreachable', 3],
    ['because of its credentials', 'git_credentials', 0],
  ])(
    '%s ends with a deployment, which shows the problem, and the delivery says so',
    (_, code, look_tries) => {
      const plan = lookReported(
        look(),
        failed(code),
        pushes([delivery(1)], { look_tries }),
        withLook(),
      );
      expect(plan.createDeployment).toMatchObject({ requested_commit: null });
      expect(verdictsOf(plan)['e1']).toEqual(['deployed', expect.stringContaining(`not looked: `)]);
      expect(plan.push?.set).toMatchObject({ look_tries: 0 });
    },
  );
  it('because the branch does not exist skips the deliveries', () => {
    const plan = lookReported(
      look(),
      failed('git_unknown_branch'),
      pushes([delivery(1)]),
      withLook(),
    );
    expect(plan.createDeployment).toBeNull();
    expect(verdictsOf(plan)['e1']?.[0]).toBe('skipped');
  });
  it('counts as failed when its builder is lost', () => {
    const plan = lookLost(look(), 'lease', pushes([delivery(1)]), withLook());
    expect(plan).toMatchObject({
      changeTasks: [{ id: 'l1', end: 'lost', lease_expires_at: NOW + 1 }],
      push: { set: { look_tries: 1 } },
    });
  });
});

describe('a delivery', () => {
  const main = { branch: 'main', deploy_on_push: true };
  const to = (name: string, over = {}) => ({
    event: 'push',
    refs: [{ kind: 'branch' as const, name, commit: TIP, deleted: false, ...over }],
  });
  it('to the branch of the project is checked', () => {
    expect(judge(to('main'), main)).toEqual({
      event: 'push',
      branch: 'main',
      commit: TIP,
      skip: null,
    });
    expect(judge({ event: 'push', refs: null }, main)).toEqual({
      event: 'push',
      branch: null,
      commit: null,
      skip: null,
    });
  });
  it.each([
    ['another branch', to('topic'), main, /to topic; the project deploys main/],
    ['a branch that is called like the end of the project’s', to('x/main'), main, /to x\/main/],
    ['the deleted branch', to('main', { deleted: true }), main, /deleted the branch main/],
    ['a tag', to('main', { kind: 'tag' }), main, /is a tag/],
    ['a ping', { event: 'ping', refs: null }, main, /is a ping, not a push/],
    [
      'a merge request',
      { event: 'merge request', refs: null },
      main,
      /is a merge request, not a push/,
    ],
    ['an unknown event', { event: 'star', refs: null }, main, /“star”, not a push/],
    ['a push without branches', { event: 'push', refs: [] }, main, /changed no branch/],
    [
      'a project that does not deploy on push',
      to('main'),
      { ...main, deploy_on_push: false },
      /deploy_on_push is off/,
    ],
  ])('for %s is skipped', (_, received, settings, reason) => {
    expect(judge(received, settings).skip).toMatch(reason);
  });
});

describe('a stopped project', () => {
  const stopped = facts({
    project: project({ stopped_at: NOW }),
    live: [on.running({ commit: TIP })],
    nodes: [looker],
  });
  const reasons = (plan: ReturnType<typeof checkPushes>): unknown =>
    plan?.push?.verdicts.map(({ delivery_id, verdict, reason }) => [delivery_id, verdict, reason]);
  const why = 'the project is stopped; deploy it to start it with this commit';

  it('skips every delivery, and each says why: no newer push replaced one', () => {
    const plan = checkPushes(
      pushes([delivery(1, { commit: OTHER }), delivery(2, { commit: TIP })]),
      stopped,
    );
    expect(reasons(plan)).toEqual([
      ['e1', 'skipped', why],
      ['e2', 'skipped', why],
    ]);
    expect(plan?.createDeployment ?? null).toBeNull();
  });
  it('deploys at count 0: the new version is there when it is scaled up', () => {
    const atZero = project({ stopped_at: NOW, processes: [{ name: 'web', count: 0 }] });
    const plan = checkPushes(pushes([delivery(1, { commit: TIP })]), {
      ...stopped,
      project: atZero,
    });
    expect(reasons(plan) ?? []).toEqual([]);
    expect(plan?.createTasks.map(({ kind }) => kind)).toEqual(['look']);
  });
  it('deploys if it has lost its web since then, because no person stopped it', () => {
    const withoutWeb = project({
      ...{ stopped_at: NOW, stopped_by_person: false },
      processes: [{ name: 'bot', command: ['bot'] }],
    });
    const plan = checkPushes(pushes([delivery(1, { commit: TIP })]), {
      ...stopped,
      project: withoutWeb,
    });
    expect(reasons(plan) ?? []).toEqual([]);
    expect(plan?.createTasks.map(({ kind }) => kind)).toEqual(['look']);
  });
  it('skips at count 0 too, when a person stopped it', () => {
    const both = project({
      ...{ stopped_at: NOW, stopped_by_person: true },
      processes: [{ name: 'web', count: 0 }],
    });
    const given = pushes([delivery(1, { commit: TIP })]);
    expect(reasons(checkPushes(given, { ...stopped, project: both }))).toEqual([
      ['e1', 'skipped', why],
    ]);
  });
  it.each([
    ['its branch was read before the stop', found({ commit: TIP })],
    ['the look failed for the last time', failed('git_auth')],
  ])('says the same when %s', (_, given) => {
    const plan = lookReported(
      look(),
      given,
      pushes([delivery(1, { commit: TIP })], { look_tries: 9 }),
      stopped,
    );
    expect(reasons(plan)).toEqual([['e1', 'skipped', why]]);
    expect(plan.createDeployment).toBeNull();
  });
});

describe('settings that change while deliveries wait', () => {
  const given = pushes([delivery(1), delivery(2, { branch: null })], { look_tries: 2 });
  const changes = [
    { branch: 'production' },
    { git_url: 'https://git.example/other.git' },
    { watch_paths: ['web'] },
  ];

  it.each(changes)(
    '%j: the report of the look decides nothing, and the next look reads what the project deploys now',
    (change) => {
      const changed = { project: project(change) };
      for (const report of [found(), failed('git_unknown_branch')]) {
        const plan = lookReported(look(), report, given, withLook(changed));
        expect(plan).toMatchObject({
          createDeployment: null,
          changeTasks: [{ id: 'l1', end: report.status }],
        });
        expect(Object.keys(verdictsOf(plan))).toEqual('branch' in change ? ['e1'] : []);
      }
      const lost = lookLost(look(), 'lease', given, withLook(changed));
      expect(lost).toMatchObject({
        createDeployment: null,
        push: null,
        changeTasks: [{ id: 'l1', end: 'lost' }],
      });
      const again = checkPushes(
        pushes([delivery(2, { branch: null })]),
        withLook({ ...changed, tasks: [] }),
      );
      expect(again?.createTasks).toMatchObject([{ kind: 'look', payload: change }]);
    },
  );

  it.each(changes)('%j: an open look ends at once', (change) => {
    const plan = checkPushes(given, withLook({ project: project(change) }));
    expect(plan).toMatchObject({
      createTasks: [],
      changeTasks: [{ id: 'l1', end: 'cancelled' }],
      push: { set: { look_tries: 0 } },
    });
  });

  it('a delivery of the branch before is skipped, and one that names no branch waits on', () => {
    const plan = checkPushes(
      given,
      withLook({ tasks: [], project: project({ branch: 'production' }) }),
    );
    expect(verdictsOf(plan)).toEqual({
      e1: ['skipped', 'the push is to main; the project deploys production'],
    });
  });

  it('deploy_on_push: false skips all of them at once, and ends the look', () => {
    const off = { project: project({ deploy_on_push: false }) };
    for (const tasks of [[look()], []])
      expect(checkPushes(given, withLook({ ...off, tasks }))).toMatchObject({
        createDeployment: null,
        createTasks: [],
        changeTasks: tasks.map(({ id }) => ({ id, end: 'cancelled' })),
        push: {
          verdicts: [
            { verdict: 'skipped', reason: 'deploy_on_push is off' },
            { verdict: 'skipped' },
          ],
        },
      });
    const plan = lookReported(look(), found(), given, withLook(off));
    expect(plan.createDeployment).toBeNull();
    expect(Object.keys(verdictsOf(plan))).toEqual(['e1', 'e2']);
    expect(checkPushes(given, withLook({ ...off, tasks: [], nodes: [] }))).toMatchObject({
      createDeployment: null,
    });
  });
});
