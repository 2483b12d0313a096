/**
 * Saves all ids that this agent's node has had. They tell which containers on the engine belong to
 * this agent. A node that was deleted and registers again gets a new id, but its containers with
 * the old id still belong to it. The agent drops an old id with the last container that has it.
 */
import { readFile } from 'node:fs/promises';
import type { Logger } from '@berth/kit/log';
import { writeFileWhole } from '@berth/kit/write-file';
import { LABELS } from '@berth/wire/vocabulary';
import type { Container, Docker } from './docker.ts';

export type NodeIds = {
  /** Includes the ids from previous processes. */
  all(): readonly string[];
  add(id: string): Promise<void>;
  /**
   * Drops ids without containers. Only the first call does: at the start of the process, no task
   * with an old id can be running.
   */
  seen(containers: readonly Container[], present: string): Promise<void>;
};

export async function createNodeIds(path: string, log: Logger): Promise<NodeIds> {
  let ids = await read(path, log);
  let pruned = false;

  async function set(next: string[]): Promise<void> {
    ids = next;
    try {
      await writeFileWhole(path, JSON.stringify(ids));
    } catch (error) {
      // The ids are still in memory of this process.
      log.warn({ err: error }, 'saving the ids of this node failed');
    }
  }
  return {
    all: () => ids,
    async add(id) {
      if (!ids.includes(id)) await set([...ids, id]);
    },
    async seen(containers, present) {
      if (pruned) return;
      pruned = true;
      const used = new Set([present, ...containers.map((c) => c.labels[LABELS.node])]);
      if (ids.some((id) => !used.has(id))) await set(ids.filter((id) => used.has(id)));
    },
  };
}

async function read(path: string, log: Logger): Promise<string[]> {
  try {
    const content: unknown = JSON.parse(await readFile(path, 'utf8'));
    if (Array.isArray(content)) return content.filter((id) => typeof id === 'string');
    throw new Error('the file holds no list');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT')
      log.warn(
        { err: error, path },
        'reading the earlier ids of this node failed; starting without them',
      );
    return [];
  }
}

/**
 * Lists this node’s containers, for all ids that the node has had. Rejects if the engine does not
 * answer.
 */
export type ListNodeContainers = (
  labels: Record<string, string>,
  signal?: AbortSignal,
) => Promise<Container[]>;
export const listNodeContainers =
  (docker: Pick<Docker, 'list'>, ids: Pick<NodeIds, 'all'>): ListNodeContainers =>
  async (labels, signal) =>
    (
      await Promise.all(
        ids.all().map((id) => docker.list({ ...labels, [LABELS.node]: id }, signal)),
      )
    ).flat();
