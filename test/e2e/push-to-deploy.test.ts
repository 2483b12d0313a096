/**
 * Push to deploy end to end: a push to the real Gitea goes live through the real Traefik, without a person, and Gitea shows the status
 * of the commit. The repository is private.
 */
import { join } from 'node:path';
import { findGitea } from '@berth/testbed/config';
import { type Gitea, type GiteaRepo, startGitea } from '@berth/testbed/gitea';
import { waitFor } from '@berth/testbed/wait';
import type { Delivery } from '@berth/wire/hook';
import type { Project } from '@berth/wire/project';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { pageApp, startWorld, versionOf, whyNot, type World } from './world.ts';

const reason = (await whyNot('traefik')) ?? (findGitea() === undefined ? 'no Gitea: put it on PATH, or set GITEA_BIN' : undefined);
const PUSHES = 20;

type Status = { status: string; context: string; target_url: string; description: string };

describe.skipIf(reason !== undefined)(`a push to the real Gitea${reason === undefined ? '' : ` (skipped: ${reason})`}`, () => {
  let world: World;
  let gitea: Gitea;
  let repo: GiteaRepo;
  let project: Project;
  let version = 1;
  beforeAll(async () => {
    // Gitea and its API are on loopback, which Berth reaches only if an operator names the host.
    world = await startWorld({ proxy: 'traefik', env: { ALLOWED_GIT_HOSTS: '127.0.0.1' } });
    gitea = await startGitea({ dir: join(world.dir, 'gitea') });
    repo = await gitea.createRepo('app', pageApp(version));
    project = await createProject(repo);
  }, 240_000);
  afterAll(async () => {
    await gitea?.stop();
    await world?.stop();
  });

  /** Creates the project as a developer does, and its deploy key, token and hook; enters them at Gitea. */
  async function createProject({ sshUrl }: GiteaRepo): Promise<Project> {
    const { api, url } = world.berth;
    const settings = { drain_seconds: 0, stop_grace_seconds: 1 };
    const created = await api.call('createProject', { body: { name: 'app', domain_prefix: 'app', git_url: sshUrl, ...settings } });
    const params = { id: created.id };
    for (const key of await gitea.hostKeys()) await api.call('putGitHost', { params: { host: `127.0.0.1:${gitea.sshPort}` }, body: key });
    const { public_key } = await api.call('createDeployKey', { params });
    await gitea.api('POST', `/repos/${gitea.owner}/app/keys`, { title: 'berth', key: public_key, read_only: true });
    await api.call('putGitToken', { params, body: { token: gitea.token, api_url: gitea.url } });
    const hook = await api.call('putHook', { params, body: { forge: 'gitea' } });
    const config = { url: `${url}${new URL(hook.url).pathname}`, content_type: 'json', secret: hook.secret };
    await gitea.api('POST', `/repos/${gitea.owner}/app/hooks`, { type: 'gitea', active: true, events: ['push'], config });
    return created;
  }
  const push = (changed = {}): Promise<string> => repo.push({ ...pageApp((version += 1)), ...changed }, `version ${version}`);
  const live = (wanted: number): Promise<unknown> =>
    waitFor(`version ${wanted} is live`, async () => versionOf((await world.berth.get('app')).body) === wanted, {
      deadlineMs: 120_000,
      intervalMs: 20,
    });
  async function deliveries(): Promise<Delivery[]> {
    return (await world.berth.api.call('listDeliveries', { params: { id: project.id }, query: { limit: 100 } })).items;
  }
  /** Waits until the push of this commit has a verdict. */
  const verdict = (sha: string): Promise<Delivery> =>
    waitFor(`a verdict about ${sha}`, async () => (await deliveries()).find((d) => d.commit === sha && d.verdict !== null), {
      deadlineMs: 60_000,
    });
  const statuses = (sha: string): Promise<Status[]> => gitea.api<Status[]>('GET', `/repos/${gitea.owner}/app/commits/${sha}/statuses`);
  const status = (sha: string, wanted: string): Promise<Status> =>
    waitFor(`the status ${wanted} of ${sha}`, async () => (await statuses(sha)).find((s) => s.status === wanted), { deadlineMs: 60_000 });

  it('is live without a person, and Gitea shows the status of the commit', { timeout: 180_000 }, async () => {
    const sha = await push();
    await live(version);
    expect(await verdict(sha)).toMatchObject({ event: 'push', branch: 'main' });
    const deployment = await waitFor('the deployment of the commit runs', async () => {
      const { items } = await world.berth.api.call('projectDeployments', { params: { id: project.id }, query: { status: 'running' } });
      return items.find((d) => d.commit === sha);
    });
    expect(deployment).toMatchObject({ trigger: 'hook', created_by: { kind: 'hook', name: 'gitea' } });
    // Gitea may report the first commit late: then that delivery finds the tip.
    const causes = (await deliveries()).filter((d) => d.deployment_id === deployment.id && d.verdict === 'deployed');
    expect(causes).toMatchObject([{ id: deployment.created_by?.id, reason: null }]);
    expect(await status(sha, 'success')).toMatchObject({
      context: 'berth/app',
      description: `deployment ${deployment.generation} is live`,
      target_url: expect.stringMatching(new RegExp(`/deployments/${deployment.id}$`)),
    });
    const shown = await waitFor('Berth knows that it was sent', async () => {
      const { commit_status } = await world.berth.api.call('getDeployment', { params: { id: deployment.id }, query: {} });
      return commit_status?.sent_at !== null && commit_status;
    });
    expect(shown).toMatchObject({ state: 'success', error: null, given_up: false });
  });

  it('needs little longer than the same push and a deployment by hand', { timeout: 240_000 }, async () => {
    const times = { hook: [] as number[], hand: [] as number[] };
    for (const way of ['hand', 'hook'] as const) {
      await world.berth.api.call('patchProject', { params: { id: project.id }, body: { deploy_on_push: way === 'hook' } });
      const from = performance.now();
      await push();
      if (way === 'hand') await world.berth.deploy(project);
      await live(version);
      times[way].push(performance.now() - from);
      await waitFor(
        'the deployment settled',
        async () => (await world.berth.api.call('getProject', { params: { id: project.id } })).running_deployment_id !== null,
      );
    }
    await world.berth.api.call('patchProject', { params: { id: project.id }, body: { deploy_on_push: true } });
    const [hook, hand] = [Math.min(...times.hook), Math.min(...times.hand)];
    console.log(
      `push to first answer: by hook ${(hook / 1000).toFixed(2)} s, by hand ${(hand / 1000).toFixed(2)} s, ratio ${(hook / hand).toFixed(2)}`,
    );
    expect(hook).toBeLessThan(hand + 10_000);
  });

  it('is skipped with a reason: skip mark, other branch, path that is not watched, tag', { timeout: 120_000 }, async () => {
    const marked = await repo.push({ 'README.md': 'new' }, 'Correct the docs\n\n[skip ci]');
    expect(await verdict(marked)).toMatchObject({ verdict: 'skipped', reason: expect.stringContaining('[skip ci]') });
    const topic = await repo.push({ 'README.md': 'topic' }, 'a topic', 'topic');
    expect(
      (await deliveries()).find((d) => d.branch === 'topic') ??
        (await waitFor('the delivery of the topic', async () => (await deliveries()).find((d) => d.branch === 'topic'))),
    ).toMatchObject({
      verdict: 'skipped',
      reason: 'the push is to topic; the project deploys main',
    });
    expect(topic).not.toBe(marked);
    await world.berth.api.call('patchProject', { params: { id: project.id }, body: { watch_paths: ['www', 'Dockerfile'] } });
    const unwatched = await repo.push({ 'README.md': 'newer' }, 'Only docs');
    expect(await verdict(unwatched)).toMatchObject({
      verdict: 'skipped',
      reason: expect.stringContaining('nothing under www, Dockerfile changed'),
    });
    const watched = await push();
    expect(await verdict(watched)).toMatchObject({ verdict: 'deployed' });
    await live(version);
    expect(await statuses(unwatched)).toEqual([]);
  });

  it(`${PUSHES} pushes in a row: the last one is live, and each delivery has a verdict`, { timeout: 420_000 }, async () => {
    await world.berth.api.call('patchProject', { params: { id: project.id }, body: { watch_paths: [] } });
    const before =
      (await world.berth.api.call('projectDeployments', { params: { id: project.id }, query: { limit: 1 } })).items[0]?.generation ?? 0;
    const from = Date.now();
    const pushed: string[] = [];
    let most = 0;
    for (let n = 0; n < PUSHES; n++) {
      pushed.push(await push());
      const { items } = await world.berth.api.call('projectDeployments', { params: { id: project.id }, query: { limit: 50 } });
      most = Math.max(most, items.filter((d) => ['pending', 'building', 'built', 'deploying'].includes(d.status)).length);
    }
    const took = Date.now() - from;
    await live(version);
    const verdicts = await waitFor(
      'each delivery has a verdict',
      async () => {
        const found = (await deliveries()).filter((d) => pushed.includes(d.commit ?? ''));
        return found.length === PUSHES && found.every((d) => d.verdict !== null) && found;
      },
      { deadlineMs: 60_000 },
    );
    const last = verdicts.find((d) => d.commit === pushed.at(-1));
    expect(last?.verdict).toBe('deployed');
    for (const d of verdicts)
      expect([d.verdict, d.reason]).toEqual(d.verdict === 'deployed' ? ['deployed', null] : ['skipped', 'a newer push replaced it']);
    // One that deploys and one that is built or waits.
    expect(most).toBeLessThanOrEqual(2);
    const { items } = await world.berth.api.call('projectDeployments', { params: { id: project.id }, query: { limit: 50 } });
    const made = items.filter((d) => d.generation > before).length;
    console.log(
      `${PUSHES} pushes in ${(took / 1000).toFixed(0)} s: ${made} deployments, ${verdicts.filter((d) => d.verdict === 'deployed').length} deliveries deployed`,
    );
    await status(pushed.at(-1) ?? '', 'success');
    const superseded = items.find((d) => d.status === 'superseded' && pushed.includes(d.commit ?? ''));
    if (superseded !== undefined)
      expect(await status(superseded.commit ?? '', 'failure')).toMatchObject({ description: expect.stringContaining('superseded') });
  });

  it('whose branch is deleted is skipped', { timeout: 60_000 }, async () => {
    await repo.deleteBranch('topic');
    const found = await waitFor('the delivery', async () => (await deliveries()).find((d) => d.branch === 'topic' && d.commit === null));
    expect(found).toMatchObject({ verdict: 'skipped' });
  });
});
