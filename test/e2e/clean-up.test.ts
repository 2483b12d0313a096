/** A clean-up of the registry on real parts: what no release needs goes, every kept release can be rolled back to, and no push meets it. */
import { waitFor } from '@berth/testbed/wait';
import type { Deployment } from '@berth/wire/deployment';
import type { Project } from '@berth/wire/project';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { pageApp, startWorld, versionOf, whyNot, type World } from './world.ts';

const reason = await whyNot();
const LATE = { deadlineMs: 90_000 };

describe.skipIf(reason !== undefined)(`clean-up of the registry${reason === undefined ? '' : ` (skipped: ${reason})`}`, () => {
  let world: World;
  let project: Project;
  const made: Deployment[] = [];
  beforeAll(async () => {
    world = await startWorld({
      proxy: 'built-in',
      cleans: true,
      env: { KEEP_RELEASES: '2', CLEAN_INTERVAL: 'none' },
      agentEnv: { BERTH_FAIL_POINTS: 'clean.collect.before=delay:3s' },
    });
    const { url } = await world.git.createRepo('shop', pageApp(1));
    project = await world.berth.createProject({
      name: 'shop',
      git_url: url,
      domain_prefix: 'shop',
      drain_seconds: 0,
      stop_grace_seconds: 1,
    });
    for (const version of [1, 2, 3]) {
      if (version > 1) await world.git.commit('shop', pageApp(version), `version ${version}`);
      made.push(await live(await world.berth.deploy(project)));
    }
  });
  afterAll(() => world?.stop());

  async function live(asked: Deployment): Promise<Deployment> {
    const done = await world.berth.settled(asked, 90_000);
    expect([done.status, done.error]).toEqual(['running', null]);
    return done;
  }
  const cleanUps = () => world.berth.api.call('cleanUps', {});
  const rollback = (to: Deployment | undefined) =>
    world.berth.api.call('rollback', { params: { id: project.id }, body: { deployment_id: to?.id ?? '' } });

  it('removes the image of the oldest release; a deployment that is requested meanwhile waits, and then runs', async () => {
    expect((await world.berth.api.call('startCleanUp', {})).current).toMatchObject({ state: 'waiting' });
    await waitFor('the clean-up runs', async () => (await cleanUps()).current?.state === 'running', LATE);
    await world.git.commit('shop', pageApp(4), 'version 4');
    const asked = await world.berth.deploy(project);
    await waitFor(
      'the deployment says why it waits',
      async () =>
        (await world.berth.api.call('getDeployment', { params: { id: asked.id } })).waiting ===
        'waits until the clean-up of the registry ends',
      LATE,
    );
    made.push(await live(asked));
    const [last] = (await cleanUps()).items;
    expect(last).toMatchObject({ state: 'done', images: 1, removed: 1, missing: 0, error: null });
    expect(last?.bytes_after).toBeLessThan(last?.bytes_before ?? 0);
  });

  it('refuses a rollback to the removed image before it begins, and says what to do', async () => {
    const [first] = made;
    await expect(rollback(first)).rejects.toMatchObject({
      code: 'no_release',
      message: expect.stringMatching(/^.*the image of deployment 1 was removed from the registry at .* deploy commit [0-9a-f]{40} instead/),
    });
    expect((await world.berth.api.call('getDeployment', { params: { id: first?.id ?? '' } })).image_removed_at).not.toBeNull();
  });

  it('every kept release can be rolled back to, with its image from the registry', async () => {
    // The node has no image any more, so each one is pulled.
    for (const [i, version] of [
      [2, 3],
      [1, 2],
    ] as const) {
      const tag = made[i]?.image_tag ?? '';
      await world.engine.docker(['image', 'rm', '--force', tag, `${tag.replace(/:[^:/]*$/, '')}@${made[i]?.image_digest}`], {
        mayFail: true,
      });
      await live(await rollback(made[i]));
      expect(versionOf((await world.berth.get('shop')).body)).toBe(version);
    }
  });
});
