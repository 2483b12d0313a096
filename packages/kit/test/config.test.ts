import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import {
  absolutePath,
  atLeast,
  domainName,
  duration,
  emails,
  httpUrl,
  integer,
  list,
  listen,
  oneOf,
  readSettings,
  SettingsError,
  secrets,
  text,
} from '../src/config.ts';

const SHAPE = {
  PORT: { doc: 'a port', default: '80', parse: integer(1, 65_535) },
  NAME: { doc: 'a name', required: true, parse: text },
  MODE: { doc: 'a mode', parse: oneOf('one', 'two') },
} as const;

const problemsOf = (env: NodeJS.ProcessEnv): readonly string[] => {
  try {
    readSettings(SHAPE, env);
  } catch (error) {
    if (error instanceof SettingsError) return error.problems;
    throw error;
  }
  return [];
};
const file = (content: string): string => {
  const dir = mkdtempSync(path.join(tmpdir(), 'berth-config-'));
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
  writeFileSync(path.join(dir, 'value'), content);
  return path.join(dir, 'value');
};

describe('readSettings', () => {
  test('uses defaults for unset and empty variables', () => {
    expect(readSettings(SHAPE, { NAME: 'x' })).toEqual({ PORT: 80, NAME: 'x' });
    expect(readSettings(SHAPE, { NAME: 'x', PORT: '8080', MODE: 'two' })).toEqual({
      PORT: 8080,
      NAME: 'x',
      MODE: 'two',
    });
    expect(readSettings(SHAPE, { NAME: 'x', PORT: '', MODE: '' })).toEqual({ PORT: 80, NAME: 'x' });
  });

  test('an error names every problem', () => {
    const problems = problemsOf({ PORT: 'http', MODE: 'three', MODE_FILE: '' });
    expect(problems).toHaveLength(3);
    for (const name of ['PORT', 'NAME', 'MODE'])
      expect(problems.some((p) => p.startsWith(`${name}: `))).toBe(true);
  });

  test('NAME_FILE: the value is the content of the file without its last line end', () => {
    expect(readSettings(SHAPE, { NAME_FILE: file(' s3cret \n') }).NAME).toBe(' s3cret ');
    expect(readSettings(SHAPE, { NAME_FILE: file('two\nlines\r\n') }).NAME).toBe('two\nlines');
  });

  test('NAME_FILE: a missing file, a file beside the variable, and an empty file are refused', () => {
    expect(problemsOf({ NAME_FILE: '/nowhere' })).toEqual([
      expect.stringContaining('NAME_FILE: ENOENT'),
    ]);
    expect(problemsOf({ NAME: 'x', NAME_FILE: file('y') })).toEqual([
      'NAME: is set twice, as NAME and as NAME_FILE; unset one of them',
    ]);
    expect(problemsOf({ NAME_FILE: file('\n') })).toEqual([
      expect.stringMatching(/^NAME_FILE: .* is empty$/),
    ]);
  });

  test('the message names the missing variable and its meaning', () => {
    expect(() => readSettings(SHAPE, {})).toThrow('wrong settings:\n  NAME: must be set (a name)');
  });
});

