/**
 * Volumes on real parts: a file that the first deployment wrote is there after the next one, and
 * after the project is deleted.
 */
import { randomBytes } from 'node:crypto';
import { chmod, chown, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ApiError } from '@berth/wire/client';
import { toolsDir } from '@berth/testbed/config';
import { type Engine, startEngine } from '@berth/testbed/engine';
import { waitFor } from '@berth/testbed/wait';
import { ENDS_AT_ONCE, startWorld, whyNot, type World } from './world.ts';

/** Appends one line at each start, and serves its volume. */
const counterApp = {
  Dockerfile: [
    'FROM busybox:stable',
    'COPY run.sh /run.sh',
    ENDS_AT_ONCE,
    'EXPOSE 8080',
    'CMD ["sh", "/run.sh"]',
    '',
  ].join('\n'),
  'run.sh':
    'echo "start $GENERATION" >> /var/lib/app/starts\nexec httpd -f -p 8080 -h /var/lib/app\n',
};
const reason = await whyNot('built-in');

describe.skipIf(reason !== undefined)(
  `volumes${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    let world: World;
    let second: Engine | undefined;
    beforeAll(async () => {
      world = await startWorld({
        proxy: 'built-in',
        agents: async (engine) => {
          // Two nodes with one engine have one name for two containers, so the second one would wait
          // until the lease of the first one ends.
          if (engine.owned)
            second = await startEngine({
              dir: join(toolsDir, 'testbed'),
              private: true,
              fresh: true,
            });
          return [
            { name: 'builder-1', role: 'builder', engine },
            { name: 'node-1', role: 'deploy', engine },
            { name: 'node-2', role: 'deploy', engine: second ?? engine },
          ];
        },
      });
    });
    afterAll(async () => {
      await world?.stop();
      await second?.stop();
    });

    const page = async (): Promise<string> => (await world.berth.get('counter', '/starts')).body;

    /** The folders `data` of the project on a node. */
    async function foldersOf(projectId: string, hostname: string): Promise<string[]> {
      const files = await readdir(world.dir, { recursive: true });
      return files
        .filter((path) => path.includes(hostname) && path.endsWith(`/volumes/${projectId}/data`))
        .map((path) => join(world.dir, path));
    }

    it('a redeployment keeps what the version before wrote, a drain moves it, and the deletion of the project keeps the folders', {
      timeout: 300_000,
    }, async () => {
      const { berth, git } = world;
      const { url } = await git.createRepo('counter', counterApp);
      const volumes = [{ name: 'data', mount_path: '/var/lib/app' }];
      const settings = {
        name: 'counter',
        git_url: url,
        domain_prefix: 'counter',
        drain_seconds: 0,
        stop_grace_seconds: 1,
      };
      await expect(
        berth.api.call('createProject', { body: { ...settings, volumes, replace: 'rolling' } }),
      ).rejects.toSatisfy(
        (error) =>
          error instanceof ApiError &&
          error.status === 422 &&
          error.message.includes('two versions would write at once'),
      );
      const project = await berth.createProject({ ...settings, volumes, env: { GENERATION: '1' } });
      expect(project).toMatchObject({ volumes, replace: 'recreate' });
      expect(await berth.settled(await berth.deploy(project))).toMatchObject({ status: 'running' });
      await waitFor('the first version answers', async () => (await page()) === 'start 1\n');

      await berth.api.call('patchProject', { params: project, body: { env: { GENERATION: '2' } } });
      expect(await berth.settled(await berth.deploy(project))).toMatchObject({ status: 'running' });
      await waitFor(
        'the second version answers',
        async () => (await page()) === 'start 1\nstart 2\n',
      );

      const running = (
        await berth.api.call('listDeployments', {
          query: { project_id: project.id, status: 'running' },
        })
      ).items[0];
      const home = await berth.api.call('getNode', { params: { id: running?.node_id ?? '' } });
      const [before] = await foldersOf(project.id, home.hostname);
      await chown(join(before ?? '', 'starts'), 1234, 4321);
      await chmod(join(before ?? '', 'starts'), 0o640);
      await berth.api.call('drainNode', { params: home });
      const drained = async (): Promise<boolean> =>
        ((await berth.api.call('getNode', { params: home })).drain?.finished_at ?? null) !== null;
      await waitFor('the node is drained', drained, { deadlineMs: 60_000 });
      await waitFor(
        'the moved version answers',
        async () => (await page()) === 'start 1\nstart 2\nstart 2\n',
      );
      const [after] = await foldersOf(project.id, home.hostname === 'node-1' ? 'node-2' : 'node-1');
      const { uid, gid, mode } = await stat(join(after ?? '', 'starts'));
      expect([uid, gid, mode & 0o7777]).toEqual([1234, 4321, 0o640]);
      // The copy on the drained node stays. Its agent soon sets it aside, in .left.
      const old = (await readdir(world.dir, { recursive: true })).filter(
        (path) => path.includes(home.hostname) && /\/volumes\/.*\/data\/starts$/.test(path),
      );
      expect(await Promise.all(old.map((path) => readFile(join(world.dir, path), 'utf8')))).toEqual(
        ['start 1\nstart 2\n'],
      );
      const volumesOn = async (id: string) =>
        (await berth.api.call('nodeVolumes', { params: { id } })).items;
      expect(await volumesOn(home.id)).toMatchObject([
        { project: 'counter', state: 'old', kept_of_deleted: false, folders: [{ name: 'data' }] },
      ]);

      // A stopped project goes back with its data, and is not started.
      const { items: nodes } = await berth.api.call('listNodes', { query: {} });
      const other = nodes.find((node) => node.role === 'deploy' && node.id !== home.id);
      await berth.api.call('stopProject', { params: project });
      await berth.api.call('uncordonNode', { params: home });
      await berth.api.call('drainNode', { params: { id: other?.id ?? '' } });
      const left = async (): Promise<boolean> =>
        ((await berth.api.call('getNode', { params: { id: other?.id ?? '' } })).drain
          ?.finished_at ?? null) !== null;
      await waitFor('the volume of the stopped project has left', left, { deadlineMs: 90_000 });
      expect(await berth.api.call('getProject', { params: project })).toMatchObject({
        stopped: true,
      });
      expect((await berth.get('counter', '/starts')).status).toBe(503);
      const started = await berth.settled(
        await berth.api.call('startProject', { params: project }),
      );
      expect(started).toMatchObject({ status: 'running', node_id: home.id });
      await waitFor(
        'the start has all that was written',
        async () => (await page()) === 'start 1\nstart 2\nstart 2\nstart 2\n',
      );

      await berth.api.call('deleteProject', { params: project });
      const gone = async (): Promise<boolean> =>
        (await berth.api.call('listProjects', { query: {} })).items.length === 0;
      await waitFor('the project is gone', gone, { deadlineMs: 60_000 });
      const files = await readdir(world.dir, { recursive: true });
      expect(files.filter((path) => path.endsWith('/data/starts'))).toHaveLength(3);
    });

    it('a drain that is taken back during the copy loses nothing: the next drain copies what was written since', async () => {
      const { berth, git } = world;
      for (const node of (await berth.api.call('listNodes', { query: {} })).items)
        if (node.role === 'deploy') await berth.api.call('uncordonNode', { params: node });
      const { url } = await git.createRepo('counter-2', counterApp);
      const volumes = [{ name: 'data', mount_path: '/var/lib/app' }];
      const settings = {
        name: 'counter-2',
        git_url: url,
        domain_prefix: 'counter-2',
        drain_seconds: 0,
        stop_grace_seconds: 1,
        volumes,
      };
      const project = await berth.createProject({ ...settings, env: { GENERATION: '1' } });
      const first = await berth.settled(await berth.deploy(project));
      expect(first).toMatchObject({ status: 'running' });
      const lines = async (): Promise<string[]> => {
        const { status, body } = await berth.get('counter-2', '/starts');
        return status === 200 ? body.trim().split('\n') : [];
      };
      await waitFor('the first version answers', async () => (await lines()).length === 1);
      const home = await berth.api.call('getNode', { params: { id: first.node_id ?? '' } });
      const [folder] = await foldersOf(project.id, home.hostname);
      // Large enough to be under way when the drain is taken back.
      for (const name of ['big-1', 'big-2'])
        await writeFile(join(folder ?? '', name), randomBytes(200_000_000));
      const newest = async () => {
        const [deployment] = (
          await berth.api.call('listDeployments', { query: { project_id: project.id } })
        ).items;
        if (deployment === undefined) throw new Error('no deployment');
        return deployment;
      };
      await berth.api.call('drainNode', { params: home });
      const isCopying = async (): Promise<boolean> =>
        (await newest()).waiting?.includes('are being copied') === true;
      await waitFor('the copy is under way', isCopying, { deadlineMs: 60_000 });
      await berth.api.call('uncordonNode', { params: home });
      const back = await berth.settled(await newest());
      expect(back).toMatchObject({ status: 'running', node_id: home.id });
      const story = await berth.api.call('getDeployment', { params: back });
      expect(story.events?.map(({ message }) => message).join('\n')).toContain(
        `is not used: ${home.hostname} is not drained any more`,
      );
      await berth.settled(await berth.api.call('restartProject', { params: project }));
      await waitFor('three starts have written', async () => (await lines()).length === 3);

      await berth.api.call('drainNode', { params: home });
      const isDrained = async (): Promise<boolean> =>
        ((await berth.api.call('getNode', { params: home })).drain?.finished_at ?? null) !== null;
      await waitFor('the node is drained', isDrained, { deadlineMs: 120_000 });
      const moved = await newest();
      expect(moved.status).toBe('running');
      expect(moved.node_id).not.toBe(home.id);
      await waitFor('the moved version has every line', async () => (await lines()).length === 4);
    }, 240_000);
  },
);
