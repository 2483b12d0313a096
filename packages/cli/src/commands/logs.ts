/** `berth logs`: prints the output of a project's containers, or with --build a build log. */
import { defined } from '@berth/kit/defined';
import type { DeploymentItem, LogLine } from '@berth/wire/deployment';
import { pathOf } from '@berth/wire/client';
import { ROUTES } from '@berth/wire/routes';
import { DEFAULT_TAIL, type GoneNode, MAX_TAIL, type RuntimeLine } from '@berth/wire/runtime';
import { backoff } from '@berth/kit/backoff';
import type { Cli } from '../cli.ts';
import { tailOf } from '../deploy/log.ts';
import { safe } from '../output/text.ts';
import { CliError, EXIT, isAway, refused, usage } from '../problem.ts';
import { readStream } from '../sse.ts';
import type { Command } from './command.ts';
import { openDeployment } from './deploy.ts';
import { positive, wholeNumber } from './number.ts';

const AWAY = { min: 500, max: 5_000 };
const AWAY_MS = 120_000;

export const LOGS_COMMAND: Command = {
  name: 'logs',
  summary:
    'Print what the containers of a project print; --build prints the log of building and starting',
  detail:
    'Berth reads the lines from the nodes. Of a container that ended, it has the last 200 lines. ' +
    'Lines of several instances are merged by time, each with its process and number.',
  args: [
    {
      name: 'project',
      doc: 'a project or the id of a deployment; default: the project of this folder',
    },
  ],
  options: [
    {
      flags: '-f, --follow',
      doc: 'print new lines as they arrive, also those of the next deployments',
    },
    {
      flags: '-n, --tail <lines>',
      doc: 'at most this many last lines (default 100)',
      parse: wholeNumber,
    },
    {
      flags: '--since <time>',
      doc: 'only lines since then: RFC 3339, or 10m, 2h, 1d',
      parse: timeText,
    },
    { flags: '--until <time>', doc: 'only lines until then', parse: timeText },
    { flags: '--process <name>', doc: 'only this process' },
    {
      flags: '--instance <number>',
      doc: 'only the instance with this number',
      parse: positive,
    },
    {
      flags: '--build',
      doc: 'the lines of building and starting the newest deployment, or the one that is named',
    },
    {
      flags: '--previous',
      doc: 'of the version that ran before; with --build, of the deployment before',
    },
  ],
  aboutProject: true,
  routes: [
    'projectLogs',
    'deploymentExits',
    'deploymentLogs',
    'projectDeployments',
    'getDeployment',
    'getProject',
  ],
  async run(cli, args, options) {
    const { follow, build, previous, until } = options;
    if (follow === true && (previous === true || until !== undefined))
      throw usage('--follow cannot be combined with --previous or --until');
    if (build === true && (options['process'] !== undefined || options['instance'] !== undefined))
      throw usage('--build cannot be combined with --process or --instance');
    await (build === true ? buildLog(cli, args, options) : runtimeLog(cli, args, options));
  },
};

const UNITS = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;
export function timeText(text: string): number {
  const [, count, unit] = /^(\d+)([smhd])$/.exec(text) ?? [];
  if (count !== undefined) return Date.now() - Number(count) * UNITS[unit as keyof typeof UNITS];
  const at = Date.parse(text);
  if (Number.isNaN(at))
    throw new Error('must be a time such as 2026-11-23T10:00:00Z, or 10m, 2h, 1d');
  return at;
}

type Place = { project: string; deployment: string | null };

/**
 * Returns where to read logs: a project, or the deployment with this id. With `previous`, returns
 * the version that ran before.
 */
async function placeOf(cli: Cli, named: string | undefined, previous: boolean): Promise<Place> {
  if (previous) return ranBefore(cli, named);
  const deployment = await openDeployment(cli, named).catch((error: unknown) => {
    // The project has no deployments.
    if (!(error instanceof CliError)) throw error;
    return null;
  });
  if (deployment === null) return { project: (await cli.project(named)).id, deployment: null };
  return {
    project: deployment.project_id,
    deployment: deployment.id === named ? deployment.id : null,
  };
}

/**
 * Returns the last deployment with a container before the running one, or before the named one. If
 * nothing runs, returns the last one with a container. Skips deployments whose container never
 * started, because they have no log.
 */
async function ranBefore(cli: Cli, named: string | undefined): Promise<Place> {
  const opened = await openDeployment(cli, named);
  const project = opened.project_id;
  const present =
    opened.id === named
      ? opened.id
      : (await cli.client().call('getProject', { params: { id: project } })).running_deployment_id;
  let isOlder = present === null;
  let cursor: string | undefined;
  do {
    const page = await cli.client().call('projectDeployments', {
      params: { id: project },
      query: { limit: 50, ...defined({ cursor }) },
    });
    for (const one of page.items) {
      if (isOlder && (await hasRun(cli, one))) return { project, deployment: one.id };
      if (one.id === present) isOlder = true;
    }
    cursor = page.next_cursor ?? undefined;
  } while (cursor !== undefined);
  throw refused('not_found', 'no version of the project ran before', 'berth logs --build');
}

