/**
 * The cursor of a line in the log of a deployment: the position of the line in the engine's order.
 *
 * The engine's timestamps alone are no order: two lines can have the same timestamp, and the clock
 * of a node can be set back. So `at` is the newest timestamp up to this line, and `ordinal` counts
 * the lines since the first line with that timestamp. Both depend only on the engine's log file,
 * and a read from any time begins at a line with ordinal 0, so each reader computes the same cursor
 * for a line.
 */
import { type Static, Type } from 'typebox';

/** The engine's timestamp of a line, with nanosecond precision, by the clock of the node. */
export const EnginePosition = Type.String({
  maxLength: 40,
  pattern: '^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d(\\.\\d{1,9})?(Z|[+-]\\d\\d:\\d\\d)$',
});

export const LogCursor = Type.Object({
  /** Id of the container; '' if unknown, because an agent of 0.1.0 read the line. */
  run: Type.String({ maxLength: 64, pattern: '^[A-Za-z0-9]*$' }),
  at: EnginePosition,
  /** -1 means before the first line with this timestamp. */
  ordinal: Type.Integer({ minimum: -1 }),
});
export type LogCursor = Static<typeof LogCursor>;

/** Returns whether cursor `a` comes after `b` in the log of one container. */
export const isAfter = (a: LogCursor, b: LogCursor): boolean =>
  a.at === b.at ? a.ordinal > b.ordinal : a.at > b.at;

/**
 * Returns whether a reader that has the lines up to `last` also has the lines up to `cursor`.
 * Cursors can be compared if they belong to one container, or a container is unknown.
 */
export const covers = (last: LogCursor | null, cursor: LogCursor | null): boolean =>
  last !== null &&
  cursor !== null &&
  (last.run === cursor.run || last.run === '' || cursor.run === '') &&
  !isAfter(cursor, last);

export type CursorCounter = (at: string) => LogCursor;

/**
 * Computes the cursors of consecutive lines from their timestamps. The first line must be the first
 * of the log, or the first that the engine returns for a `since`.
 */
export function createCursorCounter(run: string): CursorCounter {
  let newest = '';
  let ordinal = 0;
  return (at) => {
    ordinal = at > newest ? 0 : ordinal + 1;
    if (at > newest) newest = at;
    return { run, at: newest, ordinal };
  };
}
