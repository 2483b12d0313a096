/**
 * Routes of projects and their settings. Checks settings against domain/projects/project-rules.ts.
 */
import { defined } from '@berth/kit/defined';
import {
  type EnvPatch,
  hasWeb,
  isScaledToZero,
  type Project,
  type ProjectPatch,
  type Scale,
} from '@berth/wire/project';
import type {
  HostCertificate,
  CertificateWatch,
  ConfigSource,
} from '../../domain/routes/configuration.ts';
import { roleIn } from '../../domain/identity/access.ts';
import { normalOrigins } from '../../domain/routes/cors-origins.ts';
import { normalDomains } from '../../domain/routes/domains.ts';
import { originText, setByFile, withConfig } from '../../domain/projects/config-file.ts';
import { envNameProblem, mergedEnv } from '../../domain/projects/env.ts';
import { DomainError, type FieldProblem } from '../../domain/platform/errors.ts';
import { stableJson } from '../../domain/platform/stable-json.ts';
import { withPaths } from '../../domain/data/mounts.ts';
import {
  type ProjectRules,
  projectProblems,
  settingsOf,
} from '../../domain/projects/project-rules.ts';
import type { ProjectRecord, ProjectSettings } from '../../domain/platform/records.ts';
import type { Caller } from '../auth/callers.ts';
import type { Define, SetEtag, Call } from '../define.ts';
import { checkIfMatch } from '../etag.ts';
import { pageOf } from '../page.ts';
import { summaryOf } from '../problem.ts';
import { projectEtag } from '../resource-etags.ts';
import { scaledAfter } from '../../domain/projects/processes.ts';
import { projectView, unmanagedView } from '../views.ts';
import { byOf } from './deployments.ts';
import type { DatasetStore } from '../../domain/data/dataset-stores.ts';
import type {
  ConfiguredRelease,
  ProjectStore,
  ProjectChange,
} from '../../domain/projects/project-store.ts';
import type { UnmanagedStore } from '../../domain/nodes/unmanaged-store.ts';
import type { NodeStore } from '../../domain/nodes/node-store.ts';
import type { ApiSettings } from '../settings.ts';
import type { Driver } from '../../flow/driver.ts';
import type { Changes } from '../../domain/platform/changes.ts';
import type { Logger } from '@berth/kit/log';

export type Deps = {
  certificates?: Pick<CertificateWatch, 'ofProject' | 'projectsWithProblem'>;
  datasets: Pick<DatasetStore, 'facts'>;
  source: Pick<ConfigSource, 'refresh'>;
  projects: Pick<
    ProjectStore,
    'configured' | 'create' | 'get' | 'list' | 'patch' | 'runningDeployments' | 'servedByWeb'
  >;
  unmanaged: Pick<UnmanagedStore, 'left'>;
  nodes: Pick<NodeStore, 'getMany'>;
  settings: Pick<
    ApiSettings,
    | 'allowedGitHosts'
    | 'authServiceUrl'
    | 'baseDomain'
    | 'ownHosts'
    | 'publicUrl'
    | 'reservedPrefixes'
  >;
  driver: Pick<Driver, 'advance' | 'deleteProject' | 'startFromZero' | 'stop'>;
  changes: Pick<Changes, 'notify'>;
  now: () => number;
  log: Logger;
};

export function projectRoutes(route: Define, deps: Deps): void {
  route('listProjects', (call) => listProjects(deps, call));
  route('createProject', (call) => createProject(deps, call));
  route('getProject', async (call) => view(deps, await deps.projects.get(call.params.id), call));
  route('patchProject', (call) => change(deps, call, call.body));
  route('putEnv', (call) =>
    change(deps, call, { env: { [checkedName(call.params.name)]: call.body.value } }),
  );
  route('deleteEnv', (call) => deleteEnv(deps, call));
  route('scaleProject', (call) => scaleProject(deps, call));
  route('stopProject', (call) => stopProject(deps, call));
  route('deleteProject', (call) => deleteProject(deps, call));
}

function certificateOf(deps: Deps, id: string): HostCertificate | null {
  return deps.certificates?.ofProject(id) ?? null;
}

/** Builds the rules. Reads the datasets only if the request names some. */
async function rulesFor(deps: Deps, body: Pick<ProjectPatch, 'datasets'>): Promise<ProjectRules> {
  const names = new Map(
    body.datasets === undefined ? [] : (await deps.datasets.facts()).map((d) => [d.id, d.name]),
  );
  return {
    allowedHosts: deps.settings.allowedGitHosts,
    baseDomain: deps.settings.baseDomain,
    ownHosts: deps.settings.ownHosts,
    hasLogin: deps.settings.authServiceUrl !== null,
    reservedPrefixes: deps.settings.reservedPrefixes,
    datasetName: (id) => names.get(id) ?? null,
  };
}

