/**
 * Stores the fingerprint of the new value during a rotation, so that the next run can continue
 * after a kill. The file contains no secret.
 */
import { existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fingerprintOf } from '@berth/kit/fingerprint';
import { Problem } from '../lib/command.ts';
import { readText, writeText } from '../lib/etc-files.ts';
import type { RotatedSecret } from './names.ts';

export type Started = { fingerprint: string; started_at: string };

const pathOf = (etc: string, { name }: RotatedSecret): string =>
  join(etc, `.rotation-${name}.json`);

export function readStarted(etc: string, secret: RotatedSecret): Started | null {
  const path = pathOf(etc, secret);
  const text = readText(path);
  if (text === undefined) return null;
  try {
    return JSON.parse(text) as Started;
  } catch {
    throw new Problem(
      `${path} is not readable as JSON. Look at the files of ${secret.setting} on this ` +
        'machine, then remove it',
    );
  }
}

export function writeStarted(etc: string, secret: RotatedSecret, value: string, now: number): void {
  const started: Started = {
    fingerprint: fingerprintOf(secret.setting, value),
    started_at: new Date(now).toISOString(),
  };
  const owner = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
  writeText(pathOf(etc, secret), `${JSON.stringify(started)}\n`, { mode: 0o600, ...owner });
}

export function forget(etc: string, secret: RotatedSecret): void {
  const path = pathOf(etc, secret);
  if (existsSync(path)) rmSync(path);
}
