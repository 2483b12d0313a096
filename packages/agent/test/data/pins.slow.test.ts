/** Versions that a project wants to keep on this node: no eviction removes them. */
import { readFile, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { createSyncHandler } from '../../src/tasks/sync.ts';
import { type FakeDataset, syncTask } from '../fake-control-plane.ts';
import { context, ensureCached, type Share, type Site } from './share.ts';
import { sharePerTest } from './share-per-test.ts';

const MB = 1_000_000;
let share: Share;
const perTest = sharePerTest();
const { siteWith } = perTest;
beforeEach(() => void (share = perTest.share()));

async function dataset(name: string, bytes: number): Promise<FakeDataset> {
  await share.write(`${name}/file`, Buffer.alloc(bytes, name));
  return share.dataset(name);
}
const cachedIn = async (site: Site): Promise<string[]> =>
  ((await site.data.inventory.cached()) ?? [])
    .map((c) => `${c.dataset_id} v${c.version}${c.pinned === true ? ' pinned' : ''}`)
    .sort();
const pins = (...items: [string, number][]) => ({
  etag: items.join(),
  items: items.map(([dataset_id, version]) => ({ dataset_id, version })),
});
const copy = async (site: Site, set: FakeDataset): Promise<void> =>
  (await ensureCached(site, set)).release();

describe('a version that a project wants here', () => {
  it('stays when other versions must go, until the control plane no longer names it', async () => {
    const site = await siteWith({ maxStorage: 10 * MB });
    const [kept, other, big] = [
      await dataset('kept', 4 * MB),
      await dataset('other', 4 * MB),
      await dataset('big', 5 * MB),
    ];
    await site.data.pins.replace(pins(['kept', 1]));
    // The pinned version is the least recently used one.
    for (const set of [kept, other, big]) await copy(site, set);
    expect(await cachedIn(site)).toEqual(['big v1', 'kept v1 pinned']);
    const tooBig = await dataset('too-big', 7 * MB);
    await expect(ensureCached(site, tooBig)).rejects.toMatchObject({ code: 'no_room' });
    expect(await cachedIn(site)).toEqual(['big v1', 'kept v1 pinned']);

    await site.data.pins.replace(pins());
    await copy(site, tooBig);
    expect(await cachedIn(site)).toEqual(['too-big v1']);
  });

  it('is not trimmed as an old version of its dataset', async () => {
    const site = await siteWith({ keepVersions: 1 });
    const set = await dataset('set', 1_000);
    await site.data.pins.replace(pins(['set', 1]));
    await copy(site, set);
    for (const text of ['two', 'three']) {
      await share.write('set/file', text);
      await set.scan();
      await copy(site, set);
    }
    await site.data.stop();
    expect(await cachedIn(site)).toEqual(['set v1 pinned', 'set v3']);
  });

  it('does not count as one that only a rollback needs', async () => {
    const site = await siteWith();
    const set = await dataset('set', 1_000);
    await copy(site, set);
    await site.data.pins.replace(pins(['set', 1]));
    expect(await site.data.inventory.cached()).toMatchObject([{ pinned: true }]);
    expect((await site.data.inventory.cached())?.[0]).not.toHaveProperty('recopyable');
  });

  it('is copied again if its files are not those of the version', async () => {
    const site = await siteWith();
    const set = await dataset('set', 1_000);
    await copy(site, set);
    await site.data.pins.replace(pins(['set', 1]));
    // A restored control plane gave the number to other files.
    await share.write('set/file', 'other files');
    set.source = { ...set.source, version: 0 };
    await set.scan();
    await copy(site, set);
    expect(await readFile(join(site.root, 'objects/set/v1/file'), 'utf8')).toBe('other files');
  });
});

describe('the list of an agent', () => {
  it('survives a restart, with its ETag', async () => {
    const site = await siteWith();
    await site.data.pins.replace(pins(['set', 1]));
    const restarted = await siteWith({ root: site.root });
    expect(restarted.data.pins.etag()).toBe('set,1');
    expect(await restarted.data.pins.keys()).toEqual(new Set(['set/v1']));
  });

  it('counts for another agent on the same SVC_ROOT, unless it is older than a day', async () => {
    const site = await siteWith();
    const other = await siteWith({ root: site.root, agent: 'agent-2' });
    await other.data.pins.replace(pins(['set', 1]));
    expect(await site.data.pins.keys()).toEqual(new Set(['set/v1']));
    expect(site.data.pins.etag()).toBe('');
    const old = new Date(Date.now() - 25 * 3_600_000);
    await utimes(join(site.root, '.pins/agent-2.json'), old, old);
    expect(await site.data.pins.keys()).toEqual(new Set());
    expect(await other.data.pins.keys()).toEqual(new Set(['set/v1']));
  });
});

describe('a copy in the background', () => {
  const inBackground = (set: FakeDataset) => {
    const task = syncTask(set.source);
    return { ...task, payload: { ...task.payload, background: true } };
  };
  it('pins its version at once, and asks for the list of the control plane', async () => {
    const site = await siteWith();
    await site.data.pins.replace(pins(['other', 7]));
    const set = await dataset('set', 1_000);
    const handler = createSyncHandler(site.data);
    await handler(inBackground(set), context());
    expect(await cachedIn(site)).toEqual(['set v1 pinned']);
    expect(await site.data.pins.keys()).toEqual(new Set(['other/v7', 'set/v1']));
    expect(site.data.pins.etag()).toBe('');
  });

  it('does not let the copy of a deployment wait', async () => {
    const site = await siteWith({ copiesAtOnce: 1, rsync: { bandwidth: '500' } });
    const [slow, small] = [await dataset('slow', 20 * MB), await dataset('small', 1_000)];
    const handler = createSyncHandler(site.data);
    const stopping = new AbortController();
    const taskContext = context({ signal: stopping.signal });
    const copying = handler(inBackground(slow), taskContext).catch((error: unknown) => error);
    try {
      await expect
        .poll(() => taskContext.lines.some((l) => l.step === 'copying'), { timeout: 20_000 })
        .toBe(true);
      await copy(site, small);
      expect(await cachedIn(site)).toEqual(['small v1']);
    } finally {
      stopping.abort(new Error('the test is over'));
      await copying;
    }
  });
});
