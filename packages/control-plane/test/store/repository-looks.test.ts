/** The task of a look into a repository without a project, among many others. */
import { expect, test } from 'vitest';
import { MAX_KEPT } from '../../src/domain/git/repository-looks.ts';
import { freshPath, NOW, nodeIn, open, rowsOf, runOn } from './fixtures.ts';

test('finds the same look without reading the reports of the others', async () => {
  const path = freshPath();
  const stores = await open(path);
  const node = await nodeIn(stores);
  const lookAt = (id: string, git_url: string) => {
    const payload = { repository: true as const, git_url, branch: null };
    return stores.repositoryLooks.create(
      { id, node_id: node.id, queue_deadline_at: NOW, wall_deadline_at: NOW, payload },
      NOW,
    );
  };
  const url = (i: number): string => `https://git.example.com/${i}.git`;
  for (let i = 0; i < MAX_KEPT; i++) {
    await lookAt(`look-${i}`, url(i));
    // 12 may be open.
    if (i % 10 === 9)
      await runOn(
        path,
        `update tasks set status = 'completed', finished_at = ${NOW}, report = ` +
          `'{"status":"completed"}' where finished_at is null`,
      );
  }
  // Reading another report fails.
  await runOn(path, `update tasks set report = 'not JSON' where id <> 'look-7'`);
  const sameAs = async (git_url: string, now: number) =>
    (await stores.repositoryLooks.same({ git_url, branch: null }, now))?.id ?? null;
  expect(await sameAs(url(7), NOW + 1)).toBe('look-7');
  expect((await lookAt('again', url(7))).id).toBe('look-7');
  // Too old, and from the future.
  expect(await sameAs(url(7), NOW + 31_000)).toBeNull();
  expect(await sameAs(url(7), NOW - 1)).toBeNull();
  expect(await sameAs(url(MAX_KEPT), NOW)).toBeNull();
  expect((await lookAt('new', url(MAX_KEPT))).id).toBe('new');
  expect(await sameAs(url(MAX_KEPT), NOW)).toBe('new');
  await runOn(
    path,
    `update tasks set status = 'failed', finished_at = ${NOW}, report = '{"status":"failed"}' ` +
      "where id = 'new'",
  );
  expect(await sameAs(url(MAX_KEPT), NOW)).toBeNull();
  expect((await rowsOf(path, 'tasks')).length).toBe(MAX_KEPT + 1);
});
