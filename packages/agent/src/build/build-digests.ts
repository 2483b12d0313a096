/**
 * Remembers the build secrets with which this builder last built each project, as digests without
 * values. BuildKit does not know that a layer depends on a secret's value, so after a change the
 * next build runs once without cache.
 */
import { readFile } from 'node:fs/promises';
import type { Logger } from '@berth/kit/log';
import { writeFileWhole } from '@berth/kit/write-file';

export type BuildDigests = {
  /** Tells whether the digest differs from that of the last build; null means no build secrets. */
  changed(project: string, digest: string | null): boolean;
  /**
   * Call this before a build with changed secrets. If the build fails, the cache can already
   * contain its layers, so the last digest is forgotten.
   */
  begins(project: string): Promise<void>;
  built(project: string, digest: string | null): Promise<void>;
};

const MAX_PROJECTS = 5_000;
/** Differs from every digest. */
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
    // Without the file, builds with secrets run once without cache.
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT')
      log.warn({ err: error, path }, 'reading the digests of build secrets failed');
    return [];
  }
}
