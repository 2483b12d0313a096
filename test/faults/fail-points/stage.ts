/**
 * The processes that the fail points kill, one project that serves throughout, and the checks after
 * a recovery.
 */
import { randomUUID } from 'node:crypto';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type MemoryHistory, memoryHistory } from '@berth/testbed/history';
import type { Service } from '@berth/testbed/platform';
import { GiveUp, waitFor } from '@berth/testbed/wait';
import type { CallInput } from '@berth/wire/client';
import type { Deployment } from '@berth/wire/deployment';
import type { Project } from '@berth/wire/project';
import type { AnswerOf, RouteName } from '@berth/wire/routes';
import { pageApp, startWorld, type World } from '../../e2e/world.ts';
import { createQuery, type Query } from '../lib/database.ts';
import { createRecorder, isUnavailable, type Recorder } from '../lib/recorder.ts';
import type { Point, PointProcess } from './table.ts';

export type Stage = {
  world: World;
  /** DATASET_NFS_BASE_PATH of all processes. */
  share: string;
  /** SECRETS_DIR of the agents. */
  secretsDir: string;
  /** Serves from before the first row until after the last. */
  app: Project;
  /** The version of `app` that must serve. */
  version: number;
  /** Records the history of `app`. */
  recorder: Recorder;
  service(process: PointProcess): Service;
  /**
   * Restarts the process so that it dies at the point; also when that happens before it is ready.
   */
  arm(point: Point, env?: Record<string, string>): Promise<void>;
  /** Restarts the process without fail points. */
  unarm(process: PointProcess, env?: Record<string, string>): Promise<void>;
  /** Whether the process has no fail point. */
  isUnarmed(process: PointProcess): boolean;
  /** Waits until the process died at the point. */
  died(point: Point): Promise<void>;
  /** Repeats a request until the control plane answers, like a client whose connection broke. */
  ask<N extends RouteName>(name: N, input: CallInput<N>): Promise<AnswerOf<N>>;
  /** Commits `files` and requests a deployment under one Idempotency-Key until it is answered. */
  deploy(project: Project, files: Record<string, string>): Promise<Deployment>;
  /**
   * Commits `files` to `app` and reports the push, like a forge that repeats a delivery until it is
   * answered.
   */
  push(files: Record<string, string>): Promise<Deployment>;
  /** Rolls `app` back. */
  rollback(to: { id: string }): Promise<Deployment>;
  /** Waits until no work is in progress, and returns what is wrong with the remaining state. */
  leftovers(): Promise<string[]>;
  stop(): Promise<void>;
};

const NAMES: Record<PointProcess, string> = {
  'control-plane': 'control-plane',
  builder: 'builder-1',
  node: 'node-1',
  'second node': 'node-2',
};
/** Long enough for a control plane that starts on a busy machine, and short enough to wait for. */
const LEASE_MS = 6_000;
const SETTINGS = {
  LEASE_TTL: `${LEASE_MS / 1000}s`,
  CLAIM_TIMEOUT: '20s',
  PROBE_TIMEOUT: '8s',
  KEEP_RELEASES: '2',
  CLEAN_INTERVAL: 'none',
};
export const PROJECT = { drain_seconds: 1, stop_grace_seconds: 1 };

export async function startStage(): Promise<Stage> {
  const history = memoryHistory();
  const share = await mkdtemp(join(tmpdir(), 'berth-share-'));
  const onShare = { DATASET_NFS_BASE_PATH: share };
  const secretsDir = await mkdtemp('/dev/shm/berth-fail-points-');
  const world = await startWorld({
    proxy: 'built-in',
    // The forge of commit statuses is on this machine.
    env: { ...SETTINGS, ...onShare, ALLOWED_GIT_HOSTS: '127.0.0.1' },
    agentEnv: { ...onShare, SECRETS_DIR: secretsDir },
    cleans: true,
    agents: (engine) => [
      { name: 'builder-1', role: 'builder', engine },
      { name: 'node-1', role: 'deploy', engine },
      { name: 'node-2', role: 'deploy', engine },
    ],
    history,
  });
  const { stop } = world;
  world.stop = async () => {
    await stop();
    await rm(secretsDir, { recursive: true, force: true });
  };
  try {
    return await stageOf(world, share, secretsDir, history);
  } catch (error) {
    await world.stop();
    await rm(share, { recursive: true });
    throw error;
  }
}

