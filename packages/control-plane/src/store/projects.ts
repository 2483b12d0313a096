import { setImmediate as nextTurn } from 'node:timers/promises';
import { defined } from '@berth/kit/defined';
import { failPoint } from '@berth/kit/fail-point';
import { hasWeb, PROJECT_DEFAULTS, type ProjectCreate } from '@berth/wire/project';
import { LABELS } from '@berth/wire/vocabulary';
import { DEFAULT_LIMITS } from '../domain/deployments/facts.ts';
import type { ProjectAccess } from '../domain/identity/access.ts';
import { presentNode } from '../domain/nodes/renamed-machine.ts';
import { DomainError, type FieldProblem, invalid, taken } from '../domain/platform/errors.ts';
import type { RecordChange, RecordGuard } from '../domain/platform/record-change.ts';
import type { Page, Paged, ProjectFilter } from '../domain/platform/page.ts';
import type { ProjectRecord, ProjectSettings } from '../domain/platform/records.ts';
import { onNodeLostProblem, replaceProblem } from '../domain/projects/project-rules.ts';
import type { Configured, ProjectStore, ProjectChange } from '../domain/projects/project-store.ts';
import { scaledAfter } from '../domain/projects/processes.ts';
import { secretsHaveNames } from '../domain/secrets/secrets.ts';
import type { Claiming } from './claiming.ts';
import { noteOrphans } from './clean-ups.ts';
import { refuseUnknownDatasets } from './datasets/dataset-rows.ts';
import { refuseNestedWriters } from './datasets/nested-writers.ts';
import { changeDomains, releaseAll } from './domains.ts';
import { ENDED_AT } from './ended-work.ts';
import type { Database } from './engine/database.ts';
import type { Tx } from './engine/tables.ts';
import { type NewEvent, writeEvents } from './events.ts';
import { dropMovedToken } from './git/git-tokens.ts';
import type { NewId } from './ids.ts';
import { guardedProject, idOf } from './names.ts';
import { keyAfter, paged } from './pages.ts';
import {
  claimPrefix,
  lockPrefix,
  PREFIX_SET,
  prefixUse,
  releaseAllPrefixes,
  releasePrefixes,
} from './prefixes.ts';
import {
  fewVisible,
  refuseUnknownMembers,
  removeOldMembers,
  setMembers,
  visible,
  visibleOf,
} from './project-access.ts';
import { existing, lockedProject } from './project-row.ts';
import { removeLeases } from './room.ts';
import { nodeOf } from './rows/node.ts';
import { encodeColumns } from './rows/columns.ts';
import { deploymentOf } from './rows/deployment.ts';
import { guardedOf, projectOf } from './rows/project.ts';
import { contains } from './search.ts';
import { forgetPinsOf } from './datasets/data-copies.ts';
import { forgetUnmanagedOf } from './unmanaged.ts';
import { endVolumes } from './volumes.ts';

export function createProjectStore(claiming: Claiming, clock: () => number): ProjectStore {
  const { db, newId } = claiming;
  return {
    create: (input, now, access, options) =>
      createProject(claiming, db, newId, input, { now, access, ...options }),
    get: (id) => getProject(db, id),
    getMany: (ids) => getProjects(db, ids),
    idOf: (idOrName) => idOf(db.kysely, 'projects', idOrName),
    guarded: (idOrName) => guardedProject(db.kysely, idOrName),
    visible: (ids, access) => visibleOf(db.kysely, ids, access),
    sweep: () => removeOldMembers(db),
    list: (page, filter, access) => listProjects(db, page, filter, access),
    patch: (id, change, now, access) => patchProject(claiming, db, id, change, now, access),
    markDeleting: (id, now, options) => markProjectDeleting(db, id, now, options),
    listDeleting: () => listDeletingProjects(db),
    removeIfGone: (id) => removeProjectIfGone(clock, db, id),
    runningDeployments: (ids) => runningDeploymentsOf(db, ids),
    servedByWeb: (ids) => servedByWeb(db, ids),
    configured: (ids) => configuredOf(db, ids),
  };
}

