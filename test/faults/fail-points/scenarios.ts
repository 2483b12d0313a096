/**
 * The operations during which a process dies at a point. Each starts the operation, waits for the
 * death, and starts the process again. Then everything must be as without the kill. A client sends
 * requests to `app` meanwhile: each is answered, never by an older version than one seen before.
 */
import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { repositoryRoot } from '@berth/testbed/config';
import { missingParts } from '@berth/testbed/images';
import { run } from '@berth/testbed/process';
import { startProber } from '@berth/testbed/prober';
import { startStatusReceiver } from '@berth/testbed/status-receiver';
import { GiveUp, waitFor } from '@berth/testbed/wait';
import { ApiError, createClient } from '@berth/wire/client';
import type { Dataset } from '@berth/wire/dataset';
import type { Deployment } from '@berth/wire/deployment';
import type { Project } from '@berth/wire/project';
import { isOpenRun, type Run } from '@berth/wire/run';
import { expect } from 'vitest';
import { makeOlder } from '../../../packages/control-plane/test/store/older.ts';
import { pageApp, versionOf } from '../../e2e/world.ts';
import { filesWith } from '../lib/files-with.ts';
import { isUnavailable } from '../lib/recorder.ts';
import { PROJECT, type Stage } from './stage.ts';
import type { Point, Scenario } from './table.ts';

export async function dieAt(stage: Stage, point: Point): Promise<void> {
  const { berth } = stage.world;
  const before = stage.version;
  const client = startProber({
    entry: berth.entry,
    host: `app.${berth.baseDomain}`,
    perSecond: 20,
    versionOf,
  });
  stage.recorder.watch();
  try {
    await SCENARIOS[point.during](stage, point);
    expect(await stage.leftovers()).toEqual([]);
    expect(await stage.recorder.judge()).toEqual([]);
    expect(versionOf((await berth.get('app')).body)).toBe(stage.version);
    const { failed, failures, stale, versions } = await client.stop();
    const expected = {
      failed: 0,
      failures: [],
      stale: 0,
      versions: [...new Set([before, stage.version])],
    };
    expect({ failed, failures, stale, versions }).toEqual(expected);
  } finally {
    await client.stop();
    // After a failure, the next row must find every process without fail points, and know the
    // version that serves.
    for (const process of ['control-plane', 'builder', 'node', 'second node'] as const)
      if (
        stage.service(process).process().exit() !== undefined ||
        (process === point.process && !stage.isUnarmed(process))
      )
        await stage.unarm(process);
    stage.version = versionOf((await berth.get('app')).body);
  }
}

