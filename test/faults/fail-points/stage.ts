/** The processes on which the fail points are tried: one project that serves, and the questions asked after a recovery. */
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
import { createRecorder, isAway, type Recorder } from '../lib/recorder.ts';
import type { Point, PointProcess } from './table.ts';

export type Stage = {
  world: World;
  /** DATASET_NFS_BASE_PATH of all. */
  share: string;
  /** Serves from before the first row to after the last. */
  app: Project;
  /** The version of `app` that is meant to serve. */
  version: number;
  /** Of `app`. */
  recorder: Recorder;
  service(process: PointProcess): Service;
  /** Starts the process anew so that it dies at the point; also when it does so before it was ready. */
  arm(point: Point): Promise<void>;
  /** Starts the process as it should be, ending it first where it runs. */
  unarm(process: PointProcess): Promise<void>;
  /** It was not left armed. */
  returned(process: PointProcess): boolean;
  /** Waits for that death. */
  died(point: Point): Promise<void>;
  /** Asks the control plane until it answers, as a client does that has seen a connection break. */
  ask<N extends RouteName>(name: N, input: CallInput<N>): Promise<AnswerOf<N>>;
  /** Commits `files` and asks for a deployment under one Idempotency-Key until it was answered. */
  deploy(project: Project, files: Record<string, string>): Promise<Deployment>;
  /** Of `app`. */
  rollback(to: { id: string }): Promise<Deployment>;
  /** Waits until nothing is under way any more, and says what is wrong with what is left. */
  leftovers(): Promise<string[]>;
  stop(): Promise<void>;
};

const NAMES: Record<PointProcess, string> = { 'control-plane': 'control-plane', builder: 'builder-1', node: 'node-1' };
/** Long enough for a control plane that starts on a busy machine, short enough to be waited for. */
const LEASE_MS = 6_000;
const SETTINGS = { LEASE_TTL: `${LEASE_MS / 1000}s`, CLAIM_TIMEOUT: '20s', PROBE_TIMEOUT: '8s' };
export const PROJECT = { drain_seconds: 1, stop_grace_seconds: 1 };

export async function startStage(): Promise<Stage> {
  const history = memoryHistory();
  const share = await mkdtemp(join(tmpdir(), 'berth-share-'));
  const onShare = { DATASET_NFS_BASE_PATH: share };
  const world = await startWorld({ proxy: 'built-in', env: { ...SETTINGS, ...onShare }, agentEnv: onShare, history });
  try {
    return await stageOf(world, share, history);
  } catch (error) {
    await world.stop();
    await rm(share, { recursive: true });
    throw error;
  }
}

