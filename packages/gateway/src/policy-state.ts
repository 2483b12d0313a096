/** The current policy in memory, and the sessions that were revoked at this gateway. */
import type { Policy } from '@berth/wire/gateway';
import type { PolicyView } from './deps.ts';
import type { Revocation } from './policy-file.ts';
import { tablesOf } from './policy-view.ts';

export type PolicyState = {
  view(): PolicyView;
  /** Replaces the policy. `publish` makes the change visible. */
  setPolicy(policy: Policy | null): void;
  /** Revokes a session until it expires by itself. `publish` makes the change visible. */
  revoke(revocation: Revocation): void;
  /** Creates a new view, which invalidates cached decisions, and wakes `until`. */
  publish(): void;
  /**
   * Resolves when the view satisfies `condition` or `signal` aborts. The result says whether the
   * condition holds.
   */
  until(condition: (view: PolicyView) => boolean, signal: AbortSignal): Promise<boolean>;
};

export function createPolicyState(
  allowed: (email: string) => boolean,
  now: () => number,
): PolicyState {
  /** Session id -> time in ms at which the session expires by itself. */
  const revoked = new Map<string, number>();
  let version = 0;
  let tables = tablesOf(null, revoked, allowed);
  let view: PolicyView = { ...tables, version };
  let published = Promise.withResolvers<void>();

  return {
    view: () => view,
    setPolicy(policy) {
      tables = tablesOf(policy, revoked, allowed);
      for (const [id, endsAt] of revoked) if (endsAt <= now()) revoked.delete(id);
    },
    revoke(revocation) {
      const endsAt = Date.parse(revocation.expires_at);
      if (endsAt > now()) revoked.set(revocation.id, endsAt);
    },
    publish() {
      view = { ...tables, version: ++version };
      published.resolve();
      published = Promise.withResolvers<void>();
    },
    async until(condition, signal) {
      const aborted = new Promise<void>((resolve) =>
        signal.addEventListener('abort', () => resolve(), { once: true }),
      );
      while (!condition(view) && !signal.aborted) await Promise.race([published.promise, aborted]);
      return condition(view);
    },
  };
}
