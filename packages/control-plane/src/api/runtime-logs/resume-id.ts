/**
 * The id of a `line` event: for each deployment the cursor of its newest line, so that a stream can
 * be resumed at any control plane (Last-Event-ID).
 *
 *   DEPLOYMENT~TIME~TIME,ORDINAL:RUN,DEPLOYMENT~…
 *
 * A 0.1.0 control plane reads the first part, the times of the newest lines of both streams, and
 * ignores the second part.
 */
import type { LogCursor } from '@berth/wire/log-cursor';

/** Maximum number of deployments in an id; the newest ones are kept. */
const MOST = 4;
const MOST_CHARS = 2_000;

export const resumeId = (cursors: ReadonlyMap<string, LogCursor>): string =>
  [...cursors]
    .slice(-MOST)
    .map(([id, { at, ordinal, run }]) => `${id}~${at}~${at},${ordinal}:${run}`)
    .join(',');

const DEPLOYMENT = /^[\w-]{1,64}$/;
const TIME = /^(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z)?$/;
const REST = /^(\d{1,9}):([A-Za-z0-9]{0,64})$/;

/** Returns the cursors of an id. The client can send any text, so unreadable parts are ignored. */
export function cursorsIn(id: string | string[] | undefined): Map<string, LogCursor> {
  const cursors = new Map<string, LogCursor>();
  if (typeof id !== 'string' || id.length > MOST_CHARS) return cursors;
  const parts = id.split(',');
  for (const [i, part] of parts.entries()) {
    const [deployment = '', stdout = '', stderr = '', ...more] = part.split('~');
    const at = stdout > stderr ? stdout : stderr;
    if (!DEPLOYMENT.test(deployment) || more.length > 0 || at === '') continue;
    if (!TIME.test(stdout) || !TIME.test(stderr)) continue;
    // Version 0.1.0 sent ids without the second part. Treat all lines up to the time as already
    // shown.
    const [, ordinal = '999999999', run = ''] = REST.exec(parts[i + 1] ?? '') ?? [];
    cursors.set(deployment, { run, at, ordinal: Number(ordinal) });
  }
  return cursors;
}