const SCENARIOS: Record<Scenario, (stage: Stage, point: Point) => Promise<void>> = {
  deploy: (stage, point) => deployWithDeath(stage, point, (version) => pageApp(version)),
  'slow deploy': (stage, point) => deployWithDeath(stage, point, slowApp),

  /**
   * Rolls back to the running deployment, whose image was removed from the engine, so it is pulled.
   */
  async rollback(stage, point) {
    const { berth, engine } = stage.world;
    const [present] = (
      await berth.api.call('listDeployments', {
        query: { project_id: stage.app.id, status: 'running' },
      })
    ).items;
    const tag = present?.image_tag ?? '';
    const { stdout } = await engine.docker([
      'image',
      'ls',
      '--digests',
      '--format',
      '{{.Repository}}@{{.Digest}}',
      tag.replace(/:[^:/]*$/, ''),
    ]);
    const digests = stdout.split('\n').filter((ref) => /@sha256:/.test(ref));
    await engine.docker(['image', 'rm', '--force', tag, ...new Set(digests)], { mayFail: true });
    await stage.arm(point);
    const [asked] = await Promise.all([
      stage.rollback({ id: present?.id ?? '' }),
      awaitDeathAndRestart(stage, point),
    ]);
    await running(stage, asked);
  },

  async recreate(stage, point) {
    const project = await otherProject(stage, 'recreate');
    await stage.arm(point);
    const asked = await stage.deploy(project, pageApp(2));
    await awaitDeathAndRestart(stage, point);
    await running(stage, asked);
    expect(versionOf((await stage.world.berth.get(project.domain_prefix)).body)).toBe(2);
    await remove(stage, project);
  },

  async 'failing deploy'(stage, point) {
    await stage.arm(point);
    const [asked] = await Promise.all([
      stage.deploy(stage.app, brokenApp(stage.version + 1)),
      awaitDeathAndRestart(stage, point),
    ]);
    const done = await stage.world.berth.settled(asked);
    expect({ status: done.status, code: done.error?.code }).toEqual({
      status: 'failed',
      code: 'container_exited',
    });
  },

  async cancel(stage, point) {
    const { berth } = stage.world;
    await stage.arm(point);
    const asked = await stage.deploy(stage.app, hangingApp(stage.version + 1));
    await waitFor(
      'the build hangs',
      async () => (await berth.logs(asked)).some((line) => line.includes('sleep 300')),
      {
        deadlineMs: 30_000,
      },
    );
    const cancelled = waitFor(
      'the cancellation is answered',
      async () => {
        await berth.api
          .call('cancelDeployment', { params: { id: asked.id } })
          .catch((error: unknown) => {
            // The cancellation arrived before the connection broke, and has taken effect.
            if (!/is already cancelled/.test(String(error))) throw error;
          });
        return true;
      },
      { deadlineMs: 40_000 },
    );
    const sent = Date.now();
    await Promise.all([cancelled, awaitDeathAndRestart(stage, point)]);
    stage.recorder.record({ type: 'cancel_accepted', sent, deployment: asked.id });
    expect(await berth.settled(asked)).toMatchObject({ status: 'cancelled' });
  },

  async 'lost lease'(stage, point) {
    const { berth } = stage.world;
    await stage.arm(point);
    stage.version++;
    const asked = await stage.deploy(stage.app, slowApp(stage.version));
    await waitFor(
      'the build is claimed',
      async () =>
        (await berth.api.call('getDeployment', { params: { id: asked.id } })).events.some(
          (event) => event.kind === 'task_claimed',
        ),
      { deadlineMs: 30_000 },
    );
    await stage.service('builder').crash();
    await awaitDeathAndRestart(stage, point);
    await waitFor(
      'the lease expires',
      async () =>
        (await berth.api.call('getDeployment', { params: { id: asked.id } })).events.some((e) =>
          /stopped reporting/.test(e.message),
        ),
      { deadlineMs: 30_000 },
    );
    await stage.unarm('builder');
    await running(stage, asked);
  },

  async 'project removal'(stage, point) {
    const project = await otherProject(stage, 'rolling');
    await stage.arm(point);
    await Promise.all([remove(stage, project), awaitDeathAndRestart(stage, point)]);
    expect((await stage.world.berth.get(project.domain_prefix)).status).toBe(404);
  },

  async 'node removal'(stage, point) {
    const { berth } = stage.world;
    const asAgent = createClient({
      baseUrl: berth.url,
      headers: () => ({ 'x-agent-secret': berth.agentSecret }),
    });
    const body = {
      hostname: 'spare',
      role: 'builder' as const,
      host_ip: '127.0.0.1',
      max_storage: 0,
      containers: [],
      agent_version: '0',
    };
    const node = await asAgent.call('agentRegister', { body });
    await stage.arm(point);
    const gone = untilGone(
      () => berth.api.call('deleteNode', { params: { id: node.id } }),
      () => berth.api.call('getNode', { params: { id: node.id } }),
    );
    await Promise.all([gone, awaitDeathAndRestart(stage, point)]);
  },

  /** Deploys a version whose dataset is not on the node. */
  async data(stage, point) {
    const { berth } = stage.world;
    const dataset = await newDataset(stage);
    const project = await otherProject(stage, 'rolling');
    await berth.api.call('patchProject', {
      params: { id: project.id },
      body: { datasets: [{ dataset_id: dataset.id, mode: 'dependency' }] },
    });
    await stage.arm(point);
    const asked = await stage.deploy(project, pageApp(2));
    await awaitDeathAndRestart(stage, point);
    await running(stage, asked);
    expect(await mountedOf(stage, asked)).toMatchObject([{ dataset_id: dataset.id, version: 1 }]);
    await remove(stage, project);
    await forget(stage, dataset.id);
  },

  async 'dataset removal'(stage, point) {
    const { berth } = stage.world;
    const dataset = await newDataset(stage);
    const node = (await berth.api.call('listNodes', { query: {} })).items.find(
      (n) => n.hostname === 'node-1',
    );
    await berth.api.call('prewarmNode', {
      params: { id: node?.id ?? '' },
      body: { dataset_id: dataset.id },
    });
    await untilCached(stage, dataset.id, true);
    await stage.arm(point);
    await Promise.all([forget(stage, dataset.id), awaitDeathAndRestart(stage, point)]);
  },

  async push(stage, point) {
    await stage.arm(point);
    const version = stage.version + 1;
    const [asked] = await Promise.all([
      stage.push(pageApp(version)),
      awaitDeathAndRestart(stage, point),
    ]);
    stage.version = version;
    await running(stage, asked);
  },

  /**
   * A build with a secret, then a container with a secret file: no clear text is on disk while the
   * agent is dead.
   */
  async secrets(stage, point) {
    const { api } = stage.world.berth;
    const project = await otherProject(stage, 'rolling');
    const value = `canary-${randomUUID()}`;
    const put = (name: string, more: object): Promise<unknown> =>
      api.call('putSecret', { params: { id: project.id, name }, body: { value, ...more } });
    await put('BUILD', { scope: 'build' });
    await put('CERT', { as: 'file' });
    await stage.arm(point);
    const asked = await stage.deploy(project, secretApp(2));
    await stage.died(point);
    expect(await filesWith(stage.world.dir, value)).toEqual([]);
    await stage.unarm(point.process);
    await running(stage, asked);
    expect(versionOf((await stage.world.berth.get(project.domain_prefix)).body)).toBe(2);
    expect((await stage.world.berth.get(project.domain_prefix, '/cert')).body.trim()).toBe(
      sha256(value),
    );
    expect(await filesWith(stage.world.dir, value)).toEqual([]);
    await remove(stage, project);
    await waitFor(
      'the secret files are removed',
      async () => (await filesWith(stage.secretsDir, value)).length === 0,
      {
        deadlineMs: 30_000,
      },
    );
  },

  /** Two statuses of a deployment that cannot be built: the forge has the last one in the end. */
  async status(stage, point) {
    const { api } = stage.world.berth;
    const forge = await startStatusReceiver();
    try {
      const name = `other-${++others}`;
      const project = await stage.world.berth.createProject({
        name,
        git_url: 'ssh://git@127.0.0.1:1/team/app.git',
        domain_prefix: name,
      });
      const params = { id: project.id };
      await api.call('putHook', { params, body: { forge: 'gitea' } });
      await api.call('putGitToken', {
        params,
        body: { token: 'token-of-the-forge', api_url: forge.apiUrl },
      });
      await stage.arm(point);
      const commit = 'c0'.repeat(20);
      const headers = { 'idempotency-key': randomUUID() };
      const [asked] = await Promise.all([
        stage.ask('createDeployment', { params, body: { commit }, headers }),
        awaitDeathAndRestart(stage, point),
      ]);
      expect(await stage.world.berth.settled(asked, 60_000)).toMatchObject({ status: 'failed' });
      // The claim of the killed process lasts 30 s.
      const last = (): object => ({
        state: forge.received.at(-1)?.state,
        commit: forge.received.at(-1)?.commit,
      });
      await waitFor(
        'the forge has the last status',
        () => forge.received.at(-1)?.state === 'failure',
        { deadlineMs: 60_000 },
      );
      await waitFor(
        'Berth knows it',
        async () =>
          (await api.call('getDeployment', { params: { id: asked.id } })).commit_status?.sent_at ??
          false,
        { deadlineMs: 60_000 },
      );
      expect(last()).toEqual({ state: 'failure', commit });
      expect(forge.received.filter(({ state }) => state === 'pending').length).toBeLessThanOrEqual(
        2,
      );
      await remove(stage, project);
    } finally {
      await forge.stop();
    }
  },

  /** Changes SECRETS_KEY and back, with projects that have secrets. */
  async 'new key'(stage, point) {
    const { berth, dir } = stage.world;
    const projects = [await otherProject(stage, 'rolling'), await otherProject(stage, 'rolling')];
    for (const { id } of projects)
      await berth.api.call('putSecret', {
        params: { id, name: 'TOKEN' },
        body: { value: `value of ${id}` },
      });
    const old = (await readFile(join(dir, 'secrets-key'), 'utf8')).trim();
    const fresh = randomBytes(32).toString('base64');
    const both = { SECRETS_KEY: `${fresh},${old}` };
    await stage.arm(point, both);
    await stage.died(point);
    // Either key alone opens only a part: the start is refused.
    await expect(stage.service('control-plane').start({ SECRETS_KEY: old })).rejects.toThrow(
      /missing key id/,
    );
    await stage.unarm('control-plane', both);
    const detail = async (): Promise<string> => await (await fetch(`${berth.url}/readyz`)).text();
    await waitFor('all keys are wrapped by the new one', async () =>
      /"0 of \d+ project keys are wrapped by an earlier/.test(await detail()),
    );
    await stage.unarm('control-plane', { SECRETS_KEY: fresh });
    for (const project of projects) await running(stage, await berth.deploy(project));
    await stage.unarm('control-plane', { SECRETS_KEY: `${old},${fresh}` });
    await stage.unarm('control-plane');
    for (const project of projects) {
      const [seen] = (await berth.api.call('listSecrets', { params: { id: project.id } })).items;
      expect(seen?.name).toBe('TOKEN');
      await running(stage, await berth.deploy(project));
      await remove(stage, project);
    }
  },

  /**
   * A start that migrates the database dies; the next one completes, with one whole snapshot of the
   * state before.
   */
  async upgrade(stage, point) {
    const { dir } = stage.world;
    const controlPlane = stage.service('control-plane');
    await controlPlane.stop();
    await makeOlder(`sqlite:${join(dir, 'berth.db')}`);
    const snapshots = async (): Promise<string[]> =>
      (await readdir(join(dir, 'snapshots')).catch(() => [] as string[])).toSorted();
    const before = await snapshots();
    await stage.arm(point);
    await awaitDeathAndRestart(stage, point);
    expect(controlPlane.process().tail()).toContain('control plane is listening');
    const after = await snapshots();
    expect(after.filter((name) => !/^berth-.*\.tar\.gz$/.test(name))).toEqual([]);
    const added = after.filter((name) => !before.includes(name));
    expect(added).toHaveLength(1);
    const at = join(dir, 'snapshots', added[0] ?? '');
    const { stdout } = await run(
      [process.execPath, join(repositoryRoot, 'bin/berth'), 'backup', 'verify', at],
      {
        env: { DATABASE_URL: `sqlite:${join(dir, 'berth.db')}` },
      },
    );
    expect(stdout).toContain('good: every byte is as it was written');
    const version = stage.version + 1;
    const asked = await stage.deploy(stage.app, pageApp(version));
    stage.version = version;
    await running(stage, asked);
  },

  /**
   * Removes an image that no release needs. In the end it is gone, the others are there with every
   * layer, the registry takes images, its configuration is as before, and the next clean-up finds
   * nothing missing.
   */
  async 'clean-up'(stage, point) {
    const { registry, berth } = stage.world;
    const { api } = berth;
    const configuration = await readFile(registry.config, 'utf8');
    const project = await otherProject(stage, 'rolling');
    const made: Deployment[] = [];
    for (const version of [2, 3, 4]) {
      const asked = await stage.deploy(project, pageApp(version));
      await running(stage, asked);
      made.push(asked);
    }
    const newest = async () => (await api.call('cleanUps', {})).items[0];
    const ended = async (start: () => Promise<unknown>): Promise<unknown> => {
      const before = (await newest())?.id;
      await start();
      await waitFor('the clean-up has ended', async () => (await newest())?.id !== before, {
        deadlineMs: 90_000,
      });
      return newest();
    };
    const begin = (): Promise<unknown> => stage.ask('startCleanUp', {});
    await stage.arm(point);
    const first = await ended(() => Promise.all([begin(), awaitDeathAndRestart(stage, point)]));
    expect(first).toMatchObject({ state: 'done', missing: 0, error: null });
    const [old, kept, last] = await Promise.all(
      made.map(({ id }) => api.call('getDeployment', { params: { id } })),
    );
    const partsOf = async (of: Deployment | undefined): Promise<string[]> =>
      missingParts(
        registry,
        /\/(.*):/.exec(of?.image_tag ?? '')?.[1] ?? '',
        of?.image_digest ?? '',
      );
    expect(await partsOf(old)).toEqual([expect.stringMatching(/^manifest .*: status 404$/)]);
    expect([await partsOf(kept), await partsOf(last)]).toEqual([[], []]);
    expect(await readFile(registry.config, 'utf8')).toBe(configuration);
    expect(await ended(begin)).toMatchObject({ state: 'done', missing: 0, error: null });
    const back = (to: Deployment | undefined) =>
      api.call('rollback', { params: { id: project.id }, body: { deployment_id: to?.id ?? '' } });
    await expect(back(old)).rejects.toMatchObject({ code: 'no_release' });
    await running(stage, await back(kept));
    await running(stage, await stage.deploy(project, pageApp(5)));
    await remove(stage, project);
  },

  /**
   * Drains the second node. In the end the first one has the data of every version, and nobody
   * wrote at two places.
   */
  async 'volume move'(stage, point) {
    const { berth, git } = stage.world;
    const nodes = (await berth.api.call('listNodes', { query: {} })).items;
    const [first, second] = ['node-1', 'node-2'].map((hostname) => ({
      id: nodes.find((n) => n.hostname === hostname)?.id ?? '',
    }));
    if (first === undefined || second === undefined) throw new Error('no nodes');
    const name = `volume-${++others}`;
    const { url } = await git.createRepo(name, startsApp);
    const volumes = [{ name: 'data', mount_path: '/var/lib/app' }];
    const project = await berth.createProject({
      name,
      git_url: url,
      domain_prefix: name,
      volumes,
      ...PROJECT,
    });
    const starts = async (): Promise<string> => (await berth.get(name, '/starts')).body;
    await berth.api.call('cordonNode', { params: first });
    await berth.api.call('uncordonNode', { params: second });
    await running(stage, await berth.deploy(project));
    expect(await starts()).toBe('start\n');
    await berth.api.call('uncordonNode', { params: first });
    await stage.arm(point);
    await stage.ask('drainNode', { params: second });
    await awaitDeathAndRestart(stage, point);
    const isDrained = async (): Promise<boolean> =>
      ((await berth.api.call('getNode', { params: second })).drain?.finished_at ?? null) !== null;
    await waitFor('the second node is drained', isDrained, { deadlineMs: 120_000 });
    // Each start of a container adds a line to the data of all starts before.
    expect(await starts()).toMatch(/^(start\n){2,}$/);
    await remove(stage, project);
    await berth.api.call('uncordonNode', { params: second });
    await berth.api.call('cordonNode', { params: second });
  },

  /**
   * Runs a command that adds a line to a volume. It runs once, its run ends with its exit code, and
   * the next run of the project works.
   */
  async run(stage, point) {
    const { project, addLine, lines } = await projectWithLines(stage);
    const { api } = stage.world.berth;
    const params = { id: project.id };
    await stage.arm(point);
    // The answer can be lost; the run is accepted before each of the points.
    await Promise.all([
      api.call('createRun', { params, body: { command: addLine } }).catch((error: unknown) => {
        if (!isUnavailable(error)) throw error;
      }),
      awaitDeathAndRestart(stage, point),
    ]);
    const [first, ...more] = (await stage.ask('projectRuns', { params, query: {} })).items;
    expect(more).toEqual([]);
    await succeeded(stage, first);
    expect(await lines()).toBe(1);
    await succeeded(stage, await stage.ask('createRun', { params, body: { command: addLine } }));
    expect(await lines()).toBe(2);
    await remove(stage, project);
  },

  /**
   * Deploys a version whose release command adds a line to a volume. The old version serves while
   * the process is dead, the command runs once, and the new version goes live.
   */
  async release(stage, point) {
    const { project, addLine, lines } = await projectWithLines(stage);
    const { api, get } = stage.world.berth;
    await api.call('patchProject', {
      params: { id: project.id },
      body: { release_command: addLine },
    });
    const starts = async (): Promise<string> => (await get(project.name, '/starts')).body;
    await stage.arm(point);
    const asked = await stage.deploy(project, { ...startsApp, version: '2' });
    await stage.died(point);
    expect(await starts()).toBe('start\n');
    await stage.unarm(point.process);
    await running(stage, asked);
    expect(await starts()).toBe('start\nstart\n');
    expect(await lines()).toBe(1);
    await remove(stage, project);
  },

  /**
   * The first time of a job: it has one run, and an earlier run ends, because the job says so
   * (overlap: cancel).
   */
  async job(stage, point) {
    const { project, addLine, lines } = await projectWithLines(stage);
    const { api } = stage.world.berth;
    const named = { id: project.id, name: 'minute' };
    const body = { name: 'minute', schedule: '@monthly', command: ['sleep', '600'] };
    await api.call('createJob', { params: named, body: { ...body, overlap: 'cancel' } });
    const earlier = await api.call('runJob', { params: named });
    await untilRun(stage, earlier, ({ status }) => status === 'running');
    await stage.arm(point);
    const job = await stage.ask('patchJob', {
      params: named,
      body: { schedule: '* * * * *', command: addLine },
    });
    const first = Date.parse(job.next_runs[0] ?? '');
    await waitFor('the time of the job is near', async () => Date.now() > first - 5_000, {
      deadlineMs: 70_000,
    });
    await awaitDeathAndRestart(stage, point);
    const runs = async (): Promise<Run[]> =>
      (await stage.ask('projectRuns', { params: named, query: { job: 'minute', limit: 100 } }))
        .items;
    const [made] = await waitFor(
      'the time has a run',
      async () => {
        const made = (await runs()).filter((run) => Date.parse(run.scheduled_for ?? '') === first);
        return made.length > 0 && made;
      },
      { deadlineMs: 30_000 },
    );
    await succeeded(stage, made);
    await api.call('deleteJob', { params: named });
    const cancelled = await untilRun(stage, earlier, ({ status }) => !isOpenRun(status));
    expect(cancelled).toMatchObject({ status: 'cancelled', exit_code: null });
    for (const run of await runs()) await untilRun(stage, run, ({ status }) => !isOpenRun(status));
    const times = (await runs()).map(({ scheduled_for }) => scheduled_for);
    expect(new Set(times).size).toBe(times.length);
    const worked = (await runs()).filter(({ status }) => status === 'succeeded').length;
    expect(await lines()).toBe(worked);
    const params = { id: project.id };
    await succeeded(stage, await stage.ask('createRun', { params, body: { command: addLine } }));
    expect(await lines()).toBe(worked + 1);
    await remove(stage, project);
  },

  async start(stage, point) {
    const { engine, berth } = stage.world;
    if (point.name.startsWith('reconcile')) {
      const node = (await berth.api.call('listNodes', { query: {} })).items.find(
        (n) => n.hostname === 'node-1',
      );
      // A container that was created but not started, like after a crash of the engine between the
      // two steps.
      await engine.docker([
        'create',
        '--label',
        `berth.node=${node?.id}`,
        '--name',
        'never-started',
        'busybox:stable',
        'true',
      ]);
    }
    await stage.arm(point);
    await awaitDeathAndRestart(stage, point);
  },
};

