/**
 * A clean-up of the registry on real parts: what no release needs goes, every kept release can be
 * rolled back to, and no push meets it.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { missingParts, registryHeaders } from '@berth/testbed/images';
import { run } from '@berth/testbed/process';
import { waitFor } from '@berth/testbed/wait';
import type { Deployment } from '@berth/wire/deployment';
import type { Project } from '@berth/wire/project';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { pageApp, startWorld, versionOf, whyNot, type World } from './world.ts';

const reason = await whyNot();
const LATE = { deadlineMs: 90_000 };

describe.skipIf(reason !== undefined)(
  `clean-up of the registry${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    let world: World;
    let project: Project;
    const made: Deployment[] = [];
    beforeAll(async () => {
      world = await startWorld({
        proxy: 'built-in',
        cleans: true,
        env: { KEEP_RELEASES: '3', CLEAN_INTERVAL: 'none' },
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
      for (const version of [1, 2, 3, 4]) {
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
      world.berth.api.call('rollback', {
        params: { id: project.id },
        body: { deployment_id: to?.id ?? '' },
      });

    it('removes the image of the oldest release; a deployment that is requested meanwhile waits, and then runs', async () => {
      expect((await world.berth.api.call('startCleanUp', {})).current).toMatchObject({
        state: 'waiting',
      });
      await waitFor(
        'the clean-up runs',
        async () => (await cleanUps()).current?.state === 'running',
        LATE,
      );
      await world.git.commit('shop', pageApp(5), 'version 5');
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

    it('the next clean-up removes the release that the new one pushed out', async () => {
      await world.berth.api.call('startCleanUp', {});
      await waitFor(
        'both clean-ups have ended',
        async () => (await cleanUps()).items.length === 2,
        LATE,
      );
      expect((await cleanUps()).items[0]).toMatchObject({
        state: 'done',
        images: 1,
        removed: 1,
        missing: 0,
        error: null,
      });
    });

    it('refuses a rollback to a removed image before it begins, and says what to do', async () => {
      const count = async () =>
        (await world.berth.api.call('listDeployments', { query: { project_id: project.id } })).items
          .length;
      const before = await count();
      for (const [i, removed] of made.slice(0, 2).entries()) {
        await expect(rollback(removed)).rejects.toMatchObject({
          code: 'no_release',
          message: expect.stringMatching(
            new RegExp(
              `the image of deployment ${i + 1} was removed from the registry at .* deploy ` +
                'commit [0-9a-f]{40} instead',
            ),
          ),
        });
        const seen = await world.berth.api.call('getDeployment', { params: { id: removed.id } });
        expect(seen.image_removed_at).not.toBeNull();
      }
      expect(await count()).toBe(before);
    });

    it('every kept release can be rolled back to, with its image from the registry', async () => {
      for (const kept of made.slice(2))
        expect(
          await missingParts(world.registry, repository(kept), kept.image_digest ?? ''),
        ).toEqual([]);
      // The last one runs, so it comes last: an image that runs cannot be removed from the node.
      for (const version of [4, 3, 5]) {
        const to = made[version - 1];
        await removeFromNode(to);
        const done = await live(await rollback(to));
        expect(versionOf((await world.berth.get('shop')).body)).toBe(version);
        expect((await world.berth.logs(done)).join('\n')).toContain('pulling ');
      }
    });

    it('says that the registry does not allow deletions, and every release stays', async () => {
      await world.git.commit('shop', pageApp(6), 'version 6');
      made.push(await live(await world.berth.deploy(project)));
      const text = await readFile(world.registry.config, 'utf8');
      const config = JSON.parse(text) as { storage: { delete: { enabled: boolean } } };
      config.storage.delete.enabled = false;
      await useConfig(JSON.stringify(config), 405);
      const before = (await cleanUps()).items.length;
      await world.berth.api.call('startCleanUp', {});
      await waitFor(
        'the clean-up has ended',
        async () => (await cleanUps()).items.length > before,
        LATE,
      );
      expect((await cleanUps()).items[0]).toMatchObject({
        state: 'failed',
        images: 1,
        removed: null,
        error: {
          code: 'registry_delete_disabled',
          message:
            'The registry does not allow the deletion of images: set storage.delete.enabled: ' +
            `true in ${world.registry.config} and restart the registry`,
        },
      });
      // The release that the clean-up would have removed, and the registry takes images.
      await live(await rollback(made[3]));
      expect(versionOf((await world.berth.get('shop')).body)).toBe(4);
      await useConfig(text, 404);
      await world.berth.api.call('startCleanUp', {});
      await waitFor(
        'the next clean-up has ended',
        async () => (await cleanUps()).items.length > before + 1,
        LATE,
      );
      expect((await cleanUps()).items[0]).toMatchObject({ state: 'done', missing: 0, error: null });
    });

    /**
     * Restarts the registry with another configuration. `answers`: its answer to the deletion of an
     * unknown image.
     */
    const useConfig = async (text: string, answers: number): Promise<void> => {
      const { registry } = world;
      await writeFile(registry.config, text);
      await run([...(registry.restart ?? [])] as [string, ...string[]]);
      const url = `${registry.url}/v2/shop/manifests/sha256:${'0'.repeat(64)}`;
      await waitFor(
        'the registry reads its configuration',
        async () => {
          const answer = await fetch(url, { method: 'DELETE', headers: registryHeaders(registry) });
          await answer.body?.cancel();
          return answer.status === answers;
        },
        LATE,
      );
    };
    const repository = (of: Deployment): string =>
      (of.image_tag ?? '').replace(/^[^/]*\//, '').replace(/:[^:/]*$/, '');
    /**
     * Waits until the container that used the image is gone, and removes the image under all its
     * names.
     */
    const removeFromNode = async (of: Deployment | undefined): Promise<void> => {
      const ref = `${(of?.image_tag ?? '').replace(/:[^:/]*$/, '')}@${of?.image_digest}`;
      const isThere = async (name: string): Promise<boolean> =>
        (await world.engine.docker(['image', 'inspect', name], { mayFail: true })).code === 0;
      await waitFor(
        `the node has no image of deployment ${of?.generation}`,
        async () => {
          for (const name of [of?.image_tag ?? '', ref])
            if (await isThere(name))
              await world.engine.docker(['image', 'rm', '--force', name], { mayFail: true });
          return !(await isThere(ref));
        },
        LATE,
      );
    };
  },
);
