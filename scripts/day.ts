/**
 * npm run day: a day of a small team in minutes. 30 projects make 500 deployments on 3 nodes, and 20 GB of images pass through the
 * registry. Control plane, proxy, registry and the agent that cleans it are real. The builder and the three nodes are small programs that
 * push and pull synthetic images (layers of random bytes) and run no containers. It prints its figures, and exits with 1 when the
 * registry exceeds its budget, an image that a rollback needs is missing, a rollback fails, or a deployment fails.
 */
import { randomBytes } from 'node:crypto';
import { mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { repositoryRoot, toolsDir } from '@berth/testbed/config';
import { missingParts, pushImage } from '@berth/testbed/images';
import { type Platform, startPlatform } from '@berth/testbed/platform';
import { startProcess } from '@berth/testbed/process';
import { startRegistry } from '@berth/testbed/registry';
import { waitFor } from '@berth/testbed/wait';
import type { Deployment, DeploymentItem } from '@berth/wire/deployment';
import type { Project } from '@berth/wire/project';

const { values } = parseArgs({
  options: {
    projects: { type: 'string', default: '30' },
    deployments: { type: 'string', default: '500' },
    gigabytes: { type: 'string', default: '20' },
    keep: { type: 'string', default: '5' },
    'clean-ups': { type: 'string', default: '8' },
  },
});
const [PROJECTS, DEPLOYMENTS, KEEP] = [Number(values.projects), Number(values.deployments), Number(values.keep)];
const IMAGE = Math.round((Number(values.gigabytes) * 1e9) / DEPLOYMENTS);
const EVERY = Math.max(1, Math.floor(DEPLOYMENTS / Number(values['clean-ups'])));
const NODES = ['node-1', 'node-2', 'node-3'];
/** Projects of which a deployment is in progress at a time. */
const AT_ONCE = 4;
const LATE = { deadlineMs: 180_000 };

type Task = {
  id: string;
  kind: string;
  payload: { image_repository: string; image: string; image_digest: string; image_tag: string; project: string };
};
const problems: string[] = [];
const started = performance.now();
const mb = (bytes: number): string => `${Math.round(bytes / 1e6)} MB`;
/** Images of each node: of each project the newest KEEP, as an agent keeps them. */
const held = new Map(NODES.map((name) => [name, { pulls: 0, peak: 0, images: new Map<string, string[]>() }]));
const heldBytes = (name: string): number =>
  [...(held.get(name)?.images.values() ?? [])].reduce((sum, images) => sum + images.length * IMAGE, 0);
let pushed = 0;
let pushedBytes = 0;

const dir = await mkdtemp(join(tmpdir(), 'berth-day-'));
const stops: (() => Promise<unknown>)[] = [() => rm(dir, { recursive: true, force: true })];
const ending = new AbortController();
try {
  await day();
} finally {
  ending.abort();
  for (const stop of stops.toReversed()) await stop().catch((error: unknown) => problems.push(String(error)));
}
for (const problem of problems) console.log(`PROBLEM: ${problem}`);
console.log(problems.length === 0 ? 'day: everything held' : `day: ${problems.length} problems`);
process.exit(problems.length === 0 ? 0 : 1);

async function day(): Promise<void> {
  const registry = await startRegistry({ dir: join(dir, 'registry'), restarts: true, user: 'berth', password: 'secret of the day' });
  stops.push(() => registry.stop());
  const page = createServer((_, response) => response.end('of the day\n')).listen(0, '127.0.0.1');
  await new Promise((resolve) => page.once('listening', resolve));
  stops.push(async () => {
    page.close().closeAllConnections();
  });
  const port = (page.address() as AddressInfo).port;
  const env = { KEEP_RELEASES: String(KEEP), CLEAN_INTERVAL: 'none', KEEP_DEPLOYMENTS: '10' };
  const berth = await startPlatform({ dir, registry, proxy: 'built-in', agents: [], env });
  stops.push(() => berth.stop());

  const agent = await startProcess([process.execPath, join(repositoryRoot, 'bin', 'berth'), 'agent'], {
    name: 'cleaner',
    logFile: join(dir, 'cleaner.log'),
    env: {
      NODE_ROLE: 'builder',
      NODE_NAME: 'registry-machine',
      CONTROL_PLANE_URL: berth.url,
      AGENT_SECRET: berth.agentSecret,
      HOST_IP: '127.0.0.1',
      STATE_DIR: join(dir, 'cleaner'),
      SECRETS_DIR: join(dir, 'secrets'),
      SVC_ROOT: join(dir, 'svc'),
      // It has no engine, so it gets no builds.
      DOCKER_HOST: `unix://${join(dir, 'no.sock')}`,
      REGISTRY_CONFIG: registry.config,
      REGISTRY_RESTART: (registry.restart ?? []).join(' '),
      PATH: `${toolsDir}:${process.env['PATH']}`,
    },
  });
  stops.push(() => agent.stop());
  const bases = new Map<string, Buffer>();
  await Promise.all([
    actor(berth, 'builder-1', 'builder', async ({ payload }) => {
      const repository = payload.image_repository.slice(payload.image_repository.indexOf('/') + 1);
      const base = bases.get(repository) ?? randomBytes(Math.round(IMAGE / 5));
      bases.set(repository, base);
      const commit = randomBytes(20).toString('hex');
      const image = await pushImage(registry, repository, commit, [base, randomBytes(IMAGE)]);
      pushed += 1;
      pushedBytes += image.bytes;
      return { status: 'completed', image_tag: `${payload.image_repository}:${commit}`, image_digest: image.digest, commit };
    }),
    ...NODES.map((name) =>
      actor(berth, name, 'deploy', async ({ payload }) => {
        const missing = await missingParts(registry, payload.project, payload.image_digest);
        const node = held.get(name);
        if (node !== undefined) {
          const images = [
            payload.image_digest,
            ...(node.images.get(payload.project) ?? []).filter((digest) => digest !== payload.image_digest),
          ];
          node.images.set(payload.project, images.slice(0, KEEP));
          node.pulls += 1;
          node.peak = Math.max(node.peak, heldBytes(name));
        }
        if (missing.length > 0) problems.push(`${name} could not pull ${payload.project}: ${missing[0]}`);
        return missing.length > 0 ? { status: 'failed', result: missing[0] } : { status: 'completed', host_port: port };
      }),
    ),
  ]);
  await waitFor('the cleaning agent is registered', async () => (await berth.api.call('cleanUps', {})).unavailable === undefined, LATE);
  await deployAll(berth, join(dir, 'berth.db'));

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
      if (done.status !== 'running') problems.push(`${what}: ${done.status} ${done.error?.message ?? ''}`);
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
      if (done.state !== 'done') problems.push(`clean-up: ${done.error?.code} ${done.error?.message}`);
      // The kept images, with a base layer for each project, and what was built meanwhile.
      const budget = PROJECTS * ((KEEP + 1) * IMAGE + IMAGE / 5) * 1.1 + AT_ONCE * 2 * IMAGE;
      if (after > budget) problems.push(`the registry has ${mb(after)} after a clean-up, its budget is ${mb(budget)}`);
      console.log(
        `${String(finished).padStart(4)} deployments: registry ${mb(before)} -> ${mb(after)} of ${mb(budget)}, ${done.removed} images removed`,
      );
    };
    for (let from = 0; from < DEPLOYMENTS; from += AT_ONCE) {
      const batch = Array.from({ length: Math.min(AT_ONCE, DEPLOYMENTS - from) }, (_, i) => projects[(from + i) % PROJECTS]);
      const work = batch.map(async (project) => project && settle(await berth.deploy(project), `deployment of ${project.name}`));
      // In the middle of the work, as on a real day.
      if (Math.floor(from / EVERY) !== Math.floor((from + AT_ONCE) / EVERY)) await cleanNow();
      await Promise.all(work);
      finished += batch.length;
    }
    await cleanNow();

    let [kept, gone, refused] = [0, 0, 0];
    for (const project of projects) {
      const items: DeploymentItem[] = (await api.call('projectDeployments', { params: { id: project.id }, query: { limit: 200 } })).items;
      const ran = items.filter((d) => d.status === 'running' || d.status === 'retired');
      const there = ran.filter((d) => d.image_removed_at === null);
      if (there.length < Math.min(KEEP, ran.length)) problems.push(`${project.name} keeps ${there.length} of ${ran.length} releases`);
      for (const d of there) {
        const missing = await missingParts(registry, project.name, d.image_digest ?? '');
        if (missing.length > 0) problems.push(`${project.name}: a rollback to ${d.generation} needs ${missing[0]}`);
      }
      kept += there.length;
      gone += ran.length - there.length;
      const removed = ran.find((d) => d.image_removed_at !== null);
      const back = (to: string): Promise<Deployment> => api.call('rollback', { params: { id: project.id }, body: { deployment_id: to } });
      if (removed !== undefined)
        await back(removed.id).then(
          () => problems.push(`${project.name}: a rollback to a removed image began`),
          () => (refused += 1),
        );
      const oldest = there.at(-1);
      if (oldest !== undefined && oldest.status !== 'running') await settle(await back(oldest.id), `rollback of ${project.name}`);
    }
    const size = (await Promise.all(['', '-wal'].map(async (end) => (await stat(database + end).catch(() => null))?.size ?? 0))).reduce(
      (a, b) => a + b,
    );
    const seconds = (performance.now() - started) / 1000;
    console.log(
      `${DEPLOYMENTS} deployments of ${PROJECTS} projects in ${Math.round(seconds)} s; ${pushed} images pushed, ${mb(pushedBytes)}`,
    );
    console.log(`registry: at most ${mb(peak)}, at the end ${mb(await sizeOf(registry.data))}`);
    const nodeBudget = PROJECTS * KEEP * IMAGE;
    for (const [name, { pulls, peak: most }] of held) {
      console.log(`${name} (simulated): ${pulls} pulls, at most ${mb(most)} of ${mb(nodeBudget)}`);
      if (most > nodeBudget) problems.push(`${name} had ${mb(most)}, its budget is ${mb(nodeBudget)}`);
    }
    console.log(
      `rollbacks: ${kept} releases whole in the registry, ${gone} removed, ${refused} refused in advance, one rollback for each project`,
    );
    console.log(`database: ${mb(size)}, ${Math.round(size / DEPLOYMENTS)} bytes for each deployment`);
    const allowed = 20e6 + DEPLOYMENTS * 40_000;
    if (size > allowed) problems.push(`the database has ${mb(size)}, expected at most ${mb(allowed)}`);
  }
}

