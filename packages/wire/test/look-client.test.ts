/** The loop of a look into a repository, with the answers that a control plane may give. */
import { expect, it } from 'vitest';
import { type LookCalls, lookAt } from '../src/look-client.ts';
import type { RepositoryLook } from '../src/repository-look.ts';

const body = { git_url: 'https://git.example/shop.git', branch: null };
const waiting: RepositoryLook = {
  ...body,
  id: 'look-1',
  state: 'waiting',
  requested_at: '2026-01-01T00:00:00Z',
  found: null,
  error: null,
};
const failed: RepositoryLook = {
  ...waiting,
  state: 'failed',
  error: { code: 'git_credentials', message: 'refused' },
};

/** Answers in order; the last one again and again. */
function calls(
  first: RepositoryLook,
  answers: (RepositoryLook | null)[],
): LookCalls & { tags: (string | undefined)[]; slept: number[] } {
  const tags: (string | undefined)[] = [];
  const slept: number[] = [];
  return {
    tags,
    slept,
    create: async () => first,
    async get({ headers }) {
      tags.push(headers?.['if-none-match']);
      return {
        answer: answers[Math.min(tags.length, answers.length) - 1] ?? null,
        etag: `"${tags.length}"`,
      };
    },
    sleep: async (ms) => slept.push(ms),
  };
}

it('holds requests, each with the tag of the last answer, until the look has ended', async () => {
  const given = calls(waiting, [waiting, null, failed]);
  expect(await lookAt(given, body)).toEqual(failed);
  expect(given.tags).toEqual([undefined, '"1"', '"2"']);
});

it('pauses after an answer without news, and gives up in the end', async () => {
  const given = calls(waiting, [null]);
  expect(await lookAt(given, body)).toEqual(waiting);
  expect(given.slept.length).toBe(given.tags.length);
  expect(given.slept.reduce((sum, ms) => sum + ms, 0)).toBeGreaterThanOrEqual(60_000);
});

it.each([
  ['has ended', failed],
  ['has no id: no builder can look', { ...waiting, id: null }],
])('asks once when the first answer %s', async (_, first) => {
  const given = calls(first, []);
  expect(await lookAt(given, body)).toEqual(first);
  expect(given.tags).toEqual([]);
});
