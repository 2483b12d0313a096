/** `berth exec`: a command in a container that runs. */
import { defined } from '@berth/kit/defined';
import { EXEC_CHANNELS, type ExecCreate } from '@berth/wire/exec';
import type { Cli } from '../cli.ts';
import { connect, type Connection } from '../exec/connection.ts';
import { CliError, EXIT, refused, usage } from '../problem.ts';
import { type Command, type Options, textOf } from './command.ts';
import { positive } from './number.ts';

export const EXEC_COMMANDS: readonly Command[] = [
  {
    name: 'exec',
    summary: 'Run a command in a container of a project that runs: a shell, or one command',
    detail:
      'In a terminal it opens a terminal there; with pipes, standard input, output and error are ' +
      'passed on as they are, and apart. It ends with the exit code of the command. Node ' +
      '(ALLOW_EXEC) and project (allow_exec) must allow it. Write -- before the command.',
    args: [
      {
        name: 'command',
        doc: 'program and arguments; no shell reads them',
        required: true,
        repeats: true,
      },
    ],
    options: [
      { flags: '--process <name>', doc: 'process of the project (default: web)' },
      {
        flags: '--instance <number>',
        doc: 'number of the instance (default: the first one that serves)',
        parse: positive,
      },
      { flags: '--tty', doc: 'open a terminal there (default in a terminal)' },
      { flags: '--no-tty', doc: 'use pipes (default elsewhere)' },
    ],
    aboutProject: true,
    routes: ['getProject', 'execProject'],
    async run(cli, args, options) {
      const { io } = cli;
      const command = args.flatMap((arg) => arg ?? []);
      const isTerminal = io.terminal.in && io.terminal.out;
      const tty = (options['tty'] as boolean | undefined) ?? isTerminal;
      if (tty && !io.terminal.in)
        throw usage('--tty needs a terminal at standard input', 'leave it out, or use --no-tty');
      const project = await cli.project();
      const body: ExecCreate = {
        command,
        tty,
        ...wantedOf(options),
        ...(tty ? io.pipes.size() : null),
      };
      const ticket = await cli.client().call('execProject', { params: { id: project.id }, body });
      const { pipes } = io;
      const connection = await connect(cli.session().url, ticket, {
        onData: (channel, bytes) =>
          pipes.write(channel === EXEC_CHANNELS.stderr ? 'stderr' : 'stdout', bytes),
      });
      await use(cli, connection, tty);
    },
  },
];

function wantedOf(options: Options): Pick<ExecCreate, 'process' | 'instance'> {
  const instance = options['instance'] as number | undefined;
  return defined({ process: textOf(options, 'process'), instance });
}

async function use(cli: Cli, connection: Connection, tty: boolean): Promise<void> {
  const { pipes, interrupted } = cli.io;
  if (tty) pipes.setRaw(true);
  const onInterrupt = (): void => connection.close();
  interrupted.addEventListener('abort', onInterrupt, { once: true });
  const stopReading = pipes.read(
    (bytes) => connection.send(bytes),
    () => connection.tell({ type: 'eof' }),
  );
  const stopResizing = tty
    ? pipes.onResize(() => {
        const size = pipes.size();
        if (size !== null) connection.tell({ type: 'resize', ...size });
      })
    : () => undefined;
  try {
    const end = await connection.ended;
    if (end.type === 'error') throw refused('exec_ended', end.message);
    if (end.code !== EXIT.done)
      throw new CliError(end.code, 'exited', `the command ended with exit ${end.code}`, {
        shown: true,
      });
  } catch (error) {
    if (interrupted.aborted)
      throw new CliError(EXIT.interrupted, 'interrupted', 'interrupted', { shown: true });
    throw error;
  } finally {
    interrupted.removeEventListener('abort', onInterrupt);
    stopReading();
    stopResizing();
    if (tty) pipes.setRaw(false);
  }
}
