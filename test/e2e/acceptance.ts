/** Acceptance: the same suite runs through the built-in proxy and through the real Traefik. */
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { repositoryRoot } from '@berth/testbed/config';
import type { ProxyKind } from '@berth/testbed/platform';
import { startProber } from '@berth/testbed/prober';
import { waitFor } from '@berth/testbed/wait';
import { WebSocket } from 'ws';
import { pageApp, startWorld, versionOf, whyNot, type World } from './world.ts';

export async function acceptance(proxy: ProxyKind): Promise<void> {
  const reason = await whyNot(proxy);
  describe.skipIf(reason !== undefined)(
    `through ${proxy}${reason === undefined ? '' : ` (skipped: ${reason})`}`,
    () => {
      let world: World;
      beforeAll(async () => {
        world = await startWorld({ proxy, images: ['busybox:stable', 'node:24-slim'] });
      });
      afterAll(() => world?.stop());

      it('a git repository becomes a live address', async () => {
        const { berth, git } = world;
        const { url, sha } = await git.createRepo('page', pageApp(1));
        const project = await berth.createProject({
          name: 'page',
          git_url: url,
          domain_prefix: 'hello',
          drain_seconds: 1,
          stop_grace_seconds: 1,
        });
        const done = await berth.settled(await berth.deploy(project, { note: 'the first' }));
        expect(done).toMatchObject({
          status: 'running',
          error: null,
          commit: sha,
          generation: 1,
          note: 'the first',
        });
        expect(done.image_tag).toBe(`${world.registry.address}/page:${sha}`);
        expect(done.image_digest).toMatch(/^sha256:[0-9a-f]{64}$/);
        // `running` means that the proxy serves the deployment: the next request is answered by it.
        expect(await berth.get('hello')).toMatchObject({ status: 200, body: 'version 1\n' });
        expect(done.url).toBe(berth.address('hello'));
        expect(await world.registry.tags('page')).toContain(sha);
      });

      it('the serving container has the name, labels and limits of the contract', async () => {
        const { engine } = world;
        const inspect = await waitFor('svc-hello exists', async () => {
          const { stdout, code } = await engine.docker(['inspect', 'svc-hello'], { mayFail: true });
          return (
            code === 0 &&
            (
              JSON.parse(stdout) as {
                Config: { Labels: Record<string, string> };
                HostConfig: {
                  SecurityOpt: string[];
                  PidsLimit: number;
                  Init?: boolean;
                  RestartPolicy: { Name: string };
                };
              }[]
            )[0]
          );
        });
        expect(inspect.Config.Labels).toMatchObject({
          'berth.project_name': 'page',
          'berth.generation': '1',
        });
        expect(inspect.HostConfig.SecurityOpt).toContain('no-new-privileges');
        expect(inspect.HostConfig).toMatchObject({ RestartPolicy: { Name: 'unless-stopped' } });
        // The application is the first process, as under plain docker: it gets the signal itself.
        expect(inspect.HostConfig.Init ?? false).toBe(false);
        expect(inspect.HostConfig.PidsLimit).toBeGreaterThan(0);
      });

      it('a redeployment loses no request of a client, and the old container is removed', async () => {
        const { berth, git, engine } = world;
        const [project] = (await berth.api.call('listProjects', { query: {} })).items;
        if (project === undefined) throw new Error('the first test did not create the project');
        const prober = startProber({
          entry: berth.entry,
          host: `hello.${berth.baseDomain}`,
          perSecond: 50,
          versionOf,
        });
        await git.commit('page', pageApp(2), 'version 2');
        const done = await berth.settled(await berth.deploy(project));
        expect(done.status).toBe('running');
        await waitFor('a client receives version 2', () => prober.latest() === 2);
        await waitFor('the old container is gone', async () => {
          const { stdout } = await engine.docker([
            'ps',
            '-a',
            '--filter',
            'label=berth.project_name=page',
            '--format',
            '{{.Names}}',
          ]);
          return stdout.trim() === 'svc-hello';
        });
        const report = await prober.stop();
        expect(report).toMatchObject({ failed: 0, stale: 0, versions: [1, 2] });
        const { items } = await berth.api.call('listDeployments', {
          query: { project_id: project.id },
        });
        expect(items.map((d) => [d.generation, d.status])).toEqual([
          [2, 'running'],
          [1, 'retired'],
        ]);
      });

      it('a rollback does not build', async () => {
        const { berth } = world;
        const { items } = await berth.api.call('listDeployments', { query: {} });
        const first = items.find((d) => d.generation === 1);
        if (first === undefined) throw new Error('the first deployment is not listed');
        const back = await berth.api.call('rollback', {
          params: { id: first.project_id },
          body: { deployment_id: first.id },
        });
        const done = await berth.settled(back);
        expect(done).toMatchObject({
          status: 'running',
          rollback_of: first.id,
          image_digest: first.image_digest,
        });
        expect(done.events.map((e) => e.kind)).not.toContain('building');
        expect(await berth.get('hello')).toMatchObject({ body: 'version 1\n' });
      });

      it('WebSockets pass', async () => {
        const { berth, git } = world;
        const { url } = await git.createRepo('chat', join(repositoryRoot, 'examples', 'chat'));
        const project = await berth.createProject({
          name: 'chat',
          git_url: url,
          domain_prefix: 'chat',
        });
        expect(await berth.settled(await berth.deploy(project), 180_000)).toMatchObject({
          status: 'running',
        });
        const { host, port, secure } = berth.entry;
        const socket = new WebSocket(`${secure ? 'wss' : 'ws'}://${host}:${port}/socket`, {
          headers: { host: `chat.${berth.baseDomain}` },
          rejectUnauthorized: false,
        });
        const heard: string[] = [];
        socket.on('message', (data: Buffer) => heard.push(data.toString()));
        await waitFor('the socket is open', () => socket.readyState === WebSocket.OPEN);
        socket.send('ahoy');
        await waitFor('the chat sends the message back', () =>
          heard.some((text) => text.includes('ahoy')),
        );
        socket.close();
      });

      it('a host without a project is not found', async () => {
        expect((await world.berth.get('nobody')).status).toBe(404);
      });

      it('a project that requires a login is refused while no gateway can check the login', async () => {
        const { berth } = world;
        const project = {
          name: 'secret',
          git_url: 'https://git.example.org/app.git',
          domain_prefix: 'secret',
          auth_required: true,
        };
        const refused = berth.createProject(project);
        await expect(refused).rejects.toMatchObject({
          status: 422,
          message: expect.stringContaining('AUTH_SERVICE_URL'),
        });
        expect((await berth.get('secret')).status).toBe(404);
      });

      it('a deleted project loses its address, its container and its row', async () => {
        const { berth, engine } = world;
        const { items } = await berth.api.call('listProjects', { query: {} });
        const page = items.find((p) => p.name === 'page');
        if (page === undefined) throw new Error('no project page');
        await berth.api.call('deleteProject', { params: { id: page.id } });
        await waitFor(
          'the row is gone',
          async () =>
            (await berth.api.call('listProjects', { query: {} })).items.every(
              (p) => p.name !== 'page',
            ),
          { deadlineMs: 30_000 },
        );
        expect(
          (await engine.docker(['ps', '-aq', '--filter', 'label=berth.project_name=page'])).stdout,
        ).toBe('');
        await waitFor(
          'the address is unknown',
          async () => (await berth.get('hello')).status === 404,
          { deadlineMs: 10_000 },
        );
      });
    },
  );
}
