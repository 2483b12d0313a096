/** A real database in a temporary folder for each test, and records for plans. */
import type { InstanceRecord } from '../../src/domain/deployments/instance.ts';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import { onTestFinished } from 'vitest';
import type { ProjectCreate } from '@berth/wire/project';
import type { TaskKind } from '@berth/wire/vocabulary';
import { settingsOfProject } from '../../src/flow/release.ts';
import { DomainError } from '../../src/domain/platform/errors.ts';
import { emptyPlan, type NewTask, type Plan } from '../../src/domain/deployments/plan.ts';
import type {
  DeploymentRecord,
  NodeRecord,
  ProjectRecord,
  RouteRecord,
} from '../../src/domain/platform/records.ts';
import type { AllStores } from '../../src/store/open.ts';
import { openStores } from '../../src/store/open.ts';
import { UNTOUCHED } from '../untouched.ts';
import { storesInMemory } from './in-memory.ts';

export const NOW = 1_790_000_000_000;
export const quiet = { info: () => {}, warn: () => {} };

export function tempDir(): string {
  const dir = mkdtempSync(join(tmpdir(), 'berth-store-'));
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

export type Rows = Record<string, unknown>[];
/** The database of the tests of this process. */
export type TestEngine = {
  /** Returns a DATABASE_URL for this path; always the same for the same path. */
  url(path: string): string | Promise<string>;
  /** Same as `url`, for a database without tables. */
  emptyUrl(path: string): string | Promise<string>;
  /** Reads all rows of a table, without the stores. */
  rows(path: string, table: string): Rows | Promise<Rows>;
  /** The number of random runs, of `many`, for which this database is fast enough. */
  runs(many: number): number;
  /** Runs one statement, without the stores. */
  run(path: string, sql: string): unknown;
};

/** The bytes of a migrated database. A copy costs a tenth of the migrations. */
let migrated: Promise<Buffer> | null = null;
const freshPaths = new Set<string>();
async function migrate(): Promise<Buffer> {
  const dir = mkdtempSync(join(tmpdir(), 'berth-store-'));
  try {
    const path = join(dir, 'migrated.db');
    await (await openStores({ databaseUrl: `sqlite:${path}`, log: quiet })).close();
    return readFileSync(path);
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

const files: TestEngine = {
  async url(path) {
    migrated ??= migrate();
    if (freshPaths.has(path) && !existsSync(path)) writeFileSync(path, await migrated);
    return `sqlite:${path}`;
  },
  emptyUrl: (path) => `sqlite:${path}`,
  rows(path, table) {
    const db = new Sqlite(path, { readonly: true });
    try {
      return db.prepare(`select * from ${table} order by 1, 2`).all() as Rows;
    } finally {
      db.close();
    }
  },
  runs: (many) => many,
  run(path, sql) {
    const db = new Sqlite(path);
    try {
      db.exec(sql);
    } finally {
      db.close();
    }
  },
};
let engine = files;
/** on-postgres.real.test.ts runs the same tests on another engine. */
export const useEngine = (other: TestEngine): void => void (engine = other);
export const rowsOf = async (path: string, table: string): Promise<Rows> =>
  engine.rows(path, table);
export const setColumn = async (
  path: string,
  table: string,
  column: string,
  value: number,
): Promise<void> => runOn(path, `update ${table} set ${column} = ${value}`);
export const runOn = async (path: string, sql: string): Promise<void> =>
  void (await engine.run(path, sql));
export const runsOf = (many: number): number => engine.runs(many);
export const urlOf = async (path: string): Promise<string> => engine.url(path);
export const emptyUrlOf = async (path: string): Promise<string> => engine.emptyUrl(path);
/** For a database without rows. */
export function freshPath(): string {
  const path = join(tempDir(), 'berth.db');
  freshPaths.add(path);
  onTestFinished(() => void freshPaths.delete(path));
  return path;
}

/** Opens stores on a new database that has no name. */
export const openUnnamed = async (now = (): number => NOW): Promise<AllStores> =>
  engine === files
    ? storesInMemory(now)
    : openStores({ databaseUrl: await urlOf(':memory:'), log: quiet, now });

/** Opens stores that are closed when the test ends; the file stays until then. */
export async function open(path = freshPath(), now = (): number => NOW): Promise<AllStores> {
  const stores =
    path === ':memory:'
      ? await openUnnamed(now)
      : await openStores({ databaseUrl: await urlOf(path), log: quiet, now });
  onTestFinished(() => stores.close());
  return stores;
}

export const projectInput = (name: string, more: Partial<ProjectCreate> = {}): ProjectCreate => ({
  name,
  domain_prefix: name,
  git_url: `https://git.example/${name}.git`,
  ...more,
});

export const projectIn = (
  stores: AllStores,
  name = 'shop',
  more: Partial<ProjectCreate> = {},
): Promise<ProjectRecord> => stores.projects.create(projectInput(name, more), NOW);

export async function nodeIn(
  stores: AllStores,
  hostname = 'b1',
  more: Partial<Parameters<AllStores['nodes']['register']>[0]> = {},
  now = NOW,
): Promise<NodeRecord> {
  const { node } = await stores.nodes.register(
    { hostname, role: 'builder', host_ip: '10.0.0.1', max_storage: 1e12, ...more },
    now,
  );
  return node;
}

export const planFor = (
  project: Pick<ProjectRecord, 'id' | 'flow_version'>,
  more: Partial<Plan> = {},
): Plan => ({
  ...emptyPlan(project, NOW, more.now ?? NOW),
  ...more,
});

export const deploymentOf = (
  project: ProjectRecord,
  id: string,
  more: Partial<DeploymentRecord> = {},
): DeploymentRecord => ({
  ...UNTOUCHED,
  id,
  project_id: project.id,
  generation: project.last_generation + 1,
  settings: settingsOfProject(project),
  created_at: NOW,
  state_since: NOW,
  ordinal: more.created_at ?? NOW,
  ...more,
});

/** Commits a plan with the present version of the project. */
export async function commit(
  stores: AllStores,
  projectId: string,
  more: Partial<Plan>,
): Promise<'committed' | 'stale'> {
  return stores.flow.commit(planFor(await stores.projects.get(projectId), more));
}

export async function deploymentIn(
  stores: AllStores,
  project: ProjectRecord,
  id: string,
  more: Partial<DeploymentRecord> = {},
): Promise<DeploymentRecord> {
  const present = await stores.projects.get(project.id);
  const createDeployment = deploymentOf(present, id, more);
  const outcome = await commit(stores, project.id, { createDeployment });
  if (outcome !== 'committed') throw new Error(`fixture: ${outcome}`);
  return createDeployment;
}

export const retirePayload = (project: ProjectRecord) => ({
  project_id: project.id,
  project: project.name,
  domain_prefix: project.domain_prefix,
  remove: [],
  keep: null,
  drain_seconds: 5,
  stop_grace_seconds: 10,
});

export function taskOf(
  project: ProjectRecord,
  id: string,
  nodeId: string,
  more: {
    deployment_id?: string | null;
    kind?: Exclude<TaskKind, 'sync' | 'look' | 'clean' | 'move' | 'run'>;
    queue?: number;
    wall?: number;
  } = {},
): NewTask {
  const base = {
    id,
    deployment_id: more.deployment_id ?? null,
    node_id: nodeId,
    queue_deadline_at: more.queue ?? NOW + 60_000,
    wall_deadline_at: more.wall ?? NOW + 600_000,
  };
  const { id: project_id, name, git_url, branch, dockerfile_path, domain_prefix } = project;
  switch (more.kind ?? 'build') {
    case 'build':
      return {
        ...base,
        kind: 'build',
        payload: {
          project_id,
          project: name,
          git_url,
          branch,
          commit: null,
          dockerfile_path,
          image_repository: `registry:5000/${name}`,
        },
      };
    case 'retire':
      return { ...base, kind: 'retire', payload: retirePayload(project) };
    case 'deploy':
      return {
        ...base,
        kind: 'deploy',
        payload: {
          project_id,
          project: name,
          generation: 1,
          domain_prefix,
          container_port: project.container_port,
          image: 'registry:5000/shop@sha256:0',
          image_tag: 'registry:5000/shop:0',
          image_digest: null,
          container_name: `svc-${domain_prefix}-g1`,
          replace: 'rolling',
          env: {},
          datasets: [],
          health_path: null,
          probe_seconds: 60,
          memory_bytes: null,
          cpus: null,
          stop_grace_seconds: 10,
        },
      };
  }
}

export async function tasksIn(
  stores: AllStores,
  project: ProjectRecord,
  ...createTasks: NewTask[]
): Promise<void> {
  const outcome = await commit(stores, project.id, { createTasks });
  if (outcome !== 'committed') throw new Error(`fixture: ${outcome}`);
}

export const routeOf = (
  project: ProjectRecord,
  deploymentId: string,
  nodeId: string,
  more: Partial<RouteRecord> = {},
): RouteRecord => ({
  project_id: project.id,
  deployment_id: deploymentId,
  node_id: nodeId,
  domain_prefix: project.domain_prefix,
  host_ip: '10.0.0.1',
  host_port: 32_768,
  published_at: NOW,
  ...more,
});

/** A further instance that serves. */
export const instanceOf = (
  project: ProjectRecord,
  id: string,
  deployment_id: string,
  node_id = 'n2',
): InstanceRecord => ({
  id,
  project_id: project.id,
  deployment_id,
  process: 'web',
  number: 2,
  state: 'serving',
  labelled: true,
  node_id,
  host_port: 2,
  container_id: 'c',
  detail: null,
  memory_bytes: null,
  losses: [],
  placement: null,
  since: NOW,
  created_at: NOW,
});

/**
 * Runs `one` for 0 to `many` - 1, eight at a time: alone, each waits for the answers of the server.
 */
export async function manyTimes(many: number, one: (i: number) => Promise<unknown>): Promise<void> {
  for (let from = 0; from < many; from += 8)
    await Promise.all(Array.from({ length: Math.min(8, many - from) }, (_, i) => one(from + i)));
}

/** Returns the code of the DomainError that `run` must throw. */
export async function codeOf(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof DomainError) return error.code;
    throw error;
  }
  throw new Error('it threw nothing');
}
