/**
 * Mounts of a deployment, versions in its story, and effects of a new version on running
 * deployments.
 */
import { describe, expect, it } from 'vitest';
import { DEFAULT_LIMITS, type Facts } from '../../src/domain/deployments/facts.ts';
import type { DeploymentRecord, PinnedDataset } from '../../src/domain/platform/records.ts';
import { onDatasetChange } from '../../src/flow/redeploy.ts';
import { copyMs } from '../../src/flow/data.ts';
import { advance, request } from '../../src/flow/deployment.ts';
import {
  changeOf,
  dataset,
  facts,
  NOW,
  node,
  old,
  on,
  project,
  SETTINGS,
  stateOf,
  task,
  waitingSince,
} from './fixtures.ts';

const maps = { dataset_id: 's1', mode: 'dependency' as const };
const shared = { dataset_id: 's2', mode: 'readwrite' as const, mount_path: '/srv/shared' };
const settings = { ...SETTINGS, datasets: [maps, shared], replace: 'recreate' as const };
const both = [dataset(), dataset({ id: 's2', name: 'shared', version: 9 })];
const pin = (version: number | null, over: Partial<PinnedDataset> = {}): PinnedDataset => ({
  dataset_id: 's1',
  name: 'maps',
  mode: 'dependency',
  version,
  ...over,
});
const says = (
  plan: { storyLines: readonly { kind: string; message: string }[] },
  kind: string,
): string[] => plan.storyLines.filter((e) => e.kind === kind).map((e) => e.message);
const tick = (d: DeploymentRecord, over: Partial<Facts>) =>
  advance(d, { type: 'tick' }, facts({ live: [d], ...over }));

