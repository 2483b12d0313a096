/**
 * Stored answers for an Idempotency-Key: one request has the claim, and no user can fill the table.
 */
import { expect, test } from 'vitest';
import { manyTimes, open } from './fixtures.ts';

const userIn = async (stores: Awaited<ReturnType<typeof open>>, email: string): Promise<string> =>
  (await stores.users.create({ email, role: 'viewer', password_hash: null }, 0)).id;
const claimOf = (user_id: string, request: string, claim: string, more = {}) => ({
  user_id,
  request,
  body_hash: 'b',
  claim,
  claimed_until: 60,
  expires_at: 10_000,
  ...more,
});

test('the next request takes over an expired claim; expired answers are swept', async () => {
  const stores = await open();
  const { idempotencyAnswers } = stores;
  const ann = await userIn(stores, 'ann@example.com');
  expect(await idempotencyAnswers.begin(claimOf(ann, 'r', 'c1'), 0)).toEqual({ kind: 'claimed' });
  expect(await idempotencyAnswers.begin(claimOf(ann, 'r', 'c2'), 59)).toMatchObject({
    kind: 'in_progress',
  });
  expect(
    await idempotencyAnswers.begin(claimOf(ann, 'r', 'c2', { body_hash: 'other' }), 59),
  ).toEqual({ kind: 'other_body' });
  expect(
    await idempotencyAnswers.begin(claimOf(ann, 'r', 'c2', { claimed_until: 120 }), 61),
  ).toEqual({ kind: 'claimed' });
  await idempotencyAnswers.keep(claimOf(ann, 'r', 'c1'), Buffer.from('late'));
  await idempotencyAnswers.giveUp(claimOf(ann, 'r', 'c1'));
  expect(await idempotencyAnswers.begin(claimOf(ann, 'r', 'c3'), 62)).toMatchObject({
    kind: 'in_progress',
  });
  await idempotencyAnswers.keep(claimOf(ann, 'r', 'c2'), Buffer.from('x'));
  expect(await idempotencyAnswers.begin(claimOf(ann, 'r', 'c3'), 63)).toEqual({
    kind: 'stored',
    answer: Buffer.from('x'),
  });
  expect(await idempotencyAnswers.begin(claimOf(ann, 'r', 'c3'), 10_000)).toEqual({
    kind: 'claimed',
  });
  expect(await idempotencyAnswers.sweep(20_000)).toBe(1);
});

test('a request that saw that a claim is not renewed takes it over; a renewed claim stays', async () => {
  const stores = await open();
  const { idempotencyAnswers } = stores;
  const ann = await userIn(stores, 'ann@example.com');
  await idempotencyAnswers.begin(claimOf(ann, 'r', 'c1'), 0);
  const watch = async (claim: string, abandoned?: string | null) =>
    idempotencyAnswers.begin(
      { ...claimOf(ann, 'r', claim), ...(abandoned === undefined ? {} : { abandoned }) },
      1,
    );
  const seen = await watch('c2');
  if (seen.kind !== 'in_progress') throw new Error(seen.kind);
  expect(await watch('c2')).toEqual(seen);
  await idempotencyAnswers.renew(claimOf(ann, 'r', 'c1'), 61);
  const renewed = await watch('c2', seen.renewed);
  if (renewed.kind !== 'in_progress') throw new Error(renewed.kind);
  expect(renewed.renewed).not.toBe(seen.renewed);
  expect((await watch('c2', renewed.renewed)).kind).toBe('claimed');
  // The first holder is alive after all; it has lost the claim.
  await idempotencyAnswers.renew(claimOf(ann, 'r', 'c1'), 62);
  expect((await watch('c3', renewed.renewed)).kind).toBe('in_progress');
});

test('a claim that was given up can be claimed again', async () => {
  const stores = await open();
  const ann = await userIn(stores, 'ann@example.com');
  await stores.idempotencyAnswers.begin(claimOf(ann, 'r', 'c1'), 0);
  await stores.idempotencyAnswers.giveUp(claimOf(ann, 'r', 'c1'));
  expect(await stores.idempotencyAnswers.begin(claimOf(ann, 'r', 'c2'), 1)).toEqual({
    kind: 'claimed',
  });
});

test('the answers of a user are bounded by number and bytes; the oldest are removed', async () => {
  const stores = await open(':memory:');
  const [ann, bob] = [
    await userIn(stores, 'ann@example.com'),
    await userIn(stores, 'bob@example.com'),
  ];
  const fill = async (who: string, i: number, bytes: number): Promise<void> => {
    const claim = claimOf(who, `r${i}`, 'c');
    await stores.idempotencyAnswers.begin(claim, i);
    await stores.idempotencyAnswers.keep(claim, Buffer.alloc(bytes));
  };
  const isKept = async (who: string, i: number): Promise<boolean> => {
    const claim = claimOf(who, `r${i}`, 'look');
    const { kind } = await stores.idempotencyAnswers.begin(claim, 2_000);
    await stores.idempotencyAnswers.giveUp(claim);
    return kind === 'stored';
  };
  await fill(bob, 0, 10);
  for (let i = 10; i < 30; i++) await fill(ann, i, 1_048_576);
  expect([await isKept(ann, 13), await isKept(ann, 14), await isKept(ann, 29)]).toEqual([
    false,
    true,
    true,
  ]);
  await manyTimes(1_000, (i) => fill(ann, 100 + i, 1));
  for (let i = 1_100; i < 1_110; i++) await fill(ann, i, 1);
  expect([
    await isKept(ann, 29),
    await isKept(ann, 109),
    await isKept(ann, 110),
    await isKept(ann, 1_109),
  ]).toEqual([false, false, true, true]);
  expect(await isKept(bob, 0)).toBe(true);
}, 60_000);
