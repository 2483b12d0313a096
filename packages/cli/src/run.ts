/** Parses the arguments, runs the command and returns the exit code. */
import { messageOf } from '@berth/kit/message-of';
import { Command as Parser, CommanderError, Option as ParserOption } from 'commander';
import { BERTH_VERSION } from '@berth/wire/version';
import { createCli, type GlobalOptions } from './cli.ts';
import { type Command, globalOptions, type Option, type Options } from './commands/command.ts';
import { EXAMPLES } from './commands/examples.ts';
import { MACHINE_COMMANDS } from './commands/machine.ts';
import { COMMANDS, NOUNS } from './commands/table.ts';
import { complete } from './completion/complete.ts';
import type { Io } from './io.ts';
import { jsonLine, safe } from './output/text.ts';
import { CliError, EXIT, type Exit, failureOf, usage } from './problem.ts';
import { mismatchAfter } from './session/version.ts';

export async function run(given: readonly string[], io: Io): Promise<Exit> {
  // Accept `berth help deploy` like `berth deploy --help`.
  const argv = given[0] === 'help' ? [...given.slice(1), '--help'] : given;
  const outcome: { exit: Exit } = { exit: EXIT.done };
  const wantsJson = ownPart(argv).includes('--json');
  if (argv[0] === '__complete') {
    await complete(argv.slice(1), io);
    return EXIT.done;
  }
  try {
    refuseUnclear(argv);
    await createParser(argv, io).parseAsync([...argv], { from: 'user' });
  } catch (error) {
    outcome.exit = report(
      error instanceof CommanderError ? ofParser(error, argv) : error,
      io,
      wantsJson,
    );
  }
  return outcome.exit;
}

/** Converts an error of the parser. Returns undefined if the parser printed help or the version. */
function ofParser(error: CommanderError, argv: readonly string[]): unknown {
  if (error.exitCode === 0) return undefined;
  // The noun has no verb, and the parser has already printed its help.
  if (error.code === 'commander.help')
    return new CliError(EXIT.usage, 'usage', 'a verb is missing', { shown: true });
  return usage(
    error.message.replace(/^error: /, '').replaceAll('\n', ' '),
    `${['berth', ...nameIn(argv)].join(' ')} --help`,
  );
}

/** Returns the words of `argv` that form a command name; empty if the first word is unknown. */
function nameIn(argv: readonly string[]): string[] {
  const isName = (words: readonly string[]): boolean =>
    COMMANDS.some((c) => `${c.name} `.startsWith(`${words.join(' ')} `));
  const end = argv.findIndex((_, at) => !isName(argv.slice(0, at + 1)));
  return argv.slice(0, end < 0 ? argv.length : end);
}

/** Returns what stands before `--`: the rest belongs to the command that Berth shall run. */
function ownPart(argv: readonly string[]): readonly string[] {
  const end = argv.indexOf('--');
  return end < 0 ? argv : argv.slice(0, end);
}

/**
 * Refuses `berth run psql -p 5432`, where `-p` could be an option of both programs. Without `--`, the
 * parser would take it as ours, and the command would run with other arguments than those typed.
 */