describe('the dataset versions of a deploy task', () => {
  it('a deploy task has the mounts, and the deployment stores the versions', () => {
    const d = on.built({ settings });
    const plan = tick(d, { datasets: both });
    expect(stateOf(plan, d.id)).toBe('deploying');
    expect(plan.createTasks[0]?.payload).toMatchObject({
      datasets: [
        {
          dataset_id: 's1',
          name: 'maps',
          mode: 'dependency',
          version: 3,
          mount_path: '/data/maps',
          bytes: 1000,
          manifest_digest: expect.any(String),
        },
        {
          dataset_id: 's2',
          name: 'shared',
          mode: 'readwrite',
          version: null,
          mount_path: '/srv/shared',
          manifest_digest: null,
        },
      ],
    });
    expect(changeOf(plan, d.id).datasets).toEqual([
      pin(3),
      pin(null, { dataset_id: 's2', name: 'shared', mode: 'readwrite' }),
    ]);
  });
  it('a deploy task gets additional time for its copy, at the measured rate or 10 MB/s if that is slower', () => {
    const d = on.built({ settings: { ...SETTINGS, datasets: [maps] } });
    const deadline = (copy_rate: number | null) =>
      tick(d, { datasets: [dataset({ bytes: 5e8 })], nodes: [node({ copy_rate })] }).createTasks[0]
        ?.wall_deadline_at;
    const base = NOW + DEFAULT_LIMITS.deployMs + 15_000;
    expect([deadline(null), deadline(1e9), deadline(1e6)]).toEqual([
      base + 50_000,
      base + 50_000,
      base + 500_000,
    ]);
    expect(copyMs(0, null)).toBe(0);
  });
  it('a deploy task gets additional time for the old version to drain and stop', () => {
    const slow = { ...SETTINGS, drain_seconds: 600, stop_grace_seconds: 900 };
    const deadline = (d: DeploymentRecord, live: DeploymentRecord[]) =>
      tick(d, { live: [...live, d] }).createTasks[0]?.wall_deadline_at;
    const own = (5 + 10) * 1000;
    expect(deadline(on.built(), [])).toBe(NOW + DEFAULT_LIMITS.deployMs + own);
    expect(deadline(on.built(), [old({ settings: slow })])).toBe(
      NOW + DEFAULT_LIMITS.deployMs + 1_500_000,
    );
    expect(deadline(on.built({ settings: { ...slow, replace: 'recreate' } }), [])).toBe(
      NOW + DEFAULT_LIMITS.deployMs + 1_500_000,
    );
  });
  it('the container that stops first gets the longer grace period of both releases', () => {
    const grace = (own: number, before: number) => {
      const d = on.built({
        settings: { ...SETTINGS, replace: 'recreate', stop_grace_seconds: own },
      });
      return tick(d, { live: [old({ settings: { ...SETTINGS, stop_grace_seconds: before } }), d] })
        .createTasks[0]?.payload;
    };
    expect(grace(2, 600)).toMatchObject({ stop_grace_seconds: 600 });
    expect(grace(600, 2)).toMatchObject({ stop_grace_seconds: 600 });
  });
  it('a deploy task gets start_seconds of its deployment as the time to answer, and more time in all', () => {
    const task = (start_seconds: number | null) =>
      tick(on.built({ settings: { ...SETTINGS, start_seconds } }), {}).createTasks[0];
    const base = NOW + DEFAULT_LIMITS.deployMs + 15_000;
    expect(task(null)).toMatchObject({
      wall_deadline_at: base,
      payload: { probe_seconds: DEFAULT_LIMITS.probeSeconds },
    });
    expect(task(1800)).toMatchObject({
      wall_deadline_at: base + 1_800_000,
      payload: { probe_seconds: 1800 },
    });
  });
  it.each([
    [
      'has no version yet',
      [dataset({ version: null, problem: 'the share hangs' })],
      'dataset_not_ready',
      'maps has no version yet: the share hangs',
    ],
    [
      'can be copied nowhere',
      [dataset({ status: 'unreachable' })],
      'dataset_unreachable',
      'maps, which is unreachable',
    ],
    ['has no room', [dataset({ bytes: 2e9 })], 'no_room', '2.0 GB missing, 1.0 GB free'],
  ] as const)(
    'waits while a dataset %s, and fails for that in the end',
    (_, datasets, code, why) => {
      const d = on.built({ settings: { ...SETTINGS, datasets: [maps] } });
      const plan = tick(d, { datasets: [...datasets] });
      expect(stateOf(plan, d.id)).toBeNull();
      expect(says(plan, 'waiting')).toEqual([expect.stringContaining(why)]);
      const late = waitingSince(d, NOW - DEFAULT_LIMITS.queueMs - 1);
      expect(changeOf(tick(late, { datasets: [...datasets] }), d.id)).toMatchObject({
        status: 'failed',
        error: { code },
      });
    },
  );
  it('fails at once if a dataset was deleted', () => {
    const d = on.built({ settings: { ...SETTINGS, datasets: [maps] } });
    expect(changeOf(tick(d, { datasets: [] }), d.id)).toMatchObject({
      status: 'failed',
      error: {
        code: 'dataset_not_ready',
        message: expect.stringContaining('dataset s1 was deleted'),
      },
    });
  });
  it('adds no line while only figures of the reason change', () => {
    const d = on.built({ settings: { ...SETTINGS, datasets: [maps] } });
    const over = (free_storage: number) => ({
      datasets: [dataset({ bytes: 2e9 })],
      nodes: [node({ free_storage })],
    });
    const waiting = changeOf(tick(d, over(1e9)), d.id).waiting ?? null;
    expect(tick({ ...d, waiting }, over(9e8)).storyLines).toEqual([]);
  });
  it.each([
    ['one path', '/data/maps'],
    ['one inside the other', '/data/maps/more'],
    ['one around the other', '/data'],
  ])(
    'two datasets at %s end it at once: a name may have changed since the project was checked',
    (_, mount_path) => {
      const d = on.built({
        settings: { ...SETTINGS, datasets: [maps, { ...shared, mode: 'dependency', mount_path }] },
      });
      expect(changeOf(tick(d, { datasets: both }), d.id)).toMatchObject({
        status: 'failed',
        error: { code: 'mount_conflict' },
      });
    },
  );
  it('stores the versions that the node mounted, because a dataset may change during the copy', () => {
    const d = on.deploying({ settings: { ...SETTINGS, datasets: [maps] }, datasets: [pin(3)] });
    const report = {
      status: 'completed' as const,
      host_port: 1,
      datasets: [
        { dataset_id: 's1', version: 4 },
        { dataset_id: 'other', version: 1 },
      ],
    };
    const plan = advance(
      d,
      { type: 'task_reported', task: task('deploy'), report },
      facts({ live: [d], tasks: [task('deploy')] }),
    );
    expect(changeOf(plan, d.id).datasets).toEqual([pin(4)]);
    expect(says(plan, 'dataset')).toEqual([expect.stringContaining('dataset maps: version 4')]);
  });
});

