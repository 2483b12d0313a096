/** Commands for runs: `berth run` executes a command in a container of its own. */
import { defined } from '@berth/kit/defined';
import type { LogLine } from '@berth/wire/deployment';
import { type DeviceCounts, parseRequires } from '@berth/wire/machine';
import { isOpenRun, type Run } from '@berth/wire/run';
import { backoff } from '@berth/kit/backoff';
import type { Cli } from '../cli.ts';
import { createRunInput, type RunInput } from '../exec/run-input.ts';
import { type Column, record, safe, table } from '../output/text.ts';
import { ago, parseBytes, seconds } from '../output/units.ts';
import { CliError, EXIT, isAway, refused, usage } from '../problem.ts';
import { allPages } from '../project/pages.ts';
import { sendOnce } from '../send-once.ts';
import { readStream } from '../sse.ts';
import { argument, type Command, type Option, type Options } from './command.ts';
import { cpuCount, positive } from './number.ts';

const AWAY = { min: 500, max: 5_000 };
/** Longest wait in ms for the end of a run after Ctrl-C. */
const CANCEL_MS = 60_000;
const PAGE = 5_000;
export const DEVICE: Option = {
  flags: '--device <kind=count>',
  doc:
    'devices that only this command has while it runs, such as nvidia.com/gpu=1 (default none); ' +
    'may be repeated; “none” removes all',
  repeats: true,
};

export const RUN_COMMANDS: readonly Command[] = [
  {
    name: 'run',
    summary: 'Run a command once, in a container of its own from the version that serves',
    detail:
      'Write -- before the command. The container has the env, the secrets, the datasets and the ' +
      'volumes of the project, and no port. stdout and stderr of the command go to stdout and ' +
      'stderr; the exit code is that of the command. Ctrl-C cancels the run. Standard input that is ' +
      'a pipe or a file is sent to the command; from a terminal, nothing is sent.',
    args: [
      { name: 'command', doc: 'the program and its arguments', required: true, repeats: true },
    ],
    options: [
      { flags: '--detach', doc: 'do not wait: print the id of the run' },
      {
        flags: '-e, --env <name=value>',
        doc: 'set a variable for this run; never give a secret, because it is stored in clear',
        repeats: true,
      },
      {
        flags: '--timeout <duration>',
        doc: 'time limit of the command, such as 90s, 15m or 2h (default 1h)',
        parse: duration,
      },
      {
        flags: '--memory <size>',
        doc: 'memory limit (default: that of the project)',
        parse: bytes,
      },
      {
        flags: '--cpus <number>',
        doc: 'CPU limit (default: that of the project)',
        parse: cpuCount,
      },
      DEVICE,
      { flags: '--no-stdin', doc: 'send no standard input, also from a pipe or a file' },
    ],
    aboutProject: true,
    routes: ['createRun', 'runInput', 'runLogs', 'getRun', 'cancelRun', 'getProject'],
    async run(cli, args, options) {
      const project = await cli.project();
      const isDetached = options['detach'] === true;
      const stdin = options['stdin'] !== false && !isDetached && cli.io.pipes.hasInput();
      const body = {
        command: args.map((word) => word ?? ''),
        ...defined({
          env: envOf(options['env'] as string[] | undefined),
          timeout_seconds: options['timeout'] as number | undefined,
          memory_bytes: options['memory'] as number | undefined,
          cpus: options['cpus'] as number | undefined,
          devices: devicesIn(options),
          stdin: stdin ? true : undefined,
        }),
      };
      const run = await sendOnce(cli, (headers) =>
        cli.client().call('createRun', { params: { id: project.id }, body, headers }),
      );
      if (isDetached)
        return cli.print(run, () => `${run.id}\nfollow it with: berth runs logs ${run.id} -f`);
      await finish(cli, run, stdin ? createRunInput(cli, run.id) : null);
    },
  },
  {
    name: 'runs list',
    summary: 'List the runs of a project, newest first',
    args: [{ name: 'project', doc: 'name or id; default: the project of this folder' }],
    options: [
      { flags: '--status <status>', doc: 'only runs with this status' },
      { flags: '--job <name>', doc: 'only runs of this job' },
      { flags: '-n, --limit <number>', doc: 'at most this many (default 20)', parse: positive },
    ],
    aboutProject: true,
    routes: ['projectRuns', 'getProject'],
    async run(cli, [named], options) {
      const { id } = await cli.project(named);
      const filter = defined({ status: options['status'], job: options['job'] });
      const limit = (options['limit'] as number | undefined) ?? 20;
      await runsOf(
        cli,
        id,
        { filter, limit },
        () => 'no runs; start one with: berth run -- COMMAND',
      );
    },
  },
  {
    name: 'runs show',
    summary: 'Show a run: its command, node, times and exit code',
    args: [{ name: 'run', doc: 'id of the run', required: true }],
    routes: ['getRun', 'getNode'],
    async run(cli, args) {
      const run = await cli.client().call('getRun', { params: { id: argument(args, 0) } });
      const away = await awayText(cli, run);
      cli.print(run, () => shown(cli, run, away));
    },
  },
  {
    name: 'runs logs',
    summary: 'Print what a run printed',
    args: [{ name: 'run', doc: 'id of the run', required: true }],
    options: [{ flags: '-f, --follow', doc: 'print new lines until the run ends' }],
    routes: ['runLogs', 'getRun'],
    async run(cli, args, { follow }) {
      const id = argument(args, 0);
      if (follow === true) {
        // Ends at once if the run does not exist or nothing answers; later, it waits for an answer.
        await cli.client().call('getRun', { params: { id } });
        return void (await followRun(cli, id));
      }
      for (let after = 0; ; ) {
        const page = await cli
          .client()
          .call('runLogs', { params: { id }, query: { after, limit: PAGE }, timeoutMs: 60_000 });
        for (const line of page.lines) printLine(cli, line);
        if (page.lines.length < PAGE) return;
        after = page.next;
      }
    },
  },
  {
    name: 'runs cancel',
    summary: 'Cancel a run: its command gets SIGTERM, and SIGKILL after the grace period',
    args: [{ name: 'run', doc: 'id of the run', required: true }],
    routes: ['cancelRun'],
    async run(cli, args) {
      const run = await cli.client().call('cancelRun', { params: { id: argument(args, 0) } });
      cli.print(run, () =>
        isOpenRun(run.status) ? 'its agent stops the command' : `the run is ${run.status}`,
      );
    },
  },
];

