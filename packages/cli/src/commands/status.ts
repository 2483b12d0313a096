/** Read-only commands: status, logs, open, placement, events. */
import { defined } from '@berth/kit/defined';
import type { Event } from '@berth/wire/event';
import type { ProjectPlacement } from '@berth/wire/instance';
import type { Placement, PlacementRow } from '@berth/wire/node';
import { sizeText } from '@berth/wire/size-text';
import { restWord } from '@berth/wire/project';
import type { Cli } from '../cli.ts';
import { overview } from '../attention.ts';
import { refused } from '../problem.ts';
import { type Column, oneLine, table } from '../output/text.ts';
import { seconds } from '../output/units.ts';
import { projectOrNone, selectProject } from '../project/select.ts';
import { reconnecting } from '../reconnecting.ts';
import { openBrowser } from '../session/browser.ts';
import { readStream } from '../sse.ts';
import { type Command, textOf } from './command.ts';
import { LOGS_COMMAND } from './logs.ts';
import { wholeNumber } from './number.ts';
import { overviewText, projectText, standingOf } from './status-text.ts';
import { howToStart } from '../project/rest.ts';

const PROJECT_ARGUMENT = {
  name: 'project',
  doc: 'name or id; default: the project of this folder',
} as const;

export const STATUS_COMMANDS: readonly Command[] = [
  {
    name: 'status',
    summary: 'Show what runs and what is in progress; outside a project: what needs attention',
    args: [PROJECT_ARGUMENT],
    options: [{ flags: '--all', doc: 'show what needs attention on the whole platform' }],
    aboutProject: true,
    routes: [
      'getProject',
      'getDeployment',
      'projectDeployments',
      'getNode',
      'listProjects',
      'listDeployments',
      'listNodes',
      'listDatasets',
    ],
    async run(cli, [named], { all }) {
      const project = all === true ? null : await projectOrNone(cli, named);
      if (project === null) {
        const platform = await overview(cli.client());
        return cli.print(platform, () => overviewText(cli, platform));
      }
      const standing = await standingOf(cli, project);
      const { running, latest } = standing;
      cli.print({ project, running, latest }, () => projectText(cli, standing));
    },
  },
  LOGS_COMMAND,
  {
    name: 'open',
    summary: 'Open the address of a project in a browser, or print it',
    args: [PROJECT_ARGUMENT],
    aboutProject: true,
    routes: ['getProject'],
    async run(cli, [named]) {
      const project = await cli.project(named);
      if (project.stopped)
        throw refused('stopped', `${project.name} is ${restWord(project)}`, howToStart(project));
      if (project.running_deployment_id === null)
        throw refused('not_live', `${project.name} is not live`, `berth deploy ${project.name}`);
      const { url } = project;
      if (url === null)
        throw refused('no_web', `${project.name} has no process web, so it has no address`);
      const opened = !cli.json && cli.io.terminal.out && (await openBrowser(cli.io, url));
      cli.print({ url }, () => url);
      if (opened) cli.say('opened in a browser');
    },
  },
  {
    name: 'placement',
    summary: 'Show which node would get the project now, and why not the others',
    detail: 'With --instances: why each instance that runs now is where it is.',
    args: [PROJECT_ARGUMENT],
    options: [{ flags: '--instances', doc: 'explain the instances that run now' }],
    aboutProject: true,
    routes: ['placement', 'projectPlacement'],
    async run(cli, [named], { instances }) {
      const project = await cli.project(named);
      if (instances === true) {
        const answer = await cli.client().call('projectPlacement', { params: { id: project.id } });
        return cli.print(answer, () => placementOfInstances(answer));
      }
      const placement = await cli.client().call('placement', { query: { project_id: project.id } });
      cli.print(placement, () => placementText(placement));
    },
  },
  {
    name: 'events',
    summary: 'Print the newest changes of the platform, or of one project',
    options: [
      { flags: '-f, --follow', doc: 'print new events as they happen' },
      { flags: '--after <seq>', doc: 'events after this sequence number', parse: wholeNumber },
      { flags: '-n, --limit <number>', doc: 'at most this many (default 50)', parse: wholeNumber },
      { flags: '--project <project>', doc: 'only those of this project' },
    ],
    routes: ['events'],
    run: events,
  },
];