/** A container that ended before its version went live left its last lines. */
async function hasRun(cli: Cli, { id, status, node_id }: DeploymentItem): Promise<boolean> {
  if (status === 'running' || status === 'retired') return true;
  if (node_id === null) return false;
  const { items } = await cli.client().call('deploymentExits', { params: { id } });
  return items.length > 0;
}

async function runtimeLog(
  cli: Cli,
  [named]: readonly (string | undefined)[],
  options: Record<string, unknown>,
): Promise<void> {
  const { project, deployment } = await placeOf(cli, named, options['previous'] === true);
  const time = (name: string): string | undefined => {
    const at = options[name] as number | undefined;
    return at === undefined ? undefined : new Date(at).toISOString();
  };
  const [since, until] = [time('since'), time('until')];
  const tail = Math.min((options['tail'] as number | undefined) ?? DEFAULT_TAIL, MAX_TAIL);
  const of = defined({
    process: options['process'] as string | undefined,
    instance: options['instance'] as number | undefined,
  });
  const query = {
    tail,
    ...of,
    ...defined({ since, until, deployment_id: deployment ?? undefined }),
  };
  const names = createNames(of.instance === undefined && (await hasSeveral(cli, project, of)));
  if (options['follow'] === true)
    return followRuntime(cli, pathOf(ROUTES.projectLogs, { id: project }, query), names);
  const answer = await cli
    .client()
    .call('projectLogs', { params: { id: project }, query, timeoutMs: 60_000 });
  if (cli.json) return cli.print(answer, () => '');
  for (const line of answer.lines) names.see(line);
  for (const line of answer.lines) printRuntimeLine(cli, line, names);
  if (deployment !== null) {
    const [exit] = (
      await cli.client().call('deploymentExits', { params: { id: deployment }, query: of })
    ).items;
    if (exit !== undefined)
      cli.say(
        `${exit.container} ended at ${exit.finished_at ?? 'an unknown time'}, exit code ` +
          (exit.exit_code ?? 'unknown: Berth removed it while it ran'),
      );
  }
  if (answer.unavailable !== undefined) cli.tell(`note: ${answer.unavailable}`);
  if (answer.lines.length === 0)
    cli.say('no lines; the log of building and starting: berth logs --build');
  else if (answer.truncated && since !== undefined)
    cli.say(`note: there are older lines since then; print more with -n ${MAX_TAIL}`);
}

/** Whether the project wants several instances of the process, or of all processes. */
async function hasSeveral(
  cli: Cli,
  id: string,
  { process }: { process?: string },
): Promise<boolean> {
  const { processes } = await cli.client().call('getProject', { params: { id } });
  const counts = processes.map(({ name, count = 1 }) =>
    process === undefined || name === process ? count : 0,
  );
  return counts.reduce((sum, count) => sum + count, 0) > 1;
}

/** Decides whether lines begin with their instance: if there are several. */
type Names = { see(line: RuntimeLine): void; of(cli: Cli, line: RuntimeLine): string };
const COLOURS = ['cyan', 'yellow', 'green', 'magenta', 'blue'] as const;

function createNames(isSeveral: boolean): Names {
  /** The instances of each deployment, and the colour of each name in the order of appearance. */
  const seen = new Map<string, Set<string>>();
  const colours = new Map<string, (typeof COLOURS)[number]>();
  const nameOf = ({ process = 'web', instance = 1 }: RuntimeLine): string =>
    `${process} ${instance}`;
  return {
    see(line) {
      const ofDeployment = seen.get(line.deployment_id) ?? new Set();
      seen.set(line.deployment_id, ofDeployment.add(nameOf(line)));
      isSeveral ||= ofDeployment.size > 1;
    },
    of(cli, line) {
      if (!isSeveral) return '';
      const name = nameOf(line);
      const colour = colours.get(name) ?? COLOURS[colours.size % COLOURS.length] ?? 'cyan';
      colours.set(name, colour);
      return `${cli.paintOut(colour, `${safe(name)} |`)} `;
    },
  };
}

const printRuntimeLine = (cli: Cli, line: RuntimeLine, names: Names): void =>
  cli.printLine(line, () => `${names.of(cli, line)}${safe(line.text)}`);

/**
 * Connects again and again until Ctrl-C, or until the control plane has not answered for a while.
 * `connect` calls `heard` for each event, and returns how long to pause in ms; null: as after a lost
 * connection.
 */
