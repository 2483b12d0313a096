/**
 * A worker beside `web`, on real parts: the switch with both start rules, a worker that exits, a
 * restart loop, scale, logs by process, count 0 of `web`, and stop and start.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Deployment } from '@berth/wire/deployment';
import type { Project } from '@berth/wire/project';
import { waitFor } from '@berth/testbed/wait';
import { pageApp, startWorld, whyNot, type World } from './world.ts';

const reason = await whyNot('built-in');
/** Prints a line each second, and the end on SIGTERM. `touch /tmp/fail` makes it exit with 7. */
const TICKS =
  'trap "echo worker ends; exit 0" TERM; echo worker starts $SIZE; ' +
  'while [ ! -e /tmp/fail ]; do sleep 1; done; exit 7';
const worker = { name: 'worker', command: ['sh', '-c', TICKS] };
type Container = { id: string; name: string; state: string; process: string };

describe.skipIf(reason !== undefined)(
  `processes${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    let world: World;
    let project: Project;
    let push: (version: number) => Promise<unknown>;
    beforeAll(async () => {
      world = await startWorld({ proxy: 'built-in' });
      const { berth, git } = world;
      const repo = await git.createRepo('shop', pageApp(1, ['STOPSIGNAL SIGTERM']));
      push = (version) =>
        git.commit('shop', pageApp(version, ['STOPSIGNAL SIGTERM']), `version ${version}`);
      project = await berth.createProject({
        name: 'shop',
        git_url: repo.url,
        domain_prefix: 'shop',
        env: { SIZE: '3' },
        settle_seconds: 1,
        drain_seconds: 0,
        stop_grace_seconds: 2,
        processes: [{ name: 'web' }, worker],
      });
      expect(await berth.settled(await berth.deploy(project))).toMatchObject({ status: 'running' });
    }, 240_000);
    afterAll(() => world?.stop());

    const api = () => world.berth.api;
    const live = async (): Promise<Deployment> => {
      const { running_deployment_id: id } = await api().call('getProject', { params: project });
      return api().call('getDeployment', { params: { id: id ?? '' } });
    };
    const containers = async (): Promise<Container[]> => {
      const { stdout } = await world.engine.docker([
        ...['ps', '--all', '--no-trunc', '--filter', `label=berth.project=${project.id}`],
        ...['--format', '{{.ID}} {{.Names}} {{.State}} {{.Label "berth.process"}}'],
      ]);
      return stdout
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => {
          const [id = '', name = '', state = '', process = ''] = line.split(' ');
          return { id, name, state, process };
        });
    };
    const names = async (): Promise<string[]> =>
      (await containers()).map(({ name, state }) => `${name} ${state}`).toSorted();
    const untilNames = (wanted: string[]): Promise<unknown> =>
      waitFor(
        `the containers are ${wanted.join(', ')}`,
        async () => JSON.stringify(await names()) === JSON.stringify(wanted),
        { deadlineMs: 60_000 },
      );
    const patch = (body: object): Promise<Project> =>
      api().call('patchProject', { params: project, body });
    const deployed = async (): Promise<Deployment> =>
      world.berth.settled(await world.berth.deploy(project));
    const story = async ({ id }: Deployment): Promise<string> =>
      (await api().call('getDeployment', { params: { id } })).events
        .map(({ message }) => message)
        .join('\n');

    it('runs beside web, without a port, with env and its own command', async () => {
      await untilNames(['svc-shop running', 'svc-shop-worker-1 running']);
      const { instances, health } = await live();
      expect(instances.map((i) => [i.process, i.number, i.state, i.host_port !== null])).toEqual([
        ['web', 1, 'serving', true],
        ['worker', 1, 'up', false],
      ]);
      expect(health).toMatchObject({ status: 'healthy' });
      const logs = await api().call('projectLogs', {
        params: project,
        query: { process: 'worker' },
      });
      expect(logs.lines.map(({ text, process }) => [text, process])).toContainEqual([
        'worker starts 3',
        'worker',
      ]);
    });

    it('stops before the new one starts, after the switch', async () => {
      const [before] = (await containers()).filter(({ process }) => process === 'worker');
      await push(2);
      expect(await deployed()).toMatchObject({ status: 'running' });
      await untilNames(['svc-shop running', 'svc-shop-worker-1 running']);
      const [after] = (await containers()).filter(({ process }) => process === 'worker');
      expect(after?.id).not.toBe(before?.id);
      expect((await world.berth.get('shop')).body).toContain('version 2');
      await waitFor(
        'the health is healthy',
        async () => (await live()).health?.status === 'healthy',
      );
      const text = await story(await live());
      expect(text.indexOf('live: ')).toBeLessThan(text.indexOf('worker 1 runs on'));
    });

    it('scales at once', async () => {
      await api().call('scaleProject', { params: project, body: { worker: 2 } });
      await untilNames([
        'svc-shop running',
        'svc-shop-worker-1 running',
        'svc-shop-worker-2 running',
      ]);
      await api().call('scaleProject', { params: project, body: { worker: 1 } });
      await untilNames(['svc-shop running', 'svc-shop-worker-1 running']);
    });

    it('that exits before it has settled fails the deployment; the old version runs on', async () => {
      const { id } = await live();
      await patch({
        processes: [
          { name: 'web' },
          { ...worker, command: ['sh', '-c', 'echo no database; exit 3'], replace: 'rolling' },
        ],
      });
      const failed = await deployed();
      expect(failed).toMatchObject({
        status: 'failed',
        error: { code: 'process_exited', message: expect.stringContaining('exit code 3') },
      });
      const log = await api().call('deploymentLogs', { params: { id: failed.id } });
      expect(log.lines.map(({ text }) => text)).toContain('no database');
      expect((await live()).id).toBe(id);
      await untilNames(['svc-shop running', 'svc-shop-worker-1 running']);
      await patch({ processes: [{ name: 'web' }, worker] });
    });

    it('that restarts again and again is unhealthy, and the project is degraded', async () => {
      const [one] = (await containers()).filter(({ process }) => process === 'worker');
      await world.engine.docker(['exec', one?.id ?? '', 'touch', '/tmp/fail']);
      await waitFor(
        'the worker is unhealthy',
        async () =>
          (await live()).instances.some(
            ({ state, detail }) => state === 'unhealthy' && (detail ?? '').includes('restarted'),
          ),
        { deadlineMs: 60_000 },
      );
      const { health } = await live();
      expect(health?.status).toBe('degraded');
      expect(health?.detail).toContain('worker');
      expect((await world.berth.get('shop')).status).toBe(200);
      await world.engine.docker(['rm', '-f', one?.id ?? '']);
      await waitFor(
        'another worker runs',
        async () => (await live()).instances.filter(({ state }) => state === 'up').length === 1,
        { deadlineMs: 60_000 },
      );
      await untilNames(['svc-shop running', 'svc-shop-worker-1 running']);
    });

    it('goes on while web has count 0, and ends when a person stops the project', async () => {
      await api().call('scaleProject', { params: project, body: { web: 0 } });
      await untilNames(['svc-shop exited', 'svc-shop-worker-1 running']);
      expect((await world.berth.get('shop')).status).toBe(503);
      await api().call('scaleProject', { params: project, body: { web: 1 } });
      await untilNames(['svc-shop running', 'svc-shop-worker-1 running']);
      await api().call('stopProject', { params: project });
      await untilNames(['svc-shop exited']);
      await api().call('startProject', { params: project });
      await untilNames(['svc-shop running', 'svc-shop-worker-1 running']);
    });

    it('runs without web: no address, a page with 503, and stop, start and web again', async () => {
      await patch({ processes: [worker] });
      expect(await deployed()).toMatchObject({ status: 'running', node_id: null });
      await untilNames(['svc-shop-worker-1 running']);
      expect((await api().call('getProject', { params: project })).url).toBeNull();
      expect((await world.berth.get('shop')).status).toBe(503);
      const { instances, health } = await live();
      expect(instances.map((i) => [i.process, i.state])).toEqual([['worker', 'up']]);
      expect(health).toMatchObject({ status: 'healthy' });
      const { lines } = await api().call('projectLogs', { params: project, query: {} });
      expect(lines.map(({ process }) => process)).toContain('worker');

      await api().call('stopProject', { params: project });
      await untilNames([]);
      await api().call('startProject', { params: project });
      await untilNames(['svc-shop-worker-1 running']);

      await patch({ processes: [{ name: 'web' }, worker] });
      expect(await deployed()).toMatchObject({ status: 'running' });
      await untilNames(['svc-shop running', 'svc-shop-worker-1 running']);
      expect((await world.berth.get('shop')).status).toBe(200);
    });

    it('shares a volume with web: all stop first, and all start before the switch', async () => {
      const write = ['sh', '-c', 'echo $HOSTNAME >> /data/log; exec tail -f /dev/null'];
      await patch({
        processes: [{ name: 'web' }, { name: 'worker', command: write }],
        volumes: [{ name: 'data', mount_path: '/data' }],
        replace: 'recreate',
      });
      expect(await deployed()).toMatchObject({ status: 'running' });
      await untilNames(['svc-shop running', 'svc-shop-worker-1 running']);
      const [web] = (await containers()).filter(({ name }) => name === 'svc-shop');
      const { stdout } = await world.engine.docker(['exec', web?.id ?? '', 'cat', '/data/log']);
      expect(stdout.trim().split('\n')).toHaveLength(1);
      await patch({ processes: [{ name: 'web' }, { name: 'worker', command: ['false'] }] });
      expect(await deployed()).toMatchObject({ error: { code: 'process_exited' } });
      await untilNames(['svc-shop running', 'svc-shop-worker-1 running']);
      await waitFor(
        'both instances run',
        async () => (await live()).instances.map(({ state }) => state).join() === 'serving,up',
        { deadlineMs: 60_000 },
      );
      await patch({ processes: [{ name: 'web' }, worker], volumes: [], replace: 'rolling' });
      expect(await deployed()).toMatchObject({ status: 'running' });
    });

    it('is not left when the process or the project is removed', async () => {
      await patch({ processes: [{ name: 'web' }] });
      expect(await deployed()).toMatchObject({ status: 'running' });
      await untilNames(['svc-shop running']);
      await patch({ processes: [{ name: 'web' }, worker] });
      expect(await deployed()).toMatchObject({ status: 'running' });
      await untilNames(['svc-shop running', 'svc-shop-worker-1 running']);
      await api().call('deleteProject', { params: project });
      await untilNames([]);
    });
  },
);
