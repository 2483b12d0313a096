/** Commands that show what happens and change nothing: status, logs, open, placement, events. */
import { defined } from '@berth/kit/defined';
import { errorSentence } from '@berth/wire/error-sentence';
import type { Deployment } from '@berth/wire/deployment';
import type { Event } from '@berth/wire/event';
import type { Project } from '@berth/wire/project';
import type { Cli } from '../cli.ts';
import { backoff } from '@berth/kit/backoff';
import { overview, type Overview } from '../attention.ts';
import { CliError, EXIT, isAway, refused } from '../problem.ts';
import { stepsOf } from '../deploy/steps.ts';
import { oneLine, table } from '../output/text.ts';
import { ago, bytes, seconds } from '../output/units.ts';
import { selectProject } from '../project/select.ts';
import { openBrowser } from '../session/browser.ts';
import { readStream } from '../sse.ts';
import { type Command, textOf } from './command.ts';
import { lineCount, LOGS_COMMAND } from './logs.ts';

const PROJECT_ARGUMENT = {
  name: 'project',
  doc: 'name or id; default: the project of this folder',
} as const;
const AWAY = { min: 500, max: 5_000 };
const AWAY_MS = 120_000;

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
        const seen = await overview(cli.client());
        return cli.print(seen, () => overviewText(cli, seen));
      }
      const running =
        project.running_deployment_id === null
          ? null
          : await cli
              .client()
              .call('getDeployment', { params: { id: project.running_deployment_id } });
      const [newest] = (
        await cli
          .client()
          .call('projectDeployments', { params: { id: project.id }, query: { limit: 1 } })
      ).items;
      const latest =
        newest === undefined || newest.id === running?.id
          ? null
          : await cli.client().call('getDeployment', { params: { id: newest.id } });
      const node =
        running?.node_id === null || running === null
          ? null
          : await cli
              .client()
              .call('getNode', { params: { id: running.node_id } })
              .catch(() => null);
      cli.print({ project, running, latest }, () =>
        projectStatus(cli, project, running, latest, node?.hostname ?? null),
      );
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
        throw refused('stopped', `${project.name} is stopped`, `berth start ${project.name}`);
      if (project.running_deployment_id === null)
        throw refused('not_live', `${project.name} is not live`, `berth deploy ${project.name}`);
      const opened = !cli.json && cli.io.terminal.out && (await openBrowser(cli.io, project.url));
      cli.print({ url: project.url }, () => project.url);
      if (opened) cli.say('opened in a browser');
    },
  },
  {
    name: 'placement',
    summary: 'Show which node would get the project now, and why not the others',
    args: [PROJECT_ARGUMENT],
    aboutProject: true,
    routes: ['placement'],
    async run(cli, [named]) {
      const project = await cli.project(named);
      const placement = await cli.client().call('placement', { query: { project_id: project.id } });
      cli.print(placement, () =>
        placement.items.length === 0
          ? 'no deploy node has registered; add one: berth node join-token --role deploy'
          : table(placement.items, [
              { head: '', of: (row) => (row.node_id === placement.winner ? '→' : '') },
              { head: 'NODE', of: (row) => row.hostname },
              { head: 'SCORE', of: (row) => (row.eligible ? row.score.toFixed(1) : '–') },
              { head: 'DATASETS HERE', of: (row) => String(row.cached_dataset_count) },
              { head: 'TO COPY', of: (row) => bytes(row.missing_bytes) },
              { head: 'FREE', of: (row) => bytes(row.free_storage_bytes) },
              {
                head: 'TIME',
                of: (row) =>
                  row.estimated_seconds === null ? '–' : seconds(row.estimated_seconds * 1000),
              },
              {
                head: 'REASON',
                of: (row) => row.reason ?? (row.node_id === placement.winner ? 'would get it' : ''),
              },
            ]),
      );
    },
  },
  {
    name: 'events',
    summary: 'Print the newest changes of the platform, or of one project',
    options: [
      { flags: '-f, --follow', doc: 'print new events as they happen' },
      { flags: '--after <seq>', doc: 'events after this sequence number', parse: lineCount },
      { flags: '-n, --limit <number>', doc: 'at most this many (default 50)', parse: lineCount },
      { flags: '--project <project>', doc: 'only those of this project' },
    ],
    routes: ['events'],
    run: events,
  },
];

async function projectOrNone(cli: Cli, named: string | undefined): Promise<Project | null> {
  try {
    return await cli.project(named);
  } catch (error) {
    if (error instanceof CliError && error.code === 'no_project') return null;
    throw error;
  }
}

function overviewText(cli: Cli, { needs, in_progress, projects, live }: Overview): string {
  const paint = cli.paintOut;
  const lines = needs.map(
    (one) => `${paint('red', '!')} ${one.subject}: ${oneLine(one.message)}\n  next: ${one.next}`,
  );
  const work = in_progress.map(
    (one) =>
      `· ${one.project}: ` +
      `${one.status}${one.waiting === null ? '' : `, waiting: ${oneLine(one.waiting)}`}`,
  );
  const sum = `${projects} ${projects === 1 ? 'project' : 'projects'}, ${live} live`;
  return [
    ...(lines.length === 0
      ? [`${paint('green', '✓')} nothing needs attention; ${sum}`]
      : [...lines, sum]),
    ...work,
  ].join('\n');
}

