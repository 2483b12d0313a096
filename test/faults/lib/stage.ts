/**
 * The real parts for the rows, with a live project, and the steps and checks that many rows use.
 */
import { mkdir, mkdtemp, readFile, rm } from 'node:fs/promises';
import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { expect } from 'vitest';
import type { Deployment } from '@berth/wire/deployment';
import type { Project } from '@berth/wire/project';
import type { DeploymentState } from '@berth/wire/vocabulary';
import { ensureBaseImages } from '@berth/testbed/base-images';
import { toolsDir } from '@berth/testbed/config';
import { startEngine } from '@berth/testbed/engine';
import type { Engine } from '@berth/testbed/engine-handle';
import { type MemoryHistory, memoryHistory } from '@berth/testbed/history';
import { type GitServer, startGitServer } from '@berth/testbed/git-server';
import { type Answer, type Platform, type Service, startPlatform } from '@berth/testbed/platform';
import { run } from '@berth/testbed/process';
import { startRegistry } from '@berth/testbed/registry';
import { waitFor } from '@berth/testbed/wait';
import { pageApp, versionOf } from '../../e2e/world.ts';
import { createQuery } from './database.ts';
import { type EngineShim, startEngineShim } from './engine-shim.ts';
import { type Front, prepareFront } from './front.ts';
import { createRecorder, type Recorder } from './recorder.ts';
import { type RegistryGate, startRegistryGate } from './registry-gate.ts';

/**
 * `main`: a builder and two deploy nodes with their own engines, the second node cordoned; `disk`:
 * on small file systems; `data`: one deploy node with a share; `relay`: Traefik behind the relay.
 */
export type StageName = 'main' | 'disk' | 'data' | 'relay';

/** Short timeouts: seconds here instead of minutes in production. */
const LEASE_MS = 5_000;
const SHORT = {
  LEASE_TTL: `${LEASE_MS / 1000}s`,
  CLAIM_TIMEOUT: '6s',
  PROBE_TIMEOUT: '20s',
  // A row of failover sets it; in the others a silent node keeps its projects.
  FAILOVER_AFTER: 'none',
  ROUTE_TIMEOUT: '20s',
};

export type Stage = {
  berth: Platform;
  git: GitServer;
  gate: RegistryGate;
  /** `build`: the engine of the builder and node-2; `node`: the engine of node-1. */
  engines: { build: Engine; node: Engine };
  /** Between node-1 and its engine. */
  shim: EngineShim;
  project: Project;
  dir: string;
  /** Small file systems of stage `disk`, and `svc` of the stages `data` and `main`. */
  small: {
    builder: string;
    controlPlane: string;
    engine: string;
    svc: string;
    secondSvc: string;
    secrets: string;
  };
  /** SECRETS_DIR of node-1, on tmpfs. */
  secretsDir: string;
  /** Folder of datasets, in stage `data`. */
  share: string;
  /** Folder of node-1's copies. */
  svc: { svcRoot: string };
  /** The version that must be served now. */
  version(): number;
  agent(name: string): Service;
  /**
   * Commits the next version, a page with its number, with `files` changed, and requests its
   * deployment.
   */
  release(files?: Files): Promise<Deployment>;
  /** Requests a deployment that cannot go live: the present version keeps serving. */
  releaseBroken(files: Files): Promise<Deployment>;
  /** Commits the next version and reports the push to the hook, once. Returns the delivery. */
  push(files?: Files): Promise<{ id: string }>;
  /** Waits for the deployment that the push caused. */
  causedBy(delivery: { id: string }): Promise<Deployment>;
  /** The last version did not go live: the previous one counts again. */
  keepPreviousVersion(): void;
  see(d: { id: string }): Promise<Deployment>;
  /** Waits for the end of a deployment, which must have this state. */
  ends(d: { id: string }, state: DeploymentState, code?: string): Promise<Deployment>;
  /** Waits until the project serves this version. */
  serves(version: number, deadlineMs?: number): Promise<void>;
  /** Waits for a line of the deployment's story or log. */
  says(d: { id: string }, pattern: RegExp, deadlineMs?: number): Promise<void>;
  /** Waits for a line in the service's log since the row began. */
  logged(service: Service, pattern: RegExp, deadlineMs?: number): Promise<void>;
  running(): Promise<Deployment>;
  containers(engine: Engine): Promise<string[]>;
  /** The state in which each accepted deployment ended. */
  ended: Map<string, DeploymentState>;
  accepted: string[];
  /** Requests the project from outside. */
  get(): Promise<Answer>;
  /** Requests the host with this prefix. */
  askHost(prefix: string): Promise<Answer>;
  entry: Platform['entry'];
  front: Front;
  /** Records the history of the project. */
  recorder: Recorder;
  /** Marks the position from which logs are read. */
  begin(): Promise<void>;
  stop(): Promise<void>;
};
type Files = Record<string, string | null>;

