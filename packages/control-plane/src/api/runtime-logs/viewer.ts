/** One open stream of runtime logs, and the state of its client. */
import type { Limit } from '@berth/kit/limit';
import type { LogCursor } from '@berth/wire/log-cursor';
import type { GoneNode } from '@berth/wire/runtime';
import type { RuntimeLogDeps } from './deps.ts';
import type { Hold } from '../long-poll.ts';
import type { EventStream, SseEvent } from '../sse.ts';
import type { LogQuery } from './lines.ts';
import type { LineMerge } from './merge.ts';

export type Viewer = {
  deps: RuntimeLogDeps;
  stream: EventStream;
  hold: Hold;
  query: LogQuery;
  /** When the stream began, by the control plane's wall clock. */
  beganAt: number;
  /** Checks the caller's rights again. Throws if they have ended. */
  recheck: () => Promise<unknown>;
  /** Monotonic time of the last check of the rights. */
  checkedAt: number;
  /**
   * Newest line of each instance (key of its target) that the client has: at first from the stream
   * that it resumes (Last-Event-ID).
   */
  cursors: Map<string, LogCursor>;
  /**
   * Keys of the instances that ran when the stream began, until their log is read: the client gets
   * their older lines as requested.
   */
  firstTargets: Set<string>;
  merge: LineMerge;
  /** Limits how many logs are read for this viewer at the same time. */
  reads: Limit;
  /** Monotonic time of the last event. */
  quietSince: number;
};

/** Longest time during which a viewer whose rights ended still gets lines. */
const RIGHTS_MS = 500;

/** Checks the caller's rights, but not for each part of a fast log, which would cost too much. */
export async function checkRights(viewer: Viewer): Promise<void> {
  if (performance.now() - viewer.checkedAt < RIGHTS_MS) return;
  await viewer.recheck();
  viewer.checkedAt = performance.now();
}

export async function send(viewer: Viewer, events: readonly SseEvent[]): Promise<void> {
  viewer.quietSince = performance.now();
  await viewer.stream.sendAll(events);
}

export const sendGone = (viewer: Viewer, data: GoneNode): Promise<void> =>
  send(viewer, [{ event: 'gone', data }]);

/**
 * Aborts the stream if the viewer does not receive in time what `work` sends, because unsent lines
 * stay in memory.
 */
export async function inTime({ stream, deps }: Viewer, work: () => Promise<void>): Promise<void> {
  const timer = setTimeout(() => stream.abort(), deps.readers.limits.slowMs);
  try {
    await work();
  } finally {
    clearTimeout(timer);
  }
}
