/** The commands of bin/launch.mjs, the table of help and completion, and the help of each program name the same commands and options. */
import { expect, test } from 'vitest';
import { ON_THE_MACHINE } from '../bin/launch.mjs';
import { MACHINE_COMMANDS } from '../packages/cli/src/commands/machine.ts';
import { COMMANDS } from '../packages/cli/src/commands/table.ts';
import { machineUsage } from '../scripts/docs.ts';

const TABLE = 'packages/cli/src/commands/machine.ts';
const optionsIn = (help: string): string[] =>
  [...new Set([...help.matchAll(/(?<![\w-])--[a-z][a-z-]+/g)].map(([option]) => option))].sort();

test(`each command of bin/launch.mjs is a row of ${TABLE}, and each row a command`, () => {
  expect(Object.keys(MACHINE_COMMANDS).sort()).toEqual(Object.keys(ON_THE_MACHINE).sort());
  expect(COMMANDS.filter(({ name }) => Object.hasOwn(ON_THE_MACHINE, name.split(' ')[0] ?? ''))).toEqual([]);
});

test.each(Object.entries(MACHINE_COMMANDS))(`berth %s: its row in ${TABLE} has the options and verbs of its --help`, async (name, row) => {
  const help = await machineUsage(name);
  expect(help).toMatch(new RegExp(`^Usage: berth ${name}\\b`));
  expect(row.options.toSorted()).toEqual(optionsIn(help).filter((option) => option !== '--help'));
  for (const verb of Object.keys(row.verbs ?? {})) expect(help).toMatch(new RegExp(`\\b${verb}\\b`));
  expect(row.summary).toMatch(/^[A-Z].*[^.]$/);
  expect(row.example[0]).toMatch(new RegExp(`^berth ${name}\\b`));
});
