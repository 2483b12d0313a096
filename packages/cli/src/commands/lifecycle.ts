/** Commands for running or stopped projects: restart, stop, start. */
import { whyNotProject, type ProjectAction } from '@berth/wire/can';
import { type Project, restsAtZero } from '@berth/wire/project';
import type { Cli } from '../cli.ts';
import { refused } from '../problem.ts';
import { howToStart } from '../project/rest.ts';
import { sendOnce } from '../send-once.ts';
import type { Command } from './command.ts';
import { DETACH, finish, PROJECT_ARGUMENT } from './deploy.ts';

export const LIFECYCLE_COMMANDS: readonly Command[] = [
  {
    name: 'restart',
    summary: 'Start the running release of a project again, without a build and without a gap',
    detail:
      'The old container serves until the new one is confirmed. With `replace: recreate` the ' +
      'old one stops first.',
    args: [PROJECT_ARGUMENT],
    options: [DETACH],
    aboutProject: true,
    routes: ['restartProject', 'getDeployment'],
    run: (cli, [named], options) => again(cli, named, 'restart', options['detach'] === true),
  },
  {
    name: 'stop',
    summary: 'Stop a project: its address answers 503 with a page until it starts again',
    detail:
      'Cancels deployments in progress. Pushes are skipped while it is stopped, and a scale only ' +
      'stores the count; start, deploy and rollback start it.',
    args: [PROJECT_ARGUMENT],
    aboutProject: true,
    routes: ['stopProject'],
    async run(cli, [named]) {
      const before = await cli.project(named);
      const project = await cli.client().call('stopProject', { params: { id: before.id } });
      cli.print(
        project,
        () => `${project.name} is ${before.stopped_by_person ? 'stopped already' : 'stopped'}`,
      );
      cli.say(`to start it again: ${howToStart(project)}`);
    },
  },
  {
    name: 'start',
    summary: 'Start a stopped project with the release that it ran last, without a build',
    detail:
      'It runs as many instances as the last scale stored. With count 0 the release proves that it ' +
      'answers, and rests until a scale to 1 or more.',
    args: [PROJECT_ARGUMENT],
    options: [DETACH],
    aboutProject: true,
    routes: ['startProject', 'getDeployment'],
    run: (cli, [named], options) => again(cli, named, 'start', options['detach'] === true),
  },
];

async function again(
  cli: Cli,
  named: string | undefined,
  action: 'restart' | 'start',
  detach: boolean,
): Promise<void> {
  const project = await cli.project(named);
  refuse(project, action);
  const created = await sendOnce(cli, (headers) =>
    cli.client().call(`${action}Project`, { params: { id: project.id }, headers }),
  );
  await finish(cli, project, created, detach);
}

/** Throws if the action is not possible, and names the right command. The server checks too. */
function refuse(project: Project, action: ProjectAction): void {
  const { deleting, stopped, running_deployment_id } = project;
  if (!deleting && stopped && action !== 'stop' && restsAtZero(project))
    throw refused(
      'wrong_state',
      `${project.name} cannot ${action}: it is scaled to 0`,
      howToStart(project),
    );
  const why = whyNotProject(action, { deleting, stopped, running: running_deployment_id !== null });
  if (why === null) return;
  const verb = verbInstead(action, stopped);
  throw refused(
    'wrong_state',
    `${project.name} cannot ${action}: ${why}`,
    `berth ${verb} ${project.name}`,
  );
}

function verbInstead(action: ProjectAction, stopped: boolean): 'start' | 'restart' | 'deploy' {
  if (stopped) return 'start';
  return action === 'start' ? 'restart' : 'deploy';
}
