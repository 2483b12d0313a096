/**
 * Several instances and other versions: from the last release to this version and back, with
 * machines and agents of Berth, under load.
 */
import { repositoryRoot } from '@berth/testbed/config';
import { type Prober, startProber } from '@berth/testbed/prober';
import { provideRelease, type Release, whyNoRelease } from '@berth/testbed/release';
import { waitFor } from '@berth/testbed/wait';
import type { Deployment } from '@berth/wire/deployment';
import type { Project } from '@berth/wire/project';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type ManyNodes, startManyNodes, whyNotManyNodes } from '../e2e/many-nodes-world.ts';
import { pageApp, versionOf } from '../e2e/world.ts';

const reason = whyNotManyNodes() ?? (await whyNoRelease());
const MINUTE = 60_000;

describe.skipIf(reason !== undefined)(
  `instances and other versions${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    let release: Release;
    let world: ManyNodes;
    let project: Project;
    let first: Deployment;
    let prober: Prober;
    /** Scaled to 0 by this version. */
    let rest: Project;
    beforeAll(async () => {
      release = await provideRelease();
      world = await startManyNodes({ deployNodes: 2, release: release.root });
      project = await create('page');
      rest = await create('rest');
      expect(await world.berth.settled(await world.berth.deploy(rest), 2 * MINUTE)).toMatchObject({
        status: 'running',
      });
      first = await world.berth.settled(await world.berth.deploy(project), 2 * MINUTE);
      expect(first).toMatchObject({ status: 'running' });
      await waitFor('its container has its name', async () =>
        (await see()).events?.some(({ kind }) => kind === 'retire_done'),
      );
      prober = startProber({
        entry: world.berth.entry,
        host: `page.${world.berth.baseDomain}`,
        perSecond: 50,
        versionOf,
      });
    }, 5 * MINUTE);
    afterAll(async () => {
      await prober?.stop();
      await world?.stop();
      await release?.remove();
    });
    const create = async (name: string): Promise<Project> => {
      const { url } = await world.git.createRepo(name, pageApp(1));
      return world.berth.createProject({
        name,
        git_url: url,
        domain_prefix: name,
        drain_seconds: 2,
        stop_grace_seconds: 1,
      });
    };
    const use = async (root: string): Promise<void> => {
      world.berth.controlPlane.use(root);
      expect(await world.berth.controlPlane.stop()).toBe(0);
      await world.berth.controlPlane.start();
    };
    const served = async (): Promise<unknown> => {
      const config = (await (
        await fetch(`${world.berth.url}/api/traefik/config`)
      ).json()) as Record<'http', Record<'routers' | 'services', Record<string, unknown>>>;
      const ofProject = (all: Record<string, unknown>): [string, unknown][] =>
        Object.entries(all).filter(([name]) => name.startsWith('page'));
      return [ofProject(config.http.routers), ofProject(config.http.services)];
    };
    const containers = async (of = project, which = '-aq'): Promise<string[]> =>
      (
        await Promise.all(
          world.nodes.map((node) =>
            node.docker(['ps', which, '--filter', `label=berth.project=${of.id}`]),
          ),
        )
      ).flatMap(({ stdout }) => stdout.split('\n').filter((id) => id !== ''));
    const restingState = async (): Promise<unknown> => [
      (await world.api.call('getProject', { params: rest })).stopped,
      (await containers(rest, '-q')).length,
      (await world.ask('rest')).status,
    ];
    const see = (): Promise<Deployment> => world.api.call('getDeployment', { params: first });
    const useAgents = async (root: string): Promise<void> => {
      for (const node of world.nodes) {
        node.agent.use(root);
        await node.stopAgent();
        await node.startAgent();
      }
    };
    /** Waits until both agents have registered after now. */
    async function registered(): Promise<void> {
      const from = new Date().toISOString();
      await waitFor(
        'both agents registered',
        async () =>
          (await world.api.call('listNodes', { query: {} })).items
            .filter(({ role }) => role === 'deploy')
            .every(({ last_seen_at }) => last_seen_at > from),
        { deadlineMs: MINUTE },
      );
    }
    const serves = (count: number): Promise<unknown> =>
      waitFor(
        `${count} instances serve`,
        async () =>
          (await see()).instances.filter(({ state }) => state === 'serving').length === count &&
          (await containers()).length === count,
        { deadlineMs: 2 * MINUTE },
      );

    it(
      'an upgrade with one instance changes no container, no story and no route',
      async () => {
        const before = [await served(), await containers(), (await see()).events];
        await use(repositoryRoot);
        await registered();
        expect([await served(), await containers(), (await see()).events]).toEqual(before);
      },
      3 * MINUTE,
    );

    it(
      'agents of the release get one instance at most; the second one waits and says why',
      async () => {
        await world.api.call('scaleProject', { params: project, body: { web: 2 } });
        await waitFor('the second instance waits', async () =>
          (await see()).instances.some(
            ({ state, detail }) => state === 'waiting' && detail?.includes('second instance'),
          ),
        );
        expect(await containers()).toHaveLength(1);
      },
      MINUTE,
    );

    it(
      'it starts when the agents were upgraded',
      async () => {
        // Otherwise it starts on the first upgraded machine.
        await world.api.call('scaleProject', { params: project, body: { web: 1 } });
        await useAgents(repositoryRoot);
        await world.api.call('scaleProject', { params: project, body: { web: 2 } });
        await serves(2);
        expect(new Set((await see()).instances.map(({ node_id }) => node_id)).size).toBe(2);
      },
      4 * MINUTE,
    );

    it(
      'a project that is scaled to 0 rests',
      async () => {
        await world.api.call('scaleProject', { params: rest, body: { web: 0 } });
        await waitFor(
          'its container has stopped',
          async () => (await containers(rest, '-q')).length === 0,
          { deadlineMs: MINUTE },
        );
        expect(await restingState()).toEqual([true, 0, 503]);
      },
      2 * MINUTE,
    );

    it(
      'agents of the release keep both containers',
      async () => {
        const before = await containers();
        await useAgents(release.root);
        await registered();
        expect((await containers()).toSorted()).toEqual(before.toSorted());
        await serves(2);
      },
      3 * MINUTE,
    );

    it(
      'the release serves with the first instance, and the others end; count 0 is a stopped project',
      async () => {
        await use(release.root);
        await waitFor('one container is left', async () => (await containers()).length === 1, {
          deadlineMs: 2 * MINUTE,
        });
        expect((await see()).status).toBe('running');
        expect((await world.ask('page')).body).toBe('version 1\n');
        expect(await restingState()).toEqual([true, 0, 503]);
      },
      4 * MINUTE,
    );

    it(
      'this version brings the second instance back, and count 0 rests until it is scaled up: 0 failed in all',
      async () => {
        await use(repositoryRoot);
        await useAgents(repositoryRoot);
        await serves(2);
        expect(await restingState()).toEqual([true, 0, 503]);
        await world.api.call('scaleProject', { params: rest, body: { web: 1 } });
        await waitFor('it answers again', async () => (await world.ask('rest')).status === 200, {
          deadlineMs: 2 * MINUTE,
        });
        const report = await prober.stop();
        console.log(`instances, upgrade: ${report.failed} of ${report.sent} requests failed`);
        expect(report).toMatchObject({ failures: [], failed: 0, stale: 0 });
      },
      5 * MINUTE,
    );
  },
);
