/**
 * The files of a rotation, without processes: `--no-reload`. The rotation with real processes is
 * test/e2e/rotate.test.ts.
 */
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { findCopies, writeCopy } from '../../src/rotate/copies.ts';
import { SECRETS } from '../../src/rotate/names.ts';
import type { ReadRotation } from '../../src/rotate/processes.ts';
import { runRotate } from '../../src/rotate/run.ts';

const readRotation = vi.fn<ReadRotation>();

let etc: string;
let printed: string;
beforeEach(() => {
  etc = mkdtempSync(join(tmpdir(), 'berth-etc-'));
  printed = '';
  readRotation.mockReset().mockResolvedValue({
    control_planes: [],
    gateways: [],
    senders: [],
    signed: [],
    nodes: [],
    project_keys: {},
  });
  const spies = [process.stdout, process.stderr].map((stream) =>
    vi.spyOn(stream, 'write').mockImplementation((text) => {
      printed += String(text);
      return true;
    }),
  );
  onTestFinished(() => {
    for (const spy of spies) spy.mockRestore();
    rmSync(etc, { recursive: true });
  });
});

const OLD = 'o'.repeat(32);
const pathOf = (process: string, setting: string): string => join(etc, 'secrets', process, setting);
function put(process: string, setting: string, text: string): string {
  const path = pathOf(process, setting);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text, { mode: 0o600 });
  return path;
}
const valuesOf = (process: string, setting: string): string[] =>
  readFileSync(pathOf(process, setting), 'utf8').trim().split(',');
const rotate = (...args: string[]): Promise<number> =>
  runRotate([...args, '--etc', etc, '--no-reload'], readRotation);

test('puts one new value in front of every copy, and keeps mode and the earlier value; --finish removes it', async () => {
  put('control-plane', 'GATEWAY_SECRET', `${OLD}\n`);
  chmodSync(put('gateway', 'GATEWAY_SECRET', OLD), 0o640);
  expect(await rotate('gateway')).toBe(0);
  const [fresh, ...rest] = valuesOf('control-plane', 'GATEWAY_SECRET');
  expect(rest).toEqual([OLD]);
  expect(fresh).toMatch(/^[0-9a-f]{64}$/);
  expect(valuesOf('gateway', 'GATEWAY_SECRET')).toEqual([fresh, OLD]);
  expect(statSync(pathOf('gateway', 'GATEWAY_SECRET')).mode & 0o777).toBe(0o640);
  expect(printed).not.toContain(fresh);

  expect(await rotate('gateway')).toBe(1);
  expect(printed).toContain('is not finished');
  expect(await rotate('gateway', '--again')).toBe(0);
  expect(valuesOf('gateway', 'GATEWAY_SECRET').slice(1)).toEqual([fresh, OLD]);

  const [newest] = valuesOf('gateway', 'GATEWAY_SECRET');
  expect(await rotate('gateway', '--finish')).toBe(0);
  expect([
    valuesOf('gateway', 'GATEWAY_SECRET'),
    valuesOf('control-plane', 'GATEWAY_SECRET'),
  ]).toEqual([[newest], [newest]]);
  expect(readdirSync(etc)).toEqual(['secrets']);
});

test('a link in place of a secret is named, and the file behind it stays', async () => {
  const victim = join(etc, 'victim');
  writeFileSync(victim, OLD, { mode: 0o640 });
  symlinkSync(
    victim,
    put('gateway', 'GATEWAY_SECRET', OLD).replace('GATEWAY_SECRET', 'SESSION_SECRET'),
  );
  expect(await rotate('session')).toBe(1);
  expect(printed).toContain(`${pathOf('gateway', 'SESSION_SECRET')} is a symbolic link`);
  expect([readFileSync(victim, 'utf8'), statSync(victim).mode & 0o777]).toEqual([OLD, 0o640]);
  expect(() =>
    writeCopy({ process: 'gateway', path: pathOf('gateway', 'SESSION_SECRET'), values: [OLD] }, [
      OLD,
      'n'.repeat(32),
    ]),
  ).toThrow('is a symbolic link');
});

