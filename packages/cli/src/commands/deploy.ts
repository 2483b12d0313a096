/** Commands that bring a version live: deploy, rollback, cancel, deployment list|show|watch. */
import { defined } from '@berth/kit/defined';
import { refused } from '../problem.ts';
import type { Deployment, DeploymentItem } from '@berth/wire/deployment';
import { hasWeb, isScaledToZero, type Project } from '@berth/wire/project';
import { whyNot } from '@berth/wire/can';
import { DEPLOYMENT_STATES } from '@berth/wire/vocabulary';
import type { Cli } from '../cli.ts';
import { follow, printLive } from '../deploy/follow.ts';
import { projectToDeploy } from '../project/new-project.ts';
import { differences, readRepository } from '../project/git.ts';
import { allPages } from '../project/pages.ts';
import { howToScaleUp } from '../project/rest.ts';
import { sendOnce } from '../send-once.ts';
import { table } from '../output/text.ts';
import { ago } from '../output/units.ts';
import { type Command, type Option, textOf } from './command.ts';
import { printDeployment } from './show.ts';
import { positive } from './number.ts';

export const DETACH: Option = {
  flags: '-d, --detach',
  doc: 'do not wait; print the id of the deployment',
};
const ONE_DEPLOYMENT = [
  {
    name: 'deployment',
    doc: 'id of a deployment, or a project; default: the newest one of the project of this folder',
  },
] as const;
export const PROJECT_ARGUMENT = {
  name: 'project',
  doc: 'name or id; default: the project of this folder',
} as const;

