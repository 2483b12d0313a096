/**
 * Routes of projects and their settings. Checks settings against domain/projects/project-rules.ts.
 */
import { defined } from '@berth/kit/defined';
import type { EnvPatch, Project, ProjectPatch } from '@berth/wire/project';
import type { HostCertificate } from '../../domain/routes/configuration.ts';
import { roleIn } from '../../domain/identity/access.ts';
import { normalOrigins } from '../../domain/routes/cors-origins.ts';
import { normalDomains } from '../../domain/routes/domains.ts';
import { envNameProblem, mergedEnv } from '../../domain/projects/env.ts';
import { DomainError, type FieldProblem } from '../../domain/platform/errors.ts';
import { withPaths } from '../../domain/data/mounts.ts';
import {
  type ProjectRules,
  projectProblems,
  settingsOf,
} from '../../domain/projects/project-rules.ts';
import type { ProjectRecord, ProjectSettings } from '../../domain/platform/records.ts';
import type { Caller } from '../auth/callers.ts';
import type { Define, SetEtag } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import { checkIfMatch } from '../etag.ts';
import { pageOf } from '../page.ts';
import { summaryOf } from '../problem.ts';
import { projectEtag } from '../resource-etags.ts';
import { projectView, unmanagedView } from '../views.ts';
import { byOf } from './deployments.ts';

