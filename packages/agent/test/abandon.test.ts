/** Waiting for work that may hang in the kernel. */
import { describe, expect, it } from 'vitest';
import { AbandonedError, orAbandon } from '../src/abandon.ts';

describe('work that hangs', () => {
  const hangs = new Promise<never>(() => undefined);
  it('is abandoned after the limit', async () => {
    await expect(orAbandon(hangs, new AbortController().signal, 20, 10_000)).rejects.toThrow(
      AbandonedError,
    );
  });
  it('is abandoned if it does not end within the grace after the abort', async () => {
    await expect(
      orAbandon(hangs, AbortSignal.abort(new Error('cancelled')), 3_600_000, 20),
    ).rejects.toThrow('cancelled');
  });
  it('is not abandoned if it ends, even after an abort', async () => {
    expect(
      await orAbandon(Promise.resolve(1), AbortSignal.abort(new Error('cancelled')), 1_000, 1_000),
    ).toBe(1);
  });
});
