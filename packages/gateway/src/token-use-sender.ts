/** Sends the last uses of device tokens to the control plane, in batches. */
import type { Client } from '@berth/wire/client';

const INTERVAL_MS = 10_000;
const MAX_BATCH = 1_000;
/** Limit of device tokens with an unsent use; uses of further tokens are not recorded. */
const MAX_UNSENT = 100_000;
const SEND_TIMEOUT_MS = 5_000;

export type TokenUseSender = {
  /** Sends all unsent uses. Returns the pause in ms until the next call. */
  step(): Promise<number>;
  add(tokenId: string): void;
  flush(): Promise<void>;
};

export function createTokenUseSender(controlPlane: Client, now: () => number): TokenUseSender {
  /** Token id -> time of its last use in ms. */
  const uses = new Map<string, number>();

  async function flush(): Promise<void> {
    while (uses.size > 0) {
      const batch = [...uses].slice(0, MAX_BATCH);
      const items = batch.map(([id, at]) => ({ id, at: new Date(at).toISOString() }));
      await controlPlane.call('deviceTokensUsed', { body: { items }, timeoutMs: SEND_TIMEOUT_MS });
      for (const [id, at] of batch) if (uses.get(id) === at) uses.delete(id);
    }
  }

  return {
    async step() {
      await flush();
      return INTERVAL_MS;
    },
    add(tokenId) {
      if (uses.size < MAX_UNSENT || uses.has(tokenId)) uses.set(tokenId, now());
    },
    flush,
  };
}
