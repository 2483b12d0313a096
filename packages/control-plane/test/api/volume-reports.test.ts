/** Reports of volumes cost a query only if something may have changed. */
import { expect, it, vi } from 'vitest';
import { createVolumeReports } from '../../src/api/volume-reports.ts';
import type { VolumeStore } from '../../src/domain/stores.ts';

const node = { id: 'n1', hostname: 'node-1' };
const volumes = [{ copy: 'v1', project_id: 'p1', in_place: true, folders: [] }];

it('compares a report again when a copy was left behind since, and until the node has done what it should', async () => {
  vi.useFakeTimers({ toFake: ['performance'] });
  try {
    const unused = new Map<string, string>();
    let work = { remove: [] as string[], setAside: [] as string[] };
    let queries = 0;
    const store = { unused: async () => unused, report: async () => ((queries += 1), work) } as Partial<VolumeStore> as VolumeStore;
    const compare = createVolumeReports({ volumes: store }, () => 0);
    await compare(node, { volumes });
    await compare(node, { volumes });
    expect([queries, await compare(node, {})]).toEqual([1, { remove: [], setAside: [] }]);
    // The copy was left behind by a move; the report of its node is the same.
    unused.set('n1', ' v1 left');
    work = { remove: [], setAside: ['v1'] };
    vi.advanceTimersByTime(6_000);
    expect([await compare(node, { volumes }), await compare(node, { volumes }), queries]).toEqual([work, work, 3]);
    work = { remove: [], setAside: [] };
    for (let i = 0; i < 3; i += 1) await compare(node, { volumes });
    expect(queries).toBe(4);
  } finally {
    vi.useRealTimers();
  }
});