export const DEPLOY_COMMANDS: readonly Command[] = [
  {
    name: 'deploy',
    summary: 'Deploy the branch of a project, or a commit, and follow it until it is live',
    detail:
      'Prints the address on stdout. Ctrl-C detaches: the deployment continues (exit code 130).',
    args: [PROJECT_ARGUMENT],
    options: [
      { flags: '--commit <id>', doc: 'full id of a commit; default: the newest one of the branch' },
      { flags: '--note <text>', doc: 'a note that lists show' },
      DETACH,
    ],
    aboutProject: true,
    routes: ['createDeployment', 'getDeployment', 'deploymentLogs'],
    async run(cli, [named], options) {
      const [commit, note] = [textOf(options, 'commit'), textOf(options, 'note')];
      const { project, how } = await projectToDeploy(cli, named);
      if (how !== 'argument') await sayDifferences(cli, project);
      const body = {
        ...defined({ commit, note }),
      };
      const created = await sendOnce(cli, (headers) =>
        cli.client().call('createDeployment', { params: { id: project.id }, body, headers }),
      );
      await finish(cli, project, created, options['detach'] === true);
    },
  },
  {
    name: 'rollback',
    summary: 'Deploy an earlier release again, without a build, and follow it until it is live',
    detail:
      'Without --to, it goes to the next older release that ran. A repeated rollback goes ' +
      'further back.',
    args: [PROJECT_ARGUMENT],
    options: [{ flags: '--to <deployment>', doc: 'id or number of a deployment that ran' }, DETACH],
    aboutProject: true,
    routes: ['rollback', 'projectDeployments', 'getDeployment'],
    async run(cli, [named], options) {
      const project = await cli.project(named);
      const body = await rollbackBody(cli, project, textOf(options, 'to'));
      const created = await sendOnce(cli, (headers) =>
        cli.client().call('rollback', { params: { id: project.id }, body, headers }),
      );
      cli.say(await targetText(cli, created));
      await finish(cli, project, created, options['detach'] === true);
    },
  },
  {
    name: 'cancel',
    summary: 'Cancel a deployment that is not live yet',
    args: ONE_DEPLOYMENT,
    aboutProject: true,
    routes: ['cancelDeployment', 'getDeployment', 'projectDeployments'],
    async run(cli, [named]) {
      const target = await openDeployment(cli, named);
      const why = whyNot('cancel', target.status);
      if (why !== null)
        throw refused(
          'wrong_state',
          `deployment ${target.generation} cannot be cancelled: ${why}`,
          target.status === 'running' ? 'berth rollback' : undefined,
        );
      const cancelled = await cli.client().call('cancelDeployment', { params: { id: target.id } });
      cli.print(cancelled, () =>
        cancelled.status === 'cancelled'
          ? `deployment ${target.generation} is cancelled`
          : `deployment ${target.generation}: Berth asked the agent to stop`,
      );
    },
  },
  {
    name: 'deployment list',
    summary: 'List the deployments of a project, newest first',
    args: [PROJECT_ARGUMENT],
    options: [
      { flags: '--all', doc: 'list the deployments of all projects' },
      { flags: '--status <status>', doc: 'only these', choices: DEPLOYMENT_STATES },
      { flags: '-n, --limit <number>', doc: 'at most this many (default 20)', parse: positive },
    ],
    aboutProject: true,
    routes: ['listDeployments', 'projectDeployments', 'listProjects'],
    async run(cli, [named], { all, status, limit }) {
      const count = (limit as number | undefined) ?? 20;
      const query = {
        limit: Math.min(count, 200),
        ...defined({ status: status === undefined ? undefined : (status as Deployment['status']) }),
      };
      const project = all === true ? null : await cli.project(named);
      const items = await allPages<DeploymentItem>(
        (cursor) =>
          project === null
            ? cli.client().call('listDeployments', { query: { ...query, ...cursor } })
            : cli.client().call('projectDeployments', {
                params: { id: project.id },
                query: { ...query, ...cursor },
              }),
        count,
      );
      const names =
        project === null && !cli.json && items.length > 0 ? await projectNames(cli) : undefined;
      cli.print({ items }, () => deploymentTable(cli, items, names));
    },
  },
  {
    name: 'deployment show',
    summary: 'Show a deployment: its story, the reason for its node, its times',
    args: ONE_DEPLOYMENT,
    aboutProject: true,
    routes: ['getDeployment', 'projectDeployments'],
    async run(cli, [named]) {
      const deployment = await wholeDeployment(cli, named);
      cli.print(deployment, () => printDeployment(cli, deployment));
    },
  },
  {
    name: 'deployment watch',
    summary: 'Follow a deployment until it is live or failed',
    args: ONE_DEPLOYMENT,
    aboutProject: true,
    routes: ['getDeployment', 'projectDeployments'],
    async run(cli, [named]) {
      const deployment = await wholeDeployment(cli, named);
      const project = await cli
        .client()
        .call('getProject', { params: { id: deployment.project_id } });
      await finish(cli, project, deployment, false);
    },
  },
];

async function projectNames(cli: Cli): Promise<ReadonlyMap<string, string>> {
  const projects = await allPages((cursor) =>
    cli.client().call('listProjects', { query: { limit: 200, ...cursor } }),
  );
  return new Map(projects.map(({ id, name }) => [id, name]));
}

/** Formats deployments as a table. `names`: project names by id, for several projects. */
export const deploymentTable = (
  cli: Cli,
  items: readonly DeploymentItem[],
  names?: ReadonlyMap<string, string>,
): string =>
  items.length === 0
    ? 'no deployments; create one: berth deploy'
    : table(items, [
        ...(names === undefined
          ? []
          : [
              {
                head: 'PROJECT',
                of: (d: DeploymentItem) => names.get(d.project_id) ?? d.project_id,
              },
            ]),
        { head: 'NUMBER', of: (d) => String(d.generation) },
        {
          head: 'STATUS',
          of: (d) =>
            d.health === null || d.health.status === 'healthy'
              ? d.status
              : `${d.status} (${d.health.status})`,
        },
        { head: 'COMMIT', of: (d) => d.commit?.slice(0, 8) ?? '–' },
        { head: 'CREATED', of: (d) => ago(d.created_at, cli.io.now()) },
        { head: 'BY', of: (d) => d.created_by?.name ?? '–' },
        { head: 'ID', of: (d) => d.id },
        {
          head: 'NOTE',
          of: (d) => d.error?.code ?? d.note ?? d.commit_message?.split('\n')[0] ?? '',
        },
      ]);