const placementText = ({ items, winner, note }: Placement): string =>
  items.length === 0
    ? 'no deploy node has registered; add one: berth node join-token --role deploy'
    : [
        table(items, [
          { head: '', of: (row) => (row.node_id === winner ? '→' : '') },
          ...TERMS,
          {
            head: 'REASON',
            of: (row) => row.reason ?? (row.node_id === winner ? 'would get it' : ''),
          },
        ]),
        ...(note === undefined ? [] : [oneLine(note)]),
      ].join('\n');

const TERMS: readonly Column<PlacementRow>[] = [
  { head: 'NODE', of: (row) => row.hostname },
  { head: 'SCORE', of: (row) => (row.eligible ? row.score.toFixed(1) : '–') },
  { head: 'DATASETS HERE', of: (row) => String(row.cached_dataset_count) },
  { head: 'TO COPY', of: (row) => sizeText(row.missing_bytes) },
  { head: 'FREE', of: (row) => sizeText(row.free_storage_bytes) },
  {
    head: 'TIME',
    of: (row) => (row.estimated_seconds === null ? '–' : seconds(row.estimated_seconds * 1000)),
  },
];

/**
 * Explains each instance: its node, the scores of the nodes that could take it, and why the others
 * were refused.
 */
const placementOfInstances = ({ items }: ProjectPlacement): string =>
  items.length === 0
    ? 'no instance runs'
    : items
        .map(({ node_id, terms, refusals, note, ...one }) => {
          const place = one.node_name ?? 'no node';
          return [
            `${one.process} ${one.number}: ${place}${note === null ? '' : ` (${oneLine(note)})`}`,
            ...(terms.length === 0
              ? []
              : [
                  table(terms, [
                    { head: '', of: (row) => (row.node_id === node_id ? '→' : '') },
                    ...TERMS,
                  ]),
                ]),
            ...refusals.map(
              ({ node_name, reason }) => `  not ${node_name}: ${oneLine(reason ?? 'refused')}`,
            ),
          ].join('\n');
        })
        .join('\n\n');

async function events(
  cli: Cli,
  _: readonly (string | undefined)[],
  options: Record<string, unknown>,
): Promise<void> {
  const name = textOf(options, 'project');
  const projectId =
    name === undefined ? null : (await selectProject(cli.io, cli.session(), name)).project.id;
  const limit = (options['limit'] as number | undefined) ?? 50;
  const after = options['after'] as number | undefined;
  /** Keep gaps, because a gap can hide events of the project. */
  const isOfProject = ({ project_id, kind }: Event): boolean =>
    projectId === null || project_id === projectId || kind === 'gap';
  const page = await cli.client().call('events', {
    query: {
      limit: projectId === null ? Math.min(Math.max(limit, 1), 1000) : 1000,
      ...defined({ after }),
    },
  });
  const items = page.items.filter(isOfProject);
  const printed = after === undefined ? items.slice(-limit) : items.slice(0, limit);
  for (const event of printed) printEvent(cli, event);
  if (options['follow'] === true) await followEvents(cli, String(page.next), isOfProject);
}

const printEvent = (cli: Cli, event: Event): void =>
  cli.printLine(
    event,
    () => `${event.seq}  ${event.at}  ${event.kind.padEnd(22)} ${oneLine(event.message)}`,
  );

/** Prints the events after sequence number `after`, until Ctrl-C. */
async function followEvents(
  cli: Cli,
  after: string,
  isOfProject: (event: Event) => boolean,
): Promise<void> {
  let last = after;
  await reconnecting(cli, async (answered, signal) => {
    for await (const { id, data } of readStream(cli.session(), '/api/events', last, signal)) {
      answered();
      last = id ?? last;
      const event = data as Event;
      if (isOfProject(event)) printEvent(cli, event);
    }
  });
}