async function stageOf(
  world: World,
  share: string,
  secretsDir: string,
  history: MemoryHistory,
): Promise<Stage> {
  const { berth, git, dir } = world;
  const second = (await berth.api.call('listNodes', { query: {} })).items.find(
    (node) => node.hostname === 'node-2',
  );
  await berth.api.call('cordonNode', { params: { id: second?.id ?? '' } });
  const { url } = await git.createRepo('app', pageApp(0));
  const app = await berth.createProject({
    name: 'app',
    git_url: url,
    domain_prefix: 'app',
    ...PROJECT,
  });
  const query = createQuery(join(dir, 'berth.db'));
  const configUrl = `${berth.url}/api/traefik/config`;
  const recorder = createRecorder({
    history,
    api: berth.api,
    configUrl,
    project: app,
    engines: [world.engine],
    query,
    leaseMs: LEASE_MS,
  });
  recorder.watch();

  async function ask<N extends RouteName>(name: N, input: CallInput<N>): Promise<AnswerOf<N>> {
    const { answer } = await waitFor(
      `${name} is answered`,
      async () => {
        try {
          return { answer: await berth.api.call(name, input) };
        } catch (error) {
          if (isUnavailable(error)) throw error;
          throw new GiveUp(String(error), { cause: error });
        }
      },
      { deadlineMs: 40_000 },
    );
    return answer;
  }

  /**
   * Deployments that a client got in an answer. Any other one means that a repeated request was
   * applied twice.
   */
  const answered = new Set<string>();
  const duplicates = (): string[] =>
    query(`select id, generation from deployments where project_id = '${app.id}'`)
      .filter((d) => !answered.has(String(d['id'])))
      .map((d) => `deployment that no client requested: ${JSON.stringify(d)}`);

  /** Repeats a request under one Idempotency-Key until it is answered. */
  async function request(
    name: 'createDeployment' | 'rollback',
    project: Project,
    body: object,
  ): Promise<Deployment> {
    const key = randomUUID();
    const sent = Date.now();
    const input = {
      params: { id: project.id },
      body,
      headers: { 'idempotency-key': key },
    } as CallInput<typeof name>;
    const made = await ask(name, input);
    if (project.id !== app.id) return made;
    answered.add(made.id);
    recorder.record({ type: 'accepted', sent, project: app.id, deployment: made.id, key });
    return made;
  }

  async function deploy(project: Project, files: Record<string, string>): Promise<Deployment> {
    await git.commit(project.name, files, `for ${project.name}`);
    return request('createDeployment', project, {});
  }

  const hook = await berth.api.call('putHook', {
    params: { id: app.id },
    body: { forge: 'generic' },
  });
  const hookUrl = berth.url + new URL(hook.url).pathname;
  async function push(files: Record<string, string>): Promise<Deployment> {
    await git.commit('app', files, 'pushed');
    const headers = { authorization: `Bearer ${hook.secret}`, 'webhook-id': randomUUID() };
    const sent = Date.now();
    await waitFor(
      'the delivery is accepted',
      async () => {
        const answer = await fetch(hookUrl, {
          method: 'POST',
          headers,
          signal: AbortSignal.timeout(5_000),
        });
        if (!answer.ok && answer.status < 500)
          throw new GiveUp(`the delivery got ${answer.status}`);
        return answer.ok;
      },
      { deadlineMs: 40_000 },
    );
    const { deployment_id } = await waitFor(
      'the delivery has a verdict',
      async () => {
        const { items } = await ask('listDeliveries', {
          params: { id: app.id },
          query: { limit: 10 },
        });
        return items.find((d) => d.deployment_id !== null && Date.parse(d.at) >= sent - 1_000);
      },
      { deadlineMs: 60_000 },
    );
    const made = await ask('getDeployment', { params: { id: deployment_id ?? '' } });
    answered.add(made.id);
    recorder.record({ type: 'accepted', sent, project: app.id, deployment: made.id, key: null });
    return made;
  }

  const first = await berth.settled(await deploy(app, pageApp(1)));
  if (first.status !== 'running')
    throw new Error(`the first version does not run: ${JSON.stringify(first.error)}`);

  const wrong = await recorder.judge();
  if (wrong.length > 0) throw new Error(`before the first kill: ${wrong.join('; ')}`);

  const service = (process: PointProcess): Service => {
    const found = process === 'control-plane' ? berth.controlPlane : berth.agents[NAMES[process]];
    if (found === undefined) throw new Error(`unknown process ${process}`);
    return found;
  };
  const armed = new Set<PointProcess>();
  const hasHit = (point: Point): boolean =>
    service(point.process).process().tail().includes(`"fail_point":"${point.name}"`);

  const stage: Stage = {
    world,
    share,
    secretsDir,
    app,
    version: 1,
    recorder,
    service,
    async unarm(process, env) {
      if (service(process).process().exit() === undefined) await service(process).crash();
      armed.delete(process);
      await service(process).start(env);
    },
    isUnarmed: (process) => !armed.has(process),
    async arm(point, env) {
      const process = service(point.process);
      armed.add(point.process);
      await process.stop();
      try {
        await process.start({ ...env, BERTH_FAIL_POINTS: `${point.name}=kill` });
      } catch (error) {
        // Some points come before the process is ready.
        if (!hasHit(point)) throw error;
      }
    },
    async died(point) {
      const { process } = service(point.process);
      const exit = await waitFor(`${point.process} dies at ${point.name}`, () => process().exit(), {
        deadlineMs: 60_000,
      });
      await waitFor('the last log line is read', () => hasHit(point), { deadlineMs: 2_000 });
      if (exit.signal !== 'SIGKILL')
        throw new Error(
          `${point.process} ended with ${exit.code ?? exit.signal}, not at ${point.name}`,
        );
    },
    ask,
    deploy,
    push,
    rollback: (to) => request('rollback', app, { deployment_id: to.id }),
    async leftovers() {
      let wrong: string[] = [];
      await waitFor(
        'everything is settled',
        async () => {
          wrong = [
            ...askDatabase(query),
            ...duplicates(),
            ...(await filesLeft(dir)),
            ...(await portsWrong(stage, query)),
            ...(await commandsLeft(stage)),
          ];
          return wrong.length === 0;
        },
        { deadlineMs: 45_000, intervalMs: 100 },
      ).catch((error: unknown) => {
        if (wrong.length === 0) throw error;
      });
      return wrong;
    },
    async stop() {
      await recorder.stop();
      await world.stop();
      await rm(share, { recursive: true });
    },
  };
  return stage;
}