describe('the story mentions changed dataset versions', () => {
  it('compared to the running deployment', () => {
    const d = on.built({ settings: { ...SETTINGS, datasets: [maps] } });
    const serves = old({ datasets: [pin(1)] });
    const plan = tick(d, { live: [serves, d], datasets: [dataset()] });
    expect(says(plan, 'dataset')).toEqual([
      'dataset maps: version 3 (the running deployment 1 had version 1)',
    ]);
    expect(
      says(tick(d, { live: [old({ datasets: [pin(3)] }), d], datasets: [dataset()] }), 'dataset'),
    ).toEqual([]);
  });
  it('compared to a release for a rollback', () => {
    const release = on.ended('retired', {
      id: 'd0',
      generation: 1,
      image_tag: 'r/shop:1',
      datasets: [pin(2)],
    });
    const plan = request(
      { id: 'd9', commit: null, note: null, release },
      facts({ datasets: [dataset()] }),
    );
    expect(says(plan, 'dataset')).toEqual(['dataset maps: version 3 (the release had version 2)']);
  });
});

describe('a new version of a dataset of a running deployment', () => {
  const running = old({ datasets: [pin(2)], settings: { ...SETTINGS, datasets: [maps] } });
  const given = (on_dataset_change: 'ignore' | 'tell' | 'redeploy', over: Partial<Facts> = {}) =>
    onDatasetChange(
      'd9',
      running,
      facts({
        project: project({ on_dataset_change }),
        live: [running],
        datasets: [dataset()],
        ...over,
      }),
    );
  const told = [pin(2, { told: 3 })];

  it.each([
    ['ignore', [], null],
    ['tell', ['dataset maps has a new version 3; this deployment uses version 2'], null],
    [
      'redeploy',
      [
        'dataset maps has a new version 3; this deployment uses version 2',
        'dataset maps: version 3 (the release had version 2)',
      ],
      'd9',
    ],
  ] as const)('%s', (how, lines, created) => {
    const plan = given(how);
    expect(says(plan ?? { storyLines: [] }, 'dataset')).toEqual(lines);
    expect(plan?.createDeployment?.id ?? null).toBe(created);
    expect(changeOf(plan as never, running.id).datasets).toEqual(told);
  });
  it.each(['ignore', 'tell', 'redeploy'] as const)(
    '%s: once for each version, also when what was made of it has failed',
    (how) => {
      const again = { ...running, datasets: told };
      expect(given(how, { live: [again] })).toBeNull();
      expect(given(how, { live: [again], datasets: [dataset({ version: 4 })] })).not.toBeNull();
    },
  );
  it('redeploys the same image without a build', () => {
    const plan = given('redeploy');
    expect(plan?.createDeployment).toMatchObject({
      rollback_of: 'd1',
      image_digest: running.image_digest,
      note: 'dataset maps is now at version 3',
    });
  });
  it.each([on.pending(), on.building(), on.built(), on.deploying()])(
    'waits while a deployment is $status, which takes the new version itself',
    (d) => {
      expect(given('redeploy', { live: [running, d] })).toBeNull();
    },
  );
  it('does nothing if the deployment does not run or uses the newest version', () => {
    expect(given('tell', { live: [] })).toBeNull();
    expect(given('tell', { datasets: [dataset({ version: 2 })] })).toBeNull();
  });
});
