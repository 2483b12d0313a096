/** Reads project names by id. Reads in one event-loop turn are batched, 100 ids per request. */
import type { AnswerOf } from '@berth/wire/routes';

/** Maximum number of ids in one request. */
export const BATCH = 100;
type Waiting = {
  id: string;
  done: (name: string | null) => void;
  failed: (error: unknown) => void;
};
type List = (
  ids: readonly string[],
) => Promise<{ items: readonly Pick<AnswerOf<'listProjects'>['items'][number], 'id' | 'name'>[] }>;

/**
 * Returns a function that reads the name of a project. It resolves to null if the project does not
 * exist or is hidden.
 */
export function createNameReader(list: List): (id: string) => Promise<string | null> {
  let waiting: Waiting[] = [];
  async function readBatch(batch: readonly Waiting[]): Promise<void> {
    try {
      const { items } = await list([...new Set(batch.map(({ id }) => id))]);
      const names = new Map(items.map(({ id, name }) => [id, name]));
      for (const { id, done } of batch) done(names.get(id) ?? null);
    } catch (error) {
      for (const { failed } of batch) failed(error);
    }
  }
  function flush(): void {
    const all = waiting;
    waiting = [];
    for (let at = 0; at < all.length; at += BATCH) void readBatch(all.slice(at, at + BATCH));
  }
  return (id) =>
    new Promise((done, failed) => {
      if (waiting.length === 0) setTimeout(flush);
      waiting.push({ id, done, failed });
    });
}
