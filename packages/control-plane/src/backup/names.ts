/**
 * Names of backups: `berth-{installation}-{UTC time}-{tag}.tar.gz`, plus `.age` if the backup is
 * encrypted. The tag is random by default.
 */
import { randomBytes } from 'node:crypto';

export type Named = {
  name: string;
  installation: string;
  at: number;
  tag: string;
  encrypted: boolean;
};

const NAME =
  /^berth-(?<installation>[0-9a-f]{8})-(?<at>\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ)-(?<tag>[0-9a-f]{6})\.tar\.gz(?<age>\.age)?$/;

export function newName(
  installation: string,
  at: number,
  encrypted: boolean,
  tag = randomBytes(3).toString('hex'),
): string {
  const time = new Date(at).toISOString().replace(/\.\d+/, '').replaceAll(':', '-');
  return `berth-${installation}-${time}-${tag}.tar.gz${encrypted ? '.age' : ''}`;
}

/** Parses the name of a backup. Returns null for any other file name. */
export function named(name: string): Named | null {
  const { installation, at, tag, age } = NAME.exec(name)?.groups ?? {};
  if (installation === undefined || at === undefined || tag === undefined) return null;
  const time = Date.parse(at.replace(/T(\d\d)-(\d\d)-/, 'T$1:$2:'));
  return Number.isNaN(time)
    ? null
    : { name, installation, at: time, tag, encrypted: age !== undefined };
}
