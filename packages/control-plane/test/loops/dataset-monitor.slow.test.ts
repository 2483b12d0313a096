import { silentLogger } from '@berth/kit/log';
import { expect, onTestFinished, test, vi } from 'vitest';
import { createChanges } from '../../src/domain/platform/changes.ts';
import type { ScanRequest, Scanner, ScanResult } from '../../src/domain/data/scan.ts';
import { datasetMonitor } from '../../src/loops/dataset-monitor.ts';
import { datasetRemovals } from '../../src/loops/dataset-removals.ts';
import type { ScanSettings } from '../../src/loops/settings.ts';
import { type FakeTree, fakeTree } from '../fake-tree.ts';
import { steadyUptime } from '../steady-uptime.ts';
import { datasetIn } from '../store/datasets-in.ts';
import { codeOf, NOW, open } from '../store/fixtures.ts';

const share = { marker: 'm', mount: null };
const nothing = { count: 0, first: [] };
const page = { limit: 1000, cursor: null };

function changed(tree: FakeTree, objects?: (digest: string) => Promise<string>): ScanResult {
  return {
    kind: 'changed',
    manifestDigest: tree.digest,
    files: tree.files,
    bytes: tree.bytes,
    skipped: nothing,
    share,
    objects:
      objects ??
      (async (digest) =>
        tree.objects.get(digest) ?? Promise.reject(new Error(`no object ${digest}`))),
    dispose: async () => {},
  };
}

type Given = Partial<ScanSettings> & {
  scan: (request: ScanRequest, signal: AbortSignal) => Promise<ScanResult>;
};
async function scene(given: Given, stores?: Awaited<ReturnType<typeof open>>) {
  const clock = { now: NOW };
  const told: string[] = [];
  const forgotten: string[] = [];
  const { scan, ...settings } = given;
  const scanner: Scanner = {
    scan: (request, { signal }) => scan(request, signal),
    forget: async (id) => void forgotten.push(id),
    close: async () => {},
  };
  const opened = stores ?? (await open());
  const deps = {
    ...opened,
    changes: createChanges(),
    driver: { datasetChanged: async (id: string) => void told.push(id) },
    now: () => clock.now,
    uptime: steadyUptime(() => clock.now),
    log: silentLogger(),
    scans: {
      scanner,
      basePath: '/share',
      scanIntervalMs: 600_000,
      scansAtOnce: 1,
      historyKeep: 100,
      ...settings,
    },
  };
  const stop = new AbortController();
  onTestFinished(() => stop.abort());
  return {
    ...deps,
    stores: opened,
    deps,
    clock,
    told,
    forgotten,
    stop,
    run: () => datasetMonitor(deps)(stop.signal),
  };
}
const until = async (what: () => boolean | Promise<boolean>): Promise<void> =>
  expect.poll(what, { timeout: 5000, interval: 5 }).toBe(true);

test('scans a due dataset, records its version, and notifies deployments', async () => {
  const asked: ScanRequest[] = [];
  let tree = fakeTree({ a: '1' });
  const s = await scene({ scan: async (request) => (asked.push(request), changed(tree)) });
  const { id } = await datasetIn(s.stores);
  await s.run();
  expect(asked).toEqual([
    {
      datasetId: id,
      basePath: '/share',
      nfsPath: 'data/photos',
      full: false,
      previous: null,
      share: null,
      acceptLoss: false,
    },
  ]);
  expect(await s.stores.datasets.get(id)).toMatchObject({
    status: 'ok',
    version: 1,
    files: 1,
    share,
    scan_requested_at: null,
    scanning_by: null,
  });
  expect(s.told).toEqual([id]);
  // Not due, so not scanned.
  await s.run();
  expect(asked).toHaveLength(1);

  const first = tree.digest;
  tree = fakeTree({ a: '2' });
  s.clock.now += 600_000;
  await s.run();
  expect(asked[1]).toMatchObject({
    previous: { manifestDigest: first, files: 1, bytes: 1 },
    share,
  });
  expect(
    (await s.stores.datasets.history(id, {}, page)).items.map(
      (r) => `${r.version} ${r.path} ${r.change}`,
    ),
  ).toEqual(['2 a modified', '1 a added']);
  expect(s.told).toEqual([id, id]);

  // The same content again: another scan, no new version, no notification.
  await s.stores.datasets.requestScan(id, { full: true, acceptLoss: false }, s.clock.now);
  await s.run();
  expect(asked[2]).toMatchObject({ full: true });
  expect((await s.stores.datasets.get(id)).version).toBe(2);
  expect(s.told).toHaveLength(2);
});

