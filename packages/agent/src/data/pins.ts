/**
 * The versions that agents keep for projects although nothing on the node mounts them
 * (`data_copies`). The control plane names them in its answer to a registration. A file holds them,
 * so that a restarted agent, and another agent on this SVC_ROOT, does not evict them.
 */
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { DatasetPins, PinnedVersion } from '@berth/wire/data-copies';
import { nullIfMissing, readJson, writeWhole } from '../file-system.ts';
import { keyOf, type Layout } from './layout.ts';

export type Pins = {
  /** Returns the ETag of the last list, or an empty text. */
  etag(): string;
  /** Replaces the list of this agent. */
  replace(pins: DatasetPins): Promise<void>;
  /** Adds a version that a task copies for a project, until the next list. */
  add(pin: PinnedVersion): Promise<void>;
  /** Returns the keys (layout.ts `keyOf`) of the versions that any agent on this SVC_ROOT keeps. */
  keys(): Promise<Set<string>>;
};

/** The list of another agent counts for this time in ms after that agent wrote it. */
const OTHERS_MS = 24 * 3_600_000;
/** The agent writes an unchanged list again after this time in ms. */
const REFRESH_MS = 3_600_000;

export async function createPins(layout: Layout, agent: string): Promise<Pins> {
  const path = layout.pinsOf(agent);
  const stored = await readJson(path);
  let own: DatasetPins = isPins(stored) ? stored : { etag: '', items: [] };
  let writtenAt = Number.NEGATIVE_INFINITY;
  let writing = Promise.resolve();

  function write(next: DatasetPins): Promise<void> {
    own = next;
    const attempt = writing.then(async () => {
      await writeWhole(path, JSON.stringify(own));
      writtenAt = performance.now();
    });
    writing = attempt.catch(() => {
      // The empty ETag makes the next registration request the list again.
      own = { ...own, etag: '' };
    });
    return attempt;
  }
  async function ofOthers(): Promise<PinnedVersion[]> {
    const names = (await nullIfMissing(readdir(layout.pins))) ?? [];
    const lists = names
      .filter((name) => name.endsWith('.json') && join(layout.pins, name) !== path)
      .map(async (name) => {
        const file = join(layout.pins, name);
        const written = (await nullIfMissing(stat(file)))?.mtimeMs ?? 0;
        if (Math.abs(Date.now() - written) > OTHERS_MS) return [];
        const pins = await readJson(file);
        return isPins(pins) ? pins.items : [];
      });
    return (await Promise.all(lists)).flat();
  }
  return {
    etag: () => {
      if (performance.now() - writtenAt > REFRESH_MS && own.items.length > 0)
        void write(own).catch(() => undefined);
      return own.etag;
    },
    replace: write,
    async add(pin) {
      const isKept = own.items.some(
        (one) => one.dataset_id === pin.dataset_id && one.version === pin.version,
      );
      // The empty ETag makes the next registration request the list of the control plane.
      if (!isKept) await write({ etag: '', items: [...own.items, pin] });
    },
    async keys() {
      const all = [...own.items, ...(await ofOthers())];
      return new Set(all.map(({ dataset_id, version }) => keyOf(dataset_id, version)));
    },
  };
}

const isPins = (value: unknown): value is DatasetPins =>
  typeof value === 'object' &&
  value !== null &&
  typeof (value as DatasetPins).etag === 'string' &&
  Array.isArray((value as DatasetPins).items);
