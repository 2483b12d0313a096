/**
 * Interface to the copies of volumes in the database. Each method runs its own transaction,
 * and documents its rule and the codes of DomainError that it throws. Implemented in store/.
 */
import type { ReportedCopy } from '@berth/wire/volume';
import type { VolumeCopy } from './volume-copy.ts';

/**
 * Work for a node. `remove`: copies to delete. `setAside`: copies that a move left behind; the node
 * should set them aside.
 */
export type VolumeWork = { remove: string[]; setAside: string[]; foreign?: true };

export type VolumeStore = {
  /** Lists the volume copies of a project, oldest first. */
  ofProject(projectId: string): Promise<VolumeCopy[]>;
  /** Lists the volume copies on a node, by project name. Also used for disk usage. */
  onNode(nodeId: string): Promise<VolumeCopy[]>;
  /**
   * Returns, for each node, the copies that the node no longer reports. Includes only copies in use
   * and copies of deleted projects.
   */
  missing(): Promise<ReadonlyMap<string, VolumeCopy[]>>;
  /** Returns the ids of projects with an incoming copy. */
  received(): Promise<string[]>;
  /**
   * Returns a text for each node; it changes with the set of copies to delete or set aside there.
   */
  unused(): Promise<ReadonlyMap<string, string>>;
  /**
   * Compares the copies that a node reports with the rows. Returns the copies that the node should
   * delete or set aside. `removed`: copies that the agent deleted; absent if the agent is of an
   * older version.
   */
  report(
    node: { id: string; hostname: string },
    reported: readonly ReportedCopy[],
    now: number,
    removed?: readonly string[],
  ): Promise<VolumeWork>;
  /** Requests the deletion of a copy. Throws not_found; wrong_state if its volumes are in use. */
  requestDelete(nodeId: string, copyId: string, now: number): Promise<VolumeCopy>;
  /**
   * Forgets a missing copy and returns it. Throws not_found; wrong_state if the copy is not missing
   * or its volumes are in use.
   */
  forget(nodeId: string, copyId: string): Promise<VolumeCopy>;
};
