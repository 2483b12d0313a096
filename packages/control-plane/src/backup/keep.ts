/**
 * Retention rule for backups: keeps the newest backup, and the newest one of each of the last n
 * hours, days and weeks that have one (UTC; weeks begin on Monday).
 */
import type { Parser } from '@berth/kit/config';

export type Keep = { h: number; d: number; w: number };
const HOUR = 3_600_000;
const DAY = 24 * HOUR;
/** Offset of the first Monday: the epoch was a Thursday. */
const MONDAY = 4 * DAY;
const PERIOD: Record<keyof Keep, (at: number) => number> = {
  h: (at) => Math.floor(at / HOUR),
  d: (at) => Math.floor(at / DAY),
  w: (at) => Math.floor((at - MONDAY) / (7 * DAY)),
};
const MOST = 10_000;

/** Parses a rule such as `24h 7d 4w`; each of the three parts is optional. */
export const keepRule: Parser<Keep> = (text) => {
  const rule: Keep = { h: 0, d: 0, w: 0 };
  const parts = text.trim().split(/\s+/);
  for (const part of parts) {
    const [, n, unit] = /^([1-9]\d{0,4})([hdw])$/.exec(part) ?? [];
    if (n === undefined || Number(n) > MOST || rule[unit as keyof Keep] !== 0)
      throw new Error(
        `must be numbers of hours, days and weeks such as 24h 7d 4w, each unit once, not "${text}"`,
      );
    rule[unit as keyof Keep] = Number(n);
  }
  return rule;
};

/** Returns the backups that the rule does not keep. */
export function notKept<T extends { at: number; name: string }>(
  backups: readonly T[],
  rule: Keep,
): T[] {
  const newestFirst = [...backups].sort((a, b) => b.at - a.at || (a.name < b.name ? 1 : -1));
  const kept = new Set<T>(newestFirst.slice(0, 1));
  for (const unit of ['h', 'd', 'w'] as const) {
    const periods = new Set<number>();
    for (const backup of newestFirst) {
      const period = PERIOD[unit](backup.at);
      if (periods.has(period)) continue;
      if (periods.size === rule[unit]) break;
      periods.add(period);
      kept.add(backup);
    }
  }
  return newestFirst.filter((backup) => !kept.has(backup));
}
