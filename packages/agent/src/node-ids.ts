/**
 * Which containers on the engine are this agent's: those that carry an id that its node has had. A node that was deleted and
 * comes back gets a new id; what runs here under the old one must not be forgotten over that. Kept on disk; an old id goes
 * with its last container.
 */
import { readFile, rename, writeFile } from 'node:fs/promises';
import type { Logger } from '@berth/kit/log';
import { LABELS } from '@berth/wire/vocabulary';
import type { Container, Docker } from './tools/docker.ts';

export type NodeIds = {
  /** Since this process began, or from before. */
  all(): readonly string[];
  add(id: string): Promise<void>;
  /** What the first look of this process showed: no task of an old id can be at work any more, so one without containers is over. */
  seen(containers: readonly Container[], present: string): Promise<void>;
};

export async function createNodeIds(path: string, log: Logger): Promise<NodeIds> {
  let ids = await read(path, log);
  let looked = false;

  async function set(next: string[]): Promise<void> {
    ids = next;
    try {
      await writeFile(`${path}.new`, JSON.stringify(ids), { mode: 0o600 });
      await rename(`${path}.new`, path);
    } catch (error) {
      // This process knows them all the same.
      log.warn({ err: error }, 'the ids of this node could not be written down');
    }
  }
  return {
    all: () => ids,
    async add(id) {
      if (!ids.includes(id)) await set([...ids, id]);
    },
    async seen(containers, present) {
      if (looked) return;
      looked = true;
      const used = new Set([present, ...containers.map((c) => c.labels[LABELS.node])]);
      if (ids.some((id) => !used.has(id))) await set(ids.filter((id) => used.has(id)));
    },
  };
}

async function read(path: string, log: Logger): Promise<string[]> {
  try {
    const content: unknown = JSON.parse(await readFile(path, 'utf8'));
    if (Array.isArray(content)) return content.filter((id) => typeof id === 'string');
    throw new Error('it is no list');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') log.warn({ err: error, path }, 'the ids that this node had cannot be read');
    return [];
  }
}

/** Lists containers of ours, whichever id the node had when they were made. Rejects when the engine does not answer. */
export type ListOurs = (labels: Record<string, string>, signal?: AbortSignal) => Promise<Container[]>;
export const listOurs =
  (docker: Pick<Docker, 'list'>, ids: Pick<NodeIds, 'all'>): ListOurs =>
  async (labels, signal) =>
    (await Promise.all(ids.all().map((id) => docker.list({ ...labels, [LABELS.node]: id }, signal)))).flat();
