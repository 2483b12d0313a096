/**
 * npm run day: a day of a small team in minutes. 30 projects make 500 deployments on 3 nodes, and
 * 20 GB of images pass through the registry. Control plane, proxy, registry and the node node-1 are
 * real: its agent pulls and runs the images in an engine of its own, has a budget (MAX_STORAGE)
 * that is too small for all releases that a rollback can go to, and cleans the registry. The
 * builder and the other two nodes are small programs that push and pull the same images (random
 * bytes and a web server) and run no containers. It prints its figures, and exits with 1 when a
 * disk or the database exceeds its budget, an image that a rollback needs is missing, a rollback
 * fails, or a deployment fails.
 */
import { randomBytes } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { DatabaseSync } from 'node:sqlite';
import { startApplications } from '@berth/testbed/applications';
import { findProgram } from '@berth/testbed/config';
import { type Engine, startEngine } from '@berth/testbed/engine';
import { layerOf, missingParts, pushImage } from '@berth/testbed/images';
import { type Platform, startPlatform } from '@berth/testbed/platform';
import { type Registry, startRegistry } from '@berth/testbed/registry';
import { waitFor } from '@berth/testbed/wait';
import type { Deployment, DeploymentItem } from '@berth/wire/deployment';
import type { Project } from '@berth/wire/project';

const UNITS: Readonly<Record<string, number>> = { '': 1, K: 1e3, M: 1e6, G: 1e9, T: 1e12 };
/** Parses a size as docker prints it, e.g. `1.234GB`, in bytes; 0 for any other text. */
function bytesOf(text: string): number {
  const [, digits = '0', unit = ''] = /^([\d.]+)([kKMGT]?)B$/.exec(text.trim()) ?? [];
  return Math.round(Number(digits) * (UNITS[unit.toUpperCase()] ?? 0));
}

const { values } = parseArgs({
  options: {
    projects: { type: 'string', default: '30' },
    deployments: { type: 'string', default: '500' },
    gigabytes: { type: 'string', default: '20' },
    keep: { type: 'string', default: '5' },
    'clean-ups': { type: 'string', default: '8' },
  },
});
const [PROJECTS, DEPLOYMENTS, KEEP] = [
  Number(values.projects),
  Number(values.deployments),
  Number(values.keep),
];
const IMAGE = Math.round((Number(values.gigabytes) * 1e9) / DEPLOYMENTS);
const EVERY = Math.max(1, Math.floor(DEPLOYMENTS / Number(values['clean-ups'])));
const REAL = 'node-1';
const NODES = [REAL, 'node-2', 'node-3'];
/**
 * Images of node-1: a third of the projects, their base layers, and half of the releases that a
 * rollback can go to.
 */
const BUDGET = Math.round((PROJECTS / NODES.length) * (IMAGE / 5 + (1 + KEEP / 2) * IMAGE));
const KEEP_DEPLOYMENTS = 5;
const KEEP_LOG_BYTES = 2_000_000;
/** Projects of which a deployment is in progress at a time. */
const AT_ONCE = 4;
const LATE = { deadlineMs: 180_000 };

type Task = {
  id: string;
  kind: string;
  payload: {
    image_repository: string;
    image: string;
    image_digest: string;
    image_tag: string;
    project: string;
  };
};
type Call = (method: string, path: string, body?: object, lease?: string) => Promise<unknown>;
const problems: string[] = [];
const started = performance.now();
const mb = (bytes: number): string => `${Math.round(bytes / 1e6)} MB`;
/** Images of each node: of each project the newest KEEP, as an agent keeps them. */
const held = new Map(
  NODES.map((name) => [name, { pulls: 0, peak: 0, images: new Map<string, string[]>() }]),
);
const heldBytes = (name: string): number =>
  [...(held.get(name)?.images.values() ?? [])].reduce(
    (sum, images) => sum + images.length * IMAGE,
    0,
  );
let pushed = 0;
let pushedBytes = 0;

const dir = await mkdtemp(join(tmpdir(), 'berth-day-'));
const stops: (() => Promise<unknown>)[] = [() => rm(dir, { recursive: true, force: true })];
const ending = new AbortController();
try {
  await day();
} finally {
  ending.abort();
  for (const stop of stops.toReversed())
    await stop().catch((error: unknown) => problems.push(String(error)));
}
for (const problem of problems) console.log(`PROBLEM: ${problem}`);
console.log(problems.length === 0 ? 'day: everything held' : `day: ${problems.length} problems`);
process.exit(problems.length === 0 ? 0 : 1);

