/** Reports of volumes cost a query only if something may have changed. */
import { expect, it, vi } from 'vitest';
import { createVolumeReports } from '../../src/api/volume-reports.ts';
import type { VolumeStore, VolumeWork } from '../../src/domain/data/volume-store.ts';

const node = { id: 'n1', hostname: 'node-1' };
const volumes = [{ copy: 'v1', project_id: 'p1', in_place: true, folders: [] }];

it('compares a report again when a copy was left behind since, and until the node has done what it should', async () => {
  vi.useFakeTimers({ toFake: ['performance'] });
  try {
    const unused = new Map<string, string>();
    let work = { remove: [] as string[], setAside: [] as string[] };
    let queries = 0;
    const store = {
      unused: async () => unused,
      report: async () => ((queries += 1), work),
    } as Partial<VolumeStore> as VolumeStore;
    const compare = createVolumeReports({ volumes: store, now: () => 0 });
    await compare(node, { volumes });
    await compare(node, { volumes });
    expect([queries, await compare(node, {})]).toEqual([1, { remove: [], setAside: [] }]);
    // The copy was left behind by a move; the report of its node is the same.
    unused.set('n1', ' v1 left');
    work = { remove: [], setAside: ['v1'] };
    vi.advanceTimersByTime(6_000);
    expect([await compare(node, { volumes }), await compare(node, { volumes }), queries]).toEqual([
      work,
      work,
      3,
    ]);
    work = { remove: [], setAside: [] };
    for (let i = 0; i < 3; i += 1) await compare(node, { volumes });
    expect(queries).toBe(4);
  } finally {
    vi.useRealTimers();
  }
});

it('compares a report with a copy of another node each time: that node may be deleted', async () => {
  let work: VolumeWork = { remove: [], setAside: [], foreign: true };
  let queries = 0;
  const store = {
    unused: async () => new Map(),
    report: async () => ((queries += 1), work),
  } as Partial<VolumeStore> as VolumeStore;
  const compare = createVolumeReports({ volumes: store, now: () => 0 });
  for (let i = 0; i < 3; i += 1) await compare(node, { volumes });
  expect(queries).toBe(3);
  work = { remove: [], setAside: [] };
  for (let i = 0; i < 3; i += 1) await compare(node, { volumes });
  expect(queries).toBe(4);
});

it('compares the same report again after a while: another control plane may have compared a different one', async () => {
  vi.useFakeTimers({ toFake: ['performance'] });
  try {
    let queries = 0;
    const store = {
      unused: async () => new Map(),
      report: async () => ((queries += 1), { remove: [], setAside: [] }),
    } as Partial<VolumeStore> as VolumeStore;
    const compare = createVolumeReports({ volumes: store, now: () => 0 });
    for (let i = 0; i < 3; i += 1) await compare(node, { volumes });
    expect(queries).toBe(1);
    vi.advanceTimersByTime(11 * 60_000);
    await compare(node, { volumes });
    expect(queries).toBe(2);
  } finally {
    vi.useRealTimers();
  }
});
