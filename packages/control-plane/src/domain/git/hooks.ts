/** Webhooks and their deliveries: records, store, and the facts for a decision about a push. */
import type { Forge, Verdict } from '@berth/wire/hook';
import type { Page, Paged } from '../platform/page.ts';

export type HookRecord = {
  project_id: string;
  forge: Forge;
  /** Secret of the hook, sealed by the vault under the name HOOK_SECRET. */
  secret: string;
  /** Refused deliveries since the hook was created. */
  refused: number;
  /** The newest delivery that the last `look` task covers. */
  look_upto: number;
  /**
   * Number of consecutive failed `look` tasks, and earliest time of the next one (uptime clock).
   */
  look_tries: number;
  look_not_before: number;
  /** The node whose `look` task failed last. */
  look_failed_on: string | null;
  created_at: number;
  updated_at: number;
};

/** Name of the hook's secret in the vault. */
export const HOOK_SECRET = 'hook-secret';

export type DeliveryRecord = {
  id: string;
  /** Order of arrival. */
  seq: number;
  project_id: string;
  /**
   * Id that the forge gave the delivery; null if it gave none, and for refused and repeated
   * deliveries.
   */
  forge_id: string | null;
  at: number;
  event: string;
  branch: string | null;
  commit: string | null;
  /** Null while Berth checks the branch. */
  verdict: Verdict | null;
  reason: string | null;
  deployment_id: string | null;
};

export type NewDelivery = Pick<
  DeliveryRecord,
  'id' | 'forge_id' | 'event' | 'branch' | 'commit' | 'verdict' | 'reason'
>;

/**
 * Maximum number of stored deliveries of a project: one limit for refused deliveries, and one for
 * all that were not refused.
 */
export const KEPT_DELIVERIES = { refused: 20, others: 1_000 } as const;
/** A delivery whose id was already seen within this time is skipped. */
export const REPLAY_MS = 7 * 86_400_000;
/** Retention of deliveries that have a verdict. */
export const KEPT_DELIVERY_MS = 30 * 86_400_000;
/** Maximum number of waiting deliveries of a project. Beyond it, the oldest are skipped. */
export const MAX_WAITING_DELIVERIES = 200;

export const REPLACED = 'a newer push replaced it';

export type HookStore = {
  /**
   * Creates or replaces the hook. Keeps its deliveries and counts. Throws not_found, being_deleted.
   */
  put(hook: Pick<HookRecord, 'project_id' | 'forge' | 'secret'>, now: number): Promise<HookRecord>;
  get(projectId: string): Promise<HookRecord | null>;
  /** Removes the hook and its deliveries. Throws not_found, being_deleted. */
  remove(projectId: string, now: number): Promise<void>;
  /**
   * Stores a verified delivery. If the forge's id was seen in the last 7 days, stores it as skipped
   * instead. Returns null if the hook no longer exists.
   */
  receive(projectId: string, delivery: NewDelivery, now: number): Promise<DeliveryRecord | null>;
  /**
   * Stores a refused delivery and adds 1 + `others` to the count of refused deliveries. `others`:
   * refused deliveries that were not stored.
   */
  refuse(
    projectId: string,
    delivery: { id: string; event: string; reason: string },
    others: number,
    now: number,
  ): Promise<void>;
  /** Lists deliveries, newest first. */
  deliveries(projectId: string, page: Page): Promise<Paged<DeliveryRecord>>;
  /** Throws not_found. */
  delivery(projectId: string, id: string): Promise<DeliveryRecord>;
  /**
   * Returns the hook with the deliveries that wait for a verdict, oldest first; null if no hook
   * exists.
   */
  pushes(projectId: string): Promise<Pushes | null>;
  /** Returns the projects with deliveries that wait for a verdict. */
  waiting(): Promise<string[]>;
  /** Counts the waiting deliveries of all projects. */
  countWaiting(): Promise<{ count: number; oldest_at: number | null }>;
  /** Removes old deliveries. Returns the number of rows. */
  sweep(now: number): Promise<number>;
};

/** Additional facts for a decision about pushes. */
export type Pushes = { hook: HookRecord; waiting: DeliveryRecord[] };

/**
 * The part of a plan that concerns hooks. A verdict is written only if the delivery still waits for
 * it.
 */
export type PushChange = {
  set: Partial<Pick<HookRecord, 'look_upto' | 'look_tries' | 'look_not_before' | 'look_failed_on'>>;
  verdicts: {
    delivery_id: string;
    verdict: Verdict;
    reason: string | null;
    deployment_id: string | null;
  }[];
  /**
   * Pushed commits that are not deployed, because this deployment of a newer push replaced them.
   */
  replaced: { deployment_id: string; generation: number; commits: string[] } | null;
};
