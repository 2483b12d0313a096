/** Checks what deployments run: restarts, rollbacks and commits of the branch that was set. */
import { groupBy, type HistoryFacts, type Of, LATE_MS } from './facts.ts';

export function checkReleases({ all, broken, reads, accepted }: HistoryFacts): void {
  for (const [project, listed] of groupBy(all('listed'), (e) => e.project)) {
    const byId = new Map(listed.map((d) => [d.deployment, d]));
    const ran = listed.filter((d) => d.state === 'running' || d.state === 'retired');
    const lastBefore = (generation: number): Of<'listed'> | undefined =>
      ran.filter((d) => d.generation < generation).sort((a, b) => b.generation - a.generation)[0];
    for (const d of listed) {
      const last = lastBefore(d.generation);
      const from = byId.get(d.of ?? '');
      if (d.trigger === 'start' || d.trigger === 'restart') {
        if (last === undefined || from?.deployment !== last.deployment || d.image !== last.image)
          broken(
            'same-release',
            d.at,
            `project ${project}: the ${d.trigger} ${d.deployment} runs ${d.image} of ` +
              `${d.of}, and ${last?.deployment} with ${last?.image} ran last`,
          );
      }
      if (d.trigger !== 'older' || from === undefined) continue;
      // A deployment that went live while the request was on its way decides nothing.
      const sent = accepted.get(d.deployment)?.sent ?? 0;
      const wasLast =
        last !== undefined &&
        reads.get(last.deployment)?.some((r) => r.state === 'running' && r.at < sent) === true;
      if (!wasLast) continue;
      const before = last.trigger === 'older' ? byId.get(last.of ?? '') : last;
      if (before !== undefined && from.generation >= before.generation)
        broken(
          'rollback-goes-back',
          d.at,
          `project ${project}: ${d.deployment} rolls back to ${from.deployment}, not before ` +
            before.deployment,
        );
    }
  }
}

/** Compares each deployment from source with the settings that can have held at its creation. */
export function checkBranches({ all, broken }: HistoryFacts): void {
  const pushed = new Set(all('pushed').map((e) => `${e.place} ${e.commit}`));
  // If the process dies right after a commit, the history lacks it, and `pending` can come later.
  const created = new Map<string, number>();
  for (const [deployment, [first]] of groupBy(all('moved'), (e) => e.deployment))
    if (first?.to === 'pending') created.set(deployment, first.at);
  const answers = new Map(all('changed').map((e) => [e.request, e.at]));
  const changes = groupBy(all('changing'), (e) => e.project);
  for (const d of all('listed')) {
    if (d.place === undefined || d.of !== null) continue;
    if (d.commit !== undefined && d.commit !== null && !pushed.has(`${d.place} ${d.commit}`))
      broken(
        'own-branch',
        d.at,
        `project ${d.project}: ${d.deployment} has commit ${d.commit}, which ${d.place} does ` +
          'not have',
      );
    const at = created.get(d.deployment) ?? null;
    const ofProject = changes.get(d.project) ?? [];
    // A later change replaces this one as soon as it is answered, if no message of this one was
    // under way when it was sent.
    const canHold = (e: Of<'changing'>): boolean =>
      at !== null &&
      e.at <= at &&
      !ofProject.some(
        (later) => later.at > e.at + LATE_MS && (answers.get(later.request) ?? Infinity) <= at,
      );
    if (
      at !== null &&
      ofProject.length > 0 &&
      !ofProject.some((e) => e.place === d.place && canHold(e))
    )
      broken(
        'own-branch',
        d.at,
        `project ${d.project}: ${d.deployment} deploys ${d.place}, which was not set at its ` +
          'creation',
      );
  }
}
