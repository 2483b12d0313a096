/**
 * Finds versions that can be evicted and copied again later: only kept releases pin them, and the
 * share still has them. They are evicted last, because a rollback would have to copy them again.
 * While the engine or the control plane does not answer, no version counts as recopyable.
 */
import type { Logger } from '@berth/kit/log';
import type { Client } from '@berth/wire/client';
import { LABELS } from '@berth/wire/vocabulary';
import type { ListNodeContainers } from '../engine/node-ids.ts';
import type { RefCounts } from '@berth/kit/ref-count';
import { keyOf } from './layout.ts';
import type { MountFolder, Mounts } from './mounts.ts';
import type { Versions } from './versions.ts';

export type RecopyableDeps = {
  client: Client;
  mounts: Mounts;
  versions: Versions;
  /** The agent's id, which survives a restart. */
  agent: string;
  listContainers: ListNodeContainers;
  /** Deployments for which a task of this process is running. */
  deploymentsInUse: RefCounts;
  log: Logger;
};
export type Recopyable = {
  /**
   * Returns the keys (layout.ts `keyOf`) of recopyable versions. Reuses an answer that is at most
   * `maxAgeMs` old.
   */
  keys(maxAgeMs: number, signal: AbortSignal): Promise<ReadonlySet<string>>;
  /** Removes the symlinks of kept releases to a version, so that the version can be evicted. */
  release(datasetId: string, version: number, signal: AbortSignal): Promise<void>;
};

const NONE: ReadonlySet<string> = new Set();

export function createRecopyable({
  client,
  mounts,
  versions,
  agent,
  listContainers,
  deploymentsInUse,
  log,
}: RecopyableDeps): Recopyable {
  let last: { at: number; keys: ReadonlySet<string> } | null = null;

  async function idleFolders(
    signal: AbortSignal,
  ): Promise<{ idle: MountFolder[]; inUse: Set<string> }> {
    const folders = await mounts.list();
    const before = deploymentsInUse.keys();
    const running = new Set(
      (await listContainers({}, signal)).map((c) => c.labels[LABELS.deployment] ?? ''),
    );
    const isIdle = (f: MountFolder): boolean =>
      f.owner?.agent === agent &&
      !running.has(f.deploymentId) &&
      !before.has(f.deploymentId) &&
      !deploymentsInUse.has(f.deploymentId);
    const keysOf = (list: readonly MountFolder[]): string[] =>
      list.flatMap((f) => f.links.map((l) => keyOf(l.datasetId, l.version)));
    return {
      idle: folders.filter(isIdle),
      inUse: new Set(keysOf(folders.filter((f) => !isIdle(f)))),
    };
  }

  async function find(signal: AbortSignal): Promise<ReadonlySet<string>> {
    if ((await mounts.pinned()).size === 0) return NONE;
    const { idle, inUse } = await idleFolders(signal);
    const links = new Map(
      idle.flatMap((f) => f.links).map((l) => [keyOf(l.datasetId, l.version), l]),
    );
    const recopyableKeys = new Set<string>();
    for (const [key, { datasetId, version }] of links) {
      if (inUse.has(key)) continue;
      const here = await versions.get(datasetId, version);
      const current = await client.call('agentDataset', { params: { id: datasetId }, signal });
      if (
        current.status === 'ok' &&
        current.version === version &&
        current.manifest_digest === here?.manifest_digest
      )
        recopyableKeys.add(key);
    }
    return recopyableKeys;
  }
  return {
    async keys(maxAgeMs, signal) {
      if (last !== null && performance.now() - last.at < maxAgeMs) return last.keys;
      const keys = await find(signal).catch((err: unknown) => {
        signal.throwIfAborted();
        log.info(
          { err },
          'checking which kept dataset versions can be copied again failed; all of them stay',
        );
        return NONE;
      });
      last = { at: performance.now(), keys };
      return keys;
    },
    async release(datasetId, version, signal) {
      last = null;
      for (const { deploymentId } of (await idleFolders(signal)).idle)
        await mounts.unlink(deploymentId, datasetId, version);
    },
  };
}