/**
 * Turns violations of the unique constraints into domain errors: two requests can arrive at the
 * same time.
 */
async function refuseTakenName<T>(db: Database, wanted: Wanted, run: () => Promise<T>): Promise<T> {
  try {
    return await run();
  } catch (error) {
    const column = (['name', 'domain_prefix'] as const).find((c) =>
      db.capabilities.violatesUnique(error, 'projects', c),
    );
    if (column === undefined) throw error;
    await db.write((tx) => refuseTaken(db, tx, wanted));
    // The project that had the value was deleted meanwhile.
    throw taken(column, column === 'name' ? 'name_taken' : 'domain_prefix_taken', TAKEN[column]);
  }
}

/** Claims the prefix, which `refuseTaken` has locked. Throws domain_prefix_taken. */
async function takePrefix(
  claiming: Claiming,
  tx: Tx,
  id: string,
  prefix: string,
  now: number,
): Promise<void> {
  const message = await claimPrefix(claiming, tx, prefix, id, now);
  if (message === null) return;
  throw new DomainError('domain_prefix_taken', `domain_prefix: ${message}`, [
    { field: 'domain_prefix', rule: 'kept', message },
  ]);
}

async function createProject(
  claiming: Claiming,
  db: Database,
  newId: NewId,
  input: ProjectCreate,
  {
    now,
    access,
    replaceSet = input.replace !== undefined,
  }: { now: number; access: ProjectAccess | undefined; replaceSet?: boolean },
): Promise<ProjectRecord> {
  const { name, settings } = withDefaults(input);
  const wanted = { id: null, name, domain_prefix: settings.domain_prefix };
  return refuseTakenName(db, wanted, () =>
    db.write(async (tx) => {
      await refuseUnknownDatasets(db, tx, settings.datasets);
      await refuseNestedWriters(db, tx, { id: null, name }, settings.datasets, access);
      await refuseUnknownMembers(tx, settings.members, []);
      await refuseTaken(db, tx, wanted);
      const row = {
        id: newId(),
        name,
        ...encodeColumns(settings),
        replace_set: Number(replaceSet),
        on_node_lost_set: Number(input.on_node_lost !== undefined),
        flow_version: 0,
        secrets_version: 0,
        scaled: JSON.stringify(scaledAfter({ scaled: {} }, input.processes ?? [])),
        last_generation: 0,
        deleting_at: null,
        deletes_volumes: 0,
        stopped_at: null,
        stopped_by_person: null,
        created_at: now,
        updated_at: now,
      };
      await takePrefix(claiming, tx, row.id, settings.domain_prefix, now);
      await changeDomains(claiming, tx, row.id, [], settings.domains, now);
      const created = await tx
        .insertInto('projects')
        .values(row)
        .returningAll()
        .executeTakeFirstOrThrow();
      await setMembers(tx, created.id, settings.members);
      await writeEvents(db, tx, [projectEvent(created, 'created', now)]);
      return projectOf(created);
    }),
  );
}

async function getProject(db: Database, id: string): Promise<ProjectRecord> {
  return projectOf(
    existing(
      id,
      await db.kysely.selectFrom('projects').selectAll().where('id', '=', id).executeTakeFirst(),
    ),
  );
}

async function getProjects(db: Database, ids: readonly string[]): Promise<ProjectRecord[]> {
  if (ids.length === 0) return [];
  const rows = await db.kysely
    .selectFrom('projects')
    .selectAll()
    .where('id', 'in', [...ids])
    .execute();
  return rows.map(projectOf);
}

