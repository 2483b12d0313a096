/**
 * kill -9 of each process at each stage of a deployment, then a start with the same settings: no
 * acknowledged write is lost, every deployment ends, and live versions keep serving.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Project } from '@berth/wire/project';
import type { DeploymentState } from '@berth/wire/vocabulary';
import type { Service } from '@berth/testbed/platform';
import { waitFor } from '@berth/testbed/wait';
import { pageApp, startWorld, versionOf, whyNot, type World } from '../e2e/world.ts';

const reason = await whyNot();

/**
 * A build that is slow enough to be hit by a kill, and an application that needs 2 s until it
 * answers.
 */
const slowApp = (version: number) => ({
  Dockerfile: [
    'FROM busybox:stable',
    'COPY www /www',
    'RUN cat /www/index.html && sleep 3',
    'CMD ["sh", "-c", "sleep 2; exec httpd -f -p 8080 -h /www"]',
    '',
  ].join('\n'),
  'www/index.html': `version ${version}\n`,
});

type Row = { who: string; stage: DeploymentState };
const ROWS: Row[] = [
  { who: 'control-plane', stage: 'building' },
  { who: 'control-plane', stage: 'deploying' },
  { who: 'the builder', stage: 'building' },
  { who: 'node-1', stage: 'deploying' },
  { who: 'proxy', stage: 'deploying' },
];

