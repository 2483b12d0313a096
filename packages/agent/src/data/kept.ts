/**
 * Versions that only kept releases pin, and that the share still has: a rollback would copy them again, so they may go when nothing
 * else makes room. Everything is in use while the engine or the control plane does not answer.
 */
import type { Logger } from '@berth/kit/log';
import type { Client } from '@berth/wire/client';
import { LABELS } from '@berth/wire/vocabulary';
import type { ListOurs } from '../node-ids.ts';
import type { Holds } from './cache.ts';
import { keyOf } from './layout.ts';
import type { MountFolder, Mounts } from './mounts.ts';
import type { Versions } from './versions.ts';

export type KeptDeps = {
  client: Client;
  mounts: Mounts;
  versions: Versions;
  /** Of this agent, over its restarts. */
  agent: string;
  ours: ListOurs;
  /** Deployments that tasks of this process are at work on. */
  atWork: Holds;
  log: Logger;
};
export type Kept = {
  /** Keys (layout.ts). `maxAgeMs`: an answer that is not older will do. */
  recopyable(maxAgeMs: number, signal: AbortSignal): Promise<ReadonlySet<string>>;
  /** Removes the symlinks of kept releases to a version, after which it can be evicted. */
  release(datasetId: string, version: number, signal: AbortSignal): Promise<void>;
};

const NONE: ReadonlySet<string> = new Set();

export function createKept({ client, mounts, versions, agent, ours, atWork, log }: KeptDeps): Kept {
  let last: { at: number; keys: ReadonlySet<string> } | null = null;

  async function idleFolders(signal: AbortSignal): Promise<{ idle: MountFolder[]; inUse: Set<string> }> {
    const folders = await mounts.list();
    const before = atWork.all();
    const running = new Set((await ours({}, signal)).map((c) => c.labels[LABELS.deployment] ?? ''));
    const isIdle = (f: MountFolder): boolean =>
      f.owner?.agent === agent && !running.has(f.deploymentId) && !before.has(f.deploymentId) && !atWork.has(f.deploymentId);
    const keysOf = (list: readonly MountFolder[]): string[] => list.flatMap((f) => f.links.map((l) => keyOf(l.datasetId, l.version)));
    return { idle: folders.filter(isIdle), inUse: new Set(keysOf(folders.filter((f) => !isIdle(f)))) };
  }

  async function look(signal: AbortSignal): Promise<ReadonlySet<string>> {
    if ((await mounts.pinned()).size === 0) return NONE;
    const { idle, inUse } = await idleFolders(signal);
    const links = new Map(idle.flatMap((f) => f.links).map((l) => [keyOf(l.datasetId, l.version), l]));
    const found = new Set<string>();
    for (const [key, { datasetId, version }] of links) {
      if (inUse.has(key)) continue;
      const here = await versions.get(datasetId, version);
      const stands = await client.call('agentDataset', { params: { id: datasetId }, signal });
      if (stands.status === 'ok' && stands.version === version && stands.manifest_digest === here?.manifest_digest) found.add(key);
    }
    return found;
  }
  return {
    async recopyable(maxAgeMs, signal) {
      if (last !== null && performance.now() - last.at < maxAgeMs) return last.keys;
      const keys = await look(signal).catch((err: unknown) => {
        signal.throwIfAborted();
        log.info({ err }, 'cannot tell which kept data could be copied again; all of it stays');
        return NONE;
      });
      last = { at: performance.now(), keys };
      return keys;
    },
    async release(datasetId, version, signal) {
      last = null;
      for (const { deploymentId } of (await idleFolders(signal)).idle) await mounts.unlink(deploymentId, datasetId, version);
    },
  };
}
