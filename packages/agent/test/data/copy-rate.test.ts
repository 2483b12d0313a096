/** The average speed of copies. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { createCopyRate } from '../../src/data/copy-rate.ts';

it('the copy rate is smoothed, ignores small copies, and survives a restart', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'copy-rate-'));
  const path = join(dir, 'rate.json');
  const rate = await createCopyRate(path);
  expect(rate.get()).toBeNull();
  await rate.add(0, 5);
  expect(rate.get()).toBeNull();
  await rate.add(100_000_000, 1_000);
  await rate.add(10, 1_000);
  expect(rate.get()).toBe(100_000_000);
  await rate.add(200_000_000, 1_000);
  expect(rate.get()).toBe(130_000_000);
  expect((await createCopyRate(path)).get()).toBe(130_000_000);
  await rm(dir, { recursive: true });
});
