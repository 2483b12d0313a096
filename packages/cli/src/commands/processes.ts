/** Commands for processes: the ways to start the image of a project. */
import { defined } from '@berth/kit/defined';
import { type Process, type Project, WEB } from '@berth/wire/project';
import { REPLACE_MODES, type ReplaceMode } from '@berth/wire/vocabulary';
import { confirmed } from '../ask.ts';
import { type Column, safe, table } from '../output/text.ts';
import { refused, usage } from '../problem.ts';
import { changeProject } from '../project/change.ts';
import { argument, type Command, type Options } from './command.ts';
import { bytes, commandText } from './runs.ts';
import { cpuCount, wholeNumber } from './number.ts';

const PROCESS_ARG = { name: 'process', doc: 'name of the process', required: true } as const;
const NEXT = 'takes effect with the next deployment: berth deploy';

export const PROCESS_COMMANDS: readonly Command[] = [
  {
    name: 'process list',
    summary: 'List the processes of a project: command, count and start rule',
    args: [{ name: 'project', doc: 'name or id; default: the project of this folder' }],
    aboutProject: true,
    routes: ['getProject'],
    async run(cli, [named]) {
      const { processes: items } = await cli.project(named);
      cli.print({ items }, () => table(items, COLUMNS));
    },
  },
  {
    name: 'process set',
    summary: 'Add or change a process, such as a worker beside web',
    detail:
      'Write -- before the command, which replaces that of the image. What you leave out stays as ' +
      'it is. The process starts with the next deployment. A count changes at once if the process ' +
      'runs already, as with berth scale.',
    args: [
      PROCESS_ARG,
      { name: 'command', doc: 'the program and its arguments, after --', repeats: true },
    ],
    options: [
      { flags: '--count <number>', doc: 'number of instances (default 1)', parse: wholeNumber },
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
      {
        flags: '--replace <replace>',
        doc: 'rolling: new instances start before the old ones stop; recreate: after that',
        choices: REPLACE_MODES,
      },
    ],
    aboutProject: true,
    routes: ['getProject', 'patchProject'],
    async run(cli, [name = '', ...command], options) {
      const changes = fieldsIn(command, options);
      let before: Process | undefined;
      const project = await changeProject(cli, async ({ processes }) => {
        const present = (before = processes.find((one) => one.name === name));
        if (present !== undefined && Object.keys(changes).length === 0)
          throw usage('nothing was given to change', 'berth process set --help');
        return { processes: withProcess(processes, { ...(present ?? { name }), ...changes }) };
      });
      cli.print(
        project,
        () =>
          `${name}: ${textOf(project, name)}; ${whenOf(project, before, changes)} ${project.name}`,
      );
    },
  },
  {
    name: 'process remove',
    summary: 'Remove a process from a project',
    args: [PROCESS_ARG],
    options: [{ flags: '-y, --yes', doc: 'do not ask' }],
    aboutProject: true,
    routes: ['getProject', 'patchProject'],
    async run(cli, args, { yes }) {
      const name = argument(args, 0);
      await confirmed(cli.io, yes === true, `Remove process ${name}?`);
      const project = await changeProject(cli, async ({ processes }) => {
        const others = processes.filter((one) => one.name !== name);
        if (others.length === processes.length)
          throw refused('not_found', `the project has no process ${name}`, 'berth process list');
        return { processes: others };
      });
      cli.print(
        project,
        () => `${name} ends with the next deployment: berth deploy ${project.name}`,
      );
    },
  },
];

const fieldsIn = (command: readonly (string | undefined)[], options: Options): Partial<Process> =>
  defined({
    command: command.length === 0 ? undefined : command.map((word) => word ?? ''),
    count: options['count'] as number | undefined,
    memory_bytes: options['memory'] as number | undefined,
    cpus: options['cpus'] as number | undefined,
    replace: options['replace'] as ReplaceMode | undefined,
  });

/** A count is not part of a release: the running version takes it at once. */
function whenOf(
  { stopped_by_person, running_deployment_id }: Project,
  before: Process | undefined,
  { count, ...others }: Partial<Process>,
): string {
  const isSame = before === undefined || count === undefined || count === (before.count ?? 1);
  if (isSame || running_deployment_id === null) return NEXT;
  const was = `the count (it was ${before.count ?? 1}) changes`;
  if (stopped_by_person) return `${was} when the project starts: berth start`;
  return Object.keys(others).length === 0
    ? `${was} at once; see: berth ps`
    : `${was} at once, everything else with the next deployment: berth deploy`;
}

const withProcess = (processes: readonly Process[], changed: Process): Process[] =>
  processes.some(({ name }) => name === changed.name)
    ? processes.map((one) => (one.name === changed.name ? changed : one))
    : [...processes, changed];

const commandOf = ({ command = null }: Process): string =>
  command === null ? 'the command of the image' : safe(commandText({ command }));

function textOf({ processes }: Project, name: string): string {
  const one = processes.find((process) => process.name === name);
  return one === undefined ? 'removed meanwhile' : `${one.count ?? 1} of ${commandOf(one)}`;
}

const COLUMNS: Column<Process>[] = [
  { head: 'process', of: ({ name }) => name },
  { head: 'count', of: ({ count = 1 }) => String(count) },
  {
    head: 'replace',
    of: ({ name, replace }) => replace ?? (name === WEB ? 'as the project' : 'recreate'),
  },
  { head: 'command', of: commandOf },
];