async function keepFollowing(
  { io, say }: Cli,
  connect: (heard: () => void) => Promise<number | null>,
): Promise<void> {
  const signal = io.interrupted;
  let tries = 0;
  let awaySince: number | null = null;
  const heard = (): void => {
    tries = 0;
    awaySince = null;
  };
  while (!signal.aborted) {
    const pauseMs = await connect(heard).catch((error: unknown) => {
      if (!isAway(error)) throw error;
      awaySince ??= io.monotonic();
      if (io.monotonic() - awaySince > AWAY_MS)
        throw new CliError(
          EXIT.unreachable,
          'unreachable',
          `the control plane has not answered for ${AWAY_MS / 1000} s`,
          { cause: error },
        );
      if (tries === 0) say('the control plane does not answer; trying again');
      return null;
    });
    if (signal.aborted) return;
    await io.sleep(pauseMs ?? backoff(tries++, AWAY), signal).catch(() => undefined);
  }
}

/** Prints lines until Ctrl-C. A reconnected stream continues after the last printed line. */
async function followRuntime(cli: Cli, path: string, names: Names): Promise<void> {
  let last: string | null = null;
  let shown: string | null = null;
  await keepFollowing(cli, async (heard) => {
    const events = readStream(cli.session(), path, last, cli.io.interrupted);
    for await (const { event, id, data } of events) {
      heard();
      last = id ?? last;
      if (event === 'line') {
        const line = data as RuntimeLine;
        if (shown !== null && shown !== line.deployment_id)
          cli.say(cli.paintErr('dim', `── deployment ${line.deployment_id} ──`));
        shown = line.deployment_id;
        names.see(line);
        printRuntimeLine(cli, line, names);
      } else if (event === 'lost')
        cli.tell(
          'note: lines may be missing here: they came too fast, or the connection was broken',
        );
      else if (event === 'gone') cli.tell(`note: ${(data as GoneNode).message}; waiting`);
    }
    return null;
  });
}

async function buildLog(
  cli: Cli,
  [named]: readonly (string | undefined)[],
  options: Record<string, unknown>,
): Promise<void> {
  const { follow, previous } = options;
  const since = options['since'] as number | undefined;
  const until = options['until'] as number | undefined;
  const tail = (options['tail'] as number | undefined) ?? 100;
  const newest = await openDeployment(cli, named ?? undefined);
  const target = previous === true ? await before(cli, newest) : newest;
  const wanted = (line: LogLine): boolean =>
    (since === undefined || Date.parse(line.at) >= since) &&
    (until === undefined || Date.parse(line.at) <= until);
  const page = await tailOf(cli, target.id, tail, wanted);
  if (page.unavailable !== null) cli.say(`note: ${page.unavailable}`);
  if (cli.json && follow !== true)
    return cli.print(
      {
        deployment_id: target.id,
        generation: target.generation,
        lines: page.lines,
        ...defined({ unavailable: page.unavailable ?? undefined }),
      },
      () => '',
    );
  for (const line of page.lines) printLogLine(cli, target.id, line);
  if (follow === true) await followLogs(cli, target.project_id, target.id, page.next, wanted);
}

const printLogLine = (cli: Cli, deployment_id: string, line: LogLine): void =>
  cli.printLine({ deployment_id, ...line }, () => safe(line.text));

/** Returns the next older deployment, whatever its status: each one has a build log. */
async function before(
  cli: Cli,
  newest: { id: string; project_id: string; generation: number },
): Promise<{ id: string; project_id: string; generation: number }> {
  const items = await newestDeployments(cli, newest.project_id);
  const older = items.find((d) => d.generation < newest.generation);
  if (older === undefined)
    throw refused('not_found', `deployment ${newest.generation} is the first one`);
  return older;
}

/** Prints the log of this deployment, then of each newer one, until Ctrl-C. */
async function followLogs(
  cli: Cli,
  projectId: string,
  id: string,
  after: number,
  wanted: (line: LogLine) => boolean,
): Promise<void> {
  let current = { id, after: String(after) as string | null };
  const signal = cli.io.interrupted;
  await keepFollowing(cli, async (heard) => {
    const path = `/api/deployments/${current.id}/logs`;
    for await (const event of readStream(cli.session(), path, current.after, signal)) {
      heard();
      current.after = event.id ?? current.after;
      if (event.event === 'line' && wanted(event.data as LogLine))
        printLogLine(cli, current.id, event.data as LogLine);
    }
    const next = signal.aborted ? null : await nextDeployment(cli, projectId, current.id);
    if (next === null) return 2_000;
    cli.say(cli.paintErr('dim', `── deployment ${next.generation} ──`));
    current = { id: next.id, after: null };
    return 0;
  });
}

/** Returns the oldest deployment that is newer than `id`. */
async function nextDeployment(
  cli: Cli,
  projectId: string,
  id: string,
): Promise<{ id: string; generation: number } | null> {
  const items = await newestDeployments(cli, projectId);
  const at = items.findIndex((d) => d.id === id);
  return (at < 0 ? items.at(-1) : items[at - 1]) ?? null;
}

const newestDeployments = async (cli: Cli, id: string): Promise<DeploymentItem[]> =>
  (await cli.client().call('projectDeployments', { params: { id }, query: { limit: 50 } })).items;
