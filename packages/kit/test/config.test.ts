import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { duration, httpUrl, integer, list, listen, oneOf, readSettings, SettingsError, text } from '../src/config.ts';

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

describe('reading', () => {
  test('defaults, values, and what is not set', () => {
    expect(readSettings(SHAPE, { NAME: 'x' })).toEqual({ PORT: 80, NAME: 'x' });
    expect(readSettings(SHAPE, { NAME: 'x', PORT: '8080', MODE: 'two' })).toEqual({ PORT: 8080, NAME: 'x', MODE: 'two' });
    expect(readSettings(SHAPE, { NAME: 'x', PORT: '', MODE: '' })).toEqual({ PORT: 80, NAME: 'x' });
  });

  test('every problem is named at once', () => {
    const problems = problemsOf({ PORT: 'http', MODE: 'three', MODE_FILE: '' });
    expect(problems).toHaveLength(3);
    for (const name of ['PORT', 'NAME', 'MODE']) expect(problems.some((p) => p.startsWith(`${name}: `))).toBe(true);
  });

  test('NAME_FILE: the value of a file without its line end', () => {
    expect(readSettings(SHAPE, { NAME_FILE: file(' s3cret \n') }).NAME).toBe(' s3cret ');
    expect(readSettings(SHAPE, { NAME_FILE: file('two\nlines\r\n') }).NAME).toBe('two\nlines');
  });

  test('NAME_FILE: a file that is not there, one beside the variable, and an empty one', () => {
    expect(problemsOf({ NAME_FILE: '/nowhere' })).toEqual([expect.stringContaining('NAME_FILE: ENOENT')]);
    expect(problemsOf({ NAME: 'x', NAME_FILE: file('y') })).toEqual(['NAME: given twice, as NAME and NAME_FILE']);
    expect(problemsOf({ NAME_FILE: file('\n') })).toEqual([expect.stringMatching(/^NAME_FILE: .* is empty$/)]);
  });

  test('a secret in a wrong value is not the test’s business, but the message names the variable', () => {
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
  ] as [(t: string) => unknown, string, unknown][])('%o takes %j', (parse, given, expected) => {
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
  ] as [(t: string) => unknown, string][])('%o refuses %j', (parse, given) => {
    expect(() => parse(given)).toThrow(/must be/);
  });
});
