/** Checks the states of deployments and the effects of reports. */
import { isSettled, isTerminal, type DeploymentState } from '@berth/wire/vocabulary';
import { groupBy, type HistoryFacts, type Of } from './facts.ts';

export function checkStates({ all, broken, reads, accepted, isGone, end }: HistoryFacts): void {
  for (const [id, e] of accepted) {
    const seen = reads.get(id) ?? [];
    const last = seen.at(-1);
    // Deleting a project deletes its deployments.
    const deleted = isGone(e.project, Infinity);
    if (
      end !== null &&
      (last === undefined ||
        !(isSettled(last.state as DeploymentState) || (last.state === 'missing' && deleted)))
    )
      broken('settles', end.at, `deployment ${id} is ${last?.state ?? 'never read'} at the end`);
    for (const read of seen)
      if (read.state === 'missing' && read.sent > e.at && !isGone(e.project, read.at))
        broken('acknowledged-stays', read.at, `deployment ${id} was accepted, then missing`);
  }
  for (const [id, seen] of reads) {
    let terminal: Of<'read'> | null = null;
    for (const read of seen) {
      if (
        terminal !== null &&
        read.sent > terminal.at &&
        read.state !== terminal.state &&
        read.state !== 'missing'
      )
        broken(
          'terminal-stays',
          read.at,
          `deployment ${id} was ${terminal.state}, then ${read.state}`,
        );
      if (terminal === null && isTerminal(read.state as DeploymentState)) terminal = read;
    }
  }
  for (const e of all('cancel_accepted')) {
    const live = reads
      .get(e.deployment)
      ?.find((read) => read.sent > e.at && read.state === 'running');
    if (live !== undefined)
      broken(
        'acknowledged-stays',
        live.at,
        `deployment ${e.deployment} was cancelled, then running`,
      );
  }
  const byKey = groupBy(
    [...accepted.values()].filter((e) => e.key !== null),
    (e) => `${e.project} ${e.key}`,
  );
  for (const [key, made] of byKey)
    if (new Set(made.map((e) => e.deployment)).size > 1)
      broken('report-once', made.at(-1)?.at ?? 0, `two deployments for one key: ${key}`);
}

export function checkReports({ all, broken, reads }: HistoryFacts): void {
  const taken = groupBy(all('reported'), (e) => e.task);
  for (const [task, reports] of taken)
    if (new Set(reports.map((r) => r.content)).size > 1)
      broken('report-once', reports.at(-1)?.at ?? 0, `task ${task}: two reports were accepted`);
  for (const report of all('reported')) {
    if (report.kind !== 'build' || report.status !== 'completed') continue;
    const back = reads
      .get(report.deployment)
      ?.find((r) => r.sent > report.at && (r.state === 'pending' || r.state === 'building'));
    if (back !== undefined)
      broken(
        'acknowledged-stays',
        back.at,
        `deployment ${report.deployment}: its build was accepted, then it is ${back.state}`,
      );
  }
  const tasksOf = (deployment: string, kind: string): number =>
    new Set(
      all('reporting')
        .filter((e) => e.deployment === deployment && e.kind === kind && e.status === 'completed')
        .map((e) => e.task),
    ).size;
  for (const { deployment, kinds, at } of all('story')) {
    const published = kinds['route_published'] ?? 0;
    // One without `web` publishes its page once, also if none of its processes starts before.
    const isWithoutWeb = reads.get(deployment)?.some((r) => r.without_web !== undefined) === true;
    const most = Math.max(isWithoutWeb ? 1 : 0, tasksOf(deployment, 'deploy'));
    if (published > most)
      broken(
        'report-once',
        at,
        `deployment ${deployment}: its route was published ${published} times`,
      );
  }
}
