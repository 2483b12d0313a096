/**
 * Interface to the record of containers that contract-only agents started. Each method runs its own
 * transaction, and documents its rule and the codes of DomainError that it throws. Implemented in
 * store/.
 */
import type { UnmanagedContainer } from './unmanaged-containers.ts';

export type LeftWhere = { nodes: readonly string[]; used?: boolean } | { project: string };

/**
 * Containers that contract-only agents might have started (domain/nodes/unmanaged-containers.ts).
 */
export type UnmanagedStore = {
  /**
   * Lists containers that only a person can remove, by name. `used`: also lists containers that
   * serve.
   */
  left(where: LeftWhere): Promise<UnmanagedContainer[]>;
  /** Records that a person removed the container. Throws not_found. */
  confirm(
    node: { id: string; hostname: string },
    container: string,
    by: string,
    now: number,
  ): Promise<void>;
};
