/** Checks the processes without HTTP: their number, and that none of an older version is left. */
import type { HistoryFacts, Of } from './facts.ts';

export function checkWorkers({ all, broken, isGone, end }: HistoryFacts): void {
  if (end === null) return;
  const running = new Map<string, Of<'worker'>>();
  for (const e of all('worker')) {
    if (e.change === 'started') running.set(e.container, e);
    else running.delete(e.container);
  }
  for (const { project, deployment, process, count, isAble } of all('wants_workers')) {
    if (isGone(project, end.at)) continue;
    const there = [...running.values()].filter(
      (e) => e.project === project && e.process === process && !isGone(e.node, end.at),
    );
    const own = there.filter((e) => e.deployment === deployment);
    const isOld = there.length > own.length;
    if (!isOld && own.length <= count && (own.length === count || !isAble)) continue;
    broken(
      'workers-kept',
      end.at,
      `project ${project} wants ${count} of ${process} of ${deployment}; these run: ` +
        there.map((e) => `${e.container} of ${e.deployment} on ${e.node}`).join(', '),
    );
  }
}
