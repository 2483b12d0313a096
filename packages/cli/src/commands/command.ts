/** A row of the command table. Help, completion, docs/cli.md and the parser use these rows. */
import type { RouteName } from '@berth/wire/routes';
import type { Cli } from '../cli.ts';
import { usage } from '../problem.ts';

export type Argument = {
  name: string;
  doc: string;
  required?: true;
  /** The argument can be given several times. Only the last argument of a command can repeat. */
  repeats?: true;
};
export type Option = {
  /** Flags in the syntax of commander: `-n, --tail <lines>`, `--full`, `--no-auth-required`. */
  flags: string;
  doc: string;
  required?: true;
  /** The option can be given several times; the command then gets an array. */
  repeats?: true;
  choices?: readonly string[];
  /** Converts the text. An Error that it throws becomes wrong usage. */
  parse?: (text: string) => unknown;
};
export type Options = Record<string, unknown>;

export type Command = {
  /** `noun verb`, or a single word. */
  name: string;
  summary: string;
  /** More sentences for help and docs. */
  detail?: string;
  args?: readonly Argument[];
  options?: readonly Option[];
  /** The command is about one project: it has `--project`, or uses the folder's project. */
  aboutProject?: true;
  /** Routes that the command requests. */
  routes: readonly RouteName[];
  run(cli: Cli, args: readonly (string | undefined)[], options: Options): Promise<void> | void;
};

export const argument = (args: readonly (string | undefined)[], index: number): string =>
  args[index] ?? '';

/**
 * Returns the name of a variable or a secret. Refuses `NAME=value` before anything shows or sends
 * it, because names appear in URLs and logs.
 */
export function nameArgument(args: readonly (string | undefined)[], command: string): string {
  const assignment = argument(args, 0);
  const [name = '', ...value] = assignment.split('=');
  if (value.length > 0)
    throw usage(
      'the value must not be an argument',
      `berth ${command} ${name} reads it from standard input or asks for it`,
    );
  return assignment;
}

/** Options that every command has. */
export const globalOptions = (command: Command): Option[] => [
  ...(command.aboutProject === true
    ? [{ flags: '-p, --project <project>', doc: 'name or id of the project' }]
    : []),
  { flags: '--context <name>', doc: 'use this context (berth context list)' },
  { flags: '--json', doc: 'print JSON on stdout, and a failure as problem+json on stderr' },
];

/** Returns the value of an option that takes text. */
export const textOf = (options: Options, name: string): string | undefined => {
  const value = options[name];
  return typeof value === 'string' ? value : undefined;
};