export async function startStage(name: StageName): Promise<Stage> {
  const dir = await mkdtemp(join(tmpdir(), 'berth-faults-'));
  const stops: (() => Promise<unknown>)[] = [() => rm(dir, { recursive: true, force: true })];
  const stop = async (): Promise<void> => {
    const failures: unknown[] = [];
    // One part that does not stop must not leave the others running.
    for (const end of stops.splice(0).toReversed())
      await end().catch((error: unknown) => failures.push(error));
    if (failures.length > 0) throw new AggregateError(failures, 'the stage did not stop cleanly');
  };
  try {
    const small = {
      builder: join(dir, 'small-builder'),
      controlPlane: join(dir, 'small-control-plane'),
      engine: join(dir, 'small-engine'),
      svc: join(dir, 'small-svc'),
      secondSvc: join(dir, 'small-second-svc'),
      secrets: join(dir, 'small-secrets'),
    };
    const share = join(dir, 'share');
    await mkdir(share);
    // Mounted before the engines start: they may not see later mounts.
    for (const [stage, path, size] of [
      ['disk', small.builder, '8m'],
      ['disk', small.controlPlane, '12m'],
      ['disk', small.engine, '64m'],
      ['data', small.svc, '64m'],
      ['main', small.svc, '64m'],
      ['main', small.secondSvc, '24m'],
      ['disk', small.secrets, '1m'],
    ] as const) {
      if (stage !== name) continue;
      await mkdir(path);
      await run(['mount', '-t', 'tmpfs', '-o', `size=${size}`, 'tmpfs', path]);
      stops.push(() => run(['umount', '-l', path], { mayFail: true }));
    }
    const tmpfs = await mkdtemp('/dev/shm/berth-faults-');
    stops.push(() => rm(tmpfs, { recursive: true, force: true }));
    const secretsDir = name === 'disk' ? small.secrets : tmpfs;
    const testbed = join(toolsDir, 'testbed');
    const build = await startEngine({ dir: testbed, name: 'faults-build', private: true });
    stops.push(() => build.stop());
    await ensureBaseImages(build, ['busybox:stable']);
    const node = await startEngine({
      dir: name === 'disk' ? small.engine : testbed,
      name: 'faults-node',
      private: true,
    });
    stops.push(() => node.stop());

    const registry = await startRegistry({
      dir: join(dir, 'registry'),
      user: 'berth',
      password: 'sesame-opens-nothing',
    });
    stops.push(() => registry.stop());
    const gate = await startRegistryGate(build.gatewayIp, registry.address, build.hostIp);
    stops.push(() => gate.stop());
    const git = await startGitServer({ root: join(dir, 'git') });
    stops.push(() => git.stop());
    const front = await prepareFront(dir);
    const shim = startEngineShim(node.host);
    stops.push(() => shim.stop());
    // Placement must not depend on the free space of this machine's disk: a size for each node, and
    // small file systems.
    const same = { MAX_STORAGE: '10000000000', PULL_TIMEOUT: '30s' };
    const svc = { svcRoot: join(small.svc, 'svc') };
    const history = memoryHistory();
    const database = join(name === 'disk' ? small.controlPlane : dir, 'berth.db');
    const berth = await startPlatform({
      dir,
      history,
      registry: { ...registry, address: gate.address },
      proxy: 'built-in',
      agents: [
        {
          name: 'builder-1',
          role: 'builder',
          engine: build,
          env: {
            ...same,
            BUILD_TIMEOUT: '12s',
            GIT_STALL_TIMEOUT: '10s',
            ...(name === 'disk' ? { STATE_DIR: small.builder } : {}),
          },
        },
        {
          name: 'node-1',
          role: 'deploy',
          engine: node,
          env: {
            ...same,
            ...shim.env,
            SECRETS_DIR: secretsDir,
            ...(name === 'main' ? { SVC_ROOT: svc.svcRoot } : {}),
            // 2 s for 4 MB, so that a fault can hit a copy.
            ...(name === 'data'
              ? {
                  DATASET_NFS_BASE_PATH: share,
                  SVC_ROOT: svc.svcRoot,
                  MAX_STORAGE: '1000000000',
                  COPY_BANDWIDTH: '2m',
                  COPY_STALL: '4s',
                }
              : {}),
          },
        },
        // Less room than node-1, so that it gets work only when node-1 cannot have it.
        ...(name === 'main'
          ? [
              {
                name: 'node-2',
                role: 'deploy' as const,
                engine: build,
                env: { ...same, SVC_ROOT: join(small.secondSvc, 'svc') },
              },
            ]
          : []),
      ],
      env: {
        ...SHORT,
        // The forge of commit statuses is on this machine.
        ALLOWED_GIT_HOSTS: '127.0.0.1',
        ...(name === 'relay' ? { PROXY_PROBE_URLS: front.probeUrls } : {}),
        ...(name === 'disk' ? { DATABASE_URL: `sqlite:${database}` } : {}),
        ...(name === 'data' ? { DATASET_NFS_BASE_PATH: share } : {}),
      },
    });
    stops.push(() => berth.stop());
    if (name === 'relay') {
      await front.start(berth.url);
      stops.push(() => front.stop());
    }
    const entry = name === 'relay' ? front.entry : berth.entry;
    const askHost = (prefix: string): Promise<Answer> =>
      ask(entry, `${prefix}.${berth.baseDomain}`);
    const get = (): Promise<Answer> => askHost('app');
    // Awaited here, so that an error cleans up.
    return await withProject({
      berth,
      git,
      gate,
      engines: { build, node },
      shim,
      dir,
      small,
      secretsDir,
      share,
      svc,
      front,
      entry,
      get,
      askHost,
      history,
      database,
      stop,
    });
  } catch (error) {
    await stop();
    throw error;
  }
}

