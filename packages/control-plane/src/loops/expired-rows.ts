/**
 * Removes expired rows of identity tables, deliveries, commit statuses, points of metrics,
 * problems, notices and audit lines.
 */
import type { LoopDeps } from './deps.ts';

const AUDIT_KEPT_MS = 400 * 86_400_000;
/** Host keys that builders saw and nobody trusts. */
const PRESENTED_KEPT_MS = 90 * 86_400_000;
/** Anybody can cause refused requests, so they have their own limit. */
const AUDIT_ROWS = { done: 500_000, refused: 100_000, failed: 50_000 };

export const deleteExpiredRows =
  ({ stores, now }: LoopDeps) =>
  async (signal: AbortSignal): Promise<void> => {
    const tables = [
      stores.users,
      stores.revokedSessions,
      stores.usedCodes,
      stores.deviceCodes,
      stores.deviceTokens,
      stores.apiSessions,
      stores.apiTokens,
      stores.joinTokens,
      stores.idempotencyAnswers,
      stores.hooks,
      stores.commitStatuses,
      stores.usage,
      stores.projects,
      stores.domains,
      stores.problems,
      stores.notifications,
      stores.repositoryLooks,
    ];
    for (const table of tables) {
      if (signal.aborted) return;
      while (!signal.aborted && (await table.sweep(now())) > 0);
    }
    if (!signal.aborted) await stores.gitHosts.sweep(now() - PRESENTED_KEPT_MS);
    if (!signal.aborted) await stores.audit.sweep(now() - AUDIT_KEPT_MS, AUDIT_ROWS);
  };
