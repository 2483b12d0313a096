/**
 * The feed of events. The stores write each event in the transaction of its change
 * (store/events.ts).
 */

import type { ProjectAccess } from '../identity/access.ts';

export type FeedEvent = {
  seq: number;
  at: number;
  kind: string;
  project_id: string | null;
  deployment_id: string | null;
  node_id: string | null;
  dataset_id: string | null;
  /** Set for events about people, which only admins see. */
  user_id: string | null;
  message: string;
};

export type EventFilter = {
  /** Only the newest events before this number. */
  before?: number;
  /** Part of the kind or the message, in any case. */
  find?: string;
  /** Leaves out the events about other people than this user. */
  reader?: string;
};

export type EventStore = {
  /**
   * Reads the events after this number, oldest first; null reads the newest ones. `gap`: events
   * after this number were removed, or the number is unknown (the database was restored from a
   * backup); the result then starts with the oldest event. `newest`: 0 if none. `access`: only
   * events of projects that this caller can see, and events without a project.
   */
  read(
    after: number | null,
    limit: number,
    access?: ProjectAccess,
    filter?: EventFilter,
  ): Promise<{ items: FeedEvent[]; oldest: number | null; newest: number; gap: boolean }>;
};