async function deployWithDeath(
  stage: Stage,
  point: Point,
  app: (version: number) => Record<string, string>,
): Promise<void> {
  await stage.arm(point);
  const version = stage.version + 1;
  const [asked] = await Promise.all([
    stage.deploy(stage.app, app(version)),
    awaitDeathAndRestart(stage, point),
  ]);
  stage.version = version;
  await running(stage, asked);
}

async function awaitDeathAndRestart(stage: Stage, point: Point): Promise<void> {
  await stage.died(point);
  // The client still gets answers.
  expect((await stage.world.berth.get('app')).status).toBe(200);
  await stage.unarm(point.process);
}

async function running(stage: Stage, asked: Deployment): Promise<void> {
  const done = await stage.world.berth.settled(asked, 60_000);
  expect({ status: done.status, error: done.error }).toEqual({ status: 'running', error: null });
}

/** A project with a volume, and a command that adds one line to a file on it. */
async function projectWithLines(stage: Stage): Promise<{
  project: Project;
  addLine: string[];
  lines(): Promise<number>;
}> {
  const name = `run-${++others}`;
  const { berth, git } = stage.world;
  const { url } = await git.createRepo(name, startsApp);
  const project = await berth.createProject({
    name,
    git_url: url,
    domain_prefix: name,
    volumes: [{ name: 'data', mount_path: '/var/lib/app' }],
    ...PROJECT,
  });
  await running(stage, await berth.deploy(project));
  return {
    project,
    addLine: ['sh', '-c', 'echo ran >> /var/lib/app/commands; sleep 1'],
    async lines() {
      const { body } = await berth.get(name, '/commands');
      return body.split('\n').filter((line) => line === 'ran').length;
    },
  };
}