async function day(): Promise<void> {
  const engine = await startEngine({ dir: join(dir, 'engine'), private: true, fresh: true });
  stops.push(() => engine.stop());
  const address = engine.gatewayIp;
  const registry = await startRegistry({
    dir: join(dir, 'registry'),
    address,
    restarts: true,
    user: 'berth',
    password: 'secret of the day',
  });
  stops.push(() => registry.stop());
  const applications = startApplications((_, response) => response.end('of the day\n'));
  stops.push(() => applications.stop());
  const env = {
    KEEP_RELEASES: String(KEEP),
    CLEAN_INTERVAL: 'none',
    KEEP_DEPLOYMENTS: String(KEEP_DEPLOYMENTS),
    KEEP_LOG_BYTES: String(KEEP_LOG_BYTES),
  };
  const berth = await startPlatform({
    dir,
    address,
    registry,
    proxy: 'built-in',
    agents: [
      {
        name: REAL,
        role: 'deploy',
        engine,
        env: {
          MAX_STORAGE: String(BUDGET),
          REGISTRY_CONFIG: registry.config,
          REGISTRY_RESTART: (registry.restart ?? []).join(' '),
        },
      },
    ],
    env,
  });
  stops.push(() => berth.stop());

  const busybox = await readFile(findProgram('busybox') ?? '/bin/busybox');
  const bases = new Map<string, Buffer>();
  await Promise.all([
    actor(berth, 'builder-1', 'builder', async ({ payload }, send) => {
      const repository = payload.image_repository.slice(payload.image_repository.indexOf('/') + 1);
      const base =
        bases.get(repository) ??
        layerOf({
          'bin/busybox': busybox,
          'www/base.bin': randomBytes(Math.max(0, Math.round(IMAGE / 5) - busybox.length)),
        });
      bases.set(repository, base);
      const commit = randomBytes(20).toString('hex');
      const lines = Array.from({ length: 200 }, (_, i) => ({
        stream: 'stdout',
        text: `step ${i}: ${randomBytes(30).toString('hex')}`,
      }));
      await send(lines);
      const layer = layerOf({
        'www/index.html': Buffer.from(`${repository} ${commit}\n`),
        'www/app.bin': randomBytes(IMAGE),
      });
      const command = ['/bin/busybox', 'httpd', '-f', '-p', '8080', '-h', '/www'];
      const image = await pushImage(registry, repository, commit, [base, layer], { command });
      pushed += 1;
      pushedBytes += image.bytes;
      return {
        status: 'completed',
        image_tag: `${payload.image_repository}:${commit}`,
        image_digest: image.digest,
        commit,
      };
    }),
    ...NODES.slice(1).map((name) =>
      actor(berth, name, 'deploy', async ({ payload }) => {
        const missing = await missingHere(registry, payload.project, payload.image_digest);
        const node = held.get(name);
        if (node !== undefined) {
          const images = [
            payload.image_digest,
            ...(node.images.get(payload.project) ?? []).filter(
              (digest) => digest !== payload.image_digest,
            ),
          ];
          node.images.set(payload.project, images.slice(0, KEEP));
          node.pulls += 1;
          node.peak = Math.max(node.peak, heldBytes(name));
        }
        if (missing.length > 0)
          problems.push(`${name} could not pull ${payload.project}: ${missing[0]}`);
        return missing.length > 0
          ? { status: 'failed', result: missing[0] }
          : {
              status: 'completed',
              host_port: await applications.portOf(`${name} ${payload.project}`),
            };
      }),
    ),
  ]);
  await waitFor(
    'the cleaning agent is registered',
    async () => (await berth.api.call('cleanUps', {})).unavailable === undefined,
    LATE,
  );
  const disk = watchDisk(engine);
  stops.push(() => disk.stop());
  await deployAll(berth, join(dir, 'berth.db'));
  await disk.stop();
  console.log(
    `${REAL} (real): images and build cache at most ${mb(disk.peak())}, at the end ` +
      `${mb(disk.now())}, of ${mb(BUDGET)}; ` +
      `${await linesIn(berth, 'image evicted to make room')} images evicted to make room`,
  );
  if (disk.peak() > BUDGET)
    problems.push(`${REAL} had ${mb(disk.peak())}, its budget is ${mb(BUDGET)}`);

  async function deployAll({ api }: Platform, database: string): Promise<void> {
    const projects: Project[] = [];
    for (let i = 0; i < PROJECTS; i++)
      projects.push(
        await berth.createProject({
          name: `team-${i}`,
          git_url: 'https://git.example/x.git',
          domain_prefix: `team-${i}`,
          drain_seconds: 0,
        }),
      );
    const settle = async (asked: Deployment, what: string): Promise<void> => {
      const done = await berth.settled(asked, 300_000);
      if (done.status !== 'running')
        problems.push(`${what}: ${done.status} ${done.error?.message ?? ''}`);
    };
    let [peak, before] = [0, 0];
    let finished = 0;
    const cleanNow = async (): Promise<void> => {
      before = await sizeOf(registry.data);
      peak = Math.max(peak, before);
      const last = (await api.call('cleanUps', {})).items[0]?.id;
      await api.call('startCleanUp', {});
      const done = await waitFor(
        'the clean-up ends',
        async () => {
          const [item] = (await api.call('cleanUps', {})).items;
          return item !== undefined && item.id !== last ? item : null;
        },
        LATE,
      );
      const after = await sizeOf(registry.data);
      if (done.state !== 'done')
        problems.push(`clean-up: ${done.error?.code} ${done.error?.message}`);
      // The kept images, with a base layer for each project, and what was built meanwhile.
      const budget = PROJECTS * ((KEEP + 1) * IMAGE + IMAGE / 5) * 1.1 + AT_ONCE * 2 * IMAGE;
      if (after > budget)
        problems.push(
          `the registry has ${mb(after)} after a clean-up, its budget is ${mb(budget)}`,
        );
      console.log(
        `${String(finished).padStart(4)} deployments: registry ${mb(before)} -> ${mb(after)} of ` +
          `${mb(budget)}, ${done.removed} images removed`,
      );
    };
    // A third of the projects for each node. The scores would move them: only the real node
    // subtracts what its folder holds.
    const nodes = (await api.call('listNodes', { query: {} })).items.filter(
      (node) => node.role === 'deploy',
    );
    const groups = nodes.map((_, i) => projects.filter((_project, at) => at % nodes.length === i));
    const openOnly = async (node: string): Promise<void> => {
      for (const { id } of nodes)
        await api.call(id === node ? 'uncordonNode' : 'cordonNode', { params: { id } });
    };
    for (let turn = 0; finished < DEPLOYMENTS; turn += 1) {
      const i = turn % nodes.length;
      const group = groups[i] ?? [];
      const at = Math.floor(turn / nodes.length) * AT_ONCE;
      const count = Math.min(AT_ONCE, group.length, DEPLOYMENTS - finished);
      const batch = Array.from({ length: count }, (_, k) => group[(at + k) % group.length]);
      await openOnly(nodes[i]?.id ?? '');
      const work = batch.map(
        async (project) =>
          project && settle(await berth.deploy(project), `deployment of ${project.name}`),
      );
      // In the middle of the work, as on a real day.
      if (Math.floor(finished / EVERY) !== Math.floor((finished + count) / EVERY)) await cleanNow();
      await Promise.all(work);
      finished += count;
    }
    await cleanNow();

    const { whole, used } = await aged(database);

    let [kept, gone, refused, back] = [0, 0, 0, 0];
    for (const project of projects) {
      const items: DeploymentItem[] = (
        await api.call('projectDeployments', { params: { id: project.id }, query: { limit: 200 } })
      ).items;
      const ran = items.filter((d) => d.status === 'running' || d.status === 'retired');
      const there = ran.filter((d) => d.image_removed_at === null);
      if (there.length < Math.min(KEEP, ran.length))
        problems.push(`${project.name} keeps ${there.length} of ${ran.length} releases`);
      for (const d of there) {
        const missing = await missingHere(registry, project.name, d.image_digest ?? '');
        if (missing.length > 0)
          problems.push(`${project.name}: a rollback to ${d.generation} needs ${missing[0]}`);
      }
      kept += there.length;
      gone += ran.length - there.length;
      const removed = ran.find((d) => d.image_removed_at !== null);
      const rollback = (to: string): Promise<Deployment> =>
        api.call('rollback', { params: { id: project.id }, body: { deployment_id: to } });
      if (removed !== undefined)
        await rollback(removed.id).then(
          () => problems.push(`${project.name}: a rollback to a removed image began`),
          () => (refused += 1),
        );
      // On the real node to every kept release, otherwise to the oldest one: only the real node can
      // lose an image.
      const isReal = nodes.find((node) => node.id === ran[0]?.node_id)?.hostname === REAL;
      await openOnly(ran[0]?.node_id ?? '');
      for (const to of there.filter((d) => d.status !== 'running').slice(isReal ? 0 : -1)) {
        await settle(await rollback(to.id), `rollback of ${project.name} to ${to.generation}`);
        back += 1;
        if (!isReal) continue;
        const body = (await berth.get(project.domain_prefix)).body.trim();
        if (!body.endsWith(to.commit ?? '-'))
          problems.push(`${project.name} answers "${body}" after a rollback to ${to.commit}`);
      }
    }
    const seconds = (performance.now() - started) / 1000;
    console.log(
      `${DEPLOYMENTS} deployments of ${PROJECTS} projects in ${Math.round(seconds)} s; ` +
        `${pushed} images pushed, ${mb(pushedBytes)}`,
    );
    console.log(`registry: at most ${mb(peak)}, at the end ${mb(await sizeOf(registry.data))}`);
    const nodeBudget = PROJECTS * KEEP * IMAGE;
    for (const [name, { pulls, peak: most }] of held) {
      if (name === REAL) continue;
      console.log(`${name} (simulated): ${pulls} pulls, at most ${mb(most)} of ${mb(nodeBudget)}`);
      if (most > nodeBudget)
        problems.push(`${name} had ${mb(most)}, its budget is ${mb(nodeBudget)}`);
    }
    console.log(
      `rollbacks: ${kept} releases whole in the registry, ${gone} removed, ${refused} refused in ` +
        `advance, ${back} rollbacks went through`,
    );
    // A deployment takes about 110 KB with its log and its tasks, a record alone 2 KB
    // (docs/operating.md), and 20 MB are for the rest. The file itself gives space back in small
    // steps, so it is larger for a while.
    const allowed = 20e6 + whole * 110_000 + (DEPLOYMENTS - whole) * 2_000;
    console.log(
      `database: ${mb(used)} in use after retention, of ${mb(allowed)} for ${whole} ` +
        'deployments with their history',
    );
    if (used > allowed)
      problems.push(`the database uses ${mb(used)}, expected at most ${mb(allowed)}`);
  }

  /**
   * Two days pass while the control plane is stopped. Then its retention must leave
   * KEEP_DEPLOYMENTS and KEEP_LOG_BYTES.
   */
  async function aged(database: string): Promise<{ whole: number; used: number }> {
    type Counts = {
      deployments: number;
      whole: number;
      over: number;
      events: number;
      logs: number;
    };
    const counts = (): Counts => {
      const db = new DatabaseSync(database, { readOnly: true });
      try {
        return db
          .prepare(
            `select (select count(*) from deployments) deployments,
              (select count(*) from deployments where thinned_at is null) whole,
              (select count(*) from deployments d where thinned_at is null and status in ('retired','failed','cancelled','superseded')
                and ${KEEP_DEPLOYMENTS} <= (select count(*) from deployments n
                  where n.project_id = d.project_id and n.generation > d.generation)) over,
              (select count(*) from deployment_events) events,
              (select coalesce(sum(bytes), 0) from log_heads) logs`,
          )
          .get() as Counts;
      } finally {
        db.close();
      }
    };
    const text = (c: Counts): string =>
      `${c.deployments} deployments, ${c.whole} with their history, ${c.events} events, ` +
      `${mb(c.logs)} of logs`;
    const before = counts();
    await berth.controlPlane.stop();
    const db = new DatabaseSync(database);
    db.exec(
      `update deployments set state_since = state_since - ${2 * 86_400_000}, finished_at = ` +
        `finished_at - ${2 * 86_400_000}`,
    );
    db.close();
    await berth.controlPlane.start({ KEEP_DEPLOYMENT_DAYS: '1' });
    const late = { deadlineMs: 300_000 };
    await waitFor(
      'retention has worked',
      () => counts().over === 0 && counts().logs <= KEEP_LOG_BYTES,
      late,
    ).catch((error: unknown) => problems.push(String(error)));
    const after = counts();
    console.log(`retention: before ${text(before)}; after ${text(after)} of ${mb(KEEP_LOG_BYTES)}`);
    const now = new DatabaseSync(database, { readOnly: true });
    const pragma = (name: string): number =>
      Number(Object.values(now.prepare(`pragma ${name}`).get() ?? {})[0]);
    const used = pragma('page_size') * (pragma('page_count') - pragma('freelist_count'));
    now.close();
    return { whole: after.whole, used };
  }
}

