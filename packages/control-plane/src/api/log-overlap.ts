/**
 * A viewer first gets a read of older lines and then follows the channel of new lines. The two overlap. This tells which lines of the
 * channel the read had, and how many of its missing numbers are lines that the viewer never got.
 */
import type { BatchLine } from '@berth/wire/runtime';

type Line = Pick<BatchLine, 'at' | 'stream' | 'text'>;
export type Overlap = {
  /** Whether the read had this line. Call it once for each line, in their order. */
  wasShown(line: Line): boolean;
  /** Returns how many of the `missing` lines between the last line of `wasShown` and `next` (null: now) the read did not have. */
  lost(missing: number, next: Line | null): number;
};

/**
 * `read`: all lines of the read, by time. `before`: the lines of the channel that came before the viewer's position, so far as they are
 * kept. `floor`: the time of each stream up to which the viewer has all lines from an earlier connection.
 */
export function createOverlap(read: readonly Line[], before: readonly Line[], floor: Record<Line['stream'], string>): Overlap {
  const newest = { ...floor };
  for (const { stream, at } of read) if (at > newest[stream]) newest[stream] = at;
  /** Two lines can have the same nanosecond: at the newest time, the texts that the read had decide. */
  const atNewest = new Map<string, number>();
  const keyOf = ({ stream, text }: Line): string => `${stream} ${text}`;
  for (const line of read) if (line.at === newest[line.stream]) atNewest.set(keyOf(line), (atNewest.get(keyOf(line)) ?? 0) + 1);

  let last = before.at(-1)?.at ?? '';
  /** Times of the lines of the read that may be the missing ones. */
  const times = read.filter(({ at }) => at > last).map(({ at }) => at);
  let used = 0;

  function take(line: Line): boolean {
    if (line.at !== newest[line.stream]) return line.at < newest[line.stream];
    // The read had none of this time: the viewer has it from an earlier connection.
    if (line.at === floor[line.stream]) return true;
    const left = atNewest.get(keyOf(line)) ?? 0;
    if (left > 0) atNewest.set(keyOf(line), left - 1);
    return left > 0;
  }
  for (const line of before) take(line);

  return {
    wasShown(line) {
      if (line.at > last) last = line.at;
      while ((times[used] ?? '~') <= last) used += 1;
      return take(line);
    },
    lost(missing, next) {
      let had = 0;
      while (had < missing && (times[used + had] ?? '~') < (next?.at ?? '~')) had += 1;
      used += had;
      return missing - had;
    },
  };
}