/** Waits until the run is in the state. */
const untilRun = (
  stage: Stage,
  run: Pick<Run, 'id'> | undefined,
  is: (now: Run) => boolean,
): Promise<Run> =>
  waitFor(
    'the run is in its state',
    async () => {
      const now = await stage.world.berth.api.call('getRun', { params: { id: run?.id ?? '' } });
      return is(now) && now;
    },
    { deadlineMs: 60_000 },
  );

/** Waits until the run has ended as a user expects it. */
async function succeeded(stage: Stage, run: Pick<Run, 'id'> | undefined): Promise<void> {
  const ended = await untilRun(stage, run, ({ status }) => !isOpenRun(status));
  expect({ status: ended.status, attempt: ended.attempt, error: ended.error }).toEqual({
    status: 'succeeded',
    attempt: 1,
    error: null,
  });
}

/** Appends one line at each start, and serves its volume. */
const startsApp = {
  Dockerfile: [
    'FROM busybox:stable',
    'COPY run.sh /run.sh',
    'EXPOSE 8080',
    'CMD ["sh", "/run.sh"]',
    '',
  ].join('\n'),
  'run.sh': 'echo start >> /var/lib/app/starts\nexec httpd -f -p 8080 -h /var/lib/app\n',
};

let others = 0;
async function otherProject(stage: Stage, replace: 'rolling' | 'recreate'): Promise<Project> {
  const name = `other-${++others}`;
  const { berth, git } = stage.world;
  const { url } = await git.createRepo(name, pageApp(1));
  const project = await berth.createProject({
    name,
    git_url: url,
    domain_prefix: name,
    replace,
    ...PROJECT,
  });
  await running(stage, await berth.deploy(project));
  return project;
}