/** A node that implements only the contract, and does its tasks with `work`. */
async function actor(berth: Platform, hostname: string, role: 'builder' | 'deploy', work: (task: Task) => Promise<object>): Promise<void> {
  const { signal } = ending;
  const call = async (method: string, path: string, body?: object): Promise<unknown> => {
    const answer = await fetch(berth.url + path, {
      method,
      signal,
      headers: { 'x-agent-secret': berth.agentSecret, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
    return answer.json();
  };
  const registration = (): object => ({
    hostname,
    role,
    host_ip: '127.0.0.1',
    max_storage: 1e12,
    free_storage: 1e12 - heldBytes(hostname),
    max_builds: AT_ONCE,
  });
  const { id } = (await call('POST', '/api/agent/register', registration())) as { id: string };
  const doing = new Set<string>();
  const perform = async (task: Task): Promise<void> => {
    doing.add(task.id);
    try {
      await call('POST', `/api/agent/tasks/${task.id}/complete`, await work(task));
    } catch (error) {
      if (signal.aborted) return;
      await call('POST', `/api/agent/tasks/${task.id}/complete`, { status: 'failed', result: String(error) }).catch(() => undefined);
    }
  };
  void (async () => {
    for (let round = 0; !signal.aborted; round++) {
      if (round % 10 === 0) await call('POST', '/api/agent/register', registration()).catch(() => undefined);
      const tasks = (await call('GET', `/api/agent/tasks?node_id=${id}`).catch(() => [])) as Task[];
      for (const task of tasks) if (!doing.has(task.id)) void perform(task);
      await sleep(100, undefined, { signal }).catch(() => undefined);
    }
  })();
}

async function sizeOf(folder: string): Promise<number> {
  let bytes = 0;
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true }))
    if (entry.isFile()) bytes += (await stat(join(entry.parentPath, entry.name)).catch(() => null))?.size ?? 0;
  return bytes;
}
