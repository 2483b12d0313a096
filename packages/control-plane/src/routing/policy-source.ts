/**
 * Keeps the policy of the gateways in memory. States: never requested -> known (first read) ->
 * known (newer) ...; known -> unknown (a read failed; 503, and gateways keep their last copy) ->
 * known. Without a gateway it reads nothing.
 */
import { createHash } from 'node:crypto';
import { EventEmitter } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { defined } from '@berth/kit/defined';
import type { Logger } from '@berth/kit/log';
import type { Policy } from '@berth/wire/gateway';
import type { Changes } from '../domain/platform/changes.ts';
import { isUnderBase } from '../domain/routes/domains.ts';
import { DomainError } from '../domain/platform/errors.ts';
import type { PolicyFacts } from '../domain/identity/identity-records.ts';
import type { PolicyStore } from '../domain/identity/identity-stores.ts';
import type { PolicySource } from '../domain/identity/policy.ts';

/** Builds the policy. Pure: equal facts give equal bytes. */
export function policyOf(
  facts: PolicyFacts,
  { baseDomain, domainQuarantineMs }: PolicySettings,
): Policy {
  const time = (ms: number): string => new Date(ms).toISOString();
  const seconds = Math.floor(domainQuarantineMs / 1000);
  const bounded = <T extends object>(claim: T): T & { cookie_seconds?: number } =>
    seconds < 1 ? claim : { ...claim, cookie_seconds: seconds };
  return {
    projects: facts.projects.map(({ prefixes, claims = [], domains, ...project }) => {
      const outside = (domains ?? []).filter(({ host }) => !isUnderBase(host, baseDomain));
      const inside = claims
        .filter(({ prefix }) => prefixes.includes(prefix))
        .map(({ prefix, claim }) => ({ host: `${prefix}.${baseDomain}`, claim }));
      return {
        ...project,
        hosts: prefixes.map((prefix) => `${prefix}.${baseDomain}`),
        ...defined({
          host_claims: inside.length === 0 ? undefined : inside.map(bounded),
          domains: outside.length === 0 ? undefined : outside.map(bounded),
        }),
      };
    }),
    disabled_users: facts.disabled,
    deleted_users: facts.deleted.map(({ email, deleted_at }) => ({
      email,
      deleted_at: time(deleted_at),
    })),
    revoked_sessions: facts.revoked.map(({ id, expires_at }) => ({
      id,
      expires_at: time(expires_at),
    })),
    device_tokens: facts.tokens.map((token) => ({ ...token, expires_at: time(token.expires_at) })),
  };
}

export type PolicySettings = {
  baseDomain: string;
  /** DOMAIN_QUARANTINE in ms. */
  domainQuarantineMs: number;
};

/**
 * Minimum time in ms between two reads. On a busy platform routes change many times a second, and
 * reading thousands of projects is costly.
 */
const READ_GAP_MS = 100;

export function createPolicySource(deps: {
  store: PolicyStore;
  changes: Changes;
  settings: PolicySettings;
  now: () => number;
  log: Logger;
}): PolicySource {
  const { store, changes, settings, now, log } = deps;
  let latest: { bytes: string; etag: string; stamp: string } | null = null;
  let isUsed = false;
  const events = new EventEmitter().setMaxListeners(0);
  let reading: Promise<void> | null = null;
  let isStale = false;
  let readAt = Number.NEGATIVE_INFINITY;
  let closed = false;

  async function read(): Promise<void> {
    if (closed) return;
    try {
      // Read the stamp before the facts, so that `refreshIfChanged` finds a change between the two
      // reads.
      const stamp = await store.stamp();
      const bytes = JSON.stringify(policyOf(await store.read(now()), settings));
      const etag = `"${createHash('sha256').update(bytes).digest('base64url').slice(0, 27)}"`;
      const moved = latest?.etag !== etag;
      latest = { bytes, etag, stamp };
      if (moved) events.emit('moved');
    } catch (error) {
      latest = null;
      throw error;
    }
  }
  const waitForGap = async (): Promise<void> => {
    const waitMs = readAt + READ_GAP_MS - performance.now();
    if (waitMs > 0) await sleep(waitMs);
  };
  /**
   * Reads the policy, and repeats the read if a change arrives during it. Two concurrent reads
   * could finish in the wrong order.
   */
  function refresh(): Promise<void> {
    if (reading !== null) {
      isStale = true;
      return reading.then(() => (isStale ? refresh() : undefined));
    }
    isStale = false;
    reading = waitForGap()
      .then(read)
      .finally(() => {
        reading = null;
        readAt = performance.now();
      });
    return reading;
  }
  const moved = (): void => {
    if (isUsed && !closed)
      refresh().catch((error: unknown) =>
        log.error({ err: error }, 'could not read the policy of the gateways'),
      );
  };
  const offs = [changes.on('policy', moved), changes.on('routes', moved)];

  return {
    async current() {
      isUsed = true;
      if (reading !== null) await reading.catch(() => {});
      if (latest === null)
        await refresh().catch((error: unknown) =>
          log.error({ err: error }, 'could not read the policy of the gateways'),
        );
      if (latest === null) throw new DomainError('policy_unknown');
      return latest;
    },
    async changed(not, ms, signal) {
      if (latest !== null && latest.etag !== not) return;
      const end = new AbortController();
      const stop = AbortSignal.any([end.signal, signal]);
      const onChange = (): void => end.abort();
      events.once('moved', onChange);
      try {
        await sleep(ms, undefined, { signal: stop });
      } catch (error) {
        // A change or an abort ends the wait. Any other error is a bug.
        if (!stop.aborted) throw error;
      } finally {
        events.off('moved', onChange);
      }
    },
    async refreshIfChanged() {
      if (isUsed && (latest === null || latest.stamp !== (await store.stamp()))) await refresh();
    },
    close() {
      closed = true;
      for (const off of offs) off();
    },
  };
}