function remove(stage: Stage, project: Project): Promise<void> {
  const { api } = stage.world.berth;
  const params = { id: project.id };
  return untilGone(
    () => api.call('deleteProject', { params }),
    () => api.call('getProject', { params }),
  );
}

/** Repeats the removal until it is answered, then waits until the thing is gone. */
async function untilGone(
  remove: () => Promise<unknown>,
  read: () => Promise<unknown>,
): Promise<void> {
  const isGone = (error: unknown): boolean => {
    if (error instanceof ApiError && error.status === 404) return true;
    if (/being_deleted/.test(String(error))) throw new GiveUp(String(error));
    throw error;
  };
  await waitFor('the removal is accepted', () => remove().then(() => true, isGone), {
    deadlineMs: 40_000,
  });
  await waitFor('the object is gone', () => read().then(() => false, isGone), {
    deadlineMs: 40_000,
  });
}

async function newDataset(stage: Stage): Promise<Dataset> {
  const { api } = stage.world.berth;
  const name = `set-${++others}`;
  await mkdir(join(stage.share, name));
  for (let i = 0; i < 20; i++)
    await writeFile(join(stage.share, name, `file-${i}`), `${name} ${i}`.repeat(1_000));
  const made = await api.call('createDataset', { body: { name, nfs_path: name } });
  return waitFor(
    'the dataset has its first version',
    async () => {
      const dataset = await api.call('getDataset', { params: { id: made.id } });
      return dataset.version !== null && dataset;
    },
    { deadlineMs: 30_000 },
  );
}

