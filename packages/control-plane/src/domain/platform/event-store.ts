/**
 * Feed of events. The stores write each event in the transaction of its change (store/events.ts).
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
  /** Reads only the newest events before this number. */
  before?: number;
  /** Text that the kind or the message contains, ignoring case. */
  find?: string;
  /** Id of the reading user. Omits events about other people. */
  reader?: string;
};

export type EventStore = {
  /**
   * Reads the events after number `after`, oldest first; null reads the newest events. `gap`:
   * events after this number were removed, or the number is unknown (the database was restored from
   * a backup); the result then starts with the oldest event. `newest`: 0 if there are no events.
   * `access`: only events of projects that this caller can see, and events without a project.
   */
  read(
    after: number | null,
    limit: number,
    access?: ProjectAccess,
    filter?: EventFilter,
  ): Promise<{ items: FeedEvent[]; oldest: number | null; newest: number; gap: boolean }>;
};
