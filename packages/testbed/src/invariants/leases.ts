/** Checks the leases of tasks. */
import { groupBy, type HistoryFacts } from './facts.ts';

export function checkLeases({ all, broken }: HistoryFacts): void {
  const leaseMs = all('began')[0]?.lease_ms ?? null;
  const claims = groupBy(all('claimed'), (e) => e.task);
  const uses = [...all('renewed'), ...all('reported')];
  for (const [task, claimsOfTask] of claims) {
    const attempts = new Map<number, string>();
    for (const claim of claimsOfTask) {
      if (attempts.has(claim.attempt))
        broken('one-lease', claim.at, `task ${task}: attempt ${claim.attempt} was assigned twice`);
      attempts.set(claim.attempt, claim.lease);
    }
  }
  for (const use of uses) {
    const claimsOfTask = claims.get(use.task) ?? [];
    const own = claimsOfTask.find((c) => c.lease === use.lease);
    const newer = claimsOfTask.find(
      (c) => c.at < use.sent && c.attempt > (own?.attempt ?? 0) && c.lease !== use.lease,
    );
    // The history decides nothing about a lease that no client was seen to get: its answer can have
    // been lost.
    if (newer !== undefined && (own !== undefined || use.lease === null))
      broken(
        'one-lease',
        use.at,
        `task ${use.task}: ${use.type} with ${use.lease ?? 'no lease'} after attempt ` +
          `${newer.attempt} was assigned`,
      );
  }
  if (leaseMs === null) return;
  // One control plane grants and another ends it, and their clocks differ a little (docs/flow.md
  // "Deadlines").
  const areSeveral = new Set(all('serving').map((e) => e.name)).size > 1;
  const skewMs = areSeveral ? (all('began')[0]?.deadlines?.slack ?? 0) : 0;
  for (const e of all('taken_away')) {
    if (e.why !== 'lease') continue;
    const grants = [
      ...(claims.get(e.task) ?? []),
      ...all('renewed').filter((r) => r.task === e.task),
    ];
    const last = Math.max(
      0,
      ...grants.filter((g) => g.lease === e.lease && g.at <= e.at).map((g) => g.sent),
    );
    if (e.at + skewMs < last + leaseMs)
      broken(
        'own-clock',
        e.at,
        `task ${e.task}: the lease ended ${last + leaseMs - e.at} ms too early`,
      );
  }
}
