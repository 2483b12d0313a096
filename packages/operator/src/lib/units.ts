/** Controls systemd units. */
import { existsSync } from 'node:fs';
import { exec, execOk } from '@berth/kit/exec';
import { PROGRAM_ENV } from './machine.ts';

/** Returns false in a container without systemd. */
export const hasSystemd = (): boolean => existsSync('/run/systemd/system');

export async function systemctl(...args: string[]): Promise<string> {
  return (
    await execOk(['systemctl', ...args], { env: PROGRAM_ENV, timeoutMs: 180_000 })
  ).stdout.trim();
}

/** Returns the state of a unit, for example active, inactive, failed or activating. */
export async function unitState(unit: string): Promise<string> {
  return (
    await exec(['systemctl', 'is-active', unit], { env: PROGRAM_ENV, timeoutMs: 30_000 })
  ).stdout.trim();
}

/** Returns the start time of the unit in ms since 1970, or undefined if it does not run. */
export async function unitStartedAt(unit: string): Promise<number | undefined> {
  const text = await systemctl(
    'show',
    '--timestamp=us+utc',
    '-p',
    'ActiveState',
    '-p',
    'ExecMainStartTimestamp',
    unit,
  );
  const [, at] = /^ExecMainStartTimestamp=\w+ (\S+ [\d:.]+) UTC$/m.exec(text) ?? [];
  if (at === undefined || !/^ActiveState=(active|activating|reloading)$/m.test(text))
    return undefined;
  return Date.parse(`${at.replace(' ', 'T')}Z`);
}

/** Returns the last log lines of a unit. */
export async function lastLines(unit: string, count: number): Promise<string> {
  const journal = await exec(
    ['journalctl', '--no-pager', '-o', 'cat', '-n', String(count), '-u', unit],
    {
      env: PROGRAM_ENV,
      timeoutMs: 30_000,
    },
  );
  return journal.stdout.trim();
}
