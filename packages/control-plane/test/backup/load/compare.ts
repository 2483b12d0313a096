/**
 * Compares a restored backup with what is known of the database while the backup was made: its rows
 * shortly before and after, and the writes of clients with their times. A backup is good when it
 * shows one moment between its begin and its end.
 */
import type { Rows } from './rows.ts';

/** An acknowledged write. Each lane sends one write after the other. */
export type Write = {
  lane: string;
  /** The rows show it by this text (`markersOf`). */
  marker: string;
  /** The next write of the lane replaces the marker. */
  replaced: boolean;
  /** Times of the request and of its answer, in ms. */
  from: number;
  to: number;
};

export type Seen = {
  before: Rows;
  after: Rows;
  restored: Rows;
  writes: readonly Write[];
  /** Times of the backup, by the same clock as the writes. */
  began: number;
  ended: number;
};

/** These columns are texts or null in every row. */
const parsed = (rows: Rows, table: string): Record<string, string | null>[] =>
  [...(rows.get(table)?.values() ?? [])].map(
    (text) => JSON.parse(text) as Record<string, string | null>,
  );

/** Returns the markers of the writes that rows show. */
export function markersOf(rows: Rows): Set<string> {
  const markers = new Set<string>();
  for (const { email } of parsed(rows, 'users')) markers.add(`user ${email}`);
  for (const { note } of parsed(rows, 'deployments'))
    if (note !== null) markers.add(`deployment ${note}`);
  for (const { text } of parsed(rows, 'log_lines')) markers.add(`log ${text}`);
  for (const { id, status } of parsed(rows, 'tasks'))
    if (status === 'completed') markers.add(`task ${id}`);
  for (const { project_id, fingerprint } of parsed(rows, 'project_secrets'))
    markers.add(`secret ${project_id} ${fingerprint}`);
  for (const { id, env } of parsed(rows, 'projects'))
    markers.add(`env ${id} ${(JSON.parse(String(env)) as { N?: string }).N ?? ''}`);
  return markers;
}

/** Rows that a restore changes: the record of the backup itself, and the mark of the restore. */
const isOfRestore = (table: string, text: string): boolean =>
  (table === 'meta' && text.includes('"key":"restored"')) ||
  (table === 'backups' && text.includes('"finished_at":null'));

/**
 * Tables with rows that may be created and removed during one backup: a mark lives as long as its
 * task.
 */
const BRIEF = new Set(['log_marks']);

/** Returns what is wrong with the restored rows, and how much was compared. */
export function compare(seen: Seen): { problems: string[]; unchanged: number; present: number } {
  const problems: string[] = [];
  const { unchanged } = compareRows(seen, problems);
  const { present } = compareWrites(seen, problems);
  return { problems, unchanged, present };
}

/**
 * A row that is the same before and after the backup is in it. A row of the backup is of before, of
 * after, or of a change in between.
 */
function compareRows({ before, after, restored }: Seen, problems: string[]): { unchanged: number } {
  let unchanged = 0;
  for (const [table, rows] of before)
    for (const [key, text] of rows) {
      if (after.get(table)?.get(key) !== text || isOfRestore(table, text)) continue;
      unchanged += 1;
      const found = restored.get(table)?.get(key);
      if (found !== text)
        problems.push(
          `${table} ${key}: ${found === undefined ? 'missing' : `is ${found} instead of ${text}`}`,
        );
    }
  for (const [table, rows] of restored)
    for (const [key, text] of rows) {
      const [first, last] = [before.get(table)?.get(key), after.get(table)?.get(key)];
      if (text === first || text === last || isOfRestore(table, text)) continue;
      if (first === undefined && last === undefined && !BRIEF.has(table))
        problems.push(`${table} ${key}: never existed: ${text}`);
      else if (first !== undefined && first === last)
        problems.push(`${table} ${key}: is ${text} instead of ${first}`);
    }
  return { unchanged };
}

/**
 * Every write that was answered before the backup began is in it, and none that began after its
 * end. If it has a write, it has every write that was answered before that one began: one moment
 * has no gaps.
 */
function compareWrites(
  { restored, writes, began, ended }: Seen,
  problems: string[],
): { present: number } {
  const markers = markersOf(restored);
  const present = new Set<Write>();
  const passed = new Set<string>();
  for (const write of writes.toReversed()) {
    // A lane that shows a later write has replaced this one.
    if (!markers.has(write.marker) && !(write.replaced && passed.has(write.lane))) continue;
    present.add(write);
    passed.add(write.lane);
  }
  const newest = [...present].reduce<Write | null>(
    (one, write) => (one === null || write.from > one.from ? write : one),
    null,
  );
  for (const write of writes) {
    if (present.has(write)) {
      if (write.from > ended)
        problems.push(
          `${write.marker}: in the backup, but requested ${ms(write.from - ended)} after its end`,
        );
      continue;
    }
    if (write.to < began)
      problems.push(
        `${write.marker}: missing, but answered ${ms(began - write.to)} before the backup began`,
      );
    else if (newest !== null && write.to < newest.from)
      problems.push(
        `${write.marker}: missing, but ${newest.marker} is there, which was requested ` +
          `${ms(newest.from - write.to)} later`,
      );
  }
  return { present: present.size };
}

const ms = (value: number): string => `${value.toFixed(0)} ms`;
