/**
 * Stop, start, restart and rollback without a body, through the real Traefik, with a gateway that
 * has the page of a stopped project.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Project } from '@berth/wire/project';
import { startProber } from '@berth/testbed/prober';
import { waitFor } from '@berth/testbed/wait';
import { pageApp, startWorld, versionOf, whyNot, type World } from './world.ts';

const reason = await whyNot('traefik');

describe.skipIf(reason !== undefined)(
  `stop, start and restart${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    let world: World;
    let project: Project;
    beforeAll(async () => {
      world = await startWorld({
        proxy: 'traefik',
        gateway: {
          env: () => ({
            OIDC_ISSUER: 'http://127.0.0.1:9',
            OIDC_CLIENT_ID: 'x',
            OIDC_CLIENT_SECRET: 'x',
          }),
        },
      });
    });
    afterAll(() => world?.stop());

    const containers = async (): Promise<string[]> => {
      const { stdout } = await world.engine.docker([
        'ps',
        '-q',
        '--filter',
        'label=berth.project_name=shop',
      ]);
      return stdout.split('\n').filter((id) => id !== '');
    };
    const answer = async (status: number, text: string): Promise<boolean> => {
      const got = await world.berth.get('shop');
      return got.status === status && got.body.includes(text);
    };

    it('a restart gives a new container and loses no request', async () => {
      const { berth, git } = world;
      const { url } = await git.createRepo('shop', pageApp(1));
      project = await berth.createProject({
        name: 'shop',
        git_url: url,
        domain_prefix: 'shop',
        drain_seconds: 1,
        stop_grace_seconds: 1,
      });
      expect(await berth.settled(await berth.deploy(project))).toMatchObject({ status: 'running' });
      const [before] = await containers();
      const prober = startProber({
        entry: berth.entry,
        host: `shop.${berth.baseDomain}`,
        perSecond: 50,
        versionOf,
      });
      const done = await berth.settled(await berth.api.call('restartProject', { params: project }));
      expect(done).toMatchObject({ status: 'running', trigger: 'restart' });
      expect(done.events.map(({ kind }) => kind)).not.toContain('building');
      await waitFor(
        'the old container is gone',
        async () =>
          (await containers()).length === 1 && !(await containers()).includes(before ?? ''),
      );
      expect(await prober.stop()).toMatchObject({ failed: 0, versions: [1] });
    });

    it(
      'a container that somebody removes is created again on its node',
      async () => {
        const { berth, engine } = world;
        const before = await containers();
        await engine.docker(['rm', '--force', ...before]);
        await waitFor('visitors see version 1 again', () => answer(200, 'version 1'), {
          deadlineMs: 120_000,
        });
        const [deployment] = (
          await berth.api.call('listDeployments', {
            query: { project_id: project.id, status: 'running' },
          })
        ).items;
        const { events } = await waitFor('the deployment is healthy', async () => {
          const d = await berth.api.call('getDeployment', { params: { id: deployment?.id ?? '' } });
          return d.health?.status === 'healthy' && d;
        });
        expect(events.map(({ message }) => message)).toContainEqual(
          expect.stringMatching(/^its container does not exist any more; it is created again on /),
        );
        const after = await containers();
        expect(after).toHaveLength(1);
        expect(before).not.toContain(after[0]);
      },
      3 * 60_000,
    );

    it('a stopped project answers 503 with a page, keeps no container, and ignores a second stop', async () => {
      const { berth } = world;
      expect(await berth.api.call('stopProject', { params: project })).toMatchObject({
        stopped: true,
      });
      await waitFor('visitors see the page', () => answer(503, 'stopped'));
      await waitFor('its container is gone', async () => (await containers()).length === 0);
      await expect(berth.api.call('stopProject', { params: project })).resolves.toMatchObject({
        stopped: true,
      });
      await berth.controlPlane.stop();
      expect(await berth.get('shop')).toMatchObject({
        status: 503,
        body: expect.stringContaining('stopped'),
      });
      await berth.controlPlane.start();
    });

    it('a start runs the same release again without a build', async () => {
      const { berth } = world;
      const done = await berth.settled(await berth.api.call('startProject', { params: project }));
      expect(done).toMatchObject({ status: 'running', trigger: 'start' });
      expect(done.events.map(({ kind }) => kind)).not.toContain('building');
      await waitFor('visitors see version 1', () => answer(200, 'version 1'));
      expect(await berth.api.call('getProject', { params: project })).toMatchObject({
        stopped: false,
      });
    });

    it('a rollback without a body runs the release before', async () => {
      const { berth, git } = world;
      await git.commit('shop', pageApp(2), 'version 2');
      expect(await berth.settled(await berth.deploy(project))).toMatchObject({ status: 'running' });
      await waitFor('visitors see version 2', () => answer(200, 'version 2'));
      const done = await berth.settled(
        await berth.api.call('rollback', { params: project, body: {} }),
      );
      expect(done).toMatchObject({ status: 'running', trigger: 'rollback' });
      await waitFor('visitors see version 1', () => answer(200, 'version 1'));
    });
  },
);