/** Publishes a change of the login or of the domains, or a stop, before the answer is sent. */
async function publishRoutes(deps: Deps): Promise<void> {
  deps.changes.notify('routes');
  // Ignore the error: the change is stored, and the loop `routes-refresh` repeats the refresh.
  await deps.source
    .refresh()
    .catch((error: unknown) =>
      deps.log.error({ err: error }, 'could not refresh the routes; will retry'),
    );
}

/**
 * Sets counts of processes, and starts or ends instances of the version that serves. Without such a
 * version, the next deployment or start takes the counts.
 */
const scaleProject = (deps: Deps, call: Call<'scaleProject'>): Promise<Project> =>
  change(
    deps,
    { ...call, ifMatch: undefined },
    {},
    {
      counts: call.body,
    },
  );

function refuseUnknownProcesses(counts: Scale, processes: ProjectSettings['processes']): void {
  const processNames = processes.map(({ name }) => name);
  throwIfAny(
    Object.keys(counts)
      .filter((name) => !processNames.includes(name))
      .map((field) => ({
        field,
        rule: 'exists',
        message: `the project has no process of this name; it has ${processNames.join(', ')}`,
      })),
  );
}

/** Names the process instead of its place in the list, because a scale sends counts by name. */
const problemsOfCounts = (
  problems: readonly FieldProblem[],
  processes: ProjectSettings['processes'],
): FieldProblem[] =>
  problems.map((problem) => {
    const place = /^processes\[(\d+)\]/.exec(problem.field)?.[1];
    const field = place === undefined ? undefined : processes[Number(place)]?.name;
    return { ...problem, field: field ?? problem.field };
  });

/** Converts a project and sets its ETag. */
async function view(
  deps: Deps,
  project: ProjectRecord,
  { user, setEtag }: { user: Caller; setEtag: SetEtag },
): Promise<Project> {
  const [running, configured, served] = await Promise.all([
    deps.projects.runningDeployments([project.id]),
    deps.projects.configured([project.id]),
    servedByWeb(deps, [project]),
  ]);
  setEtag(projectEtag(project, user.role));
  return projectView(project, running.get(project.id) ?? null, user.role, deps.settings, {
    certificate: certificateOf(deps, project.id),
    configured: configured.get(project.id) ?? null,
    isServedByWeb: served.has(project.id),
  });
}

/** Asks only for projects whose settings do not already say that they have an address. */
const servedByWeb = (deps: Deps, projects: readonly ProjectRecord[]): Promise<Set<string>> =>
  deps.projects.servedByWeb(projects.filter((p) => !hasWeb(p)).map(({ id }) => id));

/** Returns the check of If-Match, which the store calls inside the transaction. */
function requireIfMatch({ user, ifMatch }: { user: Caller; ifMatch: string | undefined }) {
  return (present: ProjectRecord): void => checkIfMatch(ifMatch, projectEtag(present, user.role));
}

/**
 * Merges and checks a change inside the transaction, so that each concurrent change sees the result
 * of the one before.
 */