test('an unreachable share keeps its versions and is scanned again soon', async () => {
  let away = false;
  const s = await scene({
    scan: async () =>
      away ? { kind: 'unreachable', problem: 'not mounted' } : changed(fakeTree({ a: '1' })),
  });
  const { id } = await datasetIn(s.stores);
  await s.run();
  away = true;
  s.clock.now += 600_000;
  await s.run();
  expect(await s.stores.datasets.get(id)).toMatchObject({
    status: 'unreachable',
    problem: 'not mounted',
    version: 1,
    last_scanned_at: s.clock.now,
  });
  away = false;
  s.clock.now += 60_000;
  await s.run();
  expect(await s.stores.datasets.get(id)).toMatchObject({
    status: 'ok',
    problem: null,
    version: 1,
  });
});

test('an error of the scanner becomes the dataset’s problem and does not end the loop', async () => {
  const s = await scene({
    scan: async ({ nfsPath }) =>
      nfsPath.endsWith('bad') ? Promise.reject(new Error('no find here')) : changed(fakeTree({})),
  });
  const [bad, good] = [
    await datasetIn(s.stores, 'bad'),
    await datasetIn(s.stores, 'good', NOW + 0),
  ];
  await s.run();
  expect(await s.stores.datasets.get(bad.id)).toMatchObject({
    status: 'new',
    problem: expect.stringContaining('no find here'),
    next_scan_at: NOW + 60_000,
  });
  expect(await s.stores.datasets.get(good.id)).toMatchObject({ status: 'ok', version: 1 });
});

test('an object that does not match its digest creates no version', async () => {
  const tree = fakeTree({ 'a/b': '1' });
  const s = await scene({
    scan: async () =>
      changed(tree, async (digest) => `${tree.objects.get(digest)}f 1 ${'0'.repeat(64)} zzz\n`),
  });
  const { id } = await datasetIn(s.stores);
  await s.run();
  const dataset = await s.stores.datasets.get(id);
  expect(dataset).toMatchObject({
    status: 'new',
    version: null,
    scanning_by: null,
    problem: expect.stringContaining('reads as'),
  });
  expect(await s.stores.datasets.trees(id, [tree.digest])).toEqual(new Map());
});

test('two control planes scan each dataset once and stay within their limits', async () => {
  const stores = await open();
  const open_: { count: number; most: number; seen: string[] } = { count: 0, most: 0, seen: [] };
  const gate = Promise.withResolvers<void>();
  const scan = async ({ datasetId }: ScanRequest): Promise<ScanResult> => {
    open_.seen.push(datasetId);
    open_.most = Math.max(open_.most, ++open_.count);
    await gate.promise;
    open_.count--;
    return changed(fakeTree({ a: '1' }));
  };
  const [one, two] = [
    await scene({ scan, scansAtOnce: 2 }, stores),
    await scene({ scan, scansAtOnce: 2 }, stores),
  ];
  const ids = await Promise.all(
    Array.from({ length: 7 }, async (_, i) => (await datasetIn(stores, `d${i}`)).id),
  );
  const runs = [one.run(), two.run()];
  await until(() => open_.count === 4);
  gate.resolve();
  await Promise.all(runs);
  expect(open_.most).toBe(4);
  expect(open_.seen.toSorted()).toEqual(ids.toSorted());
  for (const id of ids) expect((await stores.datasets.versions(id, page)).items).toHaveLength(1);
});

