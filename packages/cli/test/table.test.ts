/** The command table covers the API: every route has a verb or a reason, and each row is usable. */
import type { Route } from '@berth/wire/route';
import { ROUTES, type RouteName } from '@berth/wire/routes';
import { describe, expect, test } from 'vitest';
import { globalOptions } from '../src/commands/command.ts';
import { COMMANDS, NO_VERB, NOUNS } from '../src/commands/table.ts';
import { person, removeHomes } from './support.ts';

removeHomes();

const used = new Set(COMMANDS.flatMap((command) => command.routes));
/** People do not call the routes of agents and of the gateway. */
const forPeople = Object.entries<Route>(ROUTES).filter(
  ([, { who }]) => who !== 'agent' && who !== 'gateway',
);

describe('every route', () => {
  test.each(forPeople)('%s has a verb or a reason for having none, and not both', (name) => {
    const route = name as RouteName;
    const reason = NO_VERB[route];
    expect({ route, decided: used.has(route) !== (reason !== undefined) }).toEqual({
      route,
      decided: true,
    });
    if (reason !== undefined) expect(reason.length).toBeGreaterThan(10);
  });
});

describe('every command', () => {
  test('has its own name, a summary, and options that differ', () => {
    expect(new Set(COMMANDS.map((c) => c.name)).size).toBe(COMMANDS.length);
    for (const command of COMMANDS) {
      expect(command.summary, command.name).toMatch(/^[A-Z]/);
      const flags = [...(command.options ?? []), ...globalOptions(command)].map(
        (o) => /--(?:no-)?[a-z-]+/.exec(o.flags)?.[0],
      );
      expect(new Set(flags).size, `${command.name}: ${flags.join(' ')}`).toBe(flags.length);
    }
  });

  test('each noun with verbs is described', () => {
    const nouns = COMMANDS.flatMap(({ name }) =>
      name
        .split(' ')
        .slice(0, -1)
        .map((_, at, words) => words.slice(0, at + 1).join(' ')),
    );
    const verbless = [...new Set(nouns)].filter((noun) => !COMMANDS.some((c) => c.name === noun));
    expect(verbless.filter((noun) => NOUNS[noun] === undefined)).toEqual([]);
    expect(Object.keys(NOUNS).filter((noun) => !nouns.includes(noun))).toEqual([]);
  });

  test('no option takes a secret: a secret comes from standard input or from the environment', () => {
    const taking = COMMANDS.flatMap((c) =>
      (c.options ?? [])
        .filter((o) => /--(password|token|secret|value|key)\b.*</.test(o.flags))
        .map((o) => `${c.name} ${o.flags}`),
    );
    expect(taking).toEqual([]);
  });
});

describe('wrong usage exits with 2 and prints nothing on stdout', () => {
  test.each([
    [['nonsense']],
    [['project', 'nonsense']],
    [['project', 'list', 'extra']],
    [['login', '--nonsense']],
    [['completion', 'tcsh']],
    [[]],
    [['project']],
  ])('berth %j', async (argv) => {
    const { code, out, err } = await person().berth(argv);
    expect({ code, out }).toEqual({ code: 2, out: '' });
    expect(err).not.toBe('');
  });

  test.each([
    ['env set', 'berth env set --help'],
    ['user create x --role nobody', 'berth user create --help'],
    ['node join-token list extra', 'berth node join-token list --help'],
    ['projects', 'berth --help'],
  ])('berth %s: the next step is the help of that command', async (line, next) => {
    const { err } = await person().berth(line.split(' '));
    expect(err.trimEnd().split('\n').at(-1)).toBe(`  next: ${next}`);
  });

  test('berth help COMMAND is its --help', async () => {
    const asked = await person().berth(['help', 'env', 'set']);
    expect(asked).toEqual(await person().berth(['env', 'set', '--help']));
    expect(asked.code).toBe(0);
  });

  // JSON has no NaN: a limit that is not a number would be sent as “no limit”.
  test.each(
    COMMANDS.flatMap(({ name, options = [] }) =>
      options
        .filter(({ flags, parse }) => flags.includes('<number>') && parse !== undefined)
        .map((option) => ({ option, what: `${name} ${option.flags}` })),
    ),
  )('$what refuses a text that is not a number', ({ option }) => {
    for (const text of ['x', '', 'NaN', 'Infinity'])
      expect(() => option.parse?.(text), text).toThrow(/must be/);
    expect(option.parse?.('3')).toBe(3);
  });

  test.each([
    [['run', 'node', 'x.js', '--detach'], 'berth run -- node x.js --detach'],
    [['run', '-p', 'shop', 'psql', '-p', '5432'], 'berth run -p shop -- psql -p 5432'],
    [['run', 'node', '--timeout=5s'], 'berth run -- node --timeout=5s'],
    [['exec', '--process', 'web', 'ls', '-la'], 'berth exec --process web -- ls -la'],
    [
      ['job', 'add', 'x', '--schedule', '@daily', 'node', '-e', '1 + 1'],
      'berth job add x --schedule @daily -- node -e "1 + 1"',
    ],
  ])('berth %j: an option after the command could be of both', async (argv, next) => {
    const { code, out, err } = await person().berth(argv);
    expect({ code, out }).toEqual({ code: 2, out: '' });
    expect(err).toContain('write -- before the command');
    expect(err).toContain(`next: ${next}\n`);
  });

  test.each([
    ['run', '--', 'node', 'x.js', '--json'],
    ['run', 'node', 'x.js'],
    ['job', 'add', 'x', '--', 'node', '--version'],
    ['process', 'set', 'x', '--count', '2'],
  ])('berth %s %s %s %s: the command is clear', async (...argv) => {
    const { err } = await person().berth(argv);
    expect(err).not.toContain('write -- before');
    expect(err, 'the option --json is that of the command').toMatch(/^berth: /);
  });

  test('with --json, the problem is one JSON document', async () => {
    const { code, err } = await person().berth(['project', 'list', 'extra', '--json']);
    expect(code).toBe(2);
    expect(JSON.parse(err)).toMatchObject({ code: 'usage', exit_code: 2 });
  });
});
