/**
 * Interface to the copies of volumes in the database. Each method runs its own transaction,
 * and documents its rule and the codes of DomainError that it throws. Implemented in store/.
 */
import type { ReportedCopy } from '@berth/wire/volume';
import type { VolumeCopy } from './volume-copy.ts';

/**
 * Copies that a node should delete, and copies that it should move out of the way because a move
 * left them behind.
 */
export type VolumeWork = { remove: string[]; setAside: string[]; foreign?: true };

export type VolumeStore = {
  /** Copies of the volumes of a project, oldest first. */
  ofProject(projectId: string): Promise<VolumeCopy[]>;
  /** Copies on a node, by name of the project. Also for the disk of a node. */
  onNode(nodeId: string): Promise<VolumeCopy[]>;
  /** Missing copies that projects use, and those that deleted projects left, by node. */
  missing(): Promise<ReadonlyMap<string, VolumeCopy[]>>;
  /** Projects with a copy that is being received. */
  received(): Promise<string[]>;
  /** By node: a text that changes when other copies on it are to be deleted or set aside. */
  unused(): Promise<ReadonlyMap<string, string>>;
  /**
   * Compares the copies that a node reports with the rows. Returns what the node should delete and
   * set aside. `removed`: copies that the agent deleted; absent if it is of an earlier version.
   */
  report(
    node: { id: string; hostname: string },
    reported: readonly ReportedCopy[],
    now: number,
    removed?: readonly string[],
  ): Promise<VolumeWork>;
  /** Throws not_found; wrong_state for volumes in use. */
  requestDelete(nodeId: string, copyId: string, now: number): Promise<VolumeCopy>;
  /**
   * Forgets a missing copy, and returns it. Throws not_found; wrong_state for others and for
   * volumes in use.
   */
  forget(nodeId: string, copyId: string): Promise<VolumeCopy>;
};
