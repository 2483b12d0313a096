/** Sends revocations to the control plane until it has received them. */
import type { Logger } from '@berth/kit/log';
import { ApiError, type Client } from '@berth/wire/client';
import type { PolicyFile, Revocation } from './policy-file.ts';

const SEND_TIMEOUT_MS = 5_000;
const MIN_PAUSE_MS = 25;

export type RevocationSenderParts = {
  controlPlane: Client;
  file: Pick<PolicyFile, 'dropRevocation'>;
  log: Logger;
  now: () => number;
  signal: AbortSignal;
};
export type RevocationSender = {
  /**
   * Sends all revocations, then waits for a new one. Returns the pause in ms until the next call.
   */
  step(): Promise<number>;
  add(revocation: Revocation): void;
  /** Ends the wait of `step`. */
  wake(): void;
  /** Number of revocations that are not sent yet. */
  count(): number;
};

export function createRevocationSender(
  parts: RevocationSenderParts,
  stored: readonly Revocation[],
): RevocationSender {
  const { controlPlane, file, log, now, signal } = parts;
  const unsent = new Map(stored.map((revocation) => [revocation.id, revocation]));
  let added = Promise.withResolvers<void>();

  /** Ignores a permanent refusal, because it must not block the other revocations. */
  function ignorePermanent(error: unknown): void {
    if (!(error instanceof ApiError) || ![400, 404, 409, 422].includes(error.status)) throw error;
    log.error(
      { err: error },
      'the control plane refused a revocation; it applies only to this gateway',
    );
  }

  return {
    async step() {
      for (const revocation of unsent.values()) {
        if (Date.parse(revocation.expires_at) > now())
          await controlPlane
            .call('revokeSession', { body: revocation, timeoutMs: SEND_TIMEOUT_MS, signal })
            .catch(ignorePermanent);
        unsent.delete(revocation.id);
        await file.dropRevocation(revocation.id);
      }
      added = Promise.withResolvers<void>();
      // `wake` can have resolved the previous promise during `close`, so check the signal too.
      if (unsent.size === 0 && !signal.aborted) await added.promise;
      return MIN_PAUSE_MS;
    },
    add(revocation) {
      unsent.set(revocation.id, revocation);
      added.resolve();
    },
    wake: () => added.resolve(),
    count: () => unsent.size,
  };
}
