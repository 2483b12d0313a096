/** systemd's units. */
import { exec, execOk } from '@berth/kit/exec';
import { existsSync } from 'node:fs';
import { PROGRAM_ENV } from './machine.ts';

/** False in a container without systemd. */
export const hasSystemd = (): boolean => existsSync('/run/systemd/system');

export async function systemctl(...args: string[]): Promise<string> {
  return (await execOk(['systemctl', ...args], { env: PROGRAM_ENV, timeoutMs: 120_000 })).stdout.trim();
}

/** Returns the state of a unit: active, inactive, failed, activating … */
export async function unitState(unit: string): Promise<string> {
  return (await exec(['systemctl', 'is-active', unit], { env: PROGRAM_ENV, timeoutMs: 30_000 })).stdout.trim();
}
