/** Checks versions without the process `web`: they have a page, and processes that have started. */
import { groupBy, type HistoryFacts, type Of } from './facts.ts';

type Container = Of<'container'>;

export function checkWithoutWeb(facts: HistoryFacts): void {
  checkStarted(facts);
  if (facts.end !== null) checkPages(facts, facts.end.at);
}

/** The version without `web` that runs in each project, by its last read. */
function runningOf({ reads }: HistoryFacts): Map<string, string> {
  const running = new Map<string, string>();
  for (const ofDeployment of reads.values()) {
    const last = ofDeployment.at(-1);
    if (last?.state === 'running' && last.without_web !== undefined)
      running.set(last.project, last.deployment);
  }
  return running;
}

/** At the end, every proxy has the page of the project, and no container of `web` is left. */
function checkPages(facts: HistoryFacts, at: number): void {
  const { all, broken, isGone } = facts;
  const last = new Map(all('routed').map((e) => [e.proxy, e]));
  const containers = new Map<string, Container>();
  for (const e of all('container'))
    if (e.change === 'started' || e.change === 'moved') containers.set(e.container, e);
    else containers.delete(e.container);
  for (const [project, deployment] of runningOf(facts)) {
    if (isGone(project, at)) continue;
    for (const { proxy, routes, pages = [] } of last.values()) {
      const address = routes[project];
      if (address === undefined && pages.includes(project)) continue;
      broken(
        'page-without-web',
        at,
        `project ${project}: ${deployment} has no web, and ${proxy} sends requests to ${
          address ?? 'nobody, without a page'
        }`,
      );
    }
    // Only a person removes what a contract-only agent started.
    const rest = [...containers.values()].find(
      (c) => c.project === project && c.cause !== 'contract' && !isGone(c.node, at),
    );
    if (rest !== undefined)
      broken(
        'page-without-web',
        at,
        `project ${project}: ${deployment} has no web, and a container of ${rest.deployment} ` +
          `runs on ${rest.node}`,
      );
  }
}

/** A version is read as running only if an agent has reported that each of its processes started. */
function checkStarted({ all, broken, reads }: HistoryFacts): void {
  const moves = groupBy(all('moved'), (e) => e.deployment);
  for (const [deployment, ofDeployment] of reads) {
    const read = ofDeployment.find((e) => e.state === 'running' && e.without_web !== undefined);
    if (read === undefined) continue;
    const { project, at, without_web = {} } = read;
    const since = moves.get(deployment)?.[0]?.at ?? 0;
    for (const [process, replace] of Object.entries(without_web)) {
      const hasStarted = all('reporting').some(
        (e) =>
          e.deployment === deployment &&
          e.process === process &&
          e.status === 'completed' &&
          e.at <= at,
      );
      const mayBeNone = all('counting').some(
        (e) => e.project === project && e.process === process && e.count === 0 && e.at <= at,
      );
      // It starts when the processes of the version before have ended.
      const of = { project, process, deployment, since, at };
      const startsLate =
        replace === 'recreate' && (hasOlder(all('worker'), of) || hasStarting(reads, moves, of));
      if (!hasStarted && !mayBeNone && !startsLate)
        broken(
          'started-first',
          at,
          `deployment ${deployment} is running, and no ${process} of it has started`,
        );
    }
  }
}

type Between = {
  project: string;
  process: string;
  deployment: string;
  since: number;
  at: number;
};

/** Returns whether another version was live between the two moments: its process may start then. */
function hasStarting(
  reads: HistoryFacts['reads'],
  moves: ReadonlyMap<string, readonly Of<'moved'>[]>,
  { project, process, deployment, since, at }: Between,
): boolean {
  return [...reads].some(
    ([other, ofOther]) =>
      other !== deployment &&
      ofOther.some((e) => e.project === project && e.without_web?.[process] !== undefined) &&
      moves.get(other)?.some((e) => e.to === 'running' && e.at <= at) === true &&
      !moves.get(other)?.some((e) => e.to === 'retired' && e.at < since),
  );
}

/** Returns whether a process of another version ran for a time between the two moments. */
function hasOlder(
  workers: readonly Of<'worker'>[],
  { project, process, deployment, since, at }: Between,
): boolean {
  const older = workers.filter(
    (e) => e.project === project && e.process === process && e.deployment !== deployment,
  );
  const running = new Set<string>();
  for (const e of older) {
    if (e.at > at) break;
    if (e.change === 'started') running.add(e.container);
    else if (e.at < since) running.delete(e.container);
  }
  return running.size > 0;
}
