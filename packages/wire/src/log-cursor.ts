/**
 * The cursor of a line in the log of a deployment: its place in the order of the container engine.
 *
 * The engine's times alone give no order: two lines can have one time, and the clock of a node can
 * be set back. So `at` is the newest time that the engine has written up to this line, and
 * `ordinal` counts the lines since the first one with that time. Both follow from the engine's file
 * alone, and a read from any time begins at a line with ordinal 0: each reader gives a line the
 * same cursor.
 */
import { type Static, Type } from 'typebox';

/** The engine's own time of a line, with nanoseconds, by the clock of the node. */
export const EnginePosition = Type.String({
  maxLength: 40,
  pattern: '^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d(\\.\\d{1,9})?(Z|[+-]\\d\\d:\\d\\d)$',
});

export const LogCursor = Type.Object({
  /** The container. '': an agent of 0.1.0 read the line, and the container is not known. */
  run: Type.String({ maxLength: 64, pattern: '^[A-Za-z0-9]*$' }),
  at: EnginePosition,
  /** -1: before the first line of this time. */
  ordinal: Type.Integer({ minimum: -1 }),
});
export type LogCursor = Static<typeof LogCursor>;

/** Whether both can be compared: they are of one container, as far as is known. */
export const isSameRun = (a: LogCursor, b: LogCursor): boolean =>
  a.run === b.run || a.run === '' || b.run === '';

/** Whether the line of cursor `a` comes after `b` in the log of one container. */
export const isAfter = (a: LogCursor, b: LogCursor): boolean =>
  a.at === b.at ? a.ordinal > b.ordinal : a.at > b.at;

export type CursorCounter = (at: string) => LogCursor;

/**
 * Returns the cursors of consecutive lines from their engine times. The first line must be the
 * first of the log, or the first that the engine returns for a `since`.
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
