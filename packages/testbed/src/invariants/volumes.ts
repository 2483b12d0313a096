/** Checks the data of volumes: it is never lost, and no older copy goes live. */
import type { Counts } from '../history.ts';
import { groupBy, type HistoryFacts } from './facts.ts';

export function checkVolumes({ all, broken, reads }: HistoryFacts): void {
  for (const [project, mounts] of groupBy(all('mounted'), (e) => e.project))
    for (const mounted of mounts)
      for (const earlier of mounts) {
        if (earlier.at >= mounted.at || mounted.entries.includes(earlier.deployment)) continue;
        const ran = (reads.get(earlier.deployment) ?? []).some(
          (read) => read.state === 'running' && read.at < mounted.at,
        );
        if (ran)
          broken(
            'volume-stays',
            mounted.at,
            `project ${project}: ${mounted.deployment} got a volume without what ` +
              `${earlier.deployment} wrote`,
          );
      }
  const wrote = groupBy(all('mounted'), (e) => e.project);
  for (const { project, copy, entries, at } of all('kept'))
    for (const id of new Set(wrote.get(project)?.map((e) => e.deployment))) {
      const ran = reads.get(id)?.some((read) => read.state === 'running') === true;
      if (ran && entries?.includes(id) !== true)
        broken(
          'volume-kept',
          at,
          `project ${project}: what ${id} wrote is not in copy ${copy ?? 'none'}, which ` +
            'counts at the end',
        );
    }
  for (const { node, left, at } of all('drained'))
    if (left.length > 0)
      broken(
        'drain-empties',
        at,
        `the drain of ${node} has finished, and it has the volumes of ${left.join(', ')}`,
      );
}

/**
 * Checks that the copy that counts has every write that the control plane can know of. After a
 * switch to another copy, writes to the old one do not count.
 */
export function checkNewest({ history, broken }: HistoryFacts): void {
  type Data = {
    counts: Map<string, Counts>;
    mounts: Map<string, string>;
    counted: Counts;
    live: string | null;
  };
  const byProject = new Map<string, Data>();
  const dataOf = (project: string): Data => {
    const data = byProject.get(project) ?? {
      counts: new Map(),
      mounts: new Map(),
      counted: {},
      live: null,
    };
    byProject.set(project, data);
    return data;
  };
  const projectOf = new Map<string, string>();
  const compare = (project: string, at: number, who: string, counts: Counts): void => {
    for (const [deployment, count] of Object.entries(dataOf(project).counted))
      if ((counts[deployment] ?? 0) < count)
        broken(
          'newest-data',
          at,
          `project ${project}: ${who} has ${deployment} up to ${counts[deployment] ?? 0}, ` +
            `and it wrote ${count}`,
        );
  };
  for (const e of history) {
    if (e.type === 'mounted') {
      const data = dataOf(e.project);
      projectOf.set(e.deployment, e.project);
      data.mounts.set(e.deployment, e.copy);
      data.counts.set(e.copy, { ...e.counts });
    } else if (e.type === 'wrote') {
      const data = dataOf(e.project);
      data.counts.set(e.copy, { ...data.counts.get(e.copy), [e.deployment]: e.count });
      if (e.copy === data.live) data.counted[e.deployment] = e.count;
    } else if (e.type === 'switched') dataOf(e.project).live = e.copy;
    else if (e.type === 'moved' && e.to === 'published') {
      const project = projectOf.get(e.deployment);
      const copy = project === undefined ? undefined : dataOf(project).mounts.get(e.deployment);
      if (project === undefined || copy === undefined) continue;
      const data = dataOf(project);
      data.live ??= copy;
      compare(project, e.at, e.deployment, data.counts.get(copy) ?? {});
    } else if (e.type === 'kept' && e.counts !== null)
      compare(e.project, e.at, `copy ${e.copy ?? 'none'}`, e.counts);
  }
}
