/**
 * Writes the lines of deployments' stories inside the caller's transaction, and limits the length
 * of each story. No other file writes story lines.
 */
import { defined } from '@berth/kit/defined';
import {
  LEFT_OUT,
  leftOut,
  repeats,
  STORY_HEAD,
  STORY_LINES,
} from '../domain/deployments/story.ts';
import type { Tx } from './engine/tables.ts';

type Line = { deployment_id: string; kind: string; message: string };

/**
 * `sameBy`: the property (words or kind) by which the new line repeats an older line and replaces
 * it; null if it never does.
 */
export async function writeStoryLine(
  tx: Tx,
  line: Line,
  now: number,
  sameBy: 'words' | 'kind' | null = repeats(line.kind),
): Promise<void> {
  const before = sameBy === null ? undefined : await removeRepeated(tx, line, sameBy);
  await tx
    .insertInto('deployment_events')
    .values({
      ...line,
      at: now,
      ...defined({
        count: before === undefined ? undefined : before.count + 1,
        first_at: before === undefined ? undefined : (before.first_at ?? before.at),
      }),
    })
    .execute();
  // Lines that never repeat need no limit: each belongs to a step, and the number of steps is
  // bounded.
  if (sameBy !== null && before === undefined) await shorten(tx, line.deployment_id);
}

/**
 * Removes the older line. Its repetition is written at the end, so the story is sorted by the time
 * of the last occurrence.
 */
async function removeRepeated(
  tx: Tx,
  { deployment_id, kind, message }: Line,
  sameBy: 'words' | 'kind',
): Promise<{ at: number; count: number; first_at: number | null } | undefined> {
  return tx
    .deleteFrom('deployment_events')
    .where('id', '=', (eb) =>
      eb
        .selectFrom('deployment_events')
        .select('id')
        .where('deployment_id', '=', deployment_id)
        .where('kind', '=', kind)
        .$if(sameBy === 'words', (q) => q.where('message', '=', message))
        .orderBy('id', 'desc')
        .limit(1),
    )
    .returning(['at', 'count', 'first_at'])
    .executeTakeFirst();
}

async function shorten(tx: Tx, deploymentId: string): Promise<void> {
  const lines = await tx
    .selectFrom('deployment_events')
    .select(['id', 'kind', 'at'])
    .where('deployment_id', '=', deploymentId)
    .orderBy('id')
    .execute();
  if (lines.length <= STORY_LINES) return;
  // After the first removal, the line behind the head shows the number of removed lines.
  const notice = lines[STORY_HEAD];
  if (notice === undefined) return;
  const first = notice.kind === LEFT_OUT ? 0 : 1;
  const removed = lines.slice(STORY_HEAD + 1, STORY_HEAD + 1 + lines.length - STORY_LINES);
  await tx
    .deleteFrom('deployment_events')
    .where(
      'id',
      'in',
      removed.map((l) => l.id),
    )
    .execute();
  const mergedLine = await tx
    .updateTable('deployment_events')
    .set((eb) => ({
      kind: LEFT_OUT,
      at: removed.at(-1)?.at ?? notice.at,
      count: first === 1 ? removed.length + 1 : eb('count', '+', removed.length),
    }))
    .where('id', '=', notice.id)
    .returning('count')
    .executeTakeFirstOrThrow();
  await tx
    .updateTable('deployment_events')
    .set({ message: leftOut(mergedLine.count) })
    .where('id', '=', notice.id)
    .execute();
}