/** Connects to the proxy and sends the Host header, because Node does not resolve `*.localhost`. */
function ask({ host, port, secure }: Platform['entry'], name: string): Promise<Answer> {
  const { promise, resolve, reject } = Promise.withResolvers<Answer>();
  const options = { host, port, headers: { host: name }, timeout: 5_000, agent: false as const };
  const request = (secure ? httpsRequest : httpRequest)(
    secure ? { ...options, servername: name, rejectUnauthorized: false } : options,
    (response) => {
      text(response).then(
        (body) => resolve({ status: response.statusCode ?? 0, headers: response.headers, body }),
        reject,
      );
    },
  );
  request.on('timeout', () => request.destroy(new Error(`request to ${name} timed out`)));
  request.on('error', reject);
  request.end();
  return promise;
}

type Parts = Pick<
  Stage,
  | 'berth'
  | 'git'
  | 'gate'
  | 'engines'
  | 'shim'
  | 'dir'
  | 'small'
  | 'secretsDir'
  | 'share'
  | 'svc'
  | 'get'
  | 'askHost'
  | 'entry'
  | 'front'
  | 'stop'
> & {
  history: MemoryHistory;
  /** File of the control plane's database. */
  database: string;
};

async function withProject(parts: Parts): Promise<Stage> {
  const { berth, git } = parts;
  let version = 1;
  const { url } = await git.createRepo('app', pageApp(1));
  const second = (await berth.api.call('listNodes', { query: {} })).items.find(
    (n) => n.hostname === 'node-2',
  );
  if (second !== undefined) await berth.api.call('cordonNode', { params: { id: second.id } });
  const project = await berth.createProject({
    name: 'app',
    git_url: url,
    domain_prefix: 'app',
    drain_seconds: 0,
    stop_grace_seconds: 1,
  });
  const { history } = parts;
  const recorder = createRecorder({
    history,
    api: berth.api,
    configUrl: `${berth.url}/api/traefik/config`,
    project,
    engines: [parts.engines.build, parts.engines.node],
    query: createQuery(parts.database),
    leaseMs: LEASE_MS,
  });
  const accepted: string[] = [];
  const ended: Stage['ended'] = new Map();
  const without: Record<string, null> = {};
  const logFrom = new Map<string, number>();
  let hook: { url: string; secret: string | null } | null = null;

  const deploy = async (): Promise<Deployment> => {
    const sent = Date.now();
    const asked = await berth.deploy(project);
    accepted.push(asked.id);
    recorder.record({
      type: 'accepted',
      sent,
      project: project.id,
      deployment: asked.id,
      key: null,
    });
    return asked;
  };
  const commit = async (files: Files, message: string): Promise<void> => {
    await git.commit('app', { ...without, ...files }, message);
    for (const name of Object.keys(without)) delete without[name];
    // The next release removes the files of this one.
    for (const name of Object.keys(files)) if (!(name in pageApp(1))) without[name] = null;
  };
  const releaseFiles = async (files: Files, message: string): Promise<Deployment> => {
    await commit(files, message);
    return deploy();
  };

  const stage: Stage = {
    ...parts,
    project,
    recorder,
    async stop() {
      try {
        await recorder.stop();
      } finally {
        await parts.stop();
      }
    },
    accepted,
    ended,
    version: () => version,
    agent(name) {
      const found = berth.agents[name];
      if (found === undefined) throw new Error(`unknown agent ${name}`);
      return found;
    },
    release(files) {
      version++;
      return releaseFiles({ ...pageApp(version), ...files }, `version ${version}`);
    },
    releaseBroken: (files) => releaseFiles({ ...pageApp(version), ...files }, 'broken'),
    async push(files) {
      version++;
      await commit({ ...pageApp(version), ...files }, `version ${version}`);
      hook ??= await berth.api.call('putHook', {
        params: { id: project.id },
        body: { forge: 'generic' },
      });
      const headers = { authorization: `Bearer ${hook.secret}` };
      const answer = await fetch(berth.url + new URL(hook.url).pathname, {
        method: 'POST',
        headers,
      });
      expect(answer.status).toBe(202);
      return (await answer.json()) as { id: string };
    },
    async causedBy(delivery) {
      const sent = Date.now();
      const { deployment_id } = await waitFor(
        'the push caused a deployment',
        async () => {
          const seen = await berth.api.call('getDelivery', {
            params: { id: project.id, delivery: delivery.id },
          });
          return seen.verdict === 'deployed' && seen;
        },
        { deadlineMs: 90_000 },
      );
      accepted.push(deployment_id ?? '');
      recorder.record({
        type: 'accepted',
        sent,
        project: project.id,
        deployment: deployment_id ?? '',
        key: null,
      });
      const { items } = await berth.api.call('listDeployments', {
        query: { project_id: project.id, limit: 100 },
      });
      for (const d of items)
        if (d.created_by?.kind === 'hook')
          recorder.record({ type: 'caused', push: d.created_by.id ?? '', deployment: d.id });
      return stage.see({ id: deployment_id ?? '' });
    },
    keepPreviousVersion: () => void version--,
    see: (d) => berth.api.call('getDeployment', { params: { id: d.id } }),
    async ends(d, state, code) {
      const done = await berth.settled(d, 90_000);
      const story = done.events.map((e) => e.message).join('\n');
      expect(
        { status: done.status, code: done.error?.code },
        `${done.error?.message}\n${story}`,
      ).toEqual({ status: state, code });
      return done;
    },
    async serves(wanted, deadlineMs = 60_000) {
      await waitFor(
        `version ${wanted} is served`,
        async () => versionOf((await parts.get()).body) === wanted,
        { deadlineMs },
      );
    },
    async says(d, pattern, deadlineMs = 30_000) {
      const text = async (): Promise<string[]> => [
        ...(await stage.see(d)).events.map((e) => e.message),
        ...(await berth.logs(d)),
      ];
      await waitFor(
        `the story or the log has ${pattern}`,
        async () => (await text()).some((line) => pattern.test(line)),
        {
          deadlineMs,
          intervalMs: 30,
        },
      );
    },
    async logged(service, pattern, deadlineMs = 30_000) {
      const since = async (): Promise<string> =>
        (await readFile(service.logFile, 'utf8')).slice(logFrom.get(service.logFile) ?? 0);
      await waitFor(`${service.name} logs ${pattern}`, async () => pattern.test(await since()), {
        deadlineMs,
      });
    },
    async begin() {
      for (const { logFile } of [berth.controlPlane, ...Object.values(berth.agents)])
        logFrom.set(logFile, (await readFile(logFile, 'utf8')).length);
    },
    async running() {
      const { items } = await berth.api.call('listDeployments', {
        query: { project_id: project.id, status: 'running' },
      });
      expect(items).toHaveLength(1);
      return items[0] as Deployment;
    },
    async containers(engine) {
      const { stdout } = await engine.docker([
        'ps',
        '-a',
        '--filter',
        'label=berth.project_name=app',
        '--format',
        '{{.Names}} {{.State}}',
      ]);
      return stdout.split('\n').filter((line) => line !== '');
    },
  };
  recorder.watch();
  const first = await deploy();
  await stage.ends(first, 'running');
  await stage.serves(1);
  return stage;
}