describe.skipIf(reason !== undefined)(
  `kill -9${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    let world: World;
    let project: Project;
    let version = 1;
    beforeAll(async () => {
      world = await startWorld({
        proxy: 'built-in',
        env: { LEASE_TTL: '6s', CLAIM_TIMEOUT: '20s' },
        agents: (engine) => [
          { name: 'builder-1', role: 'builder', engine },
          { name: 'builder-2', role: 'builder', engine },
          { name: 'node-1', role: 'deploy', engine },
        ],
      });
      const { url } = await world.git.createRepo('app', slowApp(version));
      project = await world.berth.createProject({
        name: 'app',
        git_url: url,
        domain_prefix: 'app',
        drain_seconds: 0,
        stop_grace_seconds: 1,
      });
      expect(await world.berth.settled(await world.berth.deploy(project))).toMatchObject({
        status: 'running',
      });
    });
    afterAll(() => world?.stop());

    const service = (who: string): Service => {
      const found =
        who === 'control-plane'
          ? world.berth.controlPlane
          : who === 'proxy'
            ? world.berth.proxy
            : world.berth.agents[who];
      if (found === undefined) throw new Error(`no process ${who}`);
      return found;
    };
    const builderOf = (asked: { id: string }): Promise<string> =>
      waitFor(
        'a builder claimed the build',
        async () => {
          const { events } = await world.berth.api.call('getDeployment', {
            params: { id: asked.id },
          });
          return events
            .map((e) => /(builder-\d) took the build/.exec(e.message)?.[1])
            .find((name) => name !== undefined);
        },
        { intervalMs: 10 },
      );
    const onlyTheNewContainer = () =>
      waitFor(
        'exactly one container exists, under its final name',
        async () => {
          const { stdout } = await world.engine.docker([
            'ps',
            '-a',
            '--filter',
            'label=berth.project_name=app',
            '--format',
            '{{.Names}}',
          ]);
          return stdout.trim() === 'svc-app';
        },
        { deadlineMs: 60_000 },
      );

    it.each(ROWS.map((row) => [`${row.who} while ${row.stage}`, row] as const))(
      '%s',
      async (_, row) => {
        const { berth, git } = world;
        version++;
        await git.commit('app', slowApp(version), `version ${version}`);
        const asked = await berth.deploy(project);
        await waitFor(
          `the deployment is ${row.stage}`,
          async () =>
            (await berth.api.call('getDeployment', { params: { id: asked.id } })).status ===
            row.stage,
          { deadlineMs: 60_000, intervalMs: 10 },
        );
        const victim = service(row.who === 'the builder' ? await builderOf(asked) : row.who);
        await victim.crash();
        // Containers do not depend on any process of Berth. Their address depends only on the
        // proxy.
        if (row.who !== 'proxy') expect(versionOf((await berth.get('app')).body)).toBe(version - 1);
        await victim.start();
        const done = await berth.settled(asked);
        expect({ status: done.status, error: done.error }).toEqual({
          status: 'running',
          error: null,
        });
        await waitFor(
          `version ${version} is served`,
          async () => versionOf((await berth.get('app')).body) === version,
        );
        await onlyTheNewContainer();
      },
    );

    it('an acknowledged deployment survives a kill of the control plane right after the answer', async () => {
      const { berth, git } = world;
      version++;
      await git.commit('app', slowApp(version), `version ${version}`);
      const asked = await berth.deploy(project);
      await berth.controlPlane.crash();
      await berth.controlPlane.start();
      expect(await berth.settled(asked)).toMatchObject({ status: 'running' });
      await onlyTheNewContainer();
    });

    it('another builder builds when the first one does not come back', async () => {
      const { berth, git } = world;
      version++;
      await git.commit('app', slowApp(version), `version ${version}`);
      const asked = await berth.deploy(project);
      const builder = await builderOf(asked);
      await service(builder).crash();
      const done = await berth.settled(asked);
      expect({ status: done.status, error: done.error }).toEqual({
        status: 'running',
        error: null,
      });
      const other = builder === 'builder-1' ? 'builder-2' : 'builder-1';
      expect(done.events.map((e) => e.message)).toEqual(
        expect.arrayContaining([
          expect.stringContaining(`${builder} stopped reporting`),
          expect.stringContaining(`${other} took the build`),
        ]),
      );
      await service(builder).start();
    });

    it('a restarted container gets a new port, and its route follows', async () => {
      const { berth, engine } = world;
      const before = (
        await berth.api.call('listDeployments', {
          query: { project_id: project.id, status: 'running' },
        })
      ).items[0];
      await engine.docker(['restart', '-t', '1', 'svc-app']);
      await waitFor(
        'the project answers again',
        async () => (await berth.get('app')).status === 200,
        { deadlineMs: 60_000 },
      );
      const after = await berth.api.call('getDeployment', { params: { id: before?.id ?? '' } });
      expect(after.status).toBe('running');
      expect(after.host_port).not.toBeNull();
    });

    it('a cancelled build ends when the agent has stopped it', async () => {
      const { berth, git } = world;
      await git.commit(
        'app',
        { ...pageApp(99), Dockerfile: 'FROM busybox:stable\nRUN sleep 300\n' },
        'hangs',
      );
      const asked = await berth.deploy(project);
      await waitFor(
        'the build step runs',
        async () => (await berth.logs(asked)).some((line) => line.includes('sleep 300')),
        {
          deadlineMs: 30_000,
        },
      );
      const from = Date.now();
      expect(await berth.api.call('cancelDeployment', { params: { id: asked.id } })).toMatchObject({
        cancel_requested: true,
      });
      expect(await berth.settled(asked, 20_000)).toMatchObject({ status: 'cancelled' });
      expect(Date.now() - from).toBeLessThan(15_000);
      await git.commit('app', slowApp(version), 'as it was');
    });

    it('a newer deployment supersedes a building one', async () => {
      const { berth, git } = world;
      await git.commit(
        'app',
        { ...pageApp(98), Dockerfile: 'FROM busybox:stable\nRUN sleep 301\n' },
        'hangs again',
      );
      const first = await berth.deploy(project);
      await waitFor(
        'the deployment is building',
        async () =>
          (await berth.api.call('getDeployment', { params: { id: first.id } })).status ===
          'building',
        { intervalMs: 10 },
      );
      version++;
      await git.commit('app', slowApp(version), `version ${version}`);
      const second = await berth.deploy(project);
      expect(await berth.settled(first)).toMatchObject({ status: 'superseded' });
      expect(await berth.settled(second)).toMatchObject({ status: 'running' });
      await waitFor(
        `version ${version} is served`,
        async () => versionOf((await berth.get('app')).body) === version,
      );
    });
  },
);