async function stageOf(world: World, share: string, history: MemoryHistory): Promise<Stage> {
  const { berth, git, dir } = world;
  const { url } = await git.createRepo('app', pageApp(0));
  const app = await berth.createProject({ name: 'app', git_url: url, domain_prefix: 'app', ...PROJECT });
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
          if (isAway(error)) throw error;
          throw new GiveUp(String(error), { cause: error });
        }
      },
      { deadlineMs: 40_000 },
    );
    return answer;
  }

  /** What a client was told of: anything else came from one request that was taken twice. */
  const told = new Set<string>();
  const nobodyAsked = (): string[] =>
    query(`select id, generation from deployments where project_id = '${app.id}'`)
      .filter((d) => !told.has(String(d['id'])))
      .map((d) => `deployment that nobody was told of: ${JSON.stringify(d)}`);

  /** Asked under one Idempotency-Key until it was answered. */
  async function request(name: 'createDeployment' | 'rollback', project: Project, body: object): Promise<Deployment> {
    const key = randomUUID();
    const sent = Date.now();
    const input = { params: { id: project.id }, body, headers: { 'idempotency-key': key } } as CallInput<typeof name>;
    const made = await ask(name, input);
    if (project.id !== app.id) return made;
    told.add(made.id);
    recorder.record({ type: 'accepted', sent, project: app.id, deployment: made.id, key });
    return made;
  }

  async function deploy(project: Project, files: Record<string, string>): Promise<Deployment> {
    await git.commit(project.name, files, `for ${project.name}`);
    return request('createDeployment', project, {});
  }

  const first = await berth.settled(await deploy(app, pageApp(1)));
  if (first.status !== 'running') throw new Error(`the first version does not run: ${JSON.stringify(first.error)}`);

  const wrong = await recorder.judge();
  if (wrong.length > 0) throw new Error(`before anything was killed: ${wrong.join('; ')}`);

  const service = (process: PointProcess): Service => {
    const found = process === 'control-plane' ? berth.controlPlane : berth.agents[NAMES[process]];
    if (found === undefined) throw new Error(`no process ${process}`);
    return found;
  };
  const armed = new Set<PointProcess>();
  const hasHit = (point: Point): boolean => service(point.process).process().tail().includes(`"fail_point":"${point.name}"`);

  const stage: Stage = {
    world,
    share,
    app,
    version: 1,
    recorder,
    service,
    async unarm(process) {
      if (service(process).process().exit() === undefined) await service(process).crash();
      armed.delete(process);
      await service(process).start();
    },
    returned: (process) => !armed.has(process),
    async arm(point) {
      const process = service(point.process);
      armed.add(point.process);
      await process.stop();
      try {
        await process.start({ BERTH_FAIL_POINTS: `${point.name}=kill` });
      } catch (error) {
        // Some points lie on the way to being ready.
        if (!hasHit(point)) throw error;
      }
    },
    async died(point) {
      const { process } = service(point.process);
      const exit = await waitFor(`${point.process} dies at ${point.name}`, () => process().exit(), { deadlineMs: 60_000 });
      await waitFor('its last words are read', () => hasHit(point), { deadlineMs: 2_000 });
      if (exit.signal !== 'SIGKILL') throw new Error(`${point.process} ended with ${exit.code ?? exit.signal}, not at ${point.name}`);
    },
    ask,
    deploy,
    rollback: (to) => request('rollback', app, { deployment_id: to.id }),
    async leftovers() {
      let wrong: string[] = [];
      await waitFor(
        'everything has settled',
        async () => {
          wrong = [...askDatabase(query), ...nobodyAsked(), ...(await filesLeft(dir)), ...(await portsWrong(stage, query))];
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

/** What is still under way, and what must never be. */
function askDatabase(query: Query): string[] {
  const rules: [what: string, sql: string][] = [
    ['open task', 'select id, kind, status, attempt from tasks where finished_at is null'],
    [
      'unsettled deployment',
      "select id, generation, status from deployments where status in ('pending', 'building', 'built', 'deploying')",
    ],
    ['two running', "select project_id, count(*) n from deployments where status = 'running' group by project_id having n > 1"],
    [
      'route that points elsewhere than at what runs',
      `select r.project_id, r.host_port, d.status from routes r join deployments d on d.id = r.deployment_id
       where d.status <> 'running' or d.host_port <> r.host_port`,
    ],
    ['running without a route', "select id from deployments where status = 'running' and id not in (select deployment_id from routes)"],
    ['settled without an end', "select id, status from deployments where status <> 'running' and finished_at is null"],
    [
      'one thing twice in a story',
      `select deployment_id, kind, count(*) n from deployment_events
       where kind in ('running', 'retired', 'failed', 'cancelled') group by deployment_id, kind having n > 1`,
    ],
    [
      'a log line that is there twice',
      `select deployment_id, text, at, count(*) n from log_lines where text like 'commit %' group by deployment_id, text, at having n > 1`,
    ],
  ];
  return rules.flatMap(([what, sql]) => query(sql).map((row) => `${what}: ${JSON.stringify(row)}`));
}

/** Workspaces, env-files: what an agent that was killed left on the disk and no start has cleared. */
async function filesLeft(dir: string): Promise<string[]> {
  const folders = [join('builder-1', 'builder', 'work'), join('builder-1', 'builder', 'scratch'), join('node-1', 'deploy', 'scratch')];
  const found = await Promise.all(
    folders.map(async (folder) => (await readdir(join(dir, 'agents', folder))).map((name) => `file left: ${join(folder, name)}`)),
  );
  return [...found.flat(), ...(await copiesLeft(join(dir, 'agents', 'node-1', 'svc')))];
}

/** Below .staging and .trash each process has a folder; what is in one, or of one that is no more. */
async function copiesLeft(svc: string): Promise<string[]> {
  const names = await Promise.all(
    ['.staging', '.trash'].map(async (folder) =>
      (await readdir(join(svc, folder), { recursive: true })).map((name) => `${folder}/${name}`),
    ),
  );
  const wrong = names.flat().filter((name) => !/^\.(staging|trash)\/[^/]+(\/\.process\.json)?$/.test(name));
  const processes = names.flat().filter((name) => /^\.staging\/[^/]+$/.test(name));
  return [...wrong, ...processes.slice(1)].map((name) => `left of a copy: ${name}`);
}

/** Each running deployment has exactly its one container, under its final name, at the port that its route points to. */
async function portsWrong(stage: Stage, query: Query): Promise<string[]> {
  const running = query(
    `select p.name, p.domain_prefix, d.id, d.host_port from deployments d join projects p on p.id = d.project_id where d.status = 'running'`,
  );
  const format = '{{.Label "berth.project_name"}} {{.Names}} {{.State}} {{.Label "berth.deployment"}} {{.Ports}}';
  const nodes = query('select id from nodes').map((row) => row['id']);
  const seen: string[] = [];
  for (const id of nodes) {
    const { stdout } = await stage.world.engine.docker(['ps', '-a', '--filter', `label=berth.node=${id}`, '--format', format]);
    seen.push(...stdout.split('\n').filter((line) => line !== ''));
  }
  const wanted = running.map((d) => ({ d, start: `${d['name']} svc-${d['domain_prefix']} running ${d['id']} ` }));
  const missing = wanted.filter(({ d, start }) => !seen.some((line) => line.startsWith(start) && line.includes(`:${d['host_port']}->`)));
  const extra = seen.filter((line) => !wanted.some(({ start }) => line.startsWith(start)));
  return [...missing.map(({ start }) => `no container: ${start}`), ...extra.map((line) => `container left: ${line}`)];
}
