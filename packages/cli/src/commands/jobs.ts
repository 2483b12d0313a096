/** Commands for jobs: commands with a schedule. */
import { defined } from '@berth/kit/defined';
import type { Job, Overlap } from '@berth/wire/job';
import { OVERLAPS } from '@berth/wire/job';
import { confirmed } from '../ask.ts';
import type { Cli } from '../cli.ts';
import { type Column, record, safe, table } from '../output/text.ts';
import { ago } from '../output/units.ts';
import { usage } from '../problem.ts';
import { sendOnce } from '../send-once.ts';
import { argument, type Command, type Option, type Options } from './command.ts';
import {
  bytes,
  commandText,
  DEVICE,
  devicesIn,
  deviceText,
  duration,
  endText,
  finish,
  runsOf,
} from './runs.ts';
import { cpuCount, positive, wholeNumber } from './number.ts';

const JOB_ARG = { name: 'job', doc: 'name of the job', required: true } as const;
const SETTINGS: readonly Option[] = [
  { flags: '--timezone <zone>', doc: 'IANA time zone of the schedule (default UTC)' },
  {
    flags: '--overlap <rule>',
    doc: 'if an earlier run has not ended: skip this time, queue it, or cancel the earlier run',
    choices: OVERLAPS,
  },
  {
    flags: '--timeout <duration>',
    doc: 'time limit, such as 90s, 15m or 2h (default 1h)',
    parse: duration,
  },
  { flags: '--memory <size>', doc: 'memory limit (default: that of the project)', parse: bytes },
  { flags: '--cpus <number>', doc: 'CPU limit (default: that of the project)', parse: cpuCount },
  DEVICE,
  {
    flags: '--retries <number>',
    doc: 'how often a lost run starts again, although its command might have started (default 0)',
    parse: wholeNumber,
  },
];

export const JOB_COMMANDS: readonly Command[] = [
  {
    name: 'job list',
    summary: 'List the jobs of a project: schedule, last run, next time',
    args: [{ name: 'project', doc: 'name or id; default: the project of this folder' }],
    aboutProject: true,
    routes: ['listJobs', 'getProject'],
    async run(cli, [named]) {
      const { id } = await cli.project(named);
      const { items } = await cli.client().call('listJobs', { params: { id } });
      cli.print({ items }, () =>
        items.length === 0
          ? 'no jobs; add one with: berth job add NAME --schedule "0 6 * * *" -- COMMAND'
          : table(items, columns(cli)),
      );
    },
  },
  {
    name: 'job add',
    summary: 'Add a job: a command that runs by a schedule',
    detail:
      'Write -- before the command. The schedule has five cron fields (minute, hour, day, month, ' +
      'day of the week), or is @hourly, @daily, @weekly or @monthly.',
    args: [
      JOB_ARG,
      { name: 'command', doc: 'the program and its arguments', required: true, repeats: true },
    ],
    options: [
      { flags: '--schedule <cron>', doc: 'such as "0 6 * * MON"', required: true },
      ...SETTINGS,
    ],
    aboutProject: true,
    routes: ['createJob', 'getProject'],
    async run(cli, [name = '', ...command], options) {
      const { id } = await cli.project();
      const job = await cli.client().call('createJob', {
        params: { id },
        body: {
          name,
          schedule: String(options['schedule']),
          command: command.map((word) => word ?? ''),
          ...settingsIn(options),
        },
      });
      cli.print(job, () => `${job.name} runs next at ${job.next_runs[0] ?? 'no time'}`);
    },
  },
  {
    name: 'job show',
    summary: 'Show a job: its command, its next three times and its last run',
    args: [JOB_ARG],
    aboutProject: true,
    routes: ['getJob', 'getProject'],
    async run(cli, args) {
      const job = await cli.client().call('getJob', { params: await jobIn(cli, args) });
      cli.print(job, () => shown(cli, job));
    },
  },
  {
    name: 'job edit',
    summary: 'Change a job, at once',
    args: [JOB_ARG, { name: 'command', doc: 'a new command, after --', repeats: true }],
    options: [
      { flags: '--schedule <cron>', doc: 'such as "0 6 * * MON"' },
      ...SETTINGS,
      { flags: '--enable', doc: 'run it by its schedule again' },
      { flags: '--disable', doc: 'do not run it by its schedule' },
    ],
    aboutProject: true,
    routes: ['patchJob', 'getProject'],
    async run(cli, [name, ...command], options) {
      if (options['enable'] === true && options['disable'] === true)
        throw usage('--enable cannot be combined with --disable');
      const body = {
        ...settingsIn(options),
        ...defined({
          schedule: options['schedule'] as string | undefined,
          enabled: enabledIn(options),
          command: command.length === 0 ? undefined : command.map((word) => word ?? ''),
        }),
      };
      if (Object.keys(body).length === 0)
        throw usage('nothing was given to change', 'berth job edit --help');
      const params = await jobIn(cli, [name]);
      const job = await cli.client().call('patchJob', { params, body });
      cli.print(job, () => shown(cli, job));
    },
  },
  {
    name: 'job delete',
    summary: 'Delete a job; its runs stay',
    args: [JOB_ARG],
    options: [{ flags: '-y, --yes', doc: 'do not ask' }],
    aboutProject: true,
    routes: ['deleteJob', 'getProject'],
    async run(cli, args, { yes }) {
      const params = await jobIn(cli, args);
      await confirmed(cli.io, yes === true, `Delete job ${params.name}?`);
      await cli.client().call('deleteJob', { params });
      cli.print({ done: true }, () => `${params.name} was deleted`);
    },
  },
  {
    name: 'job run',
    summary: 'Start a run of a job now, and follow it',
    args: [JOB_ARG],
    options: [{ flags: '--detach', doc: 'do not wait: print the id of the run' }],
    aboutProject: true,
    routes: ['runJob', 'runLogs', 'getRun', 'cancelRun', 'getProject'],
    async run(cli, args, { detach }) {
      const params = await jobIn(cli, args);
      const run = await sendOnce(cli, (headers) =>
        cli.client().call('runJob', { params, headers }),
      );
      if (detach === true) return cli.print(run, () => run.id);
      await finish(cli, run);
    },
  },
  {
    name: 'job runs',
    summary: 'List the runs of a job, newest first: also those that did not happen, and why',
    args: [JOB_ARG],
    options: [
      { flags: '-n, --limit <number>', doc: 'at most this many (default 20)', parse: positive },
    ],
    aboutProject: true,
    routes: ['projectRuns', 'getJob', 'getProject'],
    async run(cli, args, options) {
      const { id, name } = await jobIn(cli, args);
      const limit = (options['limit'] as number | undefined) ?? 20;
      // A deleted job keeps its runs, so only a name without runs can be a wrong one.
      await runsOf(cli, id, { filter: { job: name }, limit }, async () => {
        const job = await cli.client().call('getJob', { params: { id, name } });
        const [next = null] = job.next_runs;
        return `no runs yet; ${next === null ? 'the job is disabled' : `the next one is ${next}`}`;
      });
    },
  },
];

