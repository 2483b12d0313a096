import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { secrets, text } from '../src/config.ts';
import { createLogger } from '../src/log.ts';
import { createReloading } from '../src/reload.ts';

const SHAPE = {
  KEY: { doc: 'a secret', parse: secrets },
  OTHER: { doc: 'another secret', parse: secrets },
  ADDRESS: { doc: 'no secret', parse: text },
} as const;

let dir: string;
let lines: Record<string, unknown>[];
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'reload-'));
  lines = [];
  onTestFinished(() => rmSync(dir, { recursive: true }));
});

const put = (name: string, content: string): void => writeFileSync(join(dir, name), content);
const log = createLogger({
  name: 'test',
  level: 'info',
  format: 'json',
  destination: { write: (line) => void lines.push(JSON.parse(line) as Record<string, unknown>) },
});
const messages = (): unknown[] => lines.map(({ msg }) => msg);

function start() {
  const before = new Set(process.listeners('SIGHUP'));
  const reloading = createReloading(
    SHAPE,
    Object.fromEntries(Object.keys(SHAPE).map((name) => [`${name}_FILE`, join(dir, name)])),
    () => log,
  );
  const [own] = process.listeners('SIGHUP').filter((listener) => !before.has(listener));
  onTestFinished(() => void (own !== undefined && process.off('SIGHUP', own)));
  return reloading;
}
function written() {
  put('KEY', 'one\n');
  put('OTHER', 'two\n');
  put('ADDRESS', 'here');
  const taken: Record<string, string[][]> = { KEY: [], OTHER: [] };
  const replace = {
    KEY: (value: string[]) => void taken['KEY']?.push(value),
    OTHER: (value: string[]) => void taken['OTHER']?.push(value),
  };
  return { taken, replace };
}

test('a changed file replaces its setting, and the log names it without its value', async () => {
  const { taken, replace } = written();
  const reloading = start();
  reloading.ready(replace);
  put('KEY', 'new-value, one\n');
  await reloading.reload();
  expect(taken).toEqual({ KEY: [['new-value', 'one']], OTHER: [] });
  expect(lines).toEqual([
    expect.objectContaining({ settings: ['KEY'], msg: 'secrets replaced without a restart' }),
  ]);
  expect(JSON.stringify(lines)).not.toContain('new-value');
  await reloading.reload();
  expect(taken['KEY']).toHaveLength(1);
  expect(messages().at(-1)).toBe('settings read again: nothing changed');
});

describe('a bad file keeps the value, and others are replaced', () => {
  test.each([
    ['empty', '', 'is empty'],
    ['only a newline', '\n', 'is empty'],
    ['only commas', ',,\n', 'must have at least one secret'],
    ['two lines', 'secret-a\nsecret-b\n', 'line break'],
    ['missing', null, 'ENOENT'],
  ])('%s', async (_, content, rule) => {
    const { taken, replace } = written();
    const reloading = start();
    reloading.ready(replace);
    if (content === null) rmSync(join(dir, 'KEY'));
    else put('KEY', content);
    put('OTHER', 'three,two,\n');
    await reloading.reload();
    expect(taken).toEqual({ KEY: [], OTHER: [['three', 'two']] });
    expect(lines[0]).toMatchObject({
      level: 50,
      setting: 'KEY',
      rule: expect.stringContaining(rule) as string,
    });
    expect(JSON.stringify(lines)).not.toMatch(/secret-[ab]/);
    put('KEY', 'four');
    await reloading.reload();
    expect(taken['KEY']).toEqual([['four']]);
  });

  test('a value that the process cannot use', async () => {
    const { taken, replace } = written();
    const reloading = start();
    reloading.ready({ ...replace, KEY: () => Promise.reject(new Error('lacks a key')) });
    put('KEY', 'new');
    put('OTHER', 'new');
    await reloading.reload();
    expect(taken['OTHER']).toEqual([['new']]);
    expect(lines[0]).toMatchObject({ setting: 'KEY', rule: 'lacks a key' });
  });
});

test('a setting that needs a restart is named', async () => {
  const { replace } = written();
  const reloading = start();
  reloading.ready(replace);
  put('ADDRESS', 'there');
  await reloading.reload();
  expect(lines).toEqual([
    expect.objectContaining({
      settings: ['ADDRESS'],
      msg: 'settings changed that take effect at the next start',
    }),
  ]);
});

test('a signal during the start is kept, a storm of signals costs two reloads, and one after the end costs none', async () => {
  const { taken, replace } = written();
  const reloading = start();
  put('KEY', 'new');
  process.emit('SIGHUP');
  let reloads = 0;
  reloading.ready(replace, () => void (reloads += 1));
  await reloading.reload();
  expect(taken['KEY']).toEqual([['new']]);
  reloads = 0;
  let release = (): void => {};
  reloading.ready(
    { ...replace, KEY: () => new Promise<void>((resolve) => (release = resolve)) },
    () => void (reloads += 1),
  );
  put('KEY', 'newer');
  for (let i = 0; i < 100; i++) process.emit('SIGHUP');
  const last = reloading.reload();
  await new Promise((resolve) => setImmediate(resolve));
  for (let i = 0; i < 100; i++) process.emit('SIGHUP');
  release();
  await last;
  await reloading.reload();
  expect(reloads).toBeLessThanOrEqual(3);
  reloading.close();
  const before = reloads;
  process.emit('SIGHUP');
  await reloading.reload();
  expect(reloads).toBe(before);
});
