/** Checks deadlines: none runs while no control plane serves. */
import { groupBy, type HistoryFacts, type Of } from './facts.ts';

/** Compares each deadline with the time in which at least one control plane served. */
export function checkUptime({ all, broken }: HistoryFacts): void {
  const [began] = all('began');
  const deadlines = began?.deadlines;
  if (began === undefined || deadlines === undefined) return;
  const gaps = gapsOf(all('serving'));
  const served = (from: number, to: number): number => {
    const within = gaps.filter((g) => g.from < to && g.to > from);
    const away = within.reduce((sum, g) => sum + Math.min(g.to, to) - Math.max(g.from, from), 0);
    // One slack more, for the moments between a commit and its record: the other control plane
    // sees the commit sooner.
    return to - from - away + (within.length + 1) * deadlines.slack;
  };
  const limits: Record<string, number> = {
    no_builder: deadlines.queue,
    no_deploy_node: deadlines.queue,
    still_writing: deadlines.queue,
    proxy_unconfirmed: deadlines.route,
  };
  const stops = all('reported').filter((e) => e.kind === 'retire' && e.status === 'completed');
  const moves = groupBy(all('moved'), (e) => e.deployment);
  const projects = new Map(
    [...all('reporting'), ...all('read')].map((e) => [e.deployment, e.project]),
  );
  const hasGoneLive = (of: string, from: number, to: number): boolean =>
    all('moved').some(
      (e) =>
        e.to === 'running' &&
        e.at > from &&
        e.at <= to &&
        projects.get(e.deployment) === projects.get(of),
    );
  for (const [deployment, steps] of moves)
    for (const [i, step] of steps.entries()) {
      const before = steps[i - 1];
      if (step.to !== 'failed' || step.code === null || before === undefined) continue;
      const taskLimit = before.to === 'building' ? deadlines.build : deadlines.deploy;
      const limit = step.code === 'task_timeout' ? taskLimit : limits[step.code];
      // Skip this case, which has no deadline: Berth stopped the old version, no node can take the
      // new one, and so the old version starts again at once.
      const isStop = (r: Of<'reported'>): boolean =>
        projects.get(r.deployment) === projects.get(deployment) &&
        r.at <= step.at &&
        !hasGoneLive(r.deployment, r.at, step.at);
      const hasStopped = before.to === 'built' && stops.some(isStop);
      if (step.code === 'no_deploy_node' && hasStopped) continue;
      if (limit === undefined || served(before.at, step.at) >= limit) continue;
      broken(
        'uptime',
        step.at,
        `deployment ${deployment} failed with ${step.code} after ` +
          `${served(before.at, step.at)} of ${limit} ms of service`,
      );
    }
  for (const e of all('taken_away')) {
    if (e.why !== 'lease') continue;
    const grants = [...all('claimed'), ...all('renewed')].filter(
      (g) => g.task === e.task && g.lease === e.lease && g.at <= e.at,
    );
    const last = Math.max(0, ...grants.map((g) => g.sent));
    if (last > 0 && served(last, e.at) < began.lease_ms)
      broken(
        'uptime',
        e.at,
        `task ${e.task}: the lease ended after ${served(last, e.at)} of ${began.lease_ms} ms of ` +
          'service',
      );
  }
}

/** Periods in which no control plane served, after the first one began to serve. */
function gapsOf(events: readonly Of<'serving'>[]): { from: number; to: number }[] {
  const up = new Set<string>();
  const gaps: { from: number; to: number }[] = [];
  let from: number | null = null;
  for (const e of events) {
    if (e.up) up.add(e.name);
    else up.delete(e.name);
    if (up.size > 0 && from !== null) {
      gaps.push({ from, to: e.at });
      from = null;
    } else if (up.size === 0) from ??= e.at;
  }
  return from === null ? gaps : [...gaps, { from, to: Infinity }];
}