/**
 * Measures the sum of images and build cache of the real node. Layers that they share count once.
 */
function watchDisk(engine: Engine): { peak(): number; now(): number; stop(): Promise<void> } {
  const ending = new AbortController();
  let [now, peak] = [0, 0];
  const watching = (async () => {
    while (!ending.signal.aborted) {
      const { stdout } = await engine.docker(['system', 'df', '--format', '{{.Type}}\t{{.Size}}'], {
        mayFail: true,
        deadlineMs: 120_000,
      });
      const sizes = stdout
        .split('\n')
        .flatMap((line) =>
          /^(Images|Build Cache)\t/.test(line) ? [bytesOf(line.split('\t')[1] ?? '')] : [],
        );
      if (sizes.length === 2) {
        now = (sizes[0] ?? 0) + (sizes[1] ?? 0);
        peak = Math.max(peak, now);
      }
      await sleep(2_000, undefined, { signal: ending.signal }).catch(() => undefined);
    }
  })();
  return {
    peak: () => peak,
    now: () => now,
    stop: () => {
      ending.abort();
      return watching;
    },
  };
}

/** A pull is repeated, as an engine repeats it: the registry restarts during a clean-up. */
async function missingHere(
  registry: Registry,
  repository: string,
  digest: string,
): Promise<string[]> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await missingParts(registry, repository, digest);
    } catch (error) {
      if (tries === 5) return [String(error)];
      await sleep(1_000);
    }
  }
}

