/** Whether the command line has a command that a page shows. */
import type { Command } from '../packages/cli/src/commands/command.ts';
import { globalOptions } from '../packages/cli/src/commands/command.ts';
import { MACHINE_COMMANDS } from '../packages/cli/src/commands/machine.ts';
import { COMMANDS } from '../packages/cli/src/commands/table.ts';

/** Returns what is wrong with the words after `berth`; null: nothing. */
export function commandProblem(words: readonly string[]): string | null {
  const machine = MACHINE_COMMANDS[words[0] ?? ''];
  if (machine !== undefined) {
    const rest = words.slice(1);
    const unknown = rest.find((word) =>
      word.startsWith('-') ? !machine.options.includes(word) : machine.verbs?.[word] === undefined,
    );
    return unknown === undefined ? null : `${words[0]} has no ${unknown}`;
  }
  const command = COMMANDS.filter(({ name }) =>
    name.split(' ').every((word, i) => word === words[i]),
  ).toSorted((a, b) => b.name.length - a.name.length)[0];
  return command === undefined
    ? 'there is no such command'
    : wordsProblem(command, words.slice(command.name.split(' ').length));
}

function wordsProblem(command: Command, words: readonly string[]): string | null {
  const options = [...(command.options ?? []), ...globalOptions(command)];
  let given = 0;
  for (let i = 0; i < words.length; i++) {
    const word = words[i] ?? '';
    // The words after it are arguments, such as the command of a run.
    if (word === '--') {
      given += words.length - i - 1;
      break;
    }
    if (!word.startsWith('-')) {
      given += 1;
      continue;
    }
    const option = options.find(({ flags }) => flags.split(/[ ,]+/).includes(word));
    if (option === undefined) return `${command.name} has no option ${word}`;
    if (option.flags.includes('<')) i += 1;
    if (option.choices !== undefined && !option.choices.includes(words[i] ?? ''))
      return `${word} cannot be ${words[i] ?? ''}`;
  }
  const args = command.args ?? [];
  const least = args.filter(({ required }) => required === true).length;
  const most = args.some(({ repeats }) => repeats === true) ? Infinity : args.length;
  return given >= least && given <= most
    ? null
    : `${command.name} takes ${least} to ${args.length} arguments, not ${given}`;
}
