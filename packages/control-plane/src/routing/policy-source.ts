/**
 * The gateways' policy, kept in memory between changes. Nobody asked yet -> known (first read) -> known (newer) ...;
 * a read that fails -> unknown (503: gateways keep what they have) -> known. Without a gateway nothing is ever read.
 */
import { createHash } from 'node:crypto';
import { EventEmitter } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from '@berth/kit/log';
import type { Policy } from '@berth/wire/gateway';
import type { Changes } from '../domain/changes.ts';
import { DomainError } from '../domain/errors.ts';
import type { PolicyFacts } from '../domain/identity-records.ts';
import type { PolicyStore } from '../domain/identity-stores.ts';
import type { PolicySource } from '../domain/policy.ts';

/** Pure; the same facts give the same bytes. */
export function policyOf(facts: PolicyFacts, baseDomain: string): Policy {
  const time = (ms: number): string => new Date(ms).toISOString();
  return {
    projects: facts.projects.map(({ prefixes, ...project }) => ({
      ...project,
      hosts: prefixes.map((prefix) => `${prefix}.${baseDomain}`),
    })),
    disabled_users: facts.disabled,
    deleted_users: facts.deleted.map(({ email, deleted_at }) => ({ email, deleted_at: time(deleted_at) })),
    revoked_sessions: facts.revoked.map(({ id, expires_at }) => ({ id, expires_at: time(expires_at) })),
    device_tokens: facts.tokens.map((token) => ({ ...token, expires_at: time(token.expires_at) })),
  };
}

const CALM_MS = 100;

export function createPolicySource(deps: {
  store: PolicyStore;
  changes: Changes;
  baseDomain: string;
  now: () => number;
  log: Logger;
}): PolicySource {
  const { store, changes, baseDomain, now, log } = deps;
  let known: { bytes: string; etag: string; stamp: string } | null = null;
  let wanted = false;
  const bell = new EventEmitter().setMaxListeners(0);
  let reading: Promise<void> | null = null;
  let again = false;
  let readAt = Number.NEGATIVE_INFINITY;
  let closed = false;

  async function read(): Promise<void> {
    if (closed) return;
    try {
      // The stamp before the facts: what changes between the two is found at the next look.
      const stamp = await store.stamp();
      const bytes = JSON.stringify(policyOf(await store.read(now()), baseDomain));
      const etag = `"${createHash('sha256').update(bytes).digest('base64url').slice(0, 27)}"`;
      const moved = known?.etag !== etag;
      known = { bytes, etag, stamp };
      if (moved) bell.emit('moved');
    } catch (error) {
      known = null;
      throw error;
    }
  }
  /** On a busy platform routes change many times a second, and with thousands of projects each read is work. */
  const calm = async (): Promise<void> => {
    const left = readAt + CALM_MS - performance.now();
    if (left > 0) await sleep(left);
  };
  /** A change that comes during a read is read after it: two reads at once could end in the wrong order. */
  function refresh(): Promise<void> {
    if (reading !== null) {
      again = true;
      return reading.then(() => (again ? refresh() : undefined));
    }
    again = false;
    reading = calm()
      .then(read)
      .finally(() => {
        reading = null;
        readAt = performance.now();
      });
    return reading;
  }
  const moved = (): void => {
    if (wanted && !closed) refresh().catch((error: unknown) => log.error({ err: error }, 'the policy of the gateways could not be read'));
  };
  const offs = [changes.on('policy', moved), changes.on('routes', moved)];

  return {
    async current() {
      wanted = true;
      if (reading !== null) await reading.catch(() => {});
      if (known === null)
        await refresh().catch((error: unknown) => log.error({ err: error }, 'the policy of the gateways could not be read'));
      if (known === null) throw new DomainError('policy_unknown');
      return known;
    },
    async changed(not, ms, signal) {
      if (known !== null && known.etag !== not) return;
      const end = new AbortController();
      const stop = AbortSignal.any([end.signal, signal]);
      const rung = (): void => end.abort();
      bell.once('moved', rung);
      try {
        await sleep(ms, undefined, { signal: stop });
      } catch (error) {
        // Rung or aborted: both end the wait. Anything else is a mistake.
        if (!stop.aborted) throw error;
      } finally {
        bell.off('moved', rung);
      }
    },
    async refreshIfChanged() {
      if (wanted && (known === null || known.stamp !== (await store.stamp()))) await refresh();
    },
    close() {
      closed = true;
      for (const off of offs) off();
    },
  };
}
