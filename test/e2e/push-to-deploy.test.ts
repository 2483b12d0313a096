/**
 * Push to deploy end to end: a push to the real Gitea goes live through the real Traefik, without a
 * person, and Gitea shows the status of each commit. The repository is private.
 */
import type { Deployment } from '@berth/wire/deployment';
import { waitFor } from '@berth/testbed/wait';
import type { Delivery } from '@berth/wire/hook';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type ForgeWorld, startForgeWorld, whyNoForge } from './forge-world.ts';
import { pageApp, versionOf } from './world.ts';

const reason = await whyNoForge();
const PUSHES = 20;
/** Long enough for a machine on which other tests run. */
const DEADLINE_MS = 120_000;

type Status = { status: string; context: string; target_url: string; description: string };

describe.skipIf(reason !== undefined)(
  `a push to the real Gitea${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    let world: ForgeWorld;
    let params: { id: string };
    beforeAll(async () => {
      world = await startForgeWorld();
      params = { id: world.project.id };
    }, 240_000);
    afterAll(() => world?.stop());

    const until = <T>(
      what: string,
      check: () => Promise<T | undefined | null | false>,
    ): Promise<T> => waitFor(what, check, { deadlineMs: DEADLINE_MS, intervalMs: 50 });
    const live = (wanted: number): Promise<unknown> =>
      until(
        `version ${wanted} is live`,
        async () => versionOf((await world.berth.get('app')).body) === wanted,
      );
    const deliveries = async (): Promise<Delivery[]> =>
      (await world.berth.api.call('listDeliveries', { params, query: { limit: 100 } })).items;
    const delivery = (what: string, isIt: (d: Delivery) => boolean): Promise<Delivery> =>
      until(`the delivery ${what} has a verdict`, async () =>
        (await deliveries()).find((d) => isIt(d) && d.verdict !== null),
      );
    const deliveryOf = (sha: string): Promise<Delivery> =>
      delivery(`of ${sha}`, (d) => d.commit === sha);
    /** Returns what Gitea shows of a commit, oldest first. */
    const statuses = async (sha: string): Promise<Status[]> =>
      await world.gitea.api<Status[]>(
        'GET',
        `${world.path}/commits/${sha}/statuses?sort=highestindex`,
      );
    /** Waits until Gitea shows no pending status of the commit any more. */
    const finalStatus = (sha: string): Promise<Status> =>
      until(`Gitea shows the final status of ${sha}`, async () => {
        const newest = (await statuses(sha)).at(-1);
        return newest !== undefined && newest.status !== 'pending' && newest;
      });
    const deployments = async (): Promise<Deployment[]> =>
      (await world.berth.api.call('projectDeployments', { params, query: { limit: 100 } }))
        .items as Deployment[];
    const deploymentOf = (sha: string): Promise<Deployment> =>
      until(`a deployment of ${sha}`, async () =>
        (await deployments()).find((d) => d.commit === sha),
      );
    const linkTo = (d: { id: string }) =>
      expect.stringMatching(new RegExp(`^https://.*/deployments/${d.id}$`));

    it('is live without a person; Gitea shows pending, then success, and the address', {
      timeout: 240_000,
    }, async () => {
      const sha = await world.push();
      await live(world.version());
      const deployment = await deploymentOf(sha);
      expect(deployment).toMatchObject({
        trigger: 'hook',
        created_by: { kind: 'hook', name: 'gitea' },
      });
      // Gitea may report the first commit late: then that delivery finds the tip.
      await deliveryOf(sha);
      const causes = (await deliveries()).filter(
        (d) => d.deployment_id === deployment.id && d.verdict === 'deployed',
      );
      expect(causes).toMatchObject([
        { id: deployment.created_by?.id, event: 'push', branch: 'main', reason: null },
      ]);
      await finalStatus(sha);
      const common = { context: 'berth/app', target_url: linkTo(deployment) };
      expect(await statuses(sha)).toMatchObject([
        {
          ...common,
          status: 'pending',
          description: `deployment ${deployment.generation} is in progress`,
        },
        {
          ...common,
          status: 'success',
          description: `deployment ${deployment.generation} is live`,
        },
      ]);
      const shown = await until('Berth knows that it was sent', async () => {
        const { commit_status } = await world.berth.api.call('getDeployment', {
          params: { id: deployment.id },
          query: {},
        });
        return (commit_status?.sent_at ?? null) !== null && commit_status;
      });
      expect(shown).toMatchObject({ state: 'success', error: null, given_up: false });
    });

    it('is skipped with a reason: repeated by Gitea, skip mark, other branch, deleted branch, tag, path', {
      timeout: 240_000,
    }, async () => {
      const { berth, gitea, repo, path, hookId } = world;
      const [newest] = await deliveries();
      await gitea.api('POST', `${path}/hooks/${hookId}/tests`);
      await repo.push({ 'README.md': 'topic' }, 'a topic', 'topic');
      await repo.deleteBranch('topic');
      await gitea.api('POST', `${path}/tags`, { tag_name: 'v1', target: 'main' });
      const repeated = await delivery(
        'that Gitea repeats',
        (d) => d.commit === newest?.commit && d.id !== newest?.id,
      );
      expect(repeated).toMatchObject({
        event: 'push',
        verdict: 'skipped',
        reason: expect.stringContaining('is already live as deployment'),
      });
      expect(repeated.deployment_id).toBe((await deploymentOf(repeated.commit ?? '')).id);

      const marked = await repo.push({ 'README.md': 'new' }, 'Correct the docs\n\n[skip ci]');
      expect(await deliveryOf(marked)).toMatchObject({
        verdict: 'skipped',
        reason: expect.stringContaining('[skip ci]'),
      });

      await berth.api.call('patchProject', {
        params,
        body: { watch_paths: ['www', 'Dockerfile'] },
      });
      const unwatched = await repo.push({ 'README.md': 'newer' }, 'Only docs');
      const nothing = {
        verdict: 'skipped',
        reason: expect.stringContaining('nothing under www, Dockerfile changed'),
      };
      expect(await deliveryOf(unwatched)).toMatchObject(nothing);
      for (const sha of [marked, unwatched]) expect(await statuses(sha)).toEqual([]);

      const reasonOf = async (what: string, isIt: (d: Delivery) => boolean) =>
        (await delivery(what, isIt)).reason;
      const topic = await reasonOf(
        'of the topic',
        (d) => d.event === 'push' && d.branch === 'topic',
      );
      expect(topic).toBe('the push is to topic; the project deploys main');
      expect(await reasonOf('of the deleted branch', (d) => d.event === 'delete')).toBe(
        'the event is “delete”, not a push',
      );
      expect(await reasonOf('of the tag', (d) => d.event === 'tag')).toBe(
        'the event is a tag, not a push to a branch',
      );
      // All of this left the deployed version as it was.
      expect((await deployments())[0]?.commit).toBe(newest?.commit);
    });

    it('whose build fails: Gitea shows the failure and why; the version before still serves', {
      timeout: 240_000,
    }, async () => {
      const served = world.version();
      const sha = await world.push({
        Dockerfile: pageApp(0, ['RUN echo broken && exit 3'])['Dockerfile'] as string,
      });
      const failed = await finalStatus(sha);
      const deployment = await deploymentOf(sha);
      const description = `deployment ${deployment.generation} failed: A step of the Dockerfile failed`;
      expect(failed).toMatchObject({
        status: 'failure',
        description,
        target_url: linkTo(deployment),
      });
      expect(deployment).toMatchObject({ status: 'failed', error: { code: 'build_step_failed' } });
      expect(versionOf((await world.berth.get('app')).body)).toBe(served);
    });

    it(`${PUSHES} pushes in a minute: the last one is live, and each one is reported`, {
      timeout: 420_000,
    }, async () => {
      const before = (await deployments())[0]?.generation ?? 0;
      const from = performance.now();
      const pushed: string[] = [];
      let most = 0;
      for (let n = 0; n < PUSHES; n++) {
        pushed.push(await world.push());
        const open = (await deployments()).filter((d) =>
          ['pending', 'building', 'built', 'deploying'].includes(d.status),
        );
        most = Math.max(most, open.length);
      }
      const took = performance.now() - from;
      await live(world.version());
      const lived = performance.now() - from;
      // One that deploys and one that is built or waits.
      expect(most).toBeLessThanOrEqual(2);

      const verdicts = new Map<string, Delivery>();
      for (const sha of pushed) verdicts.set(sha, await deliveryOf(sha));
      expect((await deliveries()).filter((d) => pushed.includes(d.commit ?? ''))).toHaveLength(
        PUSHES,
      );
      const made = (await deployments()).filter((d) => d.generation > before);
      const last = made[0] as Deployment;
      expect(last).toMatchObject({ status: 'running', commit: pushed.at(-1), trigger: 'hook' });
      for (const [sha, d] of verdicts) {
        const by = made.find((one) => one.id === d.deployment_id);
        expect(by, `the delivery of ${sha} leads to a deployment`).toBeDefined();
        // A check that began before this push may have found it, or a newer one, at the tip.
        const skipped = by?.commit === sha ? /already/ : /^a newer push replaced it$|already/;
        expect([d.verdict, d.reason]).toEqual(
          d.verdict === 'deployed'
            ? ['deployed', null]
            : ['skipped', expect.stringMatching(skipped)],
        );
      }
      const shown = new Map<string, Status>();
      for (const sha of pushed) shown.set(sha, await finalStatus(sha));
      for (const [sha, { status, description, target_url }] of shown) {
        const own = made.find((d) => d.commit === sha);
        const wanted =
          own === undefined
            ? [
                'failure',
                expect.stringMatching(/^superseded: a newer push is deployed as deployment \d+$/),
              ]
            : own.status === 'superseded'
              ? ['failure', expect.stringMatching(`^deployment ${own.generation} was superseded: `)]
              : ['success', `deployment ${own.generation} is live`];
        expect([status, description]).toEqual(wanted);
        expect(target_url).toEqual(linkTo(own ?? { id: verdicts.get(sha)?.deployment_id ?? '' }));
      }
      expect(shown.get(pushed.at(-1) ?? '')?.status).toBe('success');
      const seconds = (ms: number): string => (ms / 1000).toFixed(0);
      console.log(
        `${PUSHES} pushes in ${seconds(took)} s, the last one live after ${seconds(lived)} s: ` +
          `${made.length} deployments`,
      );
    });
  },
);
