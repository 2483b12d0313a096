/** Hooks and their deliveries: records, store, and the facts of a decision about a push. */
import type { Forge, Verdict } from '@berth/wire/hook';
import type { Page, Paged } from '../platform/page.ts';

export type HookRecord = {
  project_id: string;
  forge: Forge;
  /** Sealed by the vault under the name HOOK_SECRET. */
  secret: string;
  /** Refused deliveries since the hook was created. */
  refused: number;
  /** The newest delivery that the last `look` task covers. */
  look_upto: number;
  /** Failed looks in a row, and the earliest next look by the uptime clock. */
  look_tries: number;
  look_not_before: number;
  /** The node of the last failed look. */
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

/** Deliveries that Berth keeps for a project: refused ones, and others. */
export const KEPT_DELIVERIES = { refused: 20, others: 1_000 } as const;
/** A delivery id that was seen within this time is skipped. */
export const REPLAY_MS = 7 * 86_400_000;
/** Other deliveries are removed after this time. */
export const KEPT_DELIVERY_MS = 30 * 86_400_000;
/** Deliveries of a project that wait for a check. The oldest of more are skipped. */
export const MAX_WAITING_DELIVERIES = 200;

export const REPLACED = 'a newer push replaced it';

export type HookStore = {
  /**
   * Creates or replaces the hook. Its deliveries and counts stay. Throws not_found, being_deleted.
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
  /** Stores a refused delivery and counts it with `others`, which are not stored. */
  refuse(
    projectId: string,
    delivery: { id: string; event: string; reason: string },
    others: number,
    now: number,
  ): Promise<void>;
  /** Lists newest first. */
  deliveries(projectId: string, page: Page): Promise<Paged<DeliveryRecord>>;
  /** Throws not_found. */
  delivery(projectId: string, id: string): Promise<DeliveryRecord>;
  /**
   * Returns the hook with the deliveries that wait for a verdict, oldest first; null without a
   * hook.
   */
  pushes(projectId: string): Promise<Pushes | null>;
  /** Returns the projects with deliveries that wait for a verdict. */
  waiting(): Promise<string[]>;
  /** Counts the waiting deliveries of all projects. */
  countWaiting(): Promise<{ count: number; oldest_at: number | null }>;
  /** Removes old deliveries. Returns the number of rows. */
  sweep(now: number): Promise<number>;
};

/** Facts of a decision about pushes, beside those of the project. */
export type Pushes = { hook: HookRecord; waiting: DeliveryRecord[] };

/**
 * The part of a plan that concerns hooks. A verdict is written only if the delivery still waits.
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
   * Pushed commits that no deployment deploys, because this deployment of a newer push replaced
   * them.
   */
  replaced: { deployment_id: string; generation: number; commits: string[] } | null;
};
