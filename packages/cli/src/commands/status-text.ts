/** The text of `berth status`: which version serves, its health, and the next command. */
import type { Deployment } from '@berth/wire/deployment';
import { errorSentence } from '@berth/wire/error-sentence';
import { restWord, type Project } from '@berth/wire/project';
import type { Overview } from '../attention.ts';
import type { Cli } from '../cli.ts';
import { stepsOf } from '../deploy/steps.ts';
import { instancesOf, instanceText, isUp, placesText } from '../output/instances.ts';
import { oneLine } from '../output/text.ts';
import { ago } from '../output/units.ts';
import { howToStart } from '../project/rest.ts';

export type Standing = {
  project: Project;
  running: Deployment | null;
  /** The newest deployment; null if it is the running one or if there is none. */
  latest: Deployment | null;
  /** Hostname of the node that runs `running`. */
  node: string | null;
};

export async function standingOf(cli: Cli, project: Project): Promise<Standing> {
  const client = cli.client();
  const runningId = project.running_deployment_id;
  const running =
    runningId === null ? null : await client.call('getDeployment', { params: { id: runningId } });
  const { items } = await client.call('projectDeployments', {
    params: { id: project.id },
    query: { limit: 1 },
  });
  const newestId = items[0]?.id ?? null;
  const latest =
    newestId === null || newestId === runningId
      ? null
      : await client.call('getDeployment', { params: { id: newestId } });
  return { project, running, latest, node: await hostnameOf(cli, running?.node_id ?? null) };
}

/** Returns the hostname of a node, or null if the node has been deleted. */
const hostnameOf = async (cli: Cli, id: string | null): Promise<string | null> =>
  id === null
    ? null
    : await cli
        .client()
        .call('getNode', { params: { id } })
        .then(
          ({ hostname }) => hostname,
          () => null,
        );

export function overviewText(cli: Cli, overview: Overview): string {
  const { needs, in_progress, projects, live } = overview;
  const paint = cli.paintOut;
  const sum = `${projects} ${projects === 1 ? 'project' : 'projects'}, ${live} live`;
  const verdict =
    needs.length === 0 ? `${paint('green', '✓')} nothing needs attention; ${sum}` : sum;
  return [
    ...needs.flatMap(({ subject, message, next }) => [
      `${paint('red', '!')} ${subject}: ${oneLine(message)}`,
      `  next: ${next}`,
    ]),
    verdict,
    ...in_progress.map(
      ({ project, status, waiting }) => `· ${project}: ${status}${waitingText(waiting)}`,
    ),
  ].join('\n');
}

const waitingText = (waiting: string | null): string =>
  waiting === null ? '' : `, waiting: ${oneLine(waiting)}`;

export const projectText = (cli: Cli, standing: Standing): string =>
  [
    ...stateLines(cli, standing),
    ...(standing.project.stopped ? [] : runningLines(cli, standing)),
    ...latestLines(cli, standing),
    ...(standing.project.deleting ? ['it is being deleted'] : []),
  ].join('\n');

/** Says in one sentence whether the project is stopped and which version serves. */
function stateLines(cli: Cli, { project, running, latest, node }: Standing): string[] {
  const name = cli.paintOut('bold', project.name);
  if (project.stopped)
    return [
      `${name} is ${cli.paintOut('yellow', restWord(project))}` +
        (project.url === null ? '' : `; ${project.url} answers 503`),
    ];
  if (running === null)
    return [`${name} is not live${latest === null ? '; no deployment was requested yet' : ''}`];
  const instances = instancesOf(running);
  const serving = instances.filter(isUp);
  const home = node ?? serving[0]?.node_name ?? 'a node';
  const places = instances.length < 2 ? home : placesText(serving);
  const verb = project.url === null ? 'runs' : 'serves';
  const from = project.url === null ? `on ${places}` : `at ${project.url} from ${places}`;
  const since = `it went live ${ago(running.finished_at, cli.io.now())}`;
  return [`${name} ${verb} ${commitText(running)} ${from}; ${since}${datasetsText(running)}`];
}

function commitText({ commit, commit_message }: Deployment): string {
  const hash = commit?.slice(0, 8) ?? 'an unknown commit';
  return commit_message === null
    ? hash
    : `${hash} “${oneLine(commit_message.split('\n')[0] ?? '')}”`;
}

function datasetsText({ datasets }: Deployment): string {
  if (datasets.length === 0) return '';
  const versions = datasets.map(({ name, version, moved_on, current_version }) => {
    const newest = moved_on ? ` (newest: v${current_version})` : '';
    return `${name} v${version ?? '–'}${newest}`;
  });
  return `, on ${versions.join(', ')}`;
}

/** Describes the health of the running version. */
function runningLines(cli: Cli, { project, running }: Standing): string[] {
  if (running === null) return [];
  return [
    ...rollbackLines(running, project.branch),
    healthLine(cli, running),
    ...instanceLines(project.name, running),
    ...certificateLines(cli, project),
  ];
}

function rollbackLines({ rolled_back_from }: Deployment, branch: string): string[] {
  const from = rolled_back_from ?? null;
  if (from === null) return [];
  return [
    `rolled back from deployment ${from}; berth deploy builds the newest commit of ${branch}`,
  ];
}

function healthLine(cli: Cli, { health }: Deployment): string {
  const colour = health?.status === 'healthy' ? 'green' : 'yellow';
  const status = cli.paintOut(colour, health?.status ?? 'unknown');
  const detail = health?.detail ?? null;
  return `health: ${status}${detail === null ? '' : ` (${oneLine(detail)})`}`;
}

/** Describes the instances that do not serve, and where the output of an unhealthy one is. */
function instanceLines(project: string, running: Deployment): string[] {
  const instances = instancesOf(running);
  if (instances.length < 2) return [];
  return instances
    .filter((one) => !isUp(one))
    .flatMap((one) => [
      `instance ${instanceText(one)}`,
      ...(one.state === 'unhealthy'
        ? [`next: berth logs ${project} --process ${one.process} --instance ${one.number}`]
        : []),
    ]);
}

function certificateLines(cli: Cli, { certificate }: Project): string[] {
  const problem = certificate?.problem ?? null;
  if (problem === null) return [];
  return [`certificate: ${cli.paintOut('yellow', certificate?.state ?? '')} (${oneLine(problem)})`];
}

/** Describes the newest deployment if it does not serve yet, and names the next command. */
function latestLines(cli: Cli, { project, running, latest }: Standing): string[] {
  if (latest !== null && latest.generation > (running?.generation ?? 0))
    return [
      `deployment ${latest.generation} (${ago(latest.created_at, cli.io.now())}): ` +
        `${outcomeText(latest)}${waitingText(latest.waiting)}`,
      latest.finished_at === null
        ? `next: berth deployment watch ${latest.id}`
        : `next: berth logs ${latest.id} --build`,
    ];
  if (project.stopped) return [`to start it again: ${howToStart(project)}`];
  return running === null ? [`next: berth deploy ${project.name}`] : [];
}

function outcomeText(deployment: Deployment): string {
  const { status, error, finished_at } = deployment;
  if (error !== null) return `failed: ${error.code}: ${oneLine(errorSentence(error.message))}`;
  const step = stepsOf({ deployment, old: null, drains: false }).at(-1);
  if (step === undefined || finished_at !== null) return status;
  return `${status}, step ${step.name}${step.live === '' ? '' : ` (${step.live})`}`;
}