async function listProjects(
  db: Database,
  page: Page,
  { name, find, ids }: ProjectFilter = {},
  access: ProjectAccess | undefined,
): Promise<Paged<ProjectRecord>> {
  const after = keyAfter(page.cursor, ['string']);
  let query = db.kysely.selectFrom('projects').selectAll();
  if (name !== undefined) query = query.where('name', '=', name);
  if (ids !== undefined && ids.length === 0) return { items: [], next: null };
  if (ids !== undefined) query = query.where('id', 'in', [...ids]);
  if (find !== undefined) query = query.where(contains(['name', 'domain_prefix', 'git_url'], find));
  if (after !== null) query = query.where('name', '>', after[0]);
  const few = await fewVisible(db.kysely, access);
  if (few?.length === 0) return { items: [], next: null };
  const seen = visible(access, 'projects.id');
  if (few !== null) query = query.where('id', 'in', few);
  else if (seen !== null) query = query.where(seen);
  const rows = await query
    .orderBy('name')
    .limit(page.limit + 1)
    .execute();
  return paged(rows, page, (row) => [row.name], projectOf);
}

function patchProject(
  claiming: Claiming,
  db: Database,
  id: string,
  change: RecordChange<ProjectRecord, ProjectChange>,
  now: number,
  access: ProjectAccess | undefined,
): Promise<ProjectRecord> {
  const wanted: Wanted = { id, name: null, domain_prefix: null };
  return refuseTakenName(db, wanted, () =>
    db.write(async (tx) => {
      const project = await lockedProject(db, tx, id);
      if (project.deleting_at !== null) throw new DomainError('being_deleted');
      const patch = typeof change === 'function' ? change(projectOf(project)) : change;
      if (patch.env !== undefined) await refuseSecretNames(tx, id, patch.env);
      if (patch.datasets !== undefined) {
        await refuseUnknownDatasets(db, tx, patch.datasets);
        await refuseNestedWriters(db, tx, project, patch.datasets, access);
      }
      if (patch.members !== undefined) {
        await refuseUnknownMembers(tx, patch.members, guardedOf(project).members);
        await setMembers(tx, id, patch.members);
      }
      const moved =
        patch.git_url === undefined ? [] : await dropMovedToken(tx, project, patch.git_url, now);
      wanted.domain_prefix =
        patch.domain_prefix === project.domain_prefix ? null : (patch.domain_prefix ?? null);
      await refuseTaken(db, tx, wanted);
      if (wanted.domain_prefix !== null) {
        await takePrefix(claiming, tx, id, wanted.domain_prefix, now);
        await releasePrefixes(tx, id, [project.domain_prefix], now);
      }
      if (patch.domains !== undefined)
        await changeDomains(claiming, tx, id, projectOf(project).domains, patch.domains, now);
      const row = await tx
        .updateTable('projects')
        .set(encodeColumns(patch))
        .set(
          defined({
            replace_set: patch.replace === undefined ? undefined : 1,
            on_node_lost_set: patch.on_node_lost === undefined ? undefined : 1,
            // Read before the count changes: without a stored value, the count decides.
            stopped_by_person:
              project.stopped_at === null
                ? undefined
                : Number(projectOf(project).stopped_by_person),
          }),
        )
        // Makes plans with the old settings stale: their deployment could get a domain prefix that
        // is free by then.
        .set((eb) => ({ updated_at: now, flow_version: eb('flow_version', '+', 1) }))
        // While the project was public, its application could read its visitors' session cookies.
        // These cookies must no longer open it.
        .$if(patch.auth_required === true && project.auth_required === 0, (q) =>
          q.set((eb) => ({ auth_epoch: eb('auth_epoch', '+', 1) })),
        )
        .where('id', '=', id)
        .returningAll()
        .executeTakeFirstOrThrow();
      // Checks the patch again: the settings might have changed since the caller's check.
      const stored = projectOf(row);
      const problem = replaceProblem(stored) ?? onNodeLostProblem(stored);
      if (problem !== null) throw invalid(problem.field, problem.rule, problem.message);
      await writeEvents(db, tx, [
        projectEvent(row, 'changed', now, `: ${Object.keys(patch).sort().join(', ')}`),
        ...moved,
      ]);
      return projectOf(row);
    }),
  );
}