function projectStatus(
  cli: Cli,
  project: Project,
  running: Deployment | null,
  latest: Deployment | null,
  node: string | null,
): string {
  const { io, paintOut: paint } = cli;
  const lines: string[] = [];
  if (project.stopped)
    lines.push(
      `${paint('bold', project.name)} is ${paint('yellow', 'stopped')}; ${project.url} answers 503`,
    );
  else if (running === null)
    lines.push(
      `${paint('bold', project.name)} is not ` +
        `live${latest === null ? '; no deployment was requested yet' : ''}`,
    );
  else {
    const data = running.datasets
      .map(
        (d) =>
          `${d.name} v${d.version ?? '–'}${d.moved_on ? ` (newest: v${d.current_version})` : ''}`,
      )
      .join(', ');
    lines.push(
      `${paint('bold', project.name)} serves ` +
        (running.commit?.slice(0, 8) ?? 'an unknown commit') +
        (running.commit_message === null
          ? ''
          : ` “${oneLine(running.commit_message.split('\n')[0] ?? '')}”`) +
        ' ' +
        `at ${project.url} from ${node ?? 'a node'}; it went live ` +
        `${ago(running.finished_at, io.now())}${data === '' ? '' : `, on ${data}`}`,
    );
    const from = running.rolled_back_from ?? null;
    if (from !== null)
      lines.push(
        `rolled back from deployment ${from}; berth deploy builds the newest commit of ` +
          project.branch,
      );
    const { health } = running;
    const colour = health?.status === 'healthy' ? 'green' : 'yellow';
    lines.push(
      `health: ${paint(colour, health?.status ?? 'unknown')}` +
        (health?.detail === null || health === null ? '' : ` (${oneLine(health.detail)})`),
    );
    const certificate = project.certificate?.problem ?? null;
    if (certificate !== null)
      lines.push(
        `certificate: ${paint('yellow', project.certificate?.state ?? '')} ` +
          `(${oneLine(certificate)})`,
      );
  }
  if (latest !== null && latest.generation > (running?.generation ?? 0)) {
    const step = stepsOf({ deployment: latest, old: null, drains: false }).at(-1);
    const what =
      latest.error === null
        ? `${latest.status}${step === undefined || latest.finished_at !== null ? '' : `, step ${step.name}${step.live === '' ? '' : ` (${step.live})`}`}`
        : `failed: ${latest.error.code}: ${oneLine(errorSentence(latest.error.message))}`;
    lines.push(
      `deployment ${latest.generation} (${ago(latest.created_at, io.now())}): ` +
        `${what}${latest.waiting === null ? '' : `, waiting: ${oneLine(latest.waiting)}`}`,
    );
    lines.push(
      'next: ' +
        (latest.finished_at === null
          ? `berth deployment watch ${latest.id}`
          : `berth logs ${latest.id} --build`),
    );
  } else if (project.stopped) lines.push(`to start it again: berth start ${project.name}`);
  else if (running === null) lines.push(`next: berth deploy ${project.name}`);
  if (project.deleting) lines.push('it is being deleted');
  return lines.join('\n');
}

async function events(
  cli: Cli,
  _: readonly (string | undefined)[],
  options: Record<string, unknown>,
): Promise<void> {
  const named = textOf(options, 'project');
  const projectId =
    named === undefined ? null : (await selectProject(cli.io, cli.session(), named)).project.id;
  const limit = (options['limit'] as number | undefined) ?? 50;
  const after = options['after'] as number | undefined;
  const wanted = (event: Event): boolean =>
    projectId === null || event.project_id === projectId || event.kind === 'gap';
  const print = (event: Event): void =>
    cli.printLine(
      event,
      () => `${event.seq}  ${event.at}  ${event.kind.padEnd(22)} ${oneLine(event.message)}`,
    );
  const page = await cli.client().call('events', {
    query: {
      limit: projectId === null ? Math.min(Math.max(limit, 1), 1000) : 1000,
      ...defined({ after }),
    },
  });
  for (const event of page.items
    .filter(wanted)
    .slice(after === undefined ? -limit : 0, after === undefined ? undefined : limit))
    print(event);
  if (options['follow'] !== true) return;
  let last = String(page.next);
  let awaySince: number | null = null;
  const signal = cli.io.interrupted;
  for (let tries = 0; !signal.aborted; ) {
    try {
      for await (const event of readStream(cli.session(), `/api/events`, last, signal)) {
        tries = 0;
        awaySince = null;
        if (event.id !== null) last = event.id;
        if (wanted(event.data as Event)) print(event.data as Event);
      }
    } catch (error) {
      if (!isAway(error)) throw error;
      awaySince ??= cli.io.monotonic();
      if (cli.io.monotonic() - awaySince > AWAY_MS)
        throw new CliError(
          EXIT.unreachable,
          'unreachable',
          `the control plane has not answered for ${AWAY_MS / 1000} s`,
          { cause: error },
        );
      if (tries === 0) cli.say('the control plane does not answer; trying again');
    }
    if (!signal.aborted) await cli.io.sleep(backoff(tries++, AWAY), signal).catch(() => undefined);
  }
}
