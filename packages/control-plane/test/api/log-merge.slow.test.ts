import { expect, test } from 'vitest';
import { type Chunk, createLineMerge, type MergeMember } from '../../src/api/runtime-logs/merge.ts';

function scene(mostFirst = Infinity) {
  const merge = createLineMerge(mostFirst);
  const sent: string[] = [];
  const skipped: string[] = [];
  /** Lines `NAME TIME`. */
  const chunk = (name: string, times: readonly number[], isFirst = false): Chunk => ({
    times,
    async send(from, to) {
      // The time that a slow viewer takes.
      await new Promise((resolve) => setImmediate(resolve));
      sent.push(...times.slice(from, to).map((time) => `${name} ${time}`));
    },
    skip: (to) => void skipped.push(...times.slice(0, to).map((time) => `${name} ${time}`)),
    isFirst,
  });
  return { merge, sent, skipped, chunk };
}
const rest = (...members: MergeMember[]): void => {
  for (const member of members) member.rest();
};

test('lines of two logs are merged by time, and each log keeps its own order', async () => {
  const { merge, sent, chunk } = scene();
  const [a, b] = [merge.join(), merge.join()];
  await Promise.all([a.pass(chunk('a', [1, 4, 3, 9])), b.pass(chunk('b', [2, 5, 6]))]);
  expect(sent).toEqual(['a 1', 'b 2', 'a 4', 'a 3', 'b 5', 'b 6', 'a 9']);
});

test('the lines of the only log are sent at once', async () => {
  const { merge, sent, chunk } = scene();
  const began = performance.now();
  await merge.join().pass(chunk('a', [1, 2]));
  expect(sent).toEqual(['a 1', 'a 2']);
  expect(performance.now() - began).toBeLessThan(200);
});

test('a line waits for an older one of a log that has none yet, but not for one that is silent', async () => {
  const { merge, sent, chunk } = scene();
  const [a, b, silent] = [merge.join(), merge.join(), merge.join()];
  rest(a, b, silent);
  const first = a.pass(chunk('a', [2]));
  await new Promise((resolve) => setImmediate(resolve));
  expect(sent).toEqual([]);
  await Promise.all([first, b.pass(chunk('b', [1]))]);
  expect(sent).toEqual(['b 1', 'a 2']);
  silent.leave();
  expect(merge.size()).toBe(2);
});

test('of the older lines of all logs together only the newest ones are sent, later ones all', async () => {
  const { merge, sent, skipped, chunk } = scene(3);
  const [a, b] = [merge.join(), merge.join()];
  await Promise.all([a.pass(chunk('a', [1, 4, 5], true)), b.pass(chunk('b', [2, 3, 6], true))]);
  expect(sent).toEqual(['a 4', 'a 5', 'b 6']);
  expect(skipped).toEqual(['a 1', 'b 2', 'b 3']);
  rest(a, b);
  await Promise.all([a.pass(chunk('a', [7, 8])), b.pass(chunk('b', [9, 10]))]);
  expect(sent.slice(3)).toEqual(['a 7', 'a 8', 'b 9', 'b 10']);
});

test('a log none of whose older lines is sent, and one without lines', async () => {
  const { merge, sent, chunk } = scene(2);
  const [a, b, empty] = [merge.join(), merge.join(), merge.join()];
  await empty.pass(chunk('empty', [], true));
  empty.rest();
  await Promise.all([a.pass(chunk('a', [1, 2], true)), b.pass(chunk('b', [3, 4], true))]);
  expect(sent).toEqual(['b 3', 'b 4']);
});

test('a log that cannot be sent fails alone', async () => {
  const { merge, sent, chunk } = scene();
  const [a, b] = [merge.join(), merge.join()];
  const broken = { ...chunk('a', [1]), send: () => Promise.reject(new Error('gone')) };
  const both = await Promise.allSettled([a.pass(broken), b.pass(chunk('b', [2]))]);
  a.leave();
  expect(both.map(({ status }) => status)).toEqual(['rejected', 'fulfilled']);
  expect(sent).toEqual(['b 2']);
});

test('many logs that print all the time: every line once, in the order of time', async () => {
  const { merge, sent, chunk } = scene();
  const members = ['a', 'b', 'c', 'd'].map((name) => ({ name, member: merge.join() }));
  await Promise.all(
    members.map(async ({ name, member }, offset) => {
      for (let part = 0; part < 20; part += 1)
        await member.pass(
          chunk(
            name,
            Array.from({ length: 10 }, (_, i) => (part * 10 + i) * members.length + offset),
          ),
        );
      member.leave();
    }),
  );
  expect(sent.map((line) => Number(line.split(' ')[1]))).toEqual(
    Array.from({ length: 800 }, (_, i) => i),
  );
});
