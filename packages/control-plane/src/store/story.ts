/** The one place that writes lines of stories, and keeps each story short. Inside a transaction of others. */
import { LEFT_OUT, leftOut, repeats, STORY_HEAD, STORY_LINES } from '../domain/story.ts';
import type { Tx } from './engine/tables.ts';

type Line = { deployment_id: string; kind: string; message: string };

/** `counts`: what makes a line the same as an earlier one; null: it is written whatever stands there. */
export async function tell(tx: Tx, line: Line, now: number, counts: 'words' | 'kind' | null = repeats(line.kind)): Promise<void> {
  const before = counts === null ? undefined : await takeOut(tx, line, counts);
  await tx
    .insertInto('deployment_events')
    .values({ ...line, at: now, ...(before === undefined ? {} : { count: before.count + 1, first_at: before.first_at ?? before.at }) })
    .execute();
  // What is counted by nothing belongs to a step, and the steps are bounded.
  if (counts !== null && before === undefined) await shorten(tx, line.deployment_id);
}

/** It comes again at the end, so that the story stays in the order of the last time. */
async function takeOut(
  tx: Tx,
  { deployment_id, kind, message }: Line,
  counts: 'words' | 'kind',
): Promise<{ at: number; count: number; first_at: number | null } | undefined> {
  return tx
    .deleteFrom('deployment_events')
    .where('id', '=', (eb) =>
      eb
        .selectFrom('deployment_events')
        .select('id')
        .where('deployment_id', '=', deployment_id)
        .where('kind', '=', kind)
        .$if(counts === 'words', (q) => q.where('message', '=', message))
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
  // The line that says it stands behind the head from the first time on.
  const mark = lines[STORY_HEAD];
  if (mark === undefined) return;
  const first = mark.kind === LEFT_OUT ? 0 : 1;
  const out = lines.slice(STORY_HEAD + 1, STORY_HEAD + 1 + lines.length - STORY_LINES);
  await tx
    .deleteFrom('deployment_events')
    .where(
      'id',
      'in',
      out.map((l) => l.id),
    )
    .execute();
  const left = await tx
    .updateTable('deployment_events')
    .set((eb) => ({ kind: LEFT_OUT, at: out.at(-1)?.at ?? mark.at, count: first === 1 ? out.length + 1 : eb('count', '+', out.length) }))
    .where('id', '=', mark.id)
    .returning('count')
    .executeTakeFirstOrThrow();
  await tx
    .updateTable('deployment_events')
    .set({ message: leftOut(left.count) })
    .where('id', '=', mark.id)
    .execute();
}
