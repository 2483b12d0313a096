/**
 * Identifies the value of a secret setting without revealing it. Fingerprints are only for admins,
 * and for files and tables that only admins can read.
 */
import { createHash } from 'node:crypto';

const LENGTH = 12;

/**
 * Returns the fingerprint of a value. Equal values of different settings have different
 * fingerprints.
 */
export const fingerprintOf = (setting: string, value: string): string =>
  createHash('sha256')
    .update(`berth fingerprint\n${setting}\n${value}`)
    .digest('hex')
    .slice(0, LENGTH);

export const fingerprintsOf = (setting: string, values: readonly string[]): string[] =>
  values.map((value) => fingerprintOf(setting, value));