const mountedOf = async (stage: Stage, { id }: Deployment): Promise<Deployment['datasets']> =>
  (await stage.world.berth.api.call('getDeployment', { params: { id } })).datasets;

/** Waits until the node reports that it has, or no longer has, the dataset. */
async function untilCached(stage: Stage, datasetId: string, cached: boolean): Promise<void> {
  const isCached = async (): Promise<boolean> =>
    (await stage.world.berth.api.call('listNodes', { query: {} })).items.some((n) =>
      n.cached.some((c) => c.dataset_id === datasetId),
    );
  await waitFor(
    `${datasetId} is ${cached ? '' : 'not '}cached`,
    async () => (await isCached()) === cached,
    { deadlineMs: 60_000 },
  );
}

/** Removes a dataset and waits until no node has it. */
async function forget(stage: Stage, datasetId: string): Promise<void> {
  const { api } = stage.world.berth;
  const params = { id: datasetId };
  await untilGone(
    () => api.call('deleteDataset', { params }),
    () => api.call('getDataset', { params }),
  );
  await untilCached(stage, datasetId, false);
}

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');
/** Needs a build secret, and shows the digest of a secret file. */
const secretApp = (version: number): Record<string, string> => ({
  ...pageApp(version),
  Dockerfile: [
    'FROM busybox:stable',
    'COPY www /www',
    'RUN --mount=type=secret,id=BUILD test -s /run/secrets/BUILD',
    'EXPOSE 8080',
    `CMD ["sh", "-c", "sha256sum < /run/secrets/CERT | cut -d' ' -f1 > /www/cert; exec httpd -f ` +
      '-p 8080 -h /www"]',
    '',
  ].join('\n'),
});

const dockerfile = (...lines: string[]): string =>
  ['FROM busybox:stable', 'COPY www /www', 'EXPOSE 8080', ...lines, ''].join('\n');
/**
 * An application whose build and start take longer than the interval between two lease renewals.
 */
const slowApp = (version: number): Record<string, string> => ({
  ...pageApp(version),
  Dockerfile: dockerfile(
    'RUN cat /www/index.html && sleep 3',
    'CMD ["sh", "-c", "sleep 3; exec httpd -f -p 8080 -h /www"]',
  ),
});
const brokenApp = (version: number): Record<string, string> => ({
  ...pageApp(version),
  Dockerfile: dockerfile('CMD ["false"]'),
});
const hangingApp = (version: number): Record<string, string> => ({
  ...pageApp(version),
  Dockerfile: dockerfile('RUN cat /www/index.html && sleep 300'),
});