async function jobIn(
  cli: Cli,
  args: readonly (string | undefined)[],
): Promise<{ id: string; name: string }> {
  const { id } = await cli.project();
  return { id, name: argument(args, 0) };
}

const settingsIn = (options: Options) =>
  defined({
    timezone: options['timezone'] as string | undefined,
    overlap: options['overlap'] as Overlap | undefined,
    timeout_seconds: options['timeout'] as number | undefined,
    memory_bytes: options['memory'] as number | undefined,
    cpus: options['cpus'] as number | undefined,
    devices: devicesIn(options),
    retries: options['retries'] as number | undefined,
  });

function enabledIn({ enable, disable }: Options): boolean | undefined {
  if (enable === true) return true;
  return disable === true ? false : undefined;
}

const lastText = (cli: Cli, { last_run }: Job): string =>
  last_run === null
    ? '–'
    : `${endText(last_run)}, ${ago(last_run.ended_at ?? last_run.created_at, cli.io.now())}`;

const columns = (cli: Cli): Column<Job>[] => [
  { head: 'job', of: (job) => job.name },
  { head: 'schedule', of: (job) => `${job.schedule} ${job.timezone}` },
  { head: 'command', of: (job) => safe(commandText(job)).slice(0, 40) },
  { head: 'last run', of: (job) => lastText(cli, job) },
  { head: 'next', of: (job) => job.next_runs[0] ?? (job.enabled ? '–' : 'disabled') },
  { head: 'from', of: (job) => originText(job) ?? '–' },
];

/** Returns `berth.toml at 3f2a91c`; null if people set the job. */
const originText = ({ config }: Pick<Job, 'config'>): string | null => {
  if (config === null) return null;
  return config.commit === null ? config.file : `${config.file} at ${config.commit.slice(0, 7)}`;
};

const shown = (cli: Cli, job: Job): string =>
  record([
    ['job', job.name],
    ['schedule', `${job.schedule} ${job.timezone}${job.enabled ? '' : ' (disabled)'}`],
    ['command', commandText(job)],
    ['next', job.next_runs.join(', ')],
    ['last run', lastText(cli, job)],
    ['overlap', job.overlap],
    ['time limit', `${job.timeout_seconds} s`],
    ['devices', deviceText(job.devices)],
    ['retries', String(job.retries)],
    ...(job.config === null ? [] : [['from', originText(job) ?? ''] as [string, string]]),
  ]);
