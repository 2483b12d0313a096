/**
 * Follows the control plane's policy and stores it in memory and on disk. While the control plane
 * is down, signed-in people stay signed in, even if the gateway restarts. Revocations take effect
 * here immediately and are sent until the control plane receives them.
 *
 *   waiting   there was never a policy: /verify answers 503
 *   stored    the policy comes from disk, or the control plane no longer answers
 *   current   the control plane answers
 *
 * Three loops run until `close`, each in a file of its own: policy-poll.ts fetches the policy,
 * revocation-sender.ts sends revocations, and token-use-sender.ts sends the uses of device tokens.
 */
import type { Logger } from '@berth/kit/log';
import type { Client } from '@berth/wire/client';
import type { PolicyClient } from './deps.ts';
import type { PolicyFile, Revocation } from './policy-file.ts';
import { createPolicyPoll } from './policy-poll.ts';
import { createPolicyState } from './policy-state.ts';
import { repeat } from './repeat.ts';
import { createRevocationSender } from './revocation-sender.ts';
import { createTokenUseSender } from './token-use-sender.ts';

/** The policy with its state for metrics and readiness. */
export type PolicyFollower = PolicyClient & {
  /** Time since the control plane last confirmed the policy; null if there was never a policy. */
  ageMs(): number | null;
  /** Error of the last request for the policy; null while the control plane answers. */
  lastError(): string | null;
  /** Number of revocations that the control plane does not know yet. */
  unsentRevocations(): number;
};
/** The other workers of this gateway. A revocation by one worker applies to all. */
export type Peers = {
  send(revocation: Revocation): void;
  onRevocation(listener: (revocation: Revocation) => void): void;
  /** Resolves when all other workers know the device token, or after `ms`. */
  untilTokenKnown(token: string, ms: number): Promise<void>;
  /** `known` resolves when this worker knows the token, or after `ms`. */
  onToken(known: (token: string, ms: number) => Promise<boolean>): void;
};
export const NO_PEERS: Peers = {
  send: () => undefined,
  onRevocation: () => undefined,
  untilTokenKnown: () => Promise.resolve(),
  onToken: () => undefined,
};

export type PolicyOptions = {
  controlPlane: Client;
  file: PolicyFile;
  log: Logger;
  now: () => number;
  peers?: Peers;
  allowed?: (email: string) => boolean;
};

export async function followPolicy(options: PolicyOptions): Promise<PolicyFollower> {
  const { controlPlane, file, log, now, peers = NO_PEERS, allowed = () => true } = options;
  const abort = new AbortController();
  const { signal } = abort;
  const state = createPolicyState(allowed, now);
  // Subscribe before reading the disk, so that a revocation by another worker is either received or
  // read.
  peers.onRevocation((revocation) => {
    state.revoke(revocation);
    state.publish();
  });
  const stored = await file.read();
  state.setPolicy(stored?.policy ?? null);
  const unsent = await file.revocations();
  for (const revocation of unsent) state.revoke(revocation);
  state.publish();

  /**
   * Logs a failed write. A full disk must not prevent a policy or revocation from taking effect in
   * memory.
   */
  const onDisk = (write: Promise<void>): Promise<void> =>
    write.catch((err: unknown) =>
      log.error({ err }, 'writing the policy to disk failed; it is kept in memory'),
    );
  const poll = createPolicyPoll(
    { controlPlane, file, now, state, onDisk, signal },
    stored?.at ?? null,
  );
  const revocations = createRevocationSender({ controlPlane, file, log, now, signal }, unsent);
  const tokenUses = createTokenUseSender(controlPlane, now);
  const loops = [
    repeat(poll.step, { log, signal, onResult: poll.setLastError }),
    repeat(revocations.step, { log, signal }),
    repeat(tokenUses.step, { log, signal }),
  ];

  const until: PolicyClient['until'] = (condition, ms) =>
    state.until(condition, AbortSignal.any([signal, AbortSignal.timeout(ms)]));
  const tokenKnown = (token: string, ms: number): Promise<boolean> =>
    until((view) => view.deviceToken(token) !== undefined, ms);
  peers.onToken(tokenKnown);

  return {
    view: state.view,
    until,
    async untilTokenKnown(token, ms) {
      await Promise.all([tokenKnown(token, ms), peers.untilTokenKnown(token, ms)]);
    },
    async revokeSession(session) {
      const revocation = {
        id: session.id,
        email: session.identity.email,
        expires_at: new Date(session.expires_at).toISOString(),
      };
      state.revoke(revocation);
      state.publish();
      await onDisk(file.addRevocation(revocation));
      // A worker that starts later reads the revocation from disk.
      peers.send(revocation);
      // Add the revocation last, because the sender deletes the file after it has sent the
      // revocation.
      revocations.add(revocation);
    },
    tokenUsed: tokenUses.add,
    ageMs: poll.ageMs,
    lastError: poll.lastError,
    unsentRevocations: revocations.count,
    async close() {
      abort.abort();
      revocations.wake();
      await Promise.all(loops);
      await tokenUses
        .flush()
        .catch((err: unknown) =>
          log.warn({ err }, 'sending the last uses of device tokens failed'),
        );
    },
  };
}