async function linesIn(berth: Platform, text: string): Promise<number> {
  const log = await readFile(berth.agents[REAL]?.logFile ?? '', 'utf8');
  return log.split('\n').filter((line) => line.includes(text)).length;
}

/** A node that implements only the contract, and does its tasks with `work`. */
async function actor(
  berth: Platform,
  hostname: string,
  role: 'builder' | 'deploy',
  work: (task: Task, sendLog: (lines: object[]) => Promise<unknown>) => Promise<object>,
): Promise<void> {
  const { signal } = ending;
  const call: Call = async (method, path, body, lease) => {
    const answer = await fetch(berth.url + path, {
      method,
      signal,
      headers: {
        'x-agent-secret': berth.agentSecret,
        'content-type': 'application/json',
        ...(lease === undefined ? {} : { 'x-lease-token': lease }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
    return answer.json();
  };
  const registration = (): object => ({
    hostname,
    role,
    host_ip: '127.0.0.1',
    max_storage: BUDGET,
    free_storage: BUDGET,
    max_builds: AT_ONCE,
  });
  const { id } = (await call('POST', '/api/agent/register', registration())) as { id: string };
  const doing = new Set<string>();
  const perform = async (task: Task): Promise<void> => {
    doing.add(task.id);
    let lease: string | undefined;
    try {
      ({ lease_token: lease } = (await call('POST', `/api/agent/tasks/${task.id}/start`, {})) as {
        lease_token: string;
      });
      const done = await work(task, (lines) =>
        call('POST', `/api/agent/tasks/${task.id}/logs`, { lines }, lease),
      );
      await call('POST', `/api/agent/tasks/${task.id}/complete`, done, lease);
    } catch (error) {
      if (signal.aborted) return;
      await call(
        'POST',
        `/api/agent/tasks/${task.id}/complete`,
        { status: 'failed', result: String(error) },
        lease,
      ).catch(() => undefined);
    }
  };
  void (async () => {
    for (let round = 0; !signal.aborted; round++) {
      if (round % 10 === 0)
        await call('POST', '/api/agent/register', registration()).catch(() => undefined);
      const tasks = (await call('GET', `/api/agent/tasks?node_id=${id}`).catch(() => [])) as Task[];
      for (const task of tasks) if (!doing.has(task.id)) void perform(task);
      await sleep(100, undefined, { signal }).catch(() => undefined);
    }
  })();
}

async function sizeOf(folder: string): Promise<number> {
  let bytes = 0;
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true }))
    if (entry.isFile())
      bytes += (await stat(join(entry.parentPath, entry.name)).catch(() => null))?.size ?? 0;
  return bytes;
}