export async function finish(
  cli: Cli,
  project: Project,
  created: Pick<Deployment, 'id' | 'generation' | 'status' | 'url'>,
  detach: boolean,
): Promise<void> {
  if (detach)
    return cli.print(
      {
        deployment_id: created.id,
        generation: created.generation,
        status: created.status,
        url: created.url,
      },
      () => created.id,
    );
  cli.say(`deployment ${created.generation} of ${project.name} (${created.id})`);
  const oldId = project.running_deployment_id === created.id ? null : project.running_deployment_id;
  const drainMs = (project.drain_seconds + project.stop_grace_seconds) * 1000;
  printLive(
    cli,
    await follow(cli, {
      id: created.id,
      generation: created.generation,
      project: project.name,
      oldId,
      drainMs,
    }),
  );
  if (!hasWeb(project)) cli.say(`${project.name} has no process web, so its address answers 503`);
  if (isScaledToZero(project))
    cli.say(`${project.name} is scaled to 0, so this version rests now: ${howToScaleUp(project)}`);
}

async function sayDifferences(cli: Cli, project: Project): Promise<void> {
  const repository = await readRepository(cli.io);
  if (repository === null) return;
  for (const said of await differences(cli.io, repository, project.git_url, project.branch))
    cli.say(`${cli.paintErr('yellow', 'note:')} ${said}`);
}

/**
 * Returns the body of a rollback request. Without `to`, the control plane chooses the newest older
 * release that has run.
 */
export async function rollbackBody(
  cli: Cli,
  project: Project,
  to: string | undefined,
): Promise<{ deployment_id?: string }> {
  if (to === undefined) return {};
  const items = await allPages(
    (cursor) =>
      cli.client().call('projectDeployments', {
        params: { id: project.id },
        query: { limit: 200, ...cursor },
      }),
    2_000,
  );
  const target = items.find((d) => d.id === to || String(d.generation) === to);
  if (target === undefined)
    throw refused(
      'not_found',
      `${project.name} has no deployment “${to}”`,
      `berth deployment list ${project.name}`,
    );
  const why = whyNot('rollback_to', target.status);
  if (why !== null)
    throw refused(
      'no_release',
      `a rollback to deployment ${target.generation} is not possible: ${why}`,
      `berth deployment list ${project.name}`,
    );
  return { deployment_id: target.id };
}

async function targetText(cli: Cli, created: Deployment): Promise<string> {
  const id = created.rollback_of;
  const target = id === null ? null : await cli.client().call('getDeployment', { params: { id } });
  return target === null
    ? `rolling back ${created.image_tag ?? ''}`
    : `rolling back to deployment ${target.generation} ` +
        `(${target.commit?.slice(0, 8) ?? 'unknown commit'})`;
}

/** Finds a deployment by its id, or the newest deployment of a project. */
export async function openDeployment(cli: Cli, named: string | undefined): Promise<DeploymentItem> {
  if (named !== undefined) {
    const deployment = await findDeployment(cli, named);
    if (deployment !== null) return deployment;
  }
  const project = await cli.project(named);
  const [newest] = (
    await cli
      .client()
      .call('projectDeployments', { params: { id: project.id }, query: { limit: 1 } })
  ).items;
  if (newest === undefined)
    throw refused(
      'not_found',
      `${project.name} has no deployments`,
      `berth deploy ${project.name}`,
    );
  return newest;
}

/** Like openDeployment, but includes the events. */
async function wholeDeployment(cli: Cli, named: string | undefined): Promise<Deployment> {
  const { id } = await openDeployment(cli, named);
  return cli.client().call('getDeployment', { params: { id } });
}

async function findDeployment(cli: Cli, id: string): Promise<Deployment | null> {
  try {
    return await cli.client().call('getDeployment', { params: { id } });
  } catch (error) {
    if (
      (error as { code?: string }).code === 'not_found' ||
      (error as { code?: string }).code === 'validation'
    )
      return null;
    throw error;
  }
}
