/**
 * The id of a `line` event: for each instance (key of its target) the cursor of its newest line, so
 * that a stream can be resumed at any control plane (Last-Event-ID).
 *
 *   KEY~TIME~TIME,ORDINAL:RUN,KEY~…
 *
 * A 0.1.0 control plane reads the first part, the times of the newest lines of both streams, and
 * ignores the second part.
 */
import type { LogCursor } from '@berth/wire/log-cursor';

/**
 * Maximum number of instances in an id; the newest ones are kept. More than a stream follows at
 * once.
 */
const MOST = 16;
const MOST_CHARS = 4_000;

export const resumeId = (cursors: ReadonlyMap<string, LogCursor>): string =>
  [...cursors]
    .slice(-MOST)
    .map(([id, { at, ordinal, run }]) => `${id}~${at}~${at},${ordinal}:${run}`)
    .join(',');

const TIME = String.raw`((?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z)?)`;
/** The second part is absent from ids of version 0.1.0. */
const PART = new RegExp(
  String.raw`(?<=^|,)([\w-]{1,64})~${TIME}~${TIME}(?:,(\d{1,9}):([A-Za-z0-9]{0,64}))?(?=,|$)`,
  'g',
);

/** Returns the cursors of an id. The client can send any text, so unreadable parts are ignored. */
export function cursorsIn(id: string | string[] | undefined): Map<string, LogCursor> {
  const cursors = new Map<string, LogCursor>();
  if (typeof id !== 'string' || id.length > MOST_CHARS) return cursors;
  // An id of version 0.1.0 has no ordinal. Treat all lines up to the time as already shown.
  for (const part of id.matchAll(PART)) {
    const [, key = '', out = '', err = '', ordinal = '999999999', run = ''] = part;
    const at = out > err ? out : err;
    if (at !== '') cursors.set(key, { run, at, ordinal: Number(ordinal) });
  }
  return cursors;
}
