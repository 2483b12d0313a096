/**
 * The volumes on the disk of one machine, which outlive its agent. Each start of a container adds an entry to the volume that it
 * mounts.
 */
import { createHash } from 'node:crypto';
import type { History } from '@berth/testbed/history';
import type { ReportedCopy, VolumeMounts } from '@berth/wire/volume';

export type Copy = { copy: string; project: string; entries: string[] };
export type Disk = {
  /** Returns the copy to mount; null: the agent refuses, as packages/agent/src/data/volumes.ts does. */
  mount(project: string, given: VolumeMounts): Copy | null;
  /** A container starts with the copy, or again with the one that it has. */
  starts(container: string, deployment: string, copy?: Copy): void;
  find(project: string, copy: string): Copy | null;
  receive(copy: Copy): void;
  work(given: { remove: readonly string[]; setAside: readonly string[] }, isMounted: (copy: string) => boolean): void;
  reported(): ReportedCopy[];
  mountOf(container: string): string | null;
};
/** The entries that senders have sent, by the id of the new copy. The chunks themselves are tested elsewhere. */
export type Moving = Map<string, readonly string[]>;

export const digestOf = (entries: readonly string[]): string => createHash('sha256').update(entries.join('\n')).digest('hex');

export function createDisk(history: History): Disk {
  const places = new Map<string, Copy>();
  const aside = new Map<string, Copy>();
  const mounts = new Map<string, Copy>();
  const displace = (project: string): void => {
    const older = places.get(project);
    if (older !== undefined) aside.set(older.copy, older);
    places.delete(project);
  };
  return {
    mount(project, { copy, mounts: wanted }) {
      const found = places.get(project);
      if (found !== undefined) return found.copy === copy ? found : null;
      if (wanted.some((m) => !m.create)) return null;
      const made: Copy = { copy, project, entries: [] };
      places.set(project, made);
      return made;
    },
    starts(container, deployment, copy = mounts.get(container)) {
      if (copy === undefined) return;
      mounts.set(container, copy);
      history.record({ type: 'mounted', project: copy.project, deployment, entries: [...copy.entries] });
      copy.entries.push(deployment);
    },
    find: (project, copy) => (places.get(project)?.copy === copy ? (places.get(project) ?? null) : null),
    receive(copy) {
      displace(copy.project);
      places.set(copy.project, copy);
    },
    work({ remove, setAside }, isMounted) {
      for (const { copy, project } of [...places.values()])
        if ((remove.includes(copy) || setAside.includes(copy)) && !isMounted(copy)) displace(project);
      for (const copy of remove) if (!isMounted(copy)) aside.delete(copy);
    },
    reported: () => [
      ...[...places.values()].map(({ copy, project }) => ({
        copy,
        project_id: project,
        in_place: true,
        folders: [{ name: 'data', bytes: 1 }],
      })),
      ...[...aside.values()].map(({ copy, project }) => ({
        copy,
        project_id: project,
        in_place: false,
        folders: [{ name: 'data', bytes: 1 }],
      })),
    ],
    mountOf: (container) => mounts.get(container)?.copy ?? null,
  };
}