async function change(
  deps: Deps,
  call: { params: { id: string }; user: Caller; setEtag: SetEtag; ifMatch: string | undefined },
  given: ProjectPatch,
  { check = () => {}, counts }: { check?: (present: ProjectRecord) => void; counts?: Scale } = {},
): Promise<Project> {
  const rules = await rulesFor(deps, given);
  const { env, build_args, domains, cors_origins, processes, ...rest } = given;
  refuseMembers(given, call.user);
  refuseExec(given, call.user);
  let wasAtZero = false;
  const configured = await configuredRelease(deps, call.params.id);
  const project = await deps.projects.patch(
    call.params.id,
    (present) => {
      check(present);
      wasAtZero = isScaledToZero(present);
      const { datasets } = given;
      const changed: ProjectChange = {
        ...rest,
        ...defined({
          env: env === undefined ? undefined : mergedEnv(present.env, env),
          build_args:
            build_args === undefined ? undefined : mergedEnv(present.build_args, build_args),
          domains: domains === undefined ? undefined : normalDomains(domains),
          cors_origins: cors_origins === undefined ? undefined : normalOrigins(cors_origins),
          processes: counted(processes, present.processes, counts),
          scaled: scaledBy(present, processes, counts),
          datasets:
            datasets === undefined
              ? undefined
              : withPaths(datasets, present.datasets, rules.datasetName),
        }),
      };
      if (counts !== undefined) refuseUnknownProcesses(counts, processesNow(present, configured));
      refuseSetByFile(given, configured);
      const problems = projectProblems(changed, { ...present, ...changed }, rules);
      throwIfAny(
        counts === undefined ? problems : problemsOfCounts(problems, changed.processes ?? []),
      );
      requireIfMatch(call)(present);
      return changed;
    },
    deps.now(),
    call.user.access,
  );
  deps.changes.notify(
    'policy',
    'events',
    ...(given.members === undefined ? [] : (['access'] as const)),
  );
  // Check waiting pushes again with the new settings.
  if (PUSH_SETTINGS.some((name) => given[name] !== undefined)) deps.changes.notify('work');
  if (PUBLISHED.some((name) => given[name] !== undefined)) await publishRoutes(deps);
  if (processes !== undefined || counts !== undefined)
    await scaleRunning(deps, call.user, project, wasAtZero);
  // The scale to 0 has changed the project again.
  const shown = isScaledToZero(project) ? await deps.projects.get(project.id) : project;
  return view(deps, shown, call);
}

async function configuredRelease(deps: Deps, id: string): Promise<ConfiguredRelease | null> {
  const configured = await deps.projects.configured([id]);
  return configured.get(id) ?? null;
}

/**
 * Refuses a change of what berth.toml sets. A change to the value of the file is no change. A file
 * that is deployed meanwhile wins anyway.
 */
function refuseSetByFile(given: ProjectPatch, configured: ConfiguredRelease | null): void {
  if (configured === null) return;
  const names = setByFile(given, configured, (a, b) => stableJson(a) === stableJson(b));
  if (names.length === 0) return;
  const problems = names.map((field) => ({
    field,
    rule: 'set_by_file',
    message: `comes from ${originText(configured.config)}; change it in that file and deploy`,
  }));
  throw new DomainError('set_by_file', summaryOf(problems), problems);
}

/** Returns the processes with their counts; undefined if neither changes. */
function counted(
  given: ProjectPatch['processes'],
  present: ProjectSettings['processes'],
  counts: Scale | undefined,
): ProjectSettings['processes'] | undefined {
  if (counts === undefined) return given?.map((one) => ({ ...one, count: one.count ?? 1 }));
  return present.map((one) => ({ ...one, count: counts[one.name] ?? one.count ?? 1 }));
}

/** Returns the counts that people set; undefined if none changes. */
function scaledBy(
  present: ProjectRecord,
  given: ProjectPatch['processes'],
  counts: Scale | undefined,
): ProjectRecord['scaled'] | undefined {
  if (counts !== undefined) return { ...present.scaled, ...counts };
  return given === undefined ? undefined : scaledAfter(present, given);
}

/** Returns the processes that the project has now: of its own list, or of the file. */
const processesNow = (
  present: ProjectRecord,
  configured: ConfiguredRelease | null,
): ProjectSettings['processes'] => withConfig(present, configured).processes;

/** Starts or ends instances now. The loop `instances` repeats it after a failure. */
async function scaleRunning(
  deps: Deps,
  user: Caller,
  project: ProjectRecord,
  wasAtZero: boolean,
): Promise<void> {
  const { driver, projects, changes, log } = deps;
  const { id } = project;
  const isAtZero = isScaledToZero(project);
  if (wasAtZero && !isAtZero && hasWeb(project) && project.stopped_at !== null) {
    await driver.startFromZero(id, byOf(user));
    changes.notify('policy');
  }
  const running = (await projects.runningDeployments([id])).get(id);
  if (running === undefined) return;
  await driver
    .advance(running, { type: 'scaled' })
    .catch((error: unknown) =>
      log.error({ err: error, project_id: id }, 'could not scale at once; will retry'),
    );
  // Publish the page in place of the container before the answer is sent.
  if (wasAtZero || isAtZero) await publishRoutes(deps);
}

function checkedName(name: string): string {
  throwIfAny([envNameProblem(name)].filter((problem) => problem !== null));
  return name;
}