/** Finds work in progress and states that must never exist. */
function askDatabase(query: Query): string[] {
  const rules: [what: string, sql: string][] = [
    ['open task', 'select id, kind, status, attempt from tasks where finished_at is null'],
    [
      'unsettled deployment',
      "select id, generation, status from deployments where status in ('pending', 'building', " +
        "'built', 'deploying')",
    ],
    ['open run', 'select id, status, attempt from runs where ended_at is null'],
    [
      'two running',
      "select project_id, count(*) n from deployments where status = 'running' group by " +
        'project_id having n > 1',
    ],
    [
      'route that does not point to the running deployment',
      `select r.project_id, r.host_port, d.status from routes r join deployments d on d.id = r.deployment_id
       where d.status <> 'running' or d.host_port <> r.host_port`,
    ],
    [
      'running without a route',
      "select id from deployments where status = 'running' and id not in (select deployment_id " +
        'from routes)',
    ],
    [
      'ended without finished_at',
      "select id, status from deployments where status <> 'running' and finished_at is null",
    ],
    [
      'duplicate line in a story',
      `select deployment_id, kind, count(*) n from deployment_events
       where kind in ('running', 'retired', 'failed', 'cancelled') group by deployment_id, kind having n > 1`,
    ],
    [
      'duplicate log line',
      "select deployment_id, text, at, count(*) n from log_lines where text like 'commit %' " +
        'group by deployment_id, text, at having n > 1',
    ],
  ];
  return rules.flatMap(([what, sql]) => query(sql).map((row) => `${what}: ${JSON.stringify(row)}`));
}