function refuseUnclear(argv: readonly string[]): void {
  const name = nameIn(argv);
  const command = COMMANDS.find((c) => c.name === name.join(' '));
  const last = command?.args?.at(-1);
  if (command === undefined || last?.repeats !== true || last.name !== 'command') return;
  const before = (command.args?.length ?? 1) - 1;
  const options = [...(command.options ?? []), ...globalOptions(command)];
  const withValue = new Set(
    options.filter(({ flags }) => flags.includes('<')).flatMap(({ flags }) => flags.split(/[ ,]+/)),
  );
  const own = ownPart(argv);
  let start: number | undefined;
  for (let at = name.length, words = 0; at < own.length; at++) {
    const text = own[at] ?? '';
    if (!/^-./.test(text)) {
      if (words++ === before) start = at;
    } else if (text === '--help' || text === '-h') return;
    else if (start !== undefined) {
      const typed = [...own.slice(0, start), '--', ...argv.slice(start)];
      throw usage(
        `write -- before the command: “${text}” could be an option of berth or of ${own[start]}`,
        [
          'berth',
          ...typed.map((word) => (/[\s"']|^$/.test(word) ? JSON.stringify(word) : word)),
        ].join(' '),
      );
    } else if (withValue.has(text)) at++;
  }
}

function report(error: unknown, io: Io, json: boolean): Exit {
  if (error === undefined) return EXIT.done;
  const { exit, lines, problem } = failureOf(error);
  if (json) io.err(`${jsonLine(problem)}\n`);
  else if (lines.length > 0) io.err(`berth: ${lines.map((line) => safe(line)).join('\n  ')}\n`);
  return exit;
}

function createParser(argv: readonly string[], io: Io): Parser {
  const silent = ownPart(argv).includes('--json');
  const program = new Parser('berth')
    .description('Deploy projects from a git repository to a live address.')
    .version(BERTH_VERSION, '-v, --version', 'print the version of the command line')
    .helpOption('-h, --help', 'print this help')
    .helpCommand(false)
    .showSuggestionAfterError(true)
    // Give options after the command name to the command: `dataset history --version 7` must not
    // print the program's version.
    .enablePositionalOptions()
    .exitOverride()
    .configureOutput({
      writeOut: (text) => io.out(text),
      writeErr: (text) => void (silent || text.startsWith('error:') || io.err(text)),
    });
  program.addHelpText('after', `\n${machineHelp()}`);
  program.addHelpText(
    'after',
    '\nProcesses of Berth: berth control-plane|gateway|agent|proxy|relay (docs/settings.md)',
  );
  const [noun] = argv;
  const wanted = COMMANDS.filter((command) => command.name.split(' ')[0] === noun);
  for (const command of wanted.length > 0 ? wanted : COMMANDS) addCommand(program, command, io);
  return program;
}

/** Lists the commands of `bin/launch.mjs` for the help; they never reach this parser. */
function machineHelp(): string {
  const rows = Object.entries(MACHINE_COMMANDS).map(
    ([name, { summary }]) => `  ${name.padEnd(10)}${summary}`,
  );
  return ['On a machine of Berth (berth help COMMAND):', ...rows].join('\n');
}

function addCommand(program: Parser, command: Command, io: Io): void {
  const words = command.name.split(' ');
  const parser = words.reduce((parent, word, depth) => {
    const existing = parent.commands.find((c) => c.name() === word);
    if (existing !== undefined) return existing;
    const isLeaf = depth === words.length - 1;
    const made = parent
      .command(word)
      .description(isLeaf ? command.summary : (NOUNS[words.slice(0, depth + 1).join(' ')] ?? ''));
    made.helpCommand(false);
    return made;
  }, program);
  parser.description(command.summary);
  const [line, meaning] = EXAMPLES[command.name] ?? [];
  const notes = [
    command.detail,
    line === undefined ? undefined : `Example, which ${meaning}:\n  ${line}`,
  ].filter((note) => note !== undefined);
  if (notes.length > 0) parser.addHelpText('after', `\n${notes.join('\n\n')}`);
  for (const { name, doc, required, repeats } of command.args ?? []) {
    const shown = repeats === true ? `${name}...` : name;
    parser.argument(required === true ? `<${shown}>` : `[${shown}]`, doc);
  }
  parser.allowExcessArguments(false);
  for (const option of [...(command.options ?? []), ...globalOptions(command)])
    parser.addOption(optionOf(option));
  parser.action(async (...given: unknown[]) => {
    const args = given.slice(0, command.args?.length ?? 0).flat() as (string | undefined)[];
    const options = given[command.args?.length ?? 0] as Options & GlobalOptions;
    const cli = createCli(io, options);
    // Check here: the parser would also demand the option from subcommands.
    const missing = (command.options ?? []).find(
      (o) => o.required === true && options[optionOf(o).attributeName()] === undefined,
    );
    if (missing !== undefined)
      throw usage(`the option ${missing.flags} must be given`, `berth ${command.name} --help`);
    try {
      await command.run(cli, args, options);
    } catch (error) {
      throw await mismatchAfter(error, cli);
    }
  });
}

function optionOf({ flags, doc, repeats, choices, parse }: Option): ParserOption {
  const option = new ParserOption(flags, doc);
  if (choices !== undefined) option.choices(choices);
  if (repeats === true)
    option.argParser((text: string, before: string[] | undefined) => [...(before ?? []), text]);
  else if (parse !== undefined)
    option.argParser((text) => {
      try {
        return parse(text);
      } catch (error) {
        throw usage(`option ${flags}: ${messageOf(error)}`);
      }
    });
  return option;
}
