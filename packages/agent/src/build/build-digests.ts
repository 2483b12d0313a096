/**
 * Remembers with which build secrets this builder built each project last. BuildKit does not know
 * that a layer depends on the value of a secret: after a change, the next build runs once without
 * cache. The file has digests, no values.
 */
import { readFile } from 'node:fs/promises';
import type { Logger } from '@berth/kit/log';
import { writeFileWhole } from '@berth/kit/write-file';

export type BuildDigests = {
  /** Whether the digest differs from that of the last build; null means no build secrets. */
  changed(project: string, digest: string | null): boolean;
  /**
   * Call before a build with changed secrets: if it fails, its layers can be in the cache, so
   * nothing is known about them.
   */
  begins(project: string): Promise<void>;
  built(project: string, digest: string | null): Promise<void>;
};

const MAX_PROJECTS = 5_000;
/** Equal to no digest. */
const UNKNOWN = '';

export async function createBuildDigests(path: string, log: Logger): Promise<BuildDigests> {
  const digests = new Map<string, string>(await read(path, log));
  async function set(project: string, digest: string | null): Promise<void> {
    if ((digests.get(project) ?? null) === digest) return;
    digests.delete(project);
    if (digest !== null) digests.set(project, digest);
    const [oldest] = digests.keys();
    if (digests.size > MAX_PROJECTS && oldest !== undefined) digests.delete(oldest);
    await writeFileWhole(path, JSON.stringify([...digests]));
  }
  return {
    changed: (project, digest) => (digests.get(project) ?? null) !== digest,
    begins: (project) => set(project, UNKNOWN),
    built: (project, digest) => set(project, digest),
  };
}

async function read(path: string, log: Logger): Promise<[string, string][]> {
  try {
    return JSON.parse(await readFile(path, 'utf8')) as [string, string][];
  } catch (error) {
    // Builds with secrets then run once without cache.
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT')
      log.warn({ err: error, path }, 'reading the digests of build secrets failed');
    return [];
  }
}
