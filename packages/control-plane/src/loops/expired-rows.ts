/**
 * Removes expired rows of identity tables, deliveries, commit statuses, points of metrics,
 * problems, notices and audit lines.
 */
import type { GitHostStore } from '../domain/git/git-stores.ts';
import type { AuditStore } from '../domain/identity/identity-stores.ts';

const AUDIT_KEPT_MS = 400 * 86_400_000;
/** Retention of host keys that builders saw and nobody trusts. */
const PRESENTED_KEPT_MS = 90 * 86_400_000;
/**
 * Maximum number of audit rows by outcome. Anybody can cause refused requests, so they have their
 * own limit.
 */
const AUDIT_ROWS = { done: 500_000, refused: 100_000, failed: 50_000 };

const TABLES = [
  'users',
  'revokedSessions',
  'usedCodes',
  'deviceCodes',
  'deviceTokens',
  'apiSessions',
  'apiTokens',
  'joinTokens',
  'idempotencyAnswers',
  'hooks',
  'commitStatuses',
  'usage',
  'projects',
  'domains',
  'problems',
  'notifications',
  'repositoryLooks',
] as const;

/** `sweep` removes some expired rows and returns their number. */
export type Deps = Record<(typeof TABLES)[number], { sweep(now: number): Promise<number> }> & {
  gitHosts: Pick<GitHostStore, 'sweep'>;
  audit: Pick<AuditStore, 'sweep'>;
  now: () => number;
};

export const deleteExpiredRows =
  (deps: Deps) =>
  async (signal: AbortSignal): Promise<void> => {
    const { gitHosts, audit, now } = deps;
    for (const table of TABLES) {
      if (signal.aborted) return;
      while (!signal.aborted && (await deps[table].sweep(now())) > 0);
    }
    if (!signal.aborted) await gitHosts.sweep(now() - PRESENTED_KEPT_MS);
    if (!signal.aborted) await audit.sweep(now() - AUDIT_KEPT_MS, AUDIT_ROWS);
  };
