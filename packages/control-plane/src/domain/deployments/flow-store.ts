/**
 * Interface to the facts of a decision and the commit of its plan. Each method runs its own
 * transaction, and documents its rule and the codes of DomainError that it throws. Implemented in
 * store/.
 */
import type { Facts } from './facts.ts';
import type { Plan } from './plan.ts';

/** Facts from the database; the caller adds the remaining fields. */
export type StoredFacts = Omit<
  Facts,
  | 'now'
  | 'uptime'
  | 'limits'
  | 'platform'
  | 'overdue'
  | 'takenAddresses'
  | 'cacheIndex'
  | 'freshIds'
>;

/** Reads the facts of a decision and commits its plan. */
export type FlowStore = {
  /**
   * Reads the facts of a project. `datasetIds`: additional datasets. Throws not_found (project).
   */
  facts(projectId: string, datasetIds?: readonly string[]): Promise<StoredFacts>;
  /**
   * Writes the whole plan in one transaction and increments flow_version. Returns `stale` and
   * writes nothing if the project's flow_version, the `from` state of a deployment or the attempt
   * of an open task has changed. Throws domain_prefix_taken if the new deployment has the prefix of
   * another project.
   */
  commit(plan: Plan): Promise<'committed' | 'stale'>;
  /**
   * Like `commit`, and also stores the Idempotency-Key with the hash of the body and the deployment
   * id. If two requests use the same key, one commits; the other gets `stale` and finds the key on
   * its next attempt.
   */
  commitWithKey(plan: Plan, key: IdempotencyKey): Promise<'committed' | 'stale'>;
  /**
   * Reads which deployments other control planes changed, and clears their reconciled marks. Does
   * nothing if there is only one control plane.
   */
  watch(): Promise<void>;
  findKey(
    projectId: string,
    key: string,
    now: number,
  ): Promise<{ body_hash: string; deployment_id: string } | null>;
};

export type IdempotencyKey = { key: string; body_hash: string; expires_at: number };