function markProjectDeleting(
  db: Database,
  id: string,
  now: number,
  { volumes = false, guard }: { volumes?: boolean; guard?: RecordGuard<ProjectRecord> } = {},
): Promise<ProjectRecord> {
  return db.write(async (tx) => {
    const project = await lockedProject(db, tx, id);
    guard?.(projectOf(project));
    // A second request can add the deletion of the volumes but cannot cancel it: they might already
    // be deleted.
    if (project.deleting_at !== null && (!volumes || project.deletes_volumes !== 0))
      return projectOf(project);
    const marked = await tx
      .updateTable('projects')
      // Makes existing plans stale, so that none creates a deployment in a project that is being
      // deleted.
      .set((eb) => ({
        deleting_at: project.deleting_at ?? now,
        deletes_volumes: Number(volumes),
        updated_at: now,
        flow_version: eb('flow_version', '+', 1),
      }))
      .where('id', '=', id)
      .returningAll()
      .executeTakeFirstOrThrow();
    await writeEvents(db, tx, [projectEvent(marked, 'deleting', now)]);
    return projectOf(marked);
  });
}

async function listDeletingProjects(db: Database): Promise<ProjectRecord[]> {
  const rows = await db.kysely
    .selectFrom('projects')
    .selectAll()
    .where('deleting_at', 'is not', null)
    .orderBy('deleting_at')
    .orderBy('id')
    .execute();
  return rows.map(projectOf);
}

async function removeProjectIfGone(
  clock: () => number,
  db: Database,
  id: string,
): Promise<boolean> {
  const before = await db.snapshot((tx) => removable(tx, id, false));
  if (before !== 'removable') return before === 'absent';
  await removeLogs(db, id);
  await failPoint('project.remove.before');
  return db.write(async (tx) => {
    const state = await removable(tx, id, db.capabilities.rowLocks);
    if (state !== 'removable') return state === 'absent';
    await noteOrphans(tx, id, clock());
    await releaseAll(tx, id, clock());
    await releaseAllPrefixes(tx, id, clock());
    await removeLeases(tx, { project: id });
    const removed = await tx
      .deleteFrom('projects')
      .where('id', '=', id)
      .returning(['id', 'name', 'deletes_volumes'])
      .executeTakeFirstOrThrow();
    await forgetUnmanagedOf(tx, { project: id });
    await forgetPinsOf(tx, { project: id });
    await endVolumes(tx, id, removed.deletes_volumes !== 0, clock());
    await writeEvents(db, tx, [projectEvent(removed, 'deleted', clock())]);
    return true;
  });
}

/** The running deployments of these projects. */
const runningIn = ({ kysely }: Database, ids: readonly string[]) =>
  kysely
    .selectFrom('deployments')
    .where('project_id', 'in', [...ids])
    .where('status', '=', 'running');

async function runningDeploymentsOf(
  db: Database,
  ids: readonly string[],
): Promise<Map<string, string>> {
  if (ids.length === 0) return new Map();
  const rows = await runningIn(db, ids).select(['id', 'project_id']).execute();
  return new Map(rows.map((row) => [row.project_id, row.id]));
}

async function servedByWeb(db: Database, ids: readonly string[]): Promise<Set<string>> {
  if (ids.length === 0) return new Set();
  const rows = await runningIn(db, ids).selectAll().execute();
  const deployments = rows.map(deploymentOf).filter(({ settings }) => hasWeb(settings));
  return new Set(deployments.map(({ project_id }) => project_id));
}

async function configuredOf(db: Database, ids: readonly string[]): Promise<Configured> {
  if (ids.length === 0) return new Map();
  const rows = await runningIn(db, ids).selectAll().where('config', 'is not', null).execute();
  return new Map(
    rows
      .map(deploymentOf)
      .flatMap(({ project_id, config, settings }) =>
        config === null ? [] : [[project_id, { config, settings }] as const],
      ),
  );
}

