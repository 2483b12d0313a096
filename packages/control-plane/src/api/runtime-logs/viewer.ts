/** One open stream of runtime logs, and what is sent on it. */
import type { LogCursor } from '@berth/wire/log-cursor';
import type { GoneNode } from '@berth/wire/runtime';
import type { RuntimeLogDeps } from './deps.ts';
import type { Hold } from '../long-poll.ts';
import type { EventStream, SseEvent } from '../sse.ts';
import type { LogQuery } from './lines.ts';
import type { Readers } from './readers.ts';

export type ViewerDeps = Pick<RuntimeLogDeps, 'stores' | 'changes' | 'now' | 'limits'> & {
  readers: Readers;
};

export type Viewer = {
  deps: ViewerDeps;
  stream: EventStream;
  hold: Hold;
  query: LogQuery;
  /** When the stream began, by the clock of the control plane. */
  beganAt: number;
  /** Throws when the caller's rights have ended. */
  recheck: () => Promise<unknown>;
  /** Monotonic time of the last check of the rights. */
  checkedAt: number;
  /** The newest line of each deployment that the client had when the stream began (Last-Event-ID). */
  resumed: ReadonlyMap<string, LogCursor>;
  /** The newest line of each deployment that was sent. */
  cursors: Map<string, LogCursor>;
  /** Deployments that ran when the stream began: the client gets the lines that it asks for. */
  firstTargets: Set<string>;
  /** Monotonic time of the last event. */
  quietSince: number;
};

/** Lines reach a viewer whose rights ended for at most this time. */
const RIGHTS_MS = 500;

/** Checks the rights of the caller: not for each part of a fast log, which would cost too much. */
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
 * Ends the stream if the viewer does not take what `work` sends: what it does not take stays in
 * memory.
 */
export async function inTime({ stream, deps }: Viewer, work: () => Promise<void>): Promise<void> {
  const timer = setTimeout(() => stream.abort(), deps.readers.limits.slowMs);
  try {
    await work();
  } finally {
    clearTimeout(timer);
  }
}