test('a link in place of a secret that the control plane made is named', async () => {
  const state = join(etc, 'state');
  mkdirSync(state);
  writeFileSync(join(etc, 'victim'), OLD);
  symlinkSync(join(etc, 'victim'), join(state, 'jwt-secret'));
  writeFileSync(join(etc, 'control-plane.env'), `DATABASE_URL=sqlite:${join(state, 'berth.db')}\n`);
  expect(await rotate('jwt')).toBe(1);
  expect(printed).toContain(`${join(state, 'jwt-secret')} is a symbolic link`);
  expect(readFileSync(join(etc, 'victim'), 'utf8')).toBe(OLD);
});

describe('goes on after an interruption', () => {
  test.each([
    ['before the first file', []],
    ['after the first file', ['control-plane']],
    ['after both', ['control-plane', 'gateway']],
  ])('%s', async (_, added) => {
    put('control-plane', 'GATEWAY_SECRET', OLD);
    put('gateway', 'GATEWAY_SECRET', OLD);
    expect(await rotate('gateway')).toBe(0);
    const [fresh = ''] = valuesOf('gateway', 'GATEWAY_SECRET');
    for (const process of ['control-plane', 'gateway'])
      put(process, 'GATEWAY_SECRET', added.includes(process) ? `${OLD},${fresh}\n` : `${OLD}\n`);
    expect(await rotate('gateway')).toBe(0);
    const [next, ...rest] = valuesOf('control-plane', 'GATEWAY_SECRET');
    expect(rest).toEqual([OLD]);
    expect(valuesOf('gateway', 'GATEWAY_SECRET')).toEqual([next, OLD]);
    expect(next === fresh).toBe(added.length > 0);
  });

  test('between the two files of --finish', async () => {
    put('control-plane', 'GATEWAY_SECRET', OLD);
    put('gateway', 'GATEWAY_SECRET', OLD);
    expect(await rotate('gateway')).toBe(0);
    const [fresh = ''] = valuesOf('gateway', 'GATEWAY_SECRET');
    put('control-plane', 'GATEWAY_SECRET', `${fresh}\n`);
    expect(await rotate('gateway', '--finish')).toBe(0);
    expect(valuesOf('gateway', 'GATEWAY_SECRET')).toEqual([fresh]);
  });
});

test('--finish refuses while something uses the earlier value, names it, and changes nothing; --force says what breaks', async () => {
  put('gateway', 'SESSION_SECRET', OLD);
  expect(await rotate('session')).toBe(0);
  const both = valuesOf('gateway', 'SESSION_SECRET');
  const { fingerprintOf } = await import('@berth/kit/fingerprint');
  const until = new Date(Date.now() + 60_000).toISOString();
  const signed = [
    {
      setting: 'SESSION_SECRET' as const,
      fingerprint: fingerprintOf('SESSION_SECRET', OLD),
      until,
    },
  ];
  readRotation.mockResolvedValue({
    control_planes: [],
    gateways: [],
    senders: [],
    signed,
    nodes: [],
    project_keys: {},
  });
  expect(await rotate('session', '--finish')).toBe(1);
  expect(printed).toContain(`sessions of people that the earlier value signed: until ${until}`);
  expect(valuesOf('gateway', 'SESSION_SECRET')).toEqual(both);
  expect(await rotate('session', '--finish', '--force')).toBe(0);
  expect(printed).toContain('everybody who signed in with the earlier value signs in again');
  expect(valuesOf('gateway', 'SESSION_SECRET')).toEqual([both[0]]);
});

