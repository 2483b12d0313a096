/** The real parts of npm run soak, and one redeployment. */
import { join } from 'node:path';
import { toolsDir } from '@berth/testbed/config';
import { startEngine } from '@berth/testbed/engine';
import type { Engine } from '@berth/testbed/engine-handle';
import { memoryHistory } from '@berth/testbed/history';
import { waitFor } from '@berth/testbed/wait';
import type { Deployment } from '@berth/wire/deployment';
import type { Project } from '@berth/wire/project';
import { isSettled } from '@berth/wire/vocabulary';
import { startWorld, type World } from '../../../test/e2e/world.ts';
import { createQuery, type Query } from '../../../test/faults/lib/database.ts';
import { createRecorder, type Recorder } from '../../../test/faults/lib/recorder.ts';
import { applicationOf, BASE_IMAGE, STREAM_SECONDS } from './application.ts';
import { printLine, violated } from './report.ts';

export type Size = {
  /** null: redeploys for `minutes` instead, and kills processes. */
  redeploys: number | null;
  minutes: number;
  projects: number;
  /** Bytes that each release adds to the registry and to the node. */
  imageBytes: number;
  keep: number;
  cleanUps: number;
  seed: number;
};
/** A project that is redeployed, its newest version, and the newest one that went live. */
export type Target = { project: Project; version: number; live: number };
export type Soak = {
  size: Size;
  world: World;
  /** The engine of node-1, which runs the projects and nothing else. */
  node: Engine;
  /** Bytes of the base image, which all projects share. */
  baseBytes: number;
  targets: Target[];
  /** Records the history of the first project. */
  recorder: Recorder;
  query: Query;
  accepted: Set<string>;
};

export const KEEP_LOG_BYTES = 2_000_000;
export const LATE = { deadlineMs: 300_000, intervalMs: 100 };
const LEASE_MS = 6_000;

/**
 * MAX_STORAGE of node-1: below its high watermark (90 %) is room for the base image, a release of
 * each project, three that drain, and three pulls, which the agent expects to be up to 2.5 times as
 * large as their layers. With more kept releases, it must evict some that a rollback can go to.
 */
export const nodeBudget = ({ projects, imageBytes }: Size, baseBytes: number): number =>
  Math.round((baseBytes + (projects + 3 + 3 * 2.5) * imageBytes) / 0.9);

/** Starts everything and creates the projects. `stops` gets what ends it. */
export async function startSoak(size: Size, stops: (() => Promise<void>)[]): Promise<Soak> {
  const testbed = join(toolsDir, 'testbed');
  const node = await startEngine({ dir: testbed, name: 'node', private: true, fresh: true });
  stops.push(() => node.stop());
  const history = memoryHistory();
  let baseBytes = 0;
  const world = await startWorld({
    proxy: 'traefik',
    relay: true,
    history,
    images: [BASE_IMAGE],
    freshEngine: true,
    cleans: true,
    // No client signs in here. The kill of the gateway must disturb no request.
    gateway: { env: () => ({ GITHUB_CLIENT_ID: 'nobody', GITHUB_CLIENT_SECRET: 'nobody' }) },
    env: {
      LEASE_TTL: `${LEASE_MS / 1000}s`,
      CLAIM_TIMEOUT: '20s',
      ROUTE_TIMEOUT: '60s',
      CLEAN_INTERVAL: 'none',
      KEEP_RELEASES: String(size.keep),
      KEEP_DEPLOYMENTS: String(size.keep),
      KEEP_LOG_BYTES: String(KEEP_LOG_BYTES),
    },
    agents: async (engine) => {
      const inspect = ['image', 'inspect', '--format', '{{.Size}}', BASE_IMAGE];
      baseBytes = Number((await engine.docker(inspect)).stdout);
      const MAX_STORAGE = String(nodeBudget(size, baseBytes));
      return [
        { name: 'builder-1', role: 'builder', engine },
        { name: 'builder-2', role: 'builder', engine },
        { name: 'node-1', role: 'deploy', engine: node, env: { MAX_STORAGE } },
      ];
    },
  });
  stops.push(() => world.stop());
  const { berth, git } = world;
  const targets: Target[] = [];
  for (let i = 0; i < size.projects; i++) {
    const name = `team-${i}`;
    const { url } = await git.createRepo(name, applicationOf(name, 0, size.imageBytes));
    const project = await berth.createProject({
      name,
      git_url: url,
      domain_prefix: name,
      drain_seconds: STREAM_SECONDS + 2,
      stop_grace_seconds: 1,
    });
    targets.push({ project, version: 0, live: 0 });
  }
  const project = targets[0]?.project;
  if (project === undefined) throw new Error('--projects: at least one is needed');
  const query = createQuery(join(world.dir, 'berth.db'));
  const configUrl = `${berth.url}/api/traefik/config`;
  const sources = { history, api: berth.api, configUrl, project, query, leaseMs: LEASE_MS };
  const recorder = createRecorder({ ...sources, engines: [node] });
  stops.push(() => recorder.stop());
  recorder.watch();
  return { size, world, node, baseBytes, targets, recorder, query, accepted: new Set() };
}

/** Deploys the next version of a project, and returns the deployment when it is settled. */
export async function redeploy(soak: Soak, target: Target): Promise<Deployment> {
  const { size, world, recorder, accepted, targets } = soak;
  const { id, name } = target.project;
  const version = (target.version += 1);
  const what = `version ${version} of ${name}`;
  await world.git.commit(name, applicationOf(name, version, size.imageBytes), what);
  const key = `soak-${name}-${version}`;
  const sent = Date.now();
  // Repeated while the control plane is down. The Idempotency-Key makes this safe.
  const asked = await waitFor(
    `${what} is accepted`,
    () =>
      world.berth.api.call('createDeployment', {
        params: { id },
        body: { note: what },
        headers: { 'idempotency-key': key },
      }),
    LATE,
  );
  accepted.add(asked.id);
  if (target === targets[0])
    recorder.record({ type: 'accepted', sent, project: id, deployment: asked.id, key });
  const done = await settled(soak, asked.id);
  if (done.status === 'running' || done.status === 'retired') target.live = version;
  // These versions are correct: when one does not go live without a kill, Berth is at fault.
  else (size.redeploys === null ? printLine : violated)(`${what}: ${done.error?.message}`);
  return done;
}

export const settled = ({ world }: Soak, id: string): Promise<Deployment> =>
  waitFor(
    `deployment ${id} is settled`,
    async () => {
      const now = await world.berth.api.call('getDeployment', { params: { id } });
      return isSettled(now.status) && now;
    },
    LATE,
  );