describe('parsers', () => {
  test.each([
    [integer(0), '0', 0],
    [integer(1, 10), '10', 10],
    [list, 'a, b,,c ', ['a', 'b', 'c']],
    [httpUrl, 'https://x.example/a/', 'https://x.example/a'],
    [listen, '127.0.0.1:80', { host: '127.0.0.1', port: 80 }],
    [listen, '[::1]:0', { host: '::1', port: 0 }],
    [listen, ':8080', { host: '0.0.0.0', port: 8080 }],
    [duration, '900s', 900_000],
    [duration, '15m', 900_000],
    [duration, '12h', 43_200_000],
    [duration, '7d', 604_800_000],
    [duration, '250ms', 250],
    [atLeast(1_000), '1s', 1_000],
    [domainName, 'Berth.Example', 'berth.example'],
    [domainName, 'localhost', 'localhost'],
    [domainName, `${'a'.repeat(63)}.example`, `${'a'.repeat(63)}.example`],
    [emails, 'Ada@Example.test, bob@b.test,', ['ada@example.test', 'bob@b.test']],
    [emails, ',', []],
    [secrets, 'new, Old,', ['new', 'Old']],
    [absolutePath, '/var/lib/x', '/var/lib/x'],
    [absolutePath, '/var/lib/x//', '/var/lib/x'],
    [absolutePath, '/', '/'],
    [absolutePath, '//', '/'],
  ] as [(t: string) => unknown, string, unknown][])('%o accepts %j', (parse, given, expected) => {
    expect(parse(given)).toEqual(expected);
  });

  test.each([
    [integer(0), '-1'],
    [integer(0), '1.5'],
    [integer(0), '1e3'],
    [integer(0), ' 1'],
    [integer(0), '0x10'],
    [integer(1, 10), '11'],
    [integer(0), '99999999999999999999'],
    [httpUrl, 'x.example'],
    [httpUrl, 'ftp://x'],
    [httpUrl, 'https://'],
    [listen, '80'],
    [listen, '127.0.0.1'],
    [listen, '127.0.0.1:65536'],
    [listen, '::1:80'],
    [listen, 'a b:80'],
    [duration, '15'],
    [duration, '1w'],
    [duration, '-1s'],
    [oneOf('a'), 'A'],
    [atLeast(1_000), '999ms'],
    [atLeast(1_000), '1'],
    [domainName, 'https://x.example'],
    [domainName, 'x.example:80'],
    [domainName, 'x.example.'],
    [domainName, '-x.example'],
    [domainName, 'x..example'],
    [domainName, `${'a'.repeat(64)}.example`],
    [domainName, Array(49).fill('abcd').join('.')],
    [absolutePath, 'var/lib'],
    [absolutePath, '~/x'],
  ] as [(t: string) => unknown, string][])('%o refuses %j', (parse, given) => {
    expect(() => parse(given)).toThrow(/must be/);
  });

  test('emails: the error names only the invalid addresses', () => {
    expect(() => emails('ada@a.test, bob, @c.test, d@e@f')).toThrow(
      'not an e-mail address: bob, @c.test, d@e@f',
    );
  });

  test('secrets: an empty list is refused', () => {
    expect(() => secrets(' , ')).toThrow('must have at least one secret');
  });
});

describe('settingsOrExit', () => {
  const run = (read: string): { status: number | null; stdout: string; stderr: string } => {
    const script = `
      const { integer, readSettings, settingsOrExit } = await import(${JSON.stringify(path.resolve(import.meta.dirname, '../src/config.ts'))});
      const SHAPE = { PORT: { doc: 'a port', required: true, parse: integer(1) }, NAME: { doc: 'a name', required: true, parse: String } };
      console.log(JSON.stringify(settingsOrExit(() => ${read})));`;
    return spawnSync(process.execPath, ['--input-type=module', '-e', script], { encoding: 'utf8' });
  };

  test('returns valid settings', () => {
    expect(run(`readSettings(SHAPE, { PORT: '80', NAME: 'x' })`)).toMatchObject({
      status: 0,
      stdout: '{"PORT":80,"NAME":"x"}\n',
    });
  });

  test('names all wrong settings and exits with code 2', () => {
    expect(run(`readSettings(SHAPE, { PORT: 'http' })`)).toMatchObject({
      status: 2,
      stdout: '',
      stderr:
        'wrong settings:\n  PORT: must be a whole number from 1, not "http"\n  NAME: must be ' +
        'set (a name)\n',
    });
  });

  test('throws any other error, so the process exits with code 1', () => {
    const { status, stderr } = run(`{ throw new TypeError('a defect') }`);
    expect(status).toBe(1);
    expect(stderr).toContain('TypeError: a defect');
  });
});
