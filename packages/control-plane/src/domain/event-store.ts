/** The feed of events as the control plane reads it. Written by the stores, each in the transaction of its change (store/events.ts). */

export type FeedEvent = {
  seq: number;
  at: number;
  kind: string;
  project_id: string | null;
  deployment_id: string | null;
  node_id: string | null;
  dataset_id: string | null;
  /** Of events about people, which only admins see. */
  user_id: string | null;
  message: string;
};

export type EventStore = {
  /**
   * The events after that number, oldest first; null: the newest ones. `gap`: some after that number are gone, or the number was
   * never given out (a database that was restored from a backup); then from the oldest that is kept. `newest` is 0 where there is none.
   */
  read(after: number | null, limit: number): Promise<{ items: FeedEvent[]; oldest: number | null; newest: number; gap: boolean }>;
};