/** Prints the newest runs of a project, or what `none` says if there are none. */
export async function runsOf(
  cli: Cli,
  id: string,
  { filter, limit }: { filter: Readonly<Record<string, unknown>>; limit: number },
  none: () => string | Promise<string>,
): Promise<void> {
  // The server checks the values of the filter.
  const query = { limit: Math.min(limit, 200), ...(filter as Record<string, never>) };
  const items = await allPages<Run>(
    (cursor) =>
      cli.client().call('projectRuns', { params: { id }, query: { ...query, ...cursor } }),
    limit,
  );
  const text = items.length === 0 ? await none() : table(items, columns(cli));
  cli.print({ items }, () => text);
}

const UNITS = { s: 1, m: 60, h: 3_600, d: 86_400 } as const;
export function duration(text: string): number {
  const [, count, unit] = /^(\d+)([smhd])$/.exec(text) ?? [];
  if (count === undefined) throw new Error('must be a duration such as 90s, 15m or 2h');
  return Number(count) * UNITS[unit as keyof typeof UNITS];
}

export function bytes(text: string): number {
  const size = parseBytes(text);
  if (size === null) throw new Error('must be a size such as 512MiB or 2GB');
  return size;
}

function envOf(pairs: readonly string[] | undefined): Record<string, string> | undefined {
  if (pairs === undefined) return undefined;
  return Object.fromEntries(
    pairs.map((pair) => {
      const equals = pair.indexOf('=');
      if (equals < 1) throw usage('--env must be NAME=value');
      return [pair.slice(0, equals), pair.slice(equals + 1)];
    }),
  );
}

/** Prints the output until the run has ended, and ends with the exit code of the command. */
export async function finish(cli: Cli, { id }: Run, input: RunInput | null = null): Promise<void> {
  const followed = await followRun(cli, id, () => input?.begin()).finally(() => input?.end());
  const run = followed ?? (await cancelled(cli, id));
  const cut = input?.end() ?? null;
  if (cli.json) cli.print(run, () => '');
  if (run.status === 'succeeded' && cut !== null)
    throw refused('input_cut', `the command succeeded, but its input was cut off: ${cut}`);
  if (run.status === 'succeeded') return;
  const { exit_code, error, status, reason } = run;
  if (status === 'cancelled')
    throw new CliError(EXIT.interrupted, 'cancelled', reason ?? 'the run was cancelled');
  const exit = exit_code === null || exit_code === 0 ? EXIT.refused : exit_code;
  const message = error?.message ?? `the run is ${status}`;
  // The command has told its reason itself; only its exit code is passed on.
  const isOwn = error?.code === 'command_failed';
  throw new CliError(exit, error?.code ?? status, message, { shown: isOwn && !cli.json });
}

/**
 * Prints lines until the run has ended. Returns null after Ctrl-C. Calls `onRunning` while an agent
 * has the run.
 */
async function followRun(
  cli: Cli,
  id: string,
  onRunning: () => void = () => undefined,
): Promise<Run | null> {
  const { io } = cli;
  let last: string | null = null;
  let told: string | null = null;
  for (let tries = 0; ; ) {
    try {
      const path = `/api/runs/${id}/logs`;
      for await (const event of readStream(cli.session(), path, last, io.interrupted)) {
        tries = 0;
        last = event.id ?? last;
        if (event.event === 'line') printLine(cli, event.data as LogLine);
        const { reason = null, status } = event.data as Partial<Pick<Run, 'reason' | 'status'>>;
        if (event.event === 'state' && status === 'running') onRunning();
        if (event.event === 'state' && reason !== null && reason !== told)
          cli.say(`waiting: ${safe((told = reason))}`);
        if (event.event === 'end') return await cli.client().call('getRun', { params: { id } });
      }
    } catch (error) {
      if (!isAway(error)) throw error;
      if (tries === 0) cli.say('the control plane does not answer; trying again');
    }
    if (io.interrupted.aborted) return null;
    await io.sleep(backoff(tries++, AWAY), io.interrupted).catch(() => undefined);
  }
}

