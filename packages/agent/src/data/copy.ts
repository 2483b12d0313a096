/**
 * Runs one round of a copy; transfer.ts repeats rounds.
 *
 *   tree objects -> staging folder with folders, symlinks, hard links -> reserve disk space ->
 *   rsync -> verify -> sync -> rename
 *
 * If a file differs from the manifest, the round ends as `wrong`. Its correct files stay, and the
 * next round links them.
 */
import { failPoint } from '@berth/kit/fail-point';
import { TreeFormatError } from '@berth/wire/tree';
import type { Reservation } from '../disk/storage.ts';
import { TaskFailure } from '../failures.ts';
import type { Rsync } from './rsync.ts';
import { errorCode, syncFileSystem } from '../file-system.ts';
import type { Layout } from './layout.ts';
import { type LinkSource, makeStaging, sourceOfTree, type Staging } from './staging.ts';
import type { MakeRoom } from '../disk/eviction.ts';
import type { FindSource } from './source.ts';
import type { Trees } from './trees.ts';
import { verifyCopy } from './verify.ts';
import type { Versions } from './versions.ts';
import type { WantedVersion } from './wanted-version.ts';

export type CopyDeps = {
  layout: Layout;
  versions: Versions;
  trees: Trees;
  makeRoom: MakeRoom;
  findSource: FindSource;
  rsync: Rsync;
  inherit: NodeJS.ProcessEnv;
};
export type CopyStep = 'making room' | 'copying' | 'verifying';
export type RoundOptions = {
  signal: AbortSignal;
  /** A folder that does not exist yet. The caller removes it, whatever the outcome is. */
  place: string;
  /** Files from previous rounds that this round can link. */
  sources: readonly LinkSource[];
  onStep(step: CopyStep, staging: Staging): void;
  /** Adds a line to the deployment log of each waiting task. */
  logLine(text: string): void;
  /** Reports how many bytes of the copy have arrived. */
  onBytes(bytes: number): void;
  /**
   * Passes on the reservation of disk space. The caller releases it after `place` is removed or
   * published as the version.
   */
  onReserved(reservation: Reservation): void;
};
/**
 * `wrong`: these files (encoded paths) differ from the manifest. `rsyncMessage`: rsync's
 * explanation. `killed`: some process other than this agent killed rsync.
 */
export type Round =
  | { kind: 'done'; staging: Staging }
  | {
      kind: 'wrong';
      staging: Staging;
      wrong: ReadonlySet<string>;
      rsyncMessage: string;
      killed: boolean;
    };

export async function copyRound(
  deps: CopyDeps,
  want: WantedVersion,
  options: RoundOptions,
): Promise<Round> {
  try {
    return await round(deps, want, options);
  } catch (error) {
    options.signal.throwIfAborted();
    if (errorCode(error) === 'ENOSPC' || errorCode(error) === 'EDQUOT')
      throw new TaskFailure('disk_full', `while dataset ${want.name} was being copied`, {
        cause: error,
      });
    if (error instanceof TreeFormatError)
      throw new TaskFailure('dataset_copy_failed', error.message, { cause: error });
    throw error;
  }
}

async function round(deps: CopyDeps, want: WantedVersion, options: RoundOptions): Promise<Round> {
  const { signal, place } = options;
  const { dataset_id: id, manifest_digest: root } = want;
  await deps.trees.complete(id, root, signal);
  const staging = await makeStaging(place, {
    root,
    load: (digest) => deps.trees.load(id, digest),
    sources: [...(await newestCached(deps, id)), ...options.sources],
    signal,
  });
  let rsyncMessage = '';
  let killed = false;
  // Look for the share only if files must be copied.
  if (staging.copy.files > 0) {
    const source = await deps.findSource(want.nfs_path, signal);
    options.onStep('making room', staging);
    const reservation = await deps.makeRoom(staging.copy.room, signal, options.logLine);
    options.onReserved(reservation);
    options.onStep('copying', staging);
    const result = await deps.rsync(
      { source, target: staging.folder, list: staging.list },
      {
        signal,
        onBytes: (bytes) => {
          reservation.wrote(bytes);
          options.onBytes(Math.min(bytes, staging.copy.bytes));
        },
      },
    );
    reservation.wrote(staging.copy.room);
    if (result.kind === 'incomplete') ({ message: rsyncMessage, killed } = result);
    options.onBytes(staging.copy.bytes);
  }
  await failPoint('copy.staged');
  options.onStep('verifying', staging);
  const wrong = await verifyCopy(staging.folder, staging.expectedList, signal);
  if (wrong.size > 0) return { kind: 'wrong', staging, wrong, rsyncMessage, killed };
  await syncFileSystem(staging.folder, deps.inherit, signal);
  await failPoint('copy.verified');
  signal.throwIfAborted();
  await deps.versions.publish(id, want.version, staging.folder, {
    manifest_digest: root,
    name: want.name,
    bytes: staging.copy.bytes + staging.linked.bytes,
    files: staging.copy.files + staging.linked.files,
    last_used_at: new Date().toISOString(),
  });
  return { kind: 'done', staging };
}

/**
 * Returns the files of the dataset's newest version on this node, because most files of the wanted
 * version are usually unchanged.
 */
async function newestCached(
  { layout, versions, trees }: CopyDeps,
  datasetId: string,
): Promise<LinkSource[]> {
  const here = (await versions.list()).filter(
    (v) => v.datasetId === datasetId && v.manifest_digest !== '',
  );
  const newest = here.sort((a, b) => b.version - a.version)[0];
  if (newest === undefined) return [];
  const folder = layout.version(datasetId, newest.version);
  try {
    return [
      await sourceOfTree(folder, newest.manifest_digest, (digest) => trees.load(datasetId, digest)),
    ];
  } catch (error) {
    // The manifest of the old version is lost everywhere. Continue, and copy all files again.
    if (error instanceof TaskFailure || error instanceof TreeFormatError) return [];
    throw error;
  }
}
