/** The record of a copy of volumes; domain/data/volumes.ts has its states. */
type VolumeCopyState = 'incoming' | 'current' | 'left' | 'kept' | 'deleting';

/**
 * Containers of the project on the node of a copy when the move began, and when each started by the
 * clock of its node: a container that runs later, or started again, might have written.
 * `proven_at`: when both ends had reported equal files, by the uptime clock.
 */
export type MoveWitness = {
  containers: Readonly<Record<string, string | null>>;
  proven_at: number | null;
};

export type VolumeCopy = {
  id: string;
  project_id: string;
  /** Names of the project and of the node, for people: both might be deleted. */
  project: string;
  node_id: string;
  hostname: string;
  state: VolumeCopyState;
  /** Volumes that the copy might have: a deploy task with them was created. */
  names: readonly string[];
  /** Size by the last report of its node; null: unknown. */
  bytes: number | null;
  /** Size of each volume by the last report. */
  sizes: Readonly<Record<string, number>>;
  /** The copy that a move copied it from. */
  source: string | null;
  /** Digest of its files as its node reported it at the end of the last move; null: not proven. */
  digest: string | null;
  /**
   * Set on both copies of a move, until it ends. Null in a move that an earlier version of Berth
   * began.
   */
  seen: MoveWitness | null;
  /**
   * Set while the node reports without the copy. Its disk might not be mounted, so this is no
   * deletion. Only reports change it.
   */
  missing_since?: number | null;
  created_at: number;
  changed_at: number;
};