test('--force never drops a key that wraps project keys', async () => {
  put('control-plane', 'SECRETS_KEY', `${Buffer.alloc(32, 1).toString('base64')}\n`);
  expect(await rotate('secrets')).toBe(0);
  const both = valuesOf('control-plane', 'SECRETS_KEY');
  readRotation.mockResolvedValue({
    control_planes: [],
    gateways: [],
    senders: [],
    signed: [],
    nodes: [],
    project_keys: { old: 2 },
  });
  expect(await rotate('secrets', '--finish', '--force')).toBe(1);
  expect(printed).toContain('2 project keys wrapped by the key with the id old');
  expect(valuesOf('control-plane', 'SECRETS_KEY')).toEqual(both);
});

test('an unknown state of the processes: --finish refuses', async () => {
  put('gateway', 'SESSION_SECRET', `${'n'.repeat(32)},${OLD}`);
  readRotation.mockRejectedValue(new Error('the database does not answer'));
  expect(await rotate('session', '--finish')).toBe(1);
  expect(printed).toContain('the database does not answer');
  expect(valuesOf('gateway', 'SESSION_SECRET')).toHaveLength(2);
});

describe('refuses with the rule, without a value', () => {
  test.each([
    ['empty', '\n', 'has no value'],
    ['only commas', ',,', 'has no value'],
    ['two lines', `${OLD}\n${'p'.repeat(32)}`, 'line break'],
    ['too short', 'short', 'fewer than 32 characters'],
    ['too many', Array.from({ length: 9 }, (_, i) => `${i}${OLD}`).join(), 'the maximum is 8'],
    ['twice', `${OLD},${OLD}`, 'has a value twice'],
  ])('%s', async (_, text, rule) => {
    put('gateway', 'SESSION_SECRET', text);
    expect(await rotate('session')).toBe(1);
    expect(printed).toContain(rule);
    expect(printed).not.toContain(OLD);
    expect(readFileSync(pathOf('gateway', 'SESSION_SECRET'), 'utf8')).toBe(text);
  });

  test('a setting in the environment file: how to move it', async () => {
    writeFileSync(join(etc, 'gateway.env'), `SESSION_SECRET=${OLD}\n`);
    expect(await rotate('session')).toBe(1);
    expect(printed).toContain('SESSION_SECRET_FILE=');
    expect(printed).not.toContain(OLD);
  });

  test('wrong usage', async () => {
    for (const args of [
      [],
      ['nothing'],
      ['session', 'jwt'],
      ['session', '--force'],
      ['session', '--status', '--finish'],
      ['session', '--pid', '1'],
    ])
      expect(await runRotate([...args, '--etc', etc])).toBe(2);
  });
});

test('a trailing comma is no value', async () => {
  put('gateway', 'SESSION_SECRET', `${OLD},\n`);
  expect(await rotate('session')).toBe(0);
  expect(valuesOf('gateway', 'SESSION_SECRET')).toEqual([
    expect.stringMatching(/^[0-9a-f]{64}$/),
    OLD,
  ]);
});

test('--from takes the content of another machine, and refuses one that lacks the value in front here', async () => {
  put('gateway', 'SESSION_SECRET', OLD);
  const file = join(etc, 'copied');
  writeFileSync(file, `${'x'.repeat(32)}\n`);
  expect(await rotate('session', '--from', file)).toBe(1);
  expect(valuesOf('gateway', 'SESSION_SECRET')).toEqual([OLD]);
  writeFileSync(file, `${OLD},${'x'.repeat(32)}\n`);
  expect(await rotate('session', '--from', file)).toBe(0);
  expect(valuesOf('gateway', 'SESSION_SECRET')).toEqual([OLD, 'x'.repeat(32)]);
});

test('a file that cannot be written stays as it was', () => {
  const path = put('gateway', 'SESSION_SECRET', OLD);
  const [copy] = findCopies(etc, SECRETS.session);
  rmSync(path);
  // Something else took the name meanwhile.
  mkdirSync(path);
  expect(() => copy !== undefined && writeCopy(copy, [OLD, 'x'.repeat(32)])).toThrow(
    'is not a regular file',
  );
  expect(readdirSync(dirname(path))).toEqual(['SESSION_SECRET']);
});
