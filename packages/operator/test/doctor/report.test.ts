/** The text that an operator reads, and the exit code. */
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { CHECKS } from '../../src/doctor/checks/table.ts';
import type { Check } from '../../src/doctor/check.ts';
import { textReport } from '../../src/doctor/report.ts';
import { finding, notChecked, ok } from '../../src/doctor/result.ts';
import { doctor, USAGE } from '../../src/doctor/run.ts';
import { thisMachine } from '../../src/doctor/system.ts';
import { runCommand } from '../../src/lib/command.ts';
import { fakeMachine, type Fault } from './fake-machine.ts';

let printed = '';
let complained = '';
beforeEach(() => {
  [printed, complained] = ['', ''];
  vi.spyOn(process.stdout, 'write').mockImplementation((text) => ((printed += String(text)), true));
  vi.spyOn(process.stderr, 'write').mockImplementation(
    (text) => ((complained += String(text)), true),
  );
});
afterEach(() => void vi.restoreAllMocks());

const examine = (
  args: string[],
  fault: Fault = {},
  checks: readonly Check[] = CHECKS,
  env: Record<string, string> = {},
) =>
  runCommand('doctor', USAGE, args, () =>
    doctor(args, { ...fakeMachine(fault), env }, '/etc/berth', checks),
  );

it('findings come first, with what to do; commands are not wrapped', () => {
  const text = textReport(
    ['control-plane'],
    [
      { check: 'disk', results: [ok('50 % of the disk is free: the database (/var/lib/berth)')] },
      {
        check: 'ports',
        results: [notChecked('ports 80 and 443 from outside: cannot be checked from here')],
      },
      {
        check: 'clock',
        results: [
          finding(
            'the clock is 90 s behind',
            'sessions are refused',
            'timedatectl set-ntp true, then timedatectl status, and wait',
          ),
        ],
      },
    ],
    58,
  );
  expect(text).toBe(
    [
      '1 finding on this machine (control-plane)',
      '',
      '1. clock: the clock is 90 s behind.',
      '   So: sessions are refused.',
      '   Do: timedatectl set-ntp true, then timedatectl status, and wait',
      '',
      'Not checked:',
      '- ports 80 and 443 from outside: cannot be checked from',
      '  here',
      '',
      'Checked:',
      '- disk: 50 % of the disk is free: the database',
      '  (/var/lib/berth)',
    ].join('\n'),
  );
});

it('control characters of other programs do not reach the terminal', () => {
  const text = textReport(
    ['gateway'],
    [{ check: 'ports', results: [finding('used by \u001b[31mevil\u0007', 'x', 'y')] }],
  );
  expect(text).toContain('used by ?[31mevil?');
});

it.each<[string, string[], Fault, number]>([
  ['no finding', [], {}, 0],
  ['a finding', [], { nodeVersion: '24.21.0' }, 1],
  ['a finding of another role', ['relay'], { clock: 0, runs: { 'traefik version': null } }, 0],
  ['a finding, as JSON', ['--json'], { nodeVersion: '24.21.0' }, 1],
  ['an unknown role', ['agnt'], {}, 2],
  ['two roles', ['agent', 'relay'], {}, 2],
  ['an unknown option', ['--fix'], {}, 2],
])('exit code: %s', async (_, args, fault, code) => {
  expect(await examine(args, fault)).toBe(code);
  expect(code === 2 ? complained : printed).not.toBe('');
});

it('--json prints one object with every state', async () => {
  expect(await examine(['--json'], { nodeVersion: '24.21.0' })).toBe(1);
  const report = JSON.parse(printed) as Record<string, unknown[]>;
  expect(Object.keys(report)).toEqual(['roles', 'findings', 'not_checked', 'notes', 'ok']);
  expect(report['findings']).toEqual([
    {
      check: 'versions',
      problem: expect.stringMatching(/^Node/),
      consequence: expect.any(String),
      remedy: expect.any(String),
    },
  ]);
});

it('a check that throws or hangs is not ok, and the other checks are shown', async () => {
  const broken: Check = {
    name: 'broken',
    roles: ['relay'],
    run: () => Promise.reject(new Error('out of order')),
  };
  vi.useFakeTimers();
  const hung: Check = { name: 'hung', roles: ['relay'], run: () => new Promise(() => {}) };
  const exit = examine(['relay', '--json'], {}, [
    broken,
    hung,
    ...CHECKS.filter(({ name }) => name === 'clock'),
  ]);
  await vi.advanceTimersByTimeAsync(31_000);
  expect(await exit).toBe(0);
  vi.useRealTimers();
  expect(JSON.parse(printed)).toMatchObject({
    not_checked: [
      { check: 'broken', text: 'broken: the check failed: out of order' },
      { check: 'hung', text: 'hung: the check did not finish within 30 s' },
    ],
    ok: [{ check: 'clock', text: 'the clock agrees with the control plane' }],
  });
});

it('a role that this machine does not have is named beside those that it has', async () => {
  expect(await examine(['gateway'], { files: { '/etc/berth/gateway.env': undefined } })).toBe(1);
  expect(complained).toMatch(/no settings of gateway; it has .*control-plane.*Run berth doctor/);
  expect(await examine(['gatewy'])).toBe(2);
});

it('in a checkout, the environment has the settings of the role', async () => {
  const names = [
    'control-plane',
    'gateway',
    'relay',
    'registry',
    'proxy',
    'agent-builder',
    'agent-deploy',
  ];
  const none: Fault = {
    files: Object.fromEntries(names.map((name) => [`/etc/berth/${name}.env`, undefined])),
  };
  expect(await examine([], none)).toBe(1);
  expect(complained).toContain('this machine has no settings of Berth');
  for (const words of [
    'The roles are control-plane, gateway',
    'sudo berth doctor',
    'berth doctor ROLE',
    'berth install all --dry-run',
  ])
    expect(complained).toContain(words);
  expect(complained).not.toContain('Usage:');
  await examine(['--json'], none, CHECKS, {
    NODE_ROLE: 'deploy',
    CONTROL_PLANE_URL: 'http://127.0.0.1:8080',
  });
  expect(JSON.parse(printed)).toMatchObject({ roles: ['agent-deploy'] });
});

it('looks at folders in a child process, which may hang', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'berth-doctor-'));
  try {
    const { folder } = thisMachine();
    expect(await folder(dir, 10_000)).toMatchObject({
      error: null,
      isEmpty: true,
      marker: null,
      total: expect.any(Number),
    });
    writeFileSync(join(dir, '.berth-share'), 'berth-share 0b2f8c1e-4a52-4a0e-9f55-0d5b9d1f0c11\n');
    expect(await folder(dir, 10_000)).toMatchObject({
      isEmpty: true,
      marker: '0b2f8c1e-4a52-4a0e-9f55-0d5b9d1f0c11',
    });
    writeFileSync(join(dir, '.berth-share'), 'damaged');
    expect(await folder(dir, 10_000)).toMatchObject({ marker: '' });
    rmSync(join(dir, '.berth-share'));
    symlinkSync('/dev/zero', join(dir, '.berth-share'));
    expect(await folder(dir, 10_000)).toMatchObject({ error: null, marker: null });
    expect(await folder(join(dir, 'none'), 10_000)).toMatchObject({ error: 'ENOENT' });
    expect(await folder(dir, 1)).toBe('hangs');
  } finally {
    rmSync(dir, { recursive: true });
  }
});
