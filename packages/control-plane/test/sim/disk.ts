/**
 * The volumes on the disk of one machine, which outlive its agent. Each start of a container adds
 * an entry to the volume that it mounts, and a running container counts in it.
 */
import { createHash } from 'node:crypto';
import type { Counts, History } from '@berth/testbed/history';
import type { ReportedCopy, VolumeMounts } from '@berth/wire/volume';

export type Content = { entries: string[]; counts: Counts };
export type Copy = Content & { copy: string; project: string };
export type Disk = {
  /**
   * Returns the copy to mount; null: the agent refuses, as
   * packages/agent/src/data/volumes/volumes.ts does.
   */
  mount(project: string, given: VolumeMounts): Copy | null;
  /** A container starts with the copy, or again with the one that it has. */
  starts(container: string, deployment: string, copy?: Copy): void;
  /** A running container counts one further. */
  writes(container: string, deployment: string): void;
  /**
   * Somebody starts a stopped container by hand: it gets the folders that are in place now. Returns
   * false if there are none.
   */
  startsByHand(container: string, project: string, deployment: string): boolean;
  find(project: string, copy: string): Copy | null;
  receive(copy: Copy): void;
  work(
    given: { remove: readonly string[]; setAside: readonly string[] },
    isMounted: (copy: string) => boolean,
  ): void;
  reported(): ReportedCopy[];
  mountOf(container: string): string | null;
  /** Copies that this disk has deleted. */
  removed(): string[];
  /**
   * The disk is not mounted: the agent finds an empty folder. Containers that run keep what they
   * have.
   */
  takeOut(): void;
  putBack(): void;
  isOut(): boolean;
};
/**
 * The entries that senders have sent, by the id of the new copy. The chunks themselves are tested
 * elsewhere.
 */
export type Moving = Map<string, Content>;

export const contentOf = ({ entries, counts }: Content): Content => ({
  entries: [...entries],
  counts: { ...counts },
});
export const digestOf = ({ entries, counts }: Content): string =>
  createHash('sha256')
    .update(JSON.stringify([entries, counts]))
    .digest('hex');

export function createDisk(history: History): Disk {
  const places = new Map<string, Copy>();
  const aside = new Map<string, Copy>();
  const mounts = new Map<string, Copy>();
  const gone: string[] = [];
  let isOut = false;
  const displace = (project: string): void => {
    const older = places.get(project);
    if (older !== undefined) aside.set(older.copy, older);
    places.delete(project);
  };
  return {
    mount(project, { copy, mounts: wanted }) {
      if (isOut) return null;
      const found = places.get(project);
      if (found !== undefined) return found.copy === copy ? found : null;
      if (wanted.some((m) => !m.create)) return null;
      const made: Copy = { copy, project, entries: [], counts: {} };
      places.set(project, made);
      return made;
    },
    starts(container, deployment, copy = mounts.get(container)) {
      if (copy === undefined) return;
      mounts.set(container, copy);
      history.record({
        type: 'mounted',
        project: copy.project,
        deployment,
        copy: copy.copy,
        ...contentOf(copy),
      });
      copy.entries.push(deployment);
    },
    writes(container, deployment) {
      const copy = mounts.get(container);
      if (copy === undefined) return;
      const count = (copy.counts[deployment] ?? 0) + 1;
      copy.counts[deployment] = count;
      history.record({ type: 'wrote', project: copy.project, deployment, copy: copy.copy, count });
    },
    startsByHand(container, project, deployment) {
      const copy = isOut ? undefined : places.get(project);
      if (copy === undefined) return false;
      mounts.set(container, copy);
      copy.entries.push(deployment);
      return true;
    },
    find: (project, copy) =>
      !isOut && places.get(project)?.copy === copy ? (places.get(project) ?? null) : null,
    receive(copy) {
      displace(copy.project);
      places.set(copy.project, copy);
    },
    work({ remove, setAside }, isMounted) {
      if (isOut) return;
      for (const { copy, project } of [...places.values()])
        if ((remove.includes(copy) || setAside.includes(copy)) && !isMounted(copy))
          displace(project);
      for (const copy of remove) if (!isMounted(copy) && aside.delete(copy)) gone.push(copy);
    },
    reported() {
      if (isOut) return [];
      const report = (in_place: boolean) => (c: Copy) => ({
        copy: c.copy,
        project_id: c.project,
        in_place,
        folders: [{ name: 'data', bytes: 1 }],
      });
      return [...[...places.values()].map(report(true)), ...[...aside.values()].map(report(false))];
    },
    mountOf: (container) => mounts.get(container)?.copy ?? null,
    removed: () => (isOut ? [] : [...gone]),
    takeOut: () => void (isOut = true),
    putBack: () => void (isOut = false),
    isOut: () => isOut,
  };
}