/** Cancels the run after Ctrl-C, and waits until its agent has stopped it. */
async function cancelled(cli: Cli, id: string): Promise<Run> {
  cli.say('cancelling the run');
  const params = { id };
  let run = await cli
    .client()
    .call('cancelRun', { params })
    .catch(() => cli.client().call('getRun', { params }));
  const end = cli.io.monotonic() + CANCEL_MS;
  while (isOpenRun(run.status) && cli.io.monotonic() < end) {
    await cli.io.sleep(500);
    run = await cli.client().call('getRun', { params });
  }
  if (isOpenRun(run.status))
    throw new CliError(EXIT.interrupted, 'cancelling', 'its agent has not stopped the run yet', {
      next: `berth runs show ${id}`,
    });
  return run;
}

/** Prints the output of the command unchanged, each stream to its own. */
function printLine(cli: Cli, line: LogLine): void {
  if (cli.json) return cli.printLine(line, () => '');
  if (line.stream === 'stdout') cli.io.out(`${line.text}\n`);
  else if (line.stream === 'stderr') cli.io.err(`${line.text}\n`);
  else cli.say(cli.paintErr('dim', safe(line.text)));
}

/** Returns the devices that `--device` asks for; undefined without the option. */
export function devicesIn({ device }: Options): DeviceCounts | undefined {
  const lines = device as string[] | undefined;
  if (lines === undefined) return undefined;
  if (lines.includes('none')) return {};
  const parsed = parseRequires(lines.map((line) => `device:${line}`));
  if ('bad' in parsed)
    throw usage(`--device ${parsed.bad.slice('device:'.length)}: write KIND=COUNT or KIND`);
  return parsed.devices ?? {};
}

/** Returns `nvidia.com/gpu=1`; null: none. */
export const deviceText = (devices: DeviceCounts): string | null =>
  Object.keys(devices).length === 0
    ? null
    : Object.entries(devices)
        .map(([kind, count]) => `${kind}=${count}`)
        .join(', ');

export const commandText = ({ command }: Pick<Run, 'command'>): string =>
  command.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : JSON.stringify(word))).join(' ');

export const endText = (run: Pick<Run, 'status' | 'exit_code'>): string =>
  run.exit_code === null ? run.status : `${run.status} (${run.exit_code})`;

/** The status has the exit code of a command that failed by itself. */
const whyText = ({ reason, error }: Run): string =>
  safe(reason ?? (error?.code === 'command_failed' ? '' : (error?.message ?? '')));

const columns = (cli: Cli): Column<Run>[] => [
  { head: 'run', of: (run) => run.id },
  { head: 'status', of: endText },
  { head: 'command', of: (run) => safe(commandText(run)).slice(0, 60) },
  { head: 'job', of: (run) => run.job ?? '–' },
  { head: 'by', of: (run) => run.created_by ?? run.trigger },
  { head: 'node', of: (run) => run.node_name ?? '–' },
  { head: 'started', of: (run) => ago(run.started_at ?? run.scheduled_for, cli.io.now()) },
  { head: 'reason', of: whyText },
];

/** Says that the command of an open run may have ended, because its node is offline; null for others. */
async function awayText(cli: Cli, { status, node_id }: Run): Promise<string | null> {
  if (!isOpenRun(status) || node_id === null) return null;
  // The node may be deleted meanwhile, and the run says enough without it.
  const node = await cli
    .client()
    .call('getNode', { params: { id: node_id } })
    .catch(() => null);
  if (node?.status !== 'offline') return null;
  return (
    `${node.hostname} is offline (last seen ${ago(node.last_seen_at, cli.io.now())}), so the command ` +
    'may have ended; if the node does not return within ten minutes, the run is lost'
  );
}

function shown(cli: Cli, run: Run, away: string | null): string {
  const took =
    run.started_at === null || run.ended_at === null
      ? null
      : seconds(Date.parse(run.ended_at) - Date.parse(run.started_at));
  return record([
    ['run', run.id],
    ['status', endText(run)],
    ['reason', run.reason ?? away],
    ['error', run.error?.message],
    ['command', commandText(run)],
    ['job', run.job],
    ['requested by', run.created_by ?? run.trigger],
    ['node', run.node_name],
    ['version', run.deployment_id],
    ['started', ago(run.started_at, cli.io.now())],
    ['took', took],
    ['time limit', `${run.timeout_seconds} s`],
    ['devices', deviceText(run.devices)],
    ['variables', run.env_names.length === 0 ? null : run.env_names.join(', ')],
  ]);
}
