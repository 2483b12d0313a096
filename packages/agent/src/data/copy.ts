/**
 * One round of a copy (transfer.ts has the rounds):
 *
 *   tree objects -> staging with folders, symlinks, hard links -> room -> rsync -> proof -> on the disk -> rename
 *
 * What arrived and is not as the manifest says is told, not thrown away: the next round links what was right.
 */
import { failPoint } from '@berth/kit/fail-point';
import { TreeFormatError } from '@berth/wire/tree';
import type { Reservation } from '../storage.ts';
import { TaskFailure } from '../tools/failures.ts';
import type { Rsync } from '../tools/rsync.ts';
import { errorCode, syncFileSystem } from './disk.ts';
import type { Layout } from './layout.ts';
import { type LinkSource, makeStaging, sourceOfTree, type Staging } from './plan.ts';
import type { MakeRoom } from './room.ts';
import type { FindSource } from './source.ts';
import type { Trees } from './trees.ts';
import { verify } from './verify.ts';
import type { Versions } from './versions.ts';

export type Wanted = { dataset_id: string; name: string; nfs_path: string; version: number; manifest_digest: string };
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
  /** A folder that does not exist; it is the caller's to remove, whatever comes of it. */
  place: string;
  /** What earlier rounds brought. */
  sources: readonly LinkSource[];
  onStep(step: CopyStep, staging: Staging): void;
  /** A line for the log of whoever waits. */
  say(text: string): void;
  /** Of the bytes to be copied. */
  onBytes(bytes: number): void;
  /** Released by the caller, when `place` is gone or has become the version. */
  onReserved(reservation: Reservation): void;
};
/** `wrong`: these files (encoded paths) are not as the manifest says. `said`: what rsync said of it; `killed`: by somebody else. */
export type Round =
  | { kind: 'done'; staging: Staging }
  | { kind: 'wrong'; staging: Staging; wrong: ReadonlySet<string>; said: string; killed: boolean };

export async function copyRound(deps: CopyDeps, want: Wanted, options: RoundOptions): Promise<Round> {
  try {
    return await round(deps, want, options);
  } catch (error) {
    options.signal.throwIfAborted();
    if (errorCode(error) === 'ENOSPC' || errorCode(error) === 'EDQUOT')
      throw new TaskFailure('disk_full', `while dataset ${want.name} was copied`, { cause: error });
    if (error instanceof TreeFormatError) throw new TaskFailure('dataset_copy_failed', error.message, { cause: error });
    throw error;
  }
}

async function round(deps: CopyDeps, want: Wanted, options: RoundOptions): Promise<Round> {
  const { signal, place } = options;
  const { dataset_id: id, manifest_digest: root } = want;
  await deps.trees.complete(id, root, signal);
  const staging = await makeStaging(place, {
    root,
    load: (digest) => deps.trees.load(id, digest),
    sources: [...(await newestHere(deps, id)), ...options.sources],
    signal,
  });
  let said = '';
  let killed = false;
  // With nothing to copy the share may be away.
  if (staging.copy.files > 0) {
    const source = await deps.findSource(want.nfs_path, signal);
    options.onStep('making room', staging);
    const reservation = await deps.makeRoom(staging.copy.room, signal, options.say);
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
    if (result.kind === 'incomplete') ({ said, killed } = result);
    options.onBytes(staging.copy.bytes);
  }
  await failPoint('copy.staged');
  options.onStep('verifying', staging);
  const wrong = await verify(staging.folder, staging.proof, signal);
  if (wrong.size > 0) return { kind: 'wrong', staging, wrong, said, killed };
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

/** The newest version of it on this node: what most files will be equal to. */
async function newestHere({ layout, versions, trees }: CopyDeps, datasetId: string): Promise<LinkSource[]> {
  const here = (await versions.list()).filter((v) => v.datasetId === datasetId && v.manifest_digest !== '');
  const newest = here.sort((a, b) => b.version - a.version)[0];
  if (newest === undefined) return [];
  const folder = layout.version(datasetId, newest.version);
  try {
    return [await sourceOfTree(folder, newest.manifest_digest, (digest) => trees.load(datasetId, digest))];
  } catch (error) {
    // Nobody has its manifest any more. It would have saved copying, no more than that.
    if (error instanceof TaskFailure || error instanceof TreeFormatError) return [];
    throw error;
  }
}
