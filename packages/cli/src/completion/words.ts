/**
 * Finds the words that can come next in a command line. Pure: uses only the command table; names.ts
 * reads the names that the server knows.
 */
import { type MachineCommand, MACHINE_COMMANDS } from '../commands/machine.ts';
import { type Argument, type Command, globalOptions, type Option } from '../commands/command.ts';

export type Candidate = { word: string; doc: string };
/**
 * `names`: the argument or option at the cursor whose values are names that the server might know.
 */
export type Possible = { candidates: Candidate[]; names: Wanted | null };
export type Wanted = {
  command: Command;
  value: string;
  args: string[];
  project: string | undefined;
};

const PROCESSES = ['control-plane', 'gateway', 'agent', 'proxy', 'relay'];
const HELP: Option = { flags: '-h, --help', doc: 'print help' };
const SHELLS = ['bash', 'zsh', 'fish'];

const longOf = ({ flags }: Option): string => /--[a-z-]+/.exec(flags)?.[0] ?? '';
const shortOf = ({ flags }: Option): string | undefined => /^-[a-zA-Z]\b/.exec(flags)?.[0];
const needsValue = ({ flags }: Option): boolean => flags.includes('<');
const mayHaveValue = ({ flags }: Option): boolean => flags.includes('[');

/** `words`: the words after `berth`, up to the cursor. The last word can be empty. */
export function possible(
  commands: readonly Command[],
  nouns: Readonly<Record<string, string>>,
  words: readonly string[],
): Possible {
  const current = words.at(-1) ?? '';
  const machine = words.length < 2 ? undefined : ownOf(MACHINE_COMMANDS, words[0] ?? '');
  if (machine !== undefined) return ofMachine(machine, words.slice(1, -1), current);
  const path: string[] = [];
  const args: string[] = [];
  let project: string | undefined;
  let open: Option | undefined;
  let optional: Option | undefined;
  const used = new Set<string>();
  const isPath = (words: readonly string[]): boolean =>
    commands.some((c) => `${c.name} `.startsWith(`${words.join(' ')} `));
  const commandAt = (): Command | undefined => commands.find((c) => c.name === path.join(' '));
  const optionsHere = (): Option[] => {
    const command = commandAt();
    return command === undefined
      ? [HELP]
      : [...(command.options ?? []), ...globalOptions(command), HELP];
  };
  const find = (word: string): Option | undefined =>
    optionsHere().find((o) => longOf(o) === word || shortOf(o) === word);

  for (const word of words.slice(0, -1)) {
    if (open !== undefined) {
      if (longOf(open) === '--project') project = word;
      open = undefined;
    } else if (word.startsWith('-')) {
      const [name = '', value] = word.split(/=(.*)/s);
      const option = find(name);
      optional = undefined;
      if (option === undefined) continue;
      used.add(longOf(option));
      if (value === undefined && needsValue(option)) open = option;
      else if (value === undefined && mayHaveValue(option)) optional = option;
      if (longOf(option) === '--project' && value !== undefined) project = value;
    } else if (optional !== undefined) optional = undefined;
    else if (args.length === 0 && isPath([...path, word])) path.push(word);
    else args.push(word);
  }

  const command = commandAt();
  const about = (value: string): Wanted | null =>
    command === undefined ? null : { command, value, args, project };
  if (open !== undefined) return valuesOf(open, '', current, about);
  const assigned = /^(--[a-z-]+)=(.*)$/s.exec(current);
  if (assigned !== null) {
    const option = find(assigned[1] ?? '');
    return option === undefined
      ? { candidates: [], names: null }
      : valuesOf(option, `${assigned[1]}=`, current, about);
  }
  if (current.startsWith('-')) {
    const free = optionsHere().filter(
      (option) => option.repeats === true || !used.has(longOf(option)),
    );
    return {
      candidates: matching(
        current,
        free.map((option) => ({ word: longOf(option), doc: option.doc })),
      ),
      names: null,
    };
  }
  const values = optional === undefined ? [] : valuesOf(optional, '', current, about).candidates;
  const verbs = args.length > 0 ? [] : next(commands, nouns, path);
  const argument = command?.args?.[args.length] ?? repeated(command);
  const candidates = [...values, ...matching(current, [...verbs, ...fixed(command, argument)])];
  return { candidates, names: argument === undefined ? null : about(argument.name) };
}

function next(
  commands: readonly Command[],
  nouns: Readonly<Record<string, string>>,
  path: readonly string[],
): Candidate[] {
  const before = path.length === 0 ? '' : `${path.join(' ')} `;
  const summaries = new Map<string, string>();
  for (const { name, summary } of commands) {
    if (!name.startsWith(before)) continue;
    const [word = '', ...rest] = name.slice(before.length).split(' ');
    if (rest.length === 0) summaries.set(word, summary);
    else if (!summaries.has(word)) summaries.set(word, nouns[`${before}${word}`] ?? '');
  }
  if (path.length === 0) {
    for (const [name, { summary }] of Object.entries(MACHINE_COMMANDS))
      summaries.set(name, summary);
    for (const process of PROCESSES) summaries.set(process, 'a process of Berth');
  }
  return [...summaries].map(([word, doc]) => ({ word, doc }));
}

const ownOf = <T>(table: Readonly<Record<string, T>>, name: string): T | undefined =>
  Object.hasOwn(table, name) ? table[name] : undefined;

function ofMachine(
  { verbs = {}, options }: MachineCommand,
  before: readonly string[],
  current: string,
): Possible {
  const flags = [...options, '--help']
    .filter((option) => !before.includes(option))
    .map((word) => ({ word, doc: '' }));
  const words = before.some((word) => !word.startsWith('-'))
    ? []
    : Object.entries(verbs).map(([word, doc]) => ({ word, doc }));
  return { candidates: matching(current, current.startsWith('-') ? flags : words), names: null };
}

const fixed = (command: Command | undefined, argument: Argument | undefined): Candidate[] =>
  command?.name === 'completion' && argument !== undefined
    ? SHELLS.map((word) => ({ word, doc: '' }))
    : [];

function valuesOf(
  option: Option,
  before: string,
  current: string,
  about: (value: string) => Wanted | null,
): Possible {
  const placeholder = /[<[]([^>\]]+)[>\]]/.exec(option.flags)?.[1] ?? '';
  const words = option.choices ?? (placeholder === 'yes|no' ? ['yes', 'no'] : []);
  const candidates = matching(
    current,
    words.map((word) => ({ word: `${before}${word}`, doc: '' })),
  );
  // After `--option=`, offer only fixed values: a name would need the option as a prefix, and
  // shells treat that prefix differently.
  return { candidates, names: words.length > 0 || before !== '' ? null : about(longOf(option)) };
}

export const matching = (current: string, candidates: readonly Candidate[]): Candidate[] =>
  candidates.filter(({ word }) => word.startsWith(current));

/** Returns the last argument if it can be given several times. */
const repeated = (command: Command | undefined): Argument | undefined => {
  const last = command?.args?.at(-1);
  return last?.repeats === true ? last : undefined;
};
