/**
 * Several instances of one version on three machines, through the real proxy: no request of a client
 * fails because of a deployment, a scale or a drain.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Deployment } from '@berth/wire/deployment';
import type { Project } from '@berth/wire/project';
import { type Prober, startProber } from '@berth/testbed/prober';
import { waitFor } from '@berth/testbed/wait';
import {
  type ManyNodes,
  type ManyNodesNode,
  startManyNodes,
  whyNotManyNodes,
} from './many-nodes-world.ts';
import { pageApp, versionOf } from './world.ts';

const reason = whyNotManyNodes();
const REDEPLOYS = 10;
const MINUTE = 60_000;

type ContainerLine = { id: string; name: string; state: string; instance: string };

describe.skipIf(reason !== undefined)(
  `several instances${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    let world: ManyNodes;
    let project: Project;
    let version = 1;
    let prefix = 'many';
    beforeAll(async () => {
      world = await startManyNodes({ deployNodes: 3 });
      const { url } = await world.git.createRepo('many', pageApp(1));
      project = await world.berth.createProject({
        name: 'many',
        git_url: url,
        domain_prefix: prefix,
        drain_seconds: 2,
        stop_grace_seconds: 1,
        processes: [{ name: 'web', count: 3 }],
      });
      await world.api.call('putSecret', {
        params: { id: project.id, name: 'TOKEN' },
        body: { value: 'first-value-of-the-token', as: 'file' },
      });
    }, 3 * MINUTE);
    afterAll(() => world?.stop());

    const probe = (perSecond = 25): Prober =>
      startProber({
        entry: world.berth.entry,
        host: `${prefix}.${world.berth.baseDomain}`,
        perSecond,
        versionOf,
      });
    async function live(): Promise<Deployment> {
      const { items } = await world.api.call('listDeployments', {
        query: { project_id: project.id, status: 'running' },
      });
      return world.api.call('getDeployment', { params: { id: items[0]?.id ?? '' } });
    }
    async function containersOn(node: ManyNodesNode): Promise<ContainerLine[]> {
      const { stdout } = await node.docker([
        'ps',
        '--all',
        '--no-trunc',
        '--filter',
        `label=berth.project=${project.id}`,
        '--format',
        '{{.ID}} {{.Names}} {{.State}} {{.Label "berth.instance"}}',
      ]);
      return stdout
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => {
          const [id = '', name = '', state = '', instance = ''] = line.split(' ');
          return { id, name, state, instance };
        });
    }
    const containers = async (): Promise<ContainerLine[]> =>
      (await Promise.all(world.nodes.map(containersOn))).flat();
    const serving = async (): Promise<Deployment['instances']> =>
      (await live()).instances.filter(({ state }) => state === 'serving');
    /** Returns the number of servers of the project that the proxy gets. */
    async function servers(): Promise<number> {
      const answer = await fetch(`${world.berth.url}/api/traefik/config`);
      const { http } = (await answer.json()) as {
        http: { services: Record<string, { loadBalancer?: { servers: unknown[] } }> };
      };
      return http.services['many']?.loadBalancer?.servers.length ?? 0;
    }
    /** Waits until so many instances serve, each with one running container and no other one is left. */
    const settledAt = (count: number, deadlineMs = MINUTE): Promise<unknown> =>
      waitFor(
        `${count} instances serve, and no other container is left`,
        async () => {
          const d = await live();
          const all = await containers();
          const ids = all.filter(({ state }) => state === 'running').map(({ id }) => id);
          return (
            d.instances.length === count &&
            d.instances.every(
              ({ state, container_id }) =>
                state === 'serving' && ids.some((id) => id.startsWith(container_id ?? '-')),
            ) &&
            all.length === count &&
            (await servers()) === count &&
            d.health?.status === 'healthy'
          );
        },
        { deadlineMs, intervalMs: 250 },
      ).catch(async (error: unknown) => {
        const d = await live();
        throw new Error(
          JSON.stringify(
            [String(error), d.health, d.instances, await containers(), d.events?.slice(-20)],
            null,
            1,
          ),
        );
      });
    const names = async (): Promise<string[][]> =>
      (await Promise.all(world.nodes.map(containersOn))).map((all) =>
        all.map(({ name }) => name).toSorted(),
      );
    const scale = (web: number): Promise<Project> =>
      world.api.call('scaleProject', { params: project, body: { web } });
    const clean = { failures: [], failed: 0, stale: 0 };
    async function redeploy(): Promise<void> {
      version += 1;
      await world.git.commit('many', pageApp(version), `version ${version}`);
      expect(
        await world.berth.settled(await world.berth.deploy(project), 2 * MINUTE),
      ).toMatchObject({ status: 'running', error: null });
    }

    it(
      'a deployment starts three instances on three machines, and switches once',
      async () => {
        const done = await world.berth.settled(await world.berth.deploy(project), 2 * MINUTE);
        expect(done).toMatchObject({ status: 'running', error: null });
        expect(new Set(done.instances.map(({ node_id }) => node_id)).size).toBe(3);
        expect(done.events?.filter(({ kind }) => kind === 'route_published')).toHaveLength(1);
        await settledAt(3);
        await waitFor('each container has the name of the contract', async () =>
          (await names()).every((all) => all.join() === 'svc-many'),
        );
      },
      4 * MINUTE,
    );

    it(
      'scale 3, 1, 2, 3 under load: 0 failed',
      async () => {
        const prober = probe();
        for (const count of [1, 2, 3]) {
          await scale(count);
          await settledAt(count);
        }
        expect(await prober.stop()).toMatchObject({ ...clean, versions: [1] });
      },
      5 * MINUTE,
    );

    it(
      `${REDEPLOYS} redeployments with three instances: 0 failed, none of the old version after the switch`,
      async () => {
        const prober = probe();
        const first = version;
        for (let i = 0; i < REDEPLOYS; i++) {
          await redeploy();
          await waitFor('a client receives it', () => prober.latest() === version);
        }
        const report = await prober.stop();
        console.log(`${REDEPLOYS} redeployments: ${report.sent} requests, ${report.failed} failed`);
        expect(report).toMatchObject(clean);
        expect(report.versions).toEqual(Array.from({ length: REDEPLOYS + 1 }, (_, i) => i + first));
        await settledAt(3);
      },
      10 * MINUTE,
    );

    it(
      'a rollback and a restart under load: 0 failed',
      async () => {
        const prober = startProber({
          entry: world.berth.entry,
          host: `${prefix}.${world.berth.baseDomain}`,
          perSecond: 25,
          versionOf: () => 0,
        });
        for (const request of [
          () => world.api.call('rollback', { params: project, body: {} }),
          () => world.api.call('restartProject', { params: project }),
        ]) {
          const done = await world.berth.settled(await request(), 2 * MINUTE);
          expect(done).toMatchObject({ status: 'running', error: null });
          await settledAt(3);
        }
        expect(await prober.stop()).toMatchObject(clean);
      },
      4 * MINUTE,
    );

    it(
      'a stop keeps no container that runs, and a start starts all three',
      async () => {
        await world.api.call('stopProject', { params: project });
        await waitFor(
          'visitors see the page',
          async () => (await world.ask(prefix)).status === 503,
        );
        await waitFor(
          'no container runs',
          async () => (await containers()).every(({ state }) => state !== 'running'),
          { deadlineMs: MINUTE },
        );
        const started = await world.api.call('startProject', { params: project });
        expect(await world.berth.settled(started, 2 * MINUTE)).toMatchObject({ status: 'running' });
        await settledAt(3);
        expect((await world.ask(prefix)).status).toBe(200);
      },
      4 * MINUTE,
    );

    it(
      'the drain of the machine of the first instance moves only the instance there: 0 failed',
      async () => {
        const before = await live();
        const home = world.node(before.node_id);
        const stay = before.instances.filter(({ node_id }) => node_id !== home.nodeId);
        const prober = probe();
        await world.api.call('drainNode', { params: { id: home.nodeId } });
        const drained = async (): Promise<boolean> =>
          ((await world.api.call('getNode', { params: { id: home.nodeId } })).drain?.finished_at ??
            null) !== null;
        await waitFor('the node is drained', drained, { deadlineMs: MINUTE });
        await settledAt(3);
        expect(await prober.stop()).toMatchObject(clean);
        const after = await live();
        expect(after.id).toBe(before.id);
        expect(after.node_id).not.toBe(home.nodeId);
        for (const { container_id } of stay)
          expect(after.instances.map((one) => one.container_id)).toContain(container_id);
        expect(await containersOn(home)).toEqual([]);
      },
      4 * MINUTE,
    );

    it(
      'a drain that nothing can take waits and says why, and ends its replacement when it is taken back',
      async () => {
        const [one] = await serving();
        for (const node of world.nodes)
          await world.api.call('cordonNode', { params: { id: node.nodeId } });
        const id = one?.node_id ?? '';
        await world.api.call('drainNode', { params: { id } });
        await waitFor('the drain says why', async () => {
          const { drain } = await world.api.call('getNode', { params: { id } });
          return drain?.left[0]?.problem?.includes('no other node can take web') === true;
        });
        expect(await serving()).toHaveLength(3);
        for (const node of world.nodes)
          await world.api.call('uncordonNode', { params: { id: node.nodeId } });
        await settledAt(3);
        expect((await live()).instances.map(({ id: of }) => of)).toContain(one?.id);
      },
      3 * MINUTE,
    );

    it(
      'a fourth instance shares a machine, with its own name and its own secrets',
      async () => {
        await world.api.call('putSecret', {
          params: { id: project.id, name: 'TOKEN' },
          body: { value: 'second-value-of-the-token', as: 'file' },
        });
        const before = new Set((await containers()).map(({ id }) => id));
        await scale(5);
        await settledAt(5);
        for (const node of world.nodes)
          for (const { id } of await containersOn(node)) {
            const { stdout } = await node.docker(['exec', id, 'cat', '/run/secrets/TOKEN']);
            expect(stdout, id).toBe(`${before.has(id) ? 'first' : 'second'}-value-of-the-token`);
          }
        const all = (await names()).flat();
        expect(new Set(all).size).toBeGreaterThan(1);
        await redeploy();
        await settledAt(5);
        await scale(3);
        await settledAt(3);
      },
      6 * MINUTE,
    );

    it.each([0, 1])(
      'a killed container comes back, and the others serve (place %i)',
      async (place) => {
        const killed = (await serving())[place];
        const home = world.node(killed?.node_id ?? null);
        await home.docker(['kill', killed?.container_id ?? '']);
        await waitFor('its instance left the route', async () => (await serving()).length === 2);
        expect((await live()).health).toMatchObject({
          status: 'degraded',
          detail: '2 of 3 instances serve',
        });
        expect(await servers()).toBe(2);
        const prober = probe();
        // The engine does not restart a container that a person killed.
        await home.docker(['start', killed?.container_id ?? '']);
        await settledAt(3, 2 * MINUTE);
        expect(await prober.stop()).toMatchObject(clean);
      },
      4 * MINUTE,
    );

    it(
      'one that hangs leaves the route, and comes back when it answers again: 0 failed afterwards',
      async () => {
        await world.api.call('patchProject', { params: project, body: { health_path: '/' } });
        await redeploy();
        await settledAt(3);
        const hanging = (await serving())[1];
        const home = world.node(hanging?.node_id ?? null);
        const signal = (name: string): Promise<unknown> =>
          home.docker(['kill', '--signal', name, hanging?.container_id ?? '']);
        await signal('STOP');
        await waitFor('its instance left the route', async () => (await servers()) === 2, {
          deadlineMs: MINUTE,
        });
        expect((await live()).instances.find(({ id }) => id === hanging?.id)).toMatchObject({
          state: 'unhealthy',
          detail: 'it does not answer: GET /: no answer in time, 3 times in a row',
        });
        const prober = probe();
        await signal('CONT');
        await settledAt(3);
        expect(await prober.stop()).toMatchObject(clean);
        await world.api.call('patchProject', { params: project, body: { health_path: null } });
        await redeploy();
        await settledAt(3);
      },
      5 * MINUTE,
    );

    it(
      'a killed agent changes nothing: 0 failed, and each container stays',
      async () => {
        const [, second] = await serving();
        const home = world.node(second?.node_id ?? null);
        const before = (await containers()).map(({ id }) => id).toSorted();
        const prober = probe();
        await home.agent.crash();
        await home.startAgent();
        await settledAt(3);
        expect(await prober.stop()).toMatchObject(clean);
        expect((await containers()).map(({ id }) => id).toSorted()).toEqual(before);
      },
      3 * MINUTE,
    );

    it(
      'a killed engine: its instance comes back and serves',
      async () => {
        const [, second] = await serving();
        const home = world.node(second?.node_id ?? null);
        const { faults } = home.engine;
        if (faults === undefined) throw new Error('the engine is not a private one');
        for (const how of ['SIGKILL', 'power-cut'] as const) {
          await faults.restartDaemon(how);
          // The cut ends the agent too.
          if (how === 'power-cut') await home.startAgent();
          await settledAt(3, 3 * MINUTE);
        }
        for (let i = 0; i < 12; i++) expect((await world.ask(prefix)).status).toBe(200);
      },
      5 * MINUTE,
    );

    it(
      'another domain_prefix takes effect with the next deployment, on every machine',
      async () => {
        await world.api.call('patchProject', {
          params: project,
          body: { domain_prefix: 'other' },
        });
        version += 1;
        await world.git.commit('many', pageApp(version), `version ${version}`);
        const done = await world.berth.settled(await world.berth.deploy(project), 2 * MINUTE);
        expect(done).toMatchObject({ status: 'running' });
        prefix = 'other';
        await settledAt(3);
        await waitFor('each container has its new name', async () =>
          (await names()).flat().every((name) => name.startsWith('svc-other')),
        );
        expect((await world.ask('other')).body).toBe(`version ${version}\n`);
      },
      4 * MINUTE,
    );

    it(
      'the deletion of the project leaves no container',
      async () => {
        await world.api.call('deleteProject', { params: project });
        await waitFor(
          'the project is gone',
          async () => (await world.api.call('listProjects', { query: {} })).items.length === 0,
          { deadlineMs: MINUTE },
        );
        expect(await containers()).toEqual([]);
      },
      2 * MINUTE,
    );
  },
);
