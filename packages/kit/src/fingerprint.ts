/**
 * Names a value of a secret setting without revealing it. Only for admins and for files and tables
 * that they alone read.
 */
import { createHash } from 'node:crypto';

const LENGTH = 12;

/** Equal values of different settings have different fingerprints. */
export const fingerprintOf = (setting: string, value: string): string =>
  createHash('sha256')
    .update(`berth fingerprint\n${setting}\n${value}`)
    .digest('hex')
    .slice(0, LENGTH);

export const fingerprintsOf = (setting: string, values: readonly string[]): string[] =>
  values.map((value) => fingerprintOf(setting, value));
