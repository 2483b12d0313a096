/**
 * Follows the control plane's policy by a held request and keeps it, in memory and on disk: while the control plane is away,
 * restarts of the gateway included, whoever is signed in stays so. Logouts hold here at once and are told until they are heard.
 *
 *   waiting   no policy was ever had: everything is in doubt
 *   kept      from disk, or the control plane has stopped answering: holds, its age is shown
 *   current   the control plane answers
 */
import { setTimeout as pause } from 'node:timers/promises';
import { backoff } from '@berth/kit/backoff';
import type { Logger } from '@berth/kit/log';
import { ApiError, type Client } from '@berth/wire/client';
import type { PolicySource, PolicyView, Session } from './deps.ts';
import { isPolicy, type PolicyFile, type Revocation } from './policy-file.ts';
import { tablesOf } from './policy-view.ts';

/** Short, so that a connection that died unnoticed cannot keep a revocation from us for the five seconds it may take. */
const WAIT_SECONDS = 2;
const GRACE_MS = 2_000;
/** Once that was not enough: a large policy over a slow line must come through at all. */
const PATIENT_MS = 10_000;
/** A control plane that does not hold requests is asked no more often than this. */
const LEAST_MS = 25;
const MOST_MS = 1_000;
const NOT_HELD_MS = 1_000;
const RETRY = { min: 100, max: 2_000 };
const USED_EVERY_MS = 10_000;
const MOST_USED_AT_ONCE = 1000;
/** Device tokens whose use is not told yet; more than that many are not remembered. */
const MOST_USED = 100_000;
const TELL_TIMEOUT_MS = 5_000;

/** Beside the door that the parts of the gateway use. */
export type PolicyFollower = PolicySource & {
  /** Of the policy, by the control plane's last word; null: none was ever had. */
  ageMs(): number | null;
  /** Why the control plane was not heard, as it was last asked; null while it answers. */
  trouble(): string | null;
  /** Logouts the control plane does not know of yet. */
  untold(): number;
};
/** The other workers of this gateway: what is revoked in one holds in all. */
export type Peers = { tell(revocation: Revocation): void; onTold(heard: (revocation: Revocation) => void): void };
export const ALONE: Peers = { tell: () => undefined, onTold: () => undefined };

export type PolicyOptions = {
  controlPlane: Client;
  file: PolicyFile;
  log: Logger;
  now: () => number;
  peers?: Peers;
  allowed?: (email: string) => boolean;
};