test('a database failure during a scan ends the run of the loop after the scan', async () => {
  const stores = await open();
  const gate = Promise.withResolvers<void>();
  let began = false;
  const flaky = {
    ...stores,
    datasets: {
      ...stores.datasets,
      claimDue: (...of: Parameters<typeof stores.datasets.claimDue>) =>
        began ? Promise.reject(new Error('the database is away')) : stores.datasets.claimDue(...of),
    },
  };
  const scan = async (): Promise<ScanResult> => {
    began = true;
    await gate.promise;
    return changed(fakeTree({ a: '1' }));
  };
  const s = await scene({ scan, scansAtOnce: 2 }, flaky);
  const { id } = await datasetIn(stores);
  const run = s.run();
  gate.resolve();
  await expect(run).rejects.toThrow('the database is away');
  expect(await stores.datasets.get(id)).toMatchObject({
    status: 'ok',
    version: 1,
    scanning_by: null,
  });
});

test('a shutdown ends the scan, and its dataset stays due', async () => {
  const began = Promise.withResolvers<AbortSignal>();
  const s = await scene({
    scan: (_, signal) => {
      began.resolve(signal);
      return new Promise((_resolve, reject) =>
        signal.addEventListener('abort', () => reject(new Error('aborted'))),
      );
    },
  });
  const { id } = await datasetIn(s.stores);
  await s.stores.datasets.requestScan(id, { full: true, acceptLoss: true }, NOW);
  const run = s.run();
  await began.promise;
  s.stop.abort();
  await run;
  expect(await s.stores.datasets.get(id)).toMatchObject({
    scanning_by: null,
    scan_full: true,
    accept_loss: true,
    last_scanned_at: null,
  });
  const next = await scene({ scan: async () => changed(fakeTree({ a: '1' })) }, s.stores);
  await next.run();
  expect(await s.stores.datasets.get(id)).toMatchObject({ version: 1 });
});

test('a dataset that is deleted during its scan stays deleted', async () => {
  const began = Promise.withResolvers<void>();
  const gate = Promise.withResolvers<void>();
  const s = await scene({
    scan: async () => {
      began.resolve();
      await gate.promise;
      return changed(fakeTree({ a: '1' }));
    },
  });
  const { id } = await datasetIn(s.stores);
  const run = s.run();
  await began.promise;
  await s.stores.datasets.markDeleting(id, NOW);
  await datasetRemovals(s.deps)(s.stop.signal);
  gate.resolve();
  await run;
  expect(await codeOf(s.stores.datasets.get(id))).toBe('not_found');
  expect(s.forgotten).toEqual([id]);
  expect(s.told).toEqual([]);
});

test('keeps at most the configured number of versions', async () => {
  let content = 0;
  const s = await scene({
    historyKeep: 2,
    scan: async () => changed(fakeTree({ a: String(content++) })),
  });
  const { id } = await datasetIn(s.stores);
  for (let i = 0; i < 5; i++) {
    await s.run();
    s.clock.now += 600_000;
  }
  // One more version until the next scan.
  expect((await s.stores.datasets.versions(id, page)).items.map((v) => v.version)).toEqual([
    5, 4, 3,
  ]);
});

test('a failed deletion does not hold up others and is retried', async () => {
  const s = await scene({ scan: async () => changed(fakeTree({})) });
  const [bad, good] = [await datasetIn(s.stores, 'bad'), await datasetIn(s.stores, 'good')];
  await s.stores.datasets.markDeleting(bad.id, NOW);
  await s.stores.datasets.markDeleting(good.id, NOW + 1);
  const forget = vi
    .spyOn(s.scans.scanner, 'forget')
    .mockImplementation((id) =>
      id === bad.id ? Promise.reject(new Error('EIO')) : Promise.resolve(),
    );
  await datasetRemovals(s.deps)(s.stop.signal);
  expect((await s.stores.datasets.listDeleting()).map((d) => d.id)).toEqual([bad.id]);
  forget.mockRestore();
  await datasetRemovals(s.deps)(s.stop.signal);
  expect(await s.stores.datasets.listDeleting()).toEqual([]);
});