export function projectRoutes(route: Define, deps: ApiDeps): void {
  const { stores, driver, changes, source, settings, now, log } = deps;
  const certificateOf = (id: string): HostCertificate | null =>
    deps.certificates?.ofProject(id) ?? null;
  /** Reads the datasets only if the request names some. */
  async function rulesFor(body: Pick<ProjectPatch, 'datasets'>): Promise<ProjectRules> {
    const names = new Map(
      body.datasets === undefined ? [] : (await stores.datasets.facts()).map((d) => [d.id, d.name]),
    );
    return {
      allowedHosts: settings.allowedGitHosts,
      baseDomain: settings.baseDomain,
      ownHosts: settings.ownHosts,
      hasLogin: settings.authServiceUrl !== null,
      reservedPrefixes: settings.reservedPrefixes,
      datasetName: (id) => names.get(id) ?? null,
    };
  }

  /** Publishes a change of the login or of the domains, or a stop, before the answer is sent. */
  async function publishRoutes(): Promise<void> {
    changes.notify('routes');
    // The change is stored already. If this refresh fails, the loop `routes-refresh` repeats it.
    await source
      .refresh()
      .catch((error: unknown) =>
        log.error({ err: error }, 'could not refresh the routes; will retry'),
      );
  }

  /** Converts a project and sets its ETag. */
  async function view(
    project: ProjectRecord,
    { user, setEtag }: { user: Caller; setEtag: SetEtag },
  ): Promise<Project> {
    const running = await stores.projects.runningDeployments([project.id]);
    setEtag(projectEtag(project, user.role));
    return projectView(
      project,
      running.get(project.id) ?? null,
      user.role,
      settings,
      certificateOf(project.id),
    );
  }

  /** Returns the check of If-Match. The store calls it inside the transaction. */
  const requireIfMatch =
    ({ user, ifMatch }: { user: Caller; ifMatch: string | undefined }) =>
    (present: ProjectRecord): void =>
      checkIfMatch(ifMatch, projectEtag(present, user.role));

  /**
   * Merges and checks a change inside the transaction, so that each of several concurrent changes
   * sees the result of the one before.
   */
  async function change(
    call: { params: { id: string }; user: Caller; setEtag: SetEtag; ifMatch: string | undefined },
    given: ProjectPatch,
    check: (present: ProjectRecord) => void = () => {},
  ): Promise<Project> {
    const rules = await rulesFor(given);
    const { env, build_args, domains, cors_origins, ...rest } = given;
    refuseMembers(given, call.user);
    const project = await stores.projects.patch(
      call.params.id,
      (present) => {
        check(present);
        const { datasets } = given;
        const changed: Partial<ProjectSettings> = {
          ...rest,
          ...defined({
            env: env === undefined ? undefined : mergedEnv(present.env, env),
            build_args:
              build_args === undefined ? undefined : mergedEnv(present.build_args, build_args),
            domains: domains === undefined ? undefined : normalDomains(domains),
            cors_origins: cors_origins === undefined ? undefined : normalOrigins(cors_origins),
            datasets:
              datasets === undefined
                ? undefined
                : withPaths(datasets, present.datasets, rules.datasetName),
          }),
        };
        throwIfAny(projectProblems(changed, { ...present, ...changed }, rules));
        requireIfMatch(call)(present);
        return changed;
      },
      now(),
      call.user.access,
    );
    changes.notify(
      'policy',
      'events',
      ...(given.members === undefined ? [] : (['access'] as const)),
    );
    // Pushes that wait are judged again.
    if (PUSH_SETTINGS.some((name) => given[name] !== undefined)) changes.notify('work');
    if (given.auth_required !== undefined || domains !== undefined) await publishRoutes();
    return view(project, call);
  }
  const checkedName = (name: string): string => {
    throwIfAny([envNameProblem(name)].filter((problem) => problem !== null));
    return name;
  };

  route('listProjects', async ({ query, user, access }) => {
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
    const { items, next } = await stores.projects.list(pageOf(query), filter, access);
    const running = await stores.projects.runningDeployments(items.map((p) => p.id));
    return {
      items: items.map((p) =>
        projectView(
          p,
          running.get(p.id) ?? null,
          roleIn(p, user) ?? 'viewer',
          settings,
          certificateOf(p.id),
        ),
      ),
      next_cursor: next,
    };
  });

  route('createProject', async (call) => {
    refuseMembers(call.body, call.user);
    const rules = await rulesFor(call.body);
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
    const project = await stores.projects.create(
      { ...body, replace: filled.replace },
      now(),
      call.user.access,
    );
    changes.notify('policy', 'events');
    return view(project, call);
  });

  route('getProject', async (call) => view(await stores.projects.get(call.params.id), call));

  route('patchProject', (call) => change(call, call.body));

  route('putEnv', (call) =>
    change(call, { env: { [checkedName(call.params.name)]: call.body.value } }),
  );

  route('deleteEnv', (call) => {
    const name = checkedName(call.params.name);
    const env: EnvPatch = { [name]: null };
    return change(call, { env }, (present) => {
      if (!Object.hasOwn(present.env, name))
        throw new DomainError('not_found', `project ${present.name} has no variable ${name}`);
    });
  });

  route('stopProject', async (call) => {
    const project = await driver.stop(call.params.id, byOf(call.user).name ?? 'an unknown user');
    // The page replaces the container before the answer is sent.
    await publishRoutes();
    return view(project, call);
  });

  route('deleteProject', async (call) => {
    const project = await driver.deleteProject(call.params.id, {
      volumes: call.query.volumes ?? false,
      guard: requireIfMatch(call),
    });
    const left = await stores.unmanaged.left({ project: project.id });
    const nodes = new Map(
      (await stores.nodes.getMany(left.map((c) => c.node_id))).map((n) => [n.id, n.hostname]),
    );
    return {
      ...(await view(project, call)),
      unmanaged: left.map((c) => unmanagedView(c, nodes.get(c.node_id) ?? c.node_id)),
    };
  });
}

/** Settings that decide about a push. */
const PUSH_SETTINGS = ['git_url', 'branch', 'deploy_on_push', 'watch_paths'] as const;

/**
 * Only admins can list users, so only they can name members. A developer could also lock out
 * everybody else.
 */
function refuseMembers({ members }: Pick<ProjectPatch, 'members'>, user: Caller): void {
  if (members !== undefined && user.role !== 'admin')
    throw new DomainError('forbidden', 'only admins change the members of a project');
}

function throwIfAny(problems: FieldProblem[]): void {
  if (problems.length > 0) throw new DomainError('validation', summaryOf(problems), problems);
}