export async function followPolicy({
  controlPlane,
  file,
  log,
  now,
  peers = ALONE,
  allowed = () => true,
}: PolicyOptions): Promise<PolicyFollower> {
  const abort = new AbortController();
  const { signal } = abort;
  let confirmedAt: number | null = null;
  let etag: string | null = null;
  let trouble: string | null = 'not asked yet';
  /** Revoked here: id -> when the session would have ended by itself. */
  const revoked = new Map<string, number>();
  const untold = new Map<string, Revocation>();
  const used = new Map<string, number>();
  let version = 0;
  let tables = tablesOf(null, revoked, allowed);
  let view: PolicyView = { ...tables, version };
  let ringing = Promise.withResolvers<void>();
  let renewed = Promise.withResolvers<void>();

  // Before the disk is read: what another worker revokes meanwhile is heard or read, one or the other.
  peers.onTold((revocation) => {
    hold(revocation);
    renew();
  });
  const kept = await file.read();
  tables = tablesOf(kept?.policy ?? null, revoked, allowed);
  confirmedAt = kept?.at ?? null;
  for (const revocation of await file.revocations()) {
    hold(revocation);
    untold.set(revocation.id, revocation);
  }
  renew();

  function renew(): void {
    view = { ...tables, version: ++version };
    renewed.resolve();
    renewed = Promise.withResolvers<void>();
  }
  function hold(revocation: Revocation): void {
    const endsAt = Date.parse(revocation.expires_at);
    if (endsAt > now()) revoked.set(revocation.id, endsAt);
  }

  /** How long it took to take in what came; null: nothing new did. */
  async function ask(): Promise<number | null> {
    const result = await controlPlane.exchange('gatewayPolicy', {
      query: { wait: etag === null || trouble !== null ? 0 : WAIT_SECONDS },
      ...(etag === null ? {} : { headers: { 'if-none-match': etag } }),
      timeoutMs: etag === null || trouble !== null ? PATIENT_MS : WAIT_SECONDS * 1000 + GRACE_MS,
      signal,
    });
    confirmedAt = now();
    const came = performance.now();
    if (result.answer === null) {
      await onDisk(file.confirm(confirmedAt));
      return null;
    }
    if (!isPolicy(result.answer)) throw new Error('the control plane’s answer is no policy');
    tables = tablesOf(result.answer, revoked, allowed);
    etag = result.etag;
    for (const [id, endsAt] of revoked) if (endsAt <= now()) revoked.delete(id);
    renew();
    await onDisk(file.write(result.answer));
    return performance.now() - came;
  }

  /** A full disk must not keep a revocation from holding: it holds in memory, and the log says what is missing. */
  async function onDisk(work: Promise<void>): Promise<void> {
    await work.catch((err: unknown) => log.error({ err }, 'the policy could not be kept on disk; it holds in memory'));
  }

  const follow = endless(
    async () => {
      const started = performance.now();
      const tookMs = await ask();
      // Ten thousand projects that change all the time must not take the requests' share of this process.
      if (tookMs !== null) return Math.min(Math.max(LEAST_MS, 4 * tookMs), MOST_MS);
      return performance.now() - started < NOT_HELD_MS ? NOT_HELD_MS : LEAST_MS;
    },
    (why) => {
      trouble = why;
    },
  );

  const tell = endless(async () => {
    for (const revocation of untold.values()) {
      if (Date.parse(revocation.expires_at) > now())
        await controlPlane.call('revokeSession', { body: revocation, timeoutMs: TELL_TIMEOUT_MS, signal }).catch(refusedForGood);
      untold.delete(revocation.id);
      await file.dropRevocation(revocation.id);
    }
    ringing = Promise.withResolvers<void>();
    // Closing may have rung the one before.
    if (untold.size === 0 && !signal.aborted) await ringing.promise;
    return LEAST_MS;
  });

  const tellUsed = endless(async () => {
    await flushUsed();
    return USED_EVERY_MS;
  });
  async function flushUsed(): Promise<void> {
    while (used.size > 0) {
      const some = [...used].slice(0, MOST_USED_AT_ONCE);
      const items = some.map(([id, at]) => ({ id, at: new Date(at).toISOString() }));
      await controlPlane.call('deviceTokensUsed', { body: { items }, timeoutMs: TELL_TIMEOUT_MS });
      for (const [id, at] of some) if (used.get(id) === at) used.delete(id);
    }
  }

  /** What the control plane will never take must not stand in the way of the rest. */
  function refusedForGood(error: unknown): void {
    if (!(error instanceof ApiError) || ![400, 404, 409, 422].includes(error.status)) throw error;
    log.error({ err: error }, 'the control plane refuses a revocation; it holds on this gateway alone');
  }

  /** Runs `step` again and again, each time after the rest that it asks for; after an error with back-off. */
  async function endless(step: () => Promise<number>, heard: (trouble: string | null) => void = () => undefined): Promise<void> {
    for (let failures = 0; !signal.aborted; ) {
      let rest: number;
      try {
        rest = await step();
        if (failures > 0) log.info('the control plane answers again');
        failures = 0;
        heard(null);
      } catch (error) {
        if (signal.aborted) return;
        heard(reasonOf(error));
        rest = backoff(failures, RETRY);
        failures += 1;
        // Once is enough: a control plane that is away for an hour must not fill the log.
        if (failures === 1) log.warn({ err: error }, 'the control plane does not answer; the last policy stays in use');
      }
      await pause(rest, undefined, { signal }).catch((error: unknown) => {
        if (!signal.aborted) throw error;
      });
    }
  }

  return {
    view: () => view,
    async until(wanted, ms) {
      const late = AbortSignal.any([signal, AbortSignal.timeout(ms)]);
      const over = new Promise<void>((resolve) => late.addEventListener('abort', () => resolve(), { once: true }));
      while (!wanted(view) && !late.aborted) await Promise.race([renewed.promise, over]);
      return wanted(view);
    },
    async revokeSession(session: Session) {
      const revocation = { id: session.id, email: session.identity.email, expires_at: new Date(session.expires_at).toISOString() };
      hold(revocation);
      renew();
      await onDisk(file.addRevocation(revocation));
      // A worker that starts now reads it from the disk.
      peers.tell(revocation);
      // Only now: what is told is taken off the disk.
      untold.set(revocation.id, revocation);
      ringing.resolve();
    },
    tokenUsed(id) {
      if (used.size < MOST_USED || used.has(id)) used.set(id, now());
    },
    ageMs: () => (confirmedAt === null ? null : Math.max(0, now() - confirmedAt)),
    trouble: () => trouble,
    untold: () => untold.size,
    async close() {
      abort.abort();
      ringing.resolve();
      await Promise.all([follow, tell, tellUsed]);
      await flushUsed().catch((err: unknown) => log.warn({ err }, 'the last uses of device tokens could not be told'));
    },
  };
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