async function listProjects(deps: Deps, { query, user, access }: Call<'listProjects'>) {
  const { name, find, attention } = query;
  const wanted = query.ids?.split(',');
  const troubled =
    attention === true ? (deps.certificates?.projectsWithProblem() ?? []) : undefined;
  const ids =
    troubled === undefined || wanted === undefined
      ? (troubled ?? wanted)
      : troubled.filter((id) => wanted.includes(id));
  const filter = {
    ...defined({ name, find, ids }),
  };
  const { items, next } = await deps.projects.list(pageOf(query), filter, access);
  const running = await deps.projects.runningDeployments(items.map((p) => p.id));
  const configured = await deps.projects.configured(items.map((p) => p.id));
  const served = await servedByWeb(deps, items);
  return {
    items: items.map((p) =>
      projectView(p, running.get(p.id) ?? null, roleIn(p, user) ?? 'viewer', deps.settings, {
        certificate: certificateOf(deps, p.id),
        configured: configured.get(p.id) ?? null,
        isServedByWeb: served.has(p.id),
      }),
    ),
    next_cursor: next,
  };
}

async function createProject(deps: Deps, call: Call<'createProject'>) {
  refuseMembers(call.body, call.user);
  if (call.body.allow_exec === true || call.body.exec_role === 'developer')
    refuseExec(call.body, call.user);
  const rules = await rulesFor(deps, call.body);
  const { datasets, domains, cors_origins } = call.body;
  const body = {
    ...call.body,
    ...defined({
      domains: domains === undefined ? undefined : normalDomains(domains),
      cors_origins: cors_origins === undefined ? undefined : normalOrigins(cors_origins),
      datasets: datasets === undefined ? undefined : withPaths(datasets, [], rules.datasetName),
    }),
  };
  const filled = settingsOf(body);
  throwIfAny(projectProblems(body, filled, rules));
  const project = await deps.projects.create(
    { ...body, replace: filled.replace },
    deps.now(),
    call.user.access,
    { replaceSet: body.replace !== undefined },
  );
  deps.changes.notify('policy', 'events');
  return view(deps, project, call);
}

function deleteEnv(deps: Deps, call: Call<'deleteEnv'>) {
  const name = checkedName(call.params.name);
  const env: EnvPatch = { [name]: null };
  const check = (present: ProjectRecord): void => {
    if (!Object.hasOwn(present.env, name))
      throw new DomainError('not_found', `project ${present.name} has no variable ${name}`);
  };
  return change(deps, call, { env }, { check });
}

async function stopProject(deps: Deps, call: Call<'stopProject'>) {
  const project = await deps.driver.stop(call.params.id, byOf(call.user).name ?? 'an unknown user');
  // Publish the page for stopped projects in place of the container before the answer is sent.
  await publishRoutes(deps);
  return view(deps, project, call);
}

async function deleteProject(deps: Deps, call: Call<'deleteProject'>) {
  const project = await deps.driver.deleteProject(call.params.id, {
    volumes: call.query.volumes ?? false,
    guard: requireIfMatch(call),
  });
  const unmanaged = await deps.unmanaged.left({ project: project.id });
  const nodes = new Map(
    (await deps.nodes.getMany(unmanaged.map((c) => c.node_id))).map((n) => [n.id, n.hostname]),
  );
  return {
    ...(await view(deps, project, call)),
    unmanaged: unmanaged.map((c) => unmanagedView(c, nodes.get(c.node_id) ?? c.node_id)),
  };
}

/** Settings of the route that the proxy gets at once. */
const PUBLISHED = ['auth_required', 'domains', 'sticky'] as const;
/** Settings that decide whether a push deploys. */
const PUSH_SETTINGS = ['git_url', 'branch', 'deploy_on_push', 'watch_paths'] as const;

/**
 * Refuses changes of exec settings unless the caller is an admin: a command in a container reads all
 * secrets of the project.
 */
function refuseExec(
  given: Pick<ProjectPatch, 'allow_exec' | 'exec_role'>,
  user: Pick<Caller, 'role'>,
): void {
  const field = (['allow_exec', 'exec_role'] as const).find((name) => given[name] !== undefined);
  if (field !== undefined && user.role !== 'admin')
    throw new DomainError('forbidden', `only admins change ${field} of a project`);
}

/**
 * Refuses changes of members unless the caller is an admin. Only admins can list users, and a
 * developer could lock out everybody else.
 */
function refuseMembers({ members }: Pick<ProjectPatch, 'members'>, user: Caller): void {
  if (members !== undefined && user.role !== 'admin')
    throw new DomainError('forbidden', 'only admins change the members of a project');
}

function throwIfAny(problems: FieldProblem[]): void {
  if (problems.length > 0) throw new DomainError('validation', summaryOf(problems), problems);
}
