/** Checks the processes without HTTP: their number, and that none of an older version is left. */
import type { HistoryFacts, Of } from './facts.ts';

export function checkWorkers({ all, broken, isGone, end }: HistoryFacts): void {
  if (end === null) return;
  const running = new Map<string, Of<'worker'>>();
  for (const e of all('worker')) {
    if (e.change === 'started') running.set(e.container, e);
    else running.delete(e.container);
  }
  checkOthers({ all, broken, isGone }, running, end.at);
  for (const { project, deployment, process, count, isAble } of all('wants_workers')) {
    if (isGone(project, end.at)) continue;
    const there = [...running.values()].filter(
      (e) => e.project === project && e.process === process,
    );
    const own = there.filter((e) => e.deployment === deployment);
    // Berth cannot remove what runs on a machine whose node was deleted. A renamed machine has another
    // node, and its containers keep the one that started them.
    const removable = there.filter((e) => !isGone(e.node, end.at));
    const isOld = removable.some((e) => e.deployment !== deployment);
    if (!isOld && removable.length <= count && (own.length >= count || !isAble)) continue;
    broken(
      'workers-kept',
      end.at,
      `project ${project} wants ${count} of ${process} of ${deployment}; these run: ` +
        there.map((e) => `${e.container} of ${e.deployment} on ${e.node}`).join(', '),
    );
  }
}

/** Finds processes that the version that runs does not have. */
function checkOthers(
  { all, broken, isGone }: Pick<HistoryFacts, 'all' | 'broken' | 'isGone'>,
  running: ReadonlyMap<string, Of<'worker'>>,
  at: number,
): void {
  const wanted = new Set(all('wants_workers').map((e) => `${e.project} ${e.process}`));
  for (const { project, deployment } of all('wants')) {
    const other = [...running.values()].find(
      (e) => e.project === project && !wanted.has(`${project} ${e.process}`) && !isGone(e.node, at),
    );
    if (other === undefined || isGone(project, at)) continue;
    broken(
      'workers-kept',
      at,
      `project ${project} runs ${deployment} without ${other.process}, and ${other.container} of ` +
        `${other.deployment} runs on ${other.node}`,
    );
  }
}