/** Finds workspaces and env files that a killed agent left on disk and that no start removed. */
async function filesLeft(dir: string): Promise<string[]> {
  const folders = [
    join('builder-1', 'builder', 'work'),
    join('builder-1', 'builder', 'scratch'),
    join('node-1', 'deploy', 'scratch'),
  ];
  const found = await Promise.all(
    folders.map(async (folder) =>
      (await readdir(join(dir, 'agents', folder))).map(
        (name) => `leftover file: ${join(folder, name)}`,
      ),
    ),
  );
  return [...found.flat(), ...(await copiesLeft(join(dir, 'agents', 'node-1', 'svc')))];
}

/**
 * Finds what is left below .staging and .trash, where each process has a folder: its content, and
 * folders of ended processes.
 */
async function copiesLeft(svc: string): Promise<string[]> {
  const names = await Promise.all(
    ['.staging', '.trash'].map(async (folder) =>
      (await readdir(join(svc, folder), { recursive: true })).map((name) => `${folder}/${name}`),
    ),
  );
  const wrong = names
    .flat()
    .filter((name) => !/^\.(staging|trash)\/[^/]+(\/\.process\.json)?$/.test(name));
  const processes = names.flat().filter((name) => /^\.staging\/[^/]+$/.test(name));
  return [...wrong, ...processes.slice(1)].map((name) => `leftover copy: ${name}`);
}

/**
 * Checks that each running deployment has exactly one container, under its final name, at the port
 * of its route.
 */
async function portsWrong(stage: Stage, query: Query): Promise<string[]> {
  const running = query(
    'select p.name, p.domain_prefix, d.id, d.host_port from deployments d join projects p on ' +
      "p.id = d.project_id where d.status = 'running'",
  );
  const format =
    '{{.Label "berth.project_name"}} {{.Names}} {{.State}} {{.Label "berth.deployment"}} ' +
    '{{.Ports}}';
  const nodes = query('select id from nodes').map((row) => row['id']);
  const seen: string[] = [];
  for (const id of nodes) {
    const { stdout } = await stage.world.engine.docker([
      'ps',
      '-a',
      '--filter',
      `label=berth.node=${id}`,
      '--format',
      format,
    ]);
    seen.push(...stdout.split('\n').filter((line) => line !== ''));
  }
  const wanted = running.map((d) => ({
    d,
    start: `${d['name']} svc-${d['domain_prefix']} running ${d['id']} `,
  }));
  const missing = wanted.filter(
    ({ d, start }) =>
      !seen.some((line) => line.startsWith(start) && line.includes(`:${d['host_port']}->`)),
  );
  const extra = seen.filter((line) => !wanted.some(({ start }) => line.startsWith(start)));
  return [
    ...missing.map(({ start }) => `missing container: ${start}`),
    ...extra.map((line) => `leftover container: ${line}`),
  ];
}

/** Finds containers and marks of runs: a run that has ended has none. */
async function commandsLeft({ world }: Stage): Promise<string[]> {
  const nodes = (await world.berth.api.call('listNodes', { query: {} })).items;
  const containers = await Promise.all(
    nodes.map(({ id }) =>
      world.engine.docker([
        ...['ps', '-a', '--filter', `label=berth.run_node=${id}`],
        ...['--format', 'container of a run: {{.Names}} {{.State}}'],
      ]),
    ),
  );
  const marks = await Promise.all(
    ['node-1', 'node-2'].map((name) =>
      readdir(join(world.dir, 'agents', name, 'deploy', 'runs')).catch(() => []),
    ),
  );
  return [
    ...containers.flatMap(({ stdout }) => stdout.split('\n').filter((line) => line !== '')),
    ...marks.flat().map((name) => `mark of a run: ${name}`),
  ];
}
