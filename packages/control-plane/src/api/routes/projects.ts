/** Projects: what people set, checked where it enters. */
import type { Project, ProjectPatch } from '@berth/wire/project';
import type { Role } from '@berth/wire/vocabulary';
import { DomainError, type FieldProblem } from '../../domain/errors.ts';
import { type ProjectRules, projectProblems, settingsOf } from '../../domain/project-rules.ts';
import type { ProjectRecord } from '../../domain/records.ts';
import type { Define } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import { pageOf } from '../page.ts';
import { sentence } from '../problem.ts';
import { projectView } from '../views.ts';

export function projectRoutes(route: Define, deps: ApiDeps): void {
  const { stores, driver, changes, settings, now } = deps;
  /** Datasets are asked for only where some are named. */
  async function rulesFor(body: Pick<ProjectPatch, 'datasets'>): Promise<ProjectRules> {
    const names = new Map(body.datasets === undefined ? [] : (await stores.datasets.facts()).map((d) => [d.id, d.name]));
    return {
      allowedHosts: settings.allowedGitHosts,
      baseDomain: settings.baseDomain,
      reservedPrefixes: settings.reservedPrefixes,
      datasetName: (id) => names.get(id) ?? null,
    };
  }

  async function view(project: ProjectRecord, role: Role): Promise<Project> {
    const running = await stores.projects.runningDeployments([project.id]);
    return projectView(project, running.get(project.id) ?? null, role, settings);
  }

  route('listProjects', async ({ query, user }) => {
    const { items, next } = await stores.projects.list(pageOf(query));
    const running = await stores.projects.runningDeployments(items.map((p) => p.id));
    return { items: items.map((p) => projectView(p, running.get(p.id) ?? null, user.role, settings)), next_cursor: next };
  });

  route('createProject', async ({ body, user }) => {
    const filled = settingsOf(body);
    refuse(projectProblems(body, filled, await rulesFor(body)));
    const project = await stores.projects.create({ ...body, replace: filled.replace }, now());
    changes.notify('policy');
    return view(project, user.role);
  });

  route('getProject', async ({ params, user }) => view(await stores.projects.get(params.id), user.role));

  route('patchProject', async ({ params, body, user }) => {
    const present = await stores.projects.get(params.id);
    refuse(projectProblems(body, { ...present, ...body }, await rulesFor(body)));
    const project = await stores.projects.patch(params.id, body, now());
    changes.notify('policy');
    return view(project, user.role);
  });

  route('deleteProject', async ({ params, user }) => view(await driver.deleteProject(params.id), user.role));
}

function refuse(problems: FieldProblem[]): void {
  if (problems.length > 0) throw new DomainError('validation', sentence(problems), problems);
}