export const projectEvent = (
  project: { id: string; name: string },
  what: string,
  at: number,
  more = '',
): NewEvent => ({
  at,
  kind: `project.${what}`,
  project_id: project.id,
  message: `project ${project.name} ${what}${more}`,
});

/** Throws env_conflict if an environment variable has the name of a secret. */
async function refuseSecretNames(tx: Tx, id: string, env: ProjectSettings['env']): Promise<void> {
  const secrets = await tx
    .selectFrom('project_secrets')
    .select('name')
    .where('project_id', '=', id)
    .orderBy('name')
    .execute();
  const names = secrets.map(({ name }) => name).filter((name) => Object.hasOwn(env, name));
  if (names.length > 0) throw secretsHaveNames(names);
}

function withDefaults({ name, ...given }: ProjectCreate): {
  name: string;
  settings: ProjectSettings;
} {
  return {
    name,
    settings: {
      ...PROJECT_DEFAULTS,
      env: {},
      build_args: {},
      datasets: [],
      volumes: [],
      watch_paths: [],
      members: [],
      cors_origins: [],
      domains: [],
      processes: [...PROJECT_DEFAULTS.processes],
      requires: {},
      replace: 'rolling',
      ...given,
    },
  };
}

/** Unique values that a request sets; null if a value is not changed. */
type Wanted = { id: string | null; name: string | null; domain_prefix: string | null };
const TAKEN = { name: 'another project already has this name', domain_prefix: PREFIX_SET };

/** Reports all taken values at once. Throws name_taken, domain_prefix_taken. */
async function refuseTaken(
  db: Database,
  tx: Tx,
  { id, name, domain_prefix }: Wanted,
): Promise<void> {
  // Locks before it reads, so that a transaction that waited for the lock sees the rows that its
  // previous holder wrote.
  if (domain_prefix !== null) await lockPrefix(db, tx, domain_prefix);
  const problems: FieldProblem[] = [];
  const add = (field: string, message: string): void =>
    void problems.push({ field, rule: 'taken', message });
  if (name !== null) {
    const other = await tx
      .selectFrom('projects')
      .select('name')
      .where((eb) => eb.or([eb('name', '=', name), eb('id', '=', name)]))
      .executeTakeFirst();
    // Ids are looked up before names, so a project whose name is the id of another project could
    // never be found.
    if (other !== undefined)
      add('name', other.name === name ? TAKEN.name : 'it is the id of another project');
  }
  const prefix = domain_prefix === null ? null : await prefixUse(tx, domain_prefix, id);
  if (prefix !== null) add('domain_prefix', prefix);
  const [first] = problems;
  if (first === undefined) return;
  const detail = problems.map(({ field, message }) => `${field}: ${message}`).join('; ');
  throw new DomainError(
    first.field === 'name' ? 'name_taken' : 'domain_prefix_taken',
    detail,
    problems,
  );
}

/**
 * Returns whether the project can be removed. Only a project that is marked for deletion can, never
 * one that is merely idle.
 */
