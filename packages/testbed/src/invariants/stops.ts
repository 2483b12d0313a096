/** Checks stops: they end every deployment, and only a person starts the project again. */
import { isSettled, type DeploymentState } from '@berth/wire/vocabulary';
import { type HistoryFacts, LATE_MS } from './facts.ts';

export function checkStops({ history, all, broken, reads, accepted }: HistoryFacts): void {
  // A stop gives a release command its SIGTERM and its grace; until it ends, the deployment is open.
  // An agent that was away had perhaps claimed the command and not started it.
  const releasing = new Set([
    ...all('command').map(({ run }) => run),
    ...all('reporting').flatMap((e) => (e.kind === 'run' ? [`release-${e.deployment}`] : [])),
  ]);
  for (const stop of all('stop_accepted'))
    for (const [id, e] of accepted) {
      if (e.project !== stop.project || e.at >= stop.sent) continue;
      const open = reads
        .get(id)
        ?.find(
          (r) =>
            r.sent > stop.at &&
            r.state !== 'missing' &&
            !isSettled(r.state as DeploymentState) &&
            !(r.state === 'built' && releasing.has(`release-${id}`)),
        );
      if (open !== undefined)
        broken(
          'stop-ends',
          open.at,
          `deployment ${id} is ${open.state} after the stop of its project`,
        );
    }
  /** Requests that can start the project -> the time until which they can still take effect. */
  const open = new Map<string, Map<string, number>>();
  /** Stopped for certain since then. */
  const rests = new Map<string, number>();
  for (const e of history) {
    if (e.type === 'wanted') {
      const requests = open.get(e.project) ?? new Map<string, number>();
      open.set(e.project, requests.set(e.request, Infinity));
      rests.delete(e.project);
    } else if (e.type === 'answered')
      open.get(e.project)?.set(e.request, e.isOnce ? e.at : e.at + LATE_MS);
    else if (e.type === 'stop_accepted') {
      if ([...(open.get(e.project)?.values() ?? [])].every((until) => until < e.sent))
        rests.set(e.project, e.at);
    } else if (e.type === 'project' && !e.stopped) {
      const since = rests.get(e.project);
      if (since !== undefined && e.sent > since)
        broken('stop-stays', e.at, `project ${e.project} was started, and nobody asked for it`);
    }
  }
}
