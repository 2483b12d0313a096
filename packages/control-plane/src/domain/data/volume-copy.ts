/** Record of a volume copy; domain/data/volumes.ts explains its states. */
type VolumeCopyState = 'incoming' | 'current' | 'left' | 'kept' | 'deleting';

/**
 * Snapshot at the start of a move. `containers`: the project's containers on the node of the copy,
 * each with its start time by the node's clock. A container that appears or restarts later might
 * have written to the copy. `proven_at`: uptime at which both nodes had reported equal files.
 */
export type MoveWitness = {
  containers: Readonly<Record<string, string | null>>;
  proven_at: number | null;
};

export type VolumeCopy = {
  id: string;
  project_id: string;
  /** Display names of the project and node, stored because both might be deleted. */
  project: string;
  node_id: string;
  hostname: string;
  state: VolumeCopyState;
  /** Names of the volumes for which a deploy task was created; the copy might contain them. */
  names: readonly string[];
  /** Total size in bytes, from the last report of the node; null: unknown. */
  bytes: number | null;
  /** Size of each volume in bytes, from the last report of the node. */
  sizes: Readonly<Record<string, number>>;
  /** Id of the copy from which a move created this copy. */
  source: string | null;
  /** Digest of the files, as the node reported it after the last move; null: not proven. */
  digest: string | null;
  /** Set on both copies until the move ends. Null if an older version of Berth began the move. */
  seen: MoveWitness | null;
  /**
   * Set while the reports of the node lack the copy. The disk might not be mounted, so Berth does
   * not treat this as a deletion. Only reports change this field.
   */
  missing_since?: number | null;
  created_at: number;
  changed_at: number;
};