async function removable(
  tx: Tx,
  id: string,
  lock: boolean,
): Promise<'absent' | 'in use' | 'removable'> {
  const project = await tx
    .selectFrom('projects')
    .select('deleting_at')
    .where('id', '=', id)
    .$if(lock, (q) => q.forUpdate())
    .executeTakeFirst();
  if (project === undefined) return 'absent';
  if (project.deleting_at === null) return 'in use';
  const open = await tx
    .selectFrom('tasks')
    .select('id')
    .where('project_id', '=', id)
    .where('finished_at', 'is', null)
    .limit(1)
    .execute();
  if (open.length > 0) return 'in use';
  // A container can exist that no registration has reported yet, for example because a message was
  // lost. So the node must first make a new list of its containers. (A list that arrives later is
  // not enough, because it might have been made earlier.)
  const unseen = await tx
    .selectFrom('tasks')
    .innerJoin('nodes', 'nodes.id', 'tasks.node_id')
    .select(['tasks.node_id', (eb) => eb.fn.max(ENDED_AT).as('ended_at')])
    .where('tasks.project_id', '=', id)
    .where((eb) =>
      eb.or([
        eb('tasks.kind', '=', 'deploy'),
        eb.and([
          eb('tasks.kind', '=', 'retire'),
          eb('tasks.status', 'in', ['failed', 'cancelled', 'lost']),
        ]),
      ]),
    )
    // Ignores tasks that no agent claimed: they started no container. A removal that no agent
    // claimed still counts, because it removed no container.
    .where((eb) =>
      eb.or([
        eb('tasks.attempt', '>', 0),
        eb.and([eb('tasks.kind', '=', 'retire'), eb('tasks.status', '=', 'lost')]),
      ]),
    )
    // Skips contract-only agents, which never report containers. A Berth agent might not have
    // reported its containers yet.
    .where('nodes.agent_version', 'is not', null)
    .where((eb) =>
      eb.or([eb('nodes.observed_since', 'is', null), eb('nodes.observed_since', '<=', ENDED_AT)]),
    )
    .groupBy('tasks.node_id')
    .execute();
  const nodes = await tx.selectFrom('nodes').selectAll().where('containers', '!=', '[]').execute();
  const holders = nodes.filter((row) =>
    nodeOf(row).containers.some((container) => container.labels[LABELS.project] === id),
  );
  const doubtful = new Map([
    ...holders.map((row) => [row.id, null] as const),
    ...unseen.map((u) => [u.node_id, u.ended_at] as const),
  ]);
  if (doubtful.size === 0) return 'removable';
  return (await areElsewhere(tx, doubtful)) ? 'removable' : 'in use';
}

/**
 * Returns whether the machine of each of these nodes has returned as another node and has listed
 * its containers since. `doubtful`: maps a node to the end of the last work on it.
 */
async function areElsewhere(
  tx: Tx,
  doubtful: ReadonlyMap<string, number | null>,
): Promise<boolean> {
  const rows = await tx
    .selectFrom('nodes')
    .selectAll()
    .where((eb) =>
      eb.or([eb('earlier_nodes', 'is not', null), eb('id', 'in', [...doubtful.keys()])]),
    )
    .execute();
  const nodes = rows.map(nodeOf);
  return nodes
    .filter((node) => doubtful.has(node.id))
    .every((node) => {
      const { id } = presentNode(node, nodes, DEFAULT_LIMITS.offlineMs);
      const listedSince = rows.find((row) => row.id === id)?.observed_since ?? null;
      return (
        id !== node.id &&
        !doubtful.has(id) &&
        listedSince !== null &&
        listedSince > (doubtful.get(node.id) ?? 0)
      );
    });
}

/**
 * Removes the deployments' logs one by one and yields in between: one transaction for millions of
 * lines would block the platform.
 */
async function removeLogs(db: Database, projectId: string): Promise<void> {
  const logs = await db.kysely
    .selectFrom('log_heads')
    .innerJoin('deployments', 'deployments.id', 'log_heads.deployment_id')
    .select('log_heads.deployment_id as id')
    .where('deployments.project_id', '=', projectId)
    .execute();
  for (const { id } of logs) {
    await db.write(async (tx) => {
      await tx.deleteFrom('log_lines').where('deployment_id', '=', id).execute();
      await tx.deleteFrom('log_heads').where('deployment_id', '=', id).execute();
      await tx.deleteFrom('container_exits').where('deployment_id', '=', id).execute();
    });
    await nextTurn();
  }
  const runs = await db.kysely
    .selectFrom('runs')
    .select('id')
    .where('project_id', '=', projectId)
    .execute();
  for (const { id } of runs) {
    await db.write(async (tx) => void (await tx.deleteFrom('runs').where('id', '=', id).execute()));
    await nextTurn();
  }
}
