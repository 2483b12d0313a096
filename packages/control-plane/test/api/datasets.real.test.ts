/**
 * Datasets through the API, for people and agents: real folders, the real scanner, both database
 * engines.
 */
import { mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createHash } from 'node:crypto';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { silentLogger } from '@berth/kit/log';
import { startPostgres, whyNoPostgres } from '@berth/testbed/postgres';
import { afterAll, describe, expect, onTestFinished, test } from 'vitest';
import { datasetMonitor } from '../../src/loops/dataset-monitor.ts';
import { datasetRemovals } from '../../src/loops/dataset-removals.ts';
import { createCheckFolder } from '../../src/monitor/check-folder.ts';
import { createScanner } from '../../src/monitor/scanner.ts';
import { shareCompiled } from '../monitor/support.ts';
import { emptiedDatabases } from '../store/emptied-databases.ts';
import { type Api, createApi, createProject, register, rulesOf } from './harness.ts';

const reason = whyNoPostgres();
const server = reason === undefined ? await startPostgres() : undefined;
afterAll(() => server?.stop());
const databases = server === undefined ? undefined : await emptiedDatabases(server);

type Row = Record<string, unknown>;
type Scene = {
  api: Api;
  base: string;
  /** Writes files below the folder of the dataset; null removes a file. */
  put(files: Record<string, string | null>, folder?: string): void;
  create(name?: string): Promise<string>;
  /** Runs all due scans. */
  scan(): Promise<void>;
  scanned(id: string, body?: object): Promise<Row>;
  history(id: string, query?: Record<string, string | number>): Promise<string[]>;
};

async function scene(engine: string, given: { scansByLoop?: number } = {}): Promise<Scene> {
  const borrowed = engine === 'PostgreSQL' ? await databases?.borrow() : undefined;
  // Runs after everything of the test is closed.
  if (borrowed !== undefined) onTestFinished(() => databases?.giveBack(borrowed));
  const databaseUrl = borrowed ?? 'sqlite::memory:';
  const root = mkdtempSync(join(tmpdir(), 'berth-share-'));
  onTestFinished(() => rmSync(root, { recursive: true, force: true }));
  const base = join(root, 'share');
  mkdirSync(base);
  const stateDir = join(root, 'state');
  shareCompiled(stateDir);
  const scanner = createScanner({ stateDir, searchPath: '/usr/bin:/bin', workers: 1 });
  const api = await createApi({
    env: { DATASET_NFS_BASE_PATH: base },
    overrides: { scanner },
    databaseUrl,
  });
  onTestFinished(() => api.close());
  const stop = new AbortController();
  const deps = {
    ...api.stores,
    ...api,
    now: Date.now,
    log: silentLogger(),
    scans: {
      scanner,
      basePath: base,
      scanIntervalMs: 600_000,
      scansAtOnce: given.scansByLoop ?? 1,
      historyKeep: 100,
    },
  };
  const put: Scene['put'] = (files, folder = 'photos') => {
    mkdirSync(join(base, folder), { recursive: true });
    for (const [path, content] of Object.entries(files)) {
      const file = join(base, folder, path);
      mkdirSync(dirname(file), { recursive: true });
      if (content === null) rmSync(file, { recursive: true });
      else writeFileSync(file, content);
    }
  };
  const scan = async (): Promise<void> => {
    await datasetMonitor(deps)(stop.signal);
    await datasetRemovals(deps)(stop.signal);
  };
  return {
    api,
    base,
    put,
    scan,
    async create(name = 'photos') {
      const reply = await api.call('createDataset', { body: { name, nfs_path: name } });
      expect(reply.status, reply.text).toBe(201);
      return String(reply.json['id']);
    },
    async scanned(id, body = {}) {
      const asked = await api.call('scanDataset', { params: { id }, body });
      expect([asked.status, asked.json['scanning']]).toEqual([202, true]);
      await scan();
      return (await api.call('getDataset', { params: { id } })).json;
    },
    async history(id, query = {}) {
      const { json, text } = await api.call('datasetHistory', { params: { id }, query });
      if (!Array.isArray(json['items'])) throw new Error(text);
      return (json['items'] as Row[]).map(
        (row) => `${String(row['version'])} ${String(row['path'])} ${String(row['change'])}`,
      );
    },
  };
}
const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

const ENGINES = server === undefined ? ['SQLite'] : ['SQLite', 'PostgreSQL'];

describe.each(ENGINES)('on %s', (engine) => {
  test('the first scan records version 1 with all files, the next one the changes, with checksums', async () => {
    const s = await scene(engine);
    s.put({ 'a/one.txt': 'one', 'a/two.txt': 'two', 'odd\nname': '', 'straße/x': 'ß' });
    const id = await s.create();
    expect((await s.api.call('getDataset', { params: { id } })).json).toMatchObject({
      status: 'new',
      version: null,
      scanning: true,
      last_scanned_at: null,
    });
    await s.scan();
    const first = (await s.api.call('getDataset', { params: { id } })).json;
    expect(first).toMatchObject({
      status: 'ok',
      version: 1,
      files: 4,
      bytes: 8,
      scanning: false,
      problem: null,
    });
    expect(await s.history(id)).toEqual([
      '1 a/one.txt added',
      '1 a/two.txt added',
      '1 odd%0Aname added',
      '1 straße/x added',
    ]);

    s.put({ 'a/one.txt': 'ONE', 'a/two.txt': null, 'b/three.txt': 'three' });
    const second = await s.scanned(id);
    expect(second).toMatchObject({ version: 2, files: 4, bytes: 10 });
    expect(Date.parse(String(second['last_scanned_at']))).toBeGreaterThan(
      Date.parse(String(first['last_scanned_at'])),
    );
    const { json } = await s.api.call('datasetHistory', { params: { id }, query: { version: 2 } });
    expect((json['items'] as Row[]).map(({ at: _at, ...row }) => row)).toEqual([
      {
        version: 2,
        path: 'a/one.txt',
        change: 'modified',
        size: 3,
        checksum: sha256('ONE'),
        previous_checksum: sha256('one'),
      },
      {
        version: 2,
        path: 'a/two.txt',
        change: 'removed',
        size: null,
        checksum: null,
        previous_checksum: sha256('two'),
      },
      {
        version: 2,
        path: 'b/three.txt',
        change: 'added',
        size: 5,
        checksum: sha256('three'),
        previous_checksum: null,
      },
    ]);
    const versions = (await s.api.call('datasetVersions', { params: { id } })).json[
      'items'
    ] as Row[];
    expect(versions.map((v) => [v['version'], v['files'], v['bytes']])).toEqual([
      [2, 4, 10],
      [1, 4, 8],
    ]);
    expect(versions[0]?.['manifest_digest']).toBe(second['manifest_digest']);
    // Without a change the version stays, with a later scan time.
    expect(await s.scanned(id)).toMatchObject({
      version: 2,
      manifest_digest: second['manifest_digest'],
    });
    expect(await s.scanned(id, { full: true })).toMatchObject({
      version: 2,
      manifest_digest: second['manifest_digest'],
    });
  });

  test('the history is filtered by displayed path, by folder and by time, in pages', async () => {
    const s = await scene(engine);
    s.put({ 'a/one.txt': '1', 'a/two.txt': '2', 'odd\nname': '3', 'straße/x': '4', '100%25': '5' });
    const id = await s.create();
    await s.scan();
    s.put({ 'a/one.txt': '1!', 'straße/x': '4!', '100%25': '5!', 'odd\nname': '3!' });
    await s.scanned(id);
    for (const path of ['a/one.txt', 'straße/x', '100%25', 'odd%0Aname'])
      expect(await s.history(id, { path })).toEqual([`2 ${path} modified`, `1 ${path} added`]);
    expect(await s.history(id, { path: 'a/' })).toEqual([
      '2 a/one.txt modified',
      '1 a/one.txt added',
      '1 a/two.txt added',
    ]);
    expect(await s.history(id, { path: 'a' })).toEqual([]);
    // Larger than the integers of a database: one of the two engines would fail.
    expect(
      rulesOf(
        await s.api.call('datasetHistory', {
          params: { id },
          query: { version: '99999999999999999999' },
        }),
      ),
    ).toEqual(['version:maximum']);
    const [, old] = (await s.api.call('datasetVersions', { params: { id } })).json[
      'items'
    ] as Row[];
    const at = Date.parse(String(old?.['created_at']));
    expect(
      await s.history(id, { path: 'a/one.txt', until: new Date(at + 1).toISOString() }),
    ).toEqual(['1 a/one.txt added']);
    expect(
      await s.history(id, { path: 'a/one.txt', since: new Date(at + 1).toISOString() }),
    ).toEqual(['2 a/one.txt modified']);
    const paged: string[] = [];
    for (let cursor: string | null = ''; cursor !== null; ) {
      const query = { limit: 2, ...(cursor === '' ? {} : { cursor }) };
      paged.push(...(await s.history(id, query)));
      cursor = (await s.api.call('datasetHistory', { params: { id }, query })).json[
        'next_cursor'
      ] as string | null;
    }
    expect(paged).toEqual(await s.history(id));
    expect(paged).toHaveLength(9);
  });

  // 120 letters of 2 bytes are nearly the longest name in a file system. Encoded they are 720
  // letters.
  test.each([1, 3, 6])(
    'the history finds paths of %i long names by path and by folder, in pages',
    async (depth) => {
      const s = await scene(engine);
      const folder = Array.from(
        { length: depth },
        (_, i) => String(i).repeat(5) + 'ü'.repeat(120),
      ).join('/');
      s.put({ [`${folder}/a`]: '1', [`${folder}/b`]: '2', z: '3' });
      const id = await s.create();
      await s.scan();
      const all = [`1 ${folder}/a added`, `1 ${folder}/b added`, '1 z added'];
      expect((await s.history(id)).toSorted()).toEqual(all);
      expect(await s.history(id, { path: `${folder}/b` })).toEqual([all[1]]);
      expect((await s.history(id, { path: `${folder}/` })).toSorted()).toEqual(all.slice(0, 2));
      const paged: string[] = [];
      for (let cursor: string | null = ''; cursor !== null; ) {
        const query = { limit: 1, ...(cursor === '' ? {} : { cursor }) };
        paged.push(...(await s.history(id, query)));
        cursor = (await s.api.call('datasetHistory', { params: { id }, query })).json[
          'next_cursor'
        ] as string | null;
      }
      expect(paged.toSorted()).toEqual(all);
    },
  );

  test('an emptied dataset records nothing until the files return or somebody accepts the loss', async () => {
    const s = await scene(engine);
    s.put({ a: '1', b: '2', c: '3' });
    const id = await s.create();
    await s.scan();
    s.put({ a: null, b: null, c: null });
    expect(await s.scanned(id)).toMatchObject({
      status: 'suspicious',
      version: 1,
      files: 3,
      problem: expect.any(String),
    });
    expect(await s.history(id, { version: 2 })).toEqual([]);
    s.put({ a: '1', b: '2', c: '3' });
    expect(await s.scanned(id)).toMatchObject({ status: 'ok', version: 1, problem: null });
    s.put({ a: null, b: null, c: null });
    expect(await s.scanned(id)).toMatchObject({ status: 'suspicious', version: 1 });
    expect(await s.scanned(id, { accept_loss: true })).toMatchObject({
      status: 'ok',
      version: 2,
      files: 0,
      bytes: 0,
    });
    expect(await s.history(id, { version: 2 })).toEqual([
      '2 a removed',
      '2 b removed',
      '2 c removed',
    ]);
  });

  test('a dataset without its folder is unreachable; when the folder returns, it has its version again', async () => {
    const s = await scene(engine);
    s.put({ a: '1' });
    const id = await s.create();
    await s.scan();
    renameSync(join(s.base, 'photos'), join(s.base, 'elsewhere'));
    expect(await s.scanned(id)).toMatchObject({
      status: 'unreachable',
      version: 1,
      files: 1,
      problem: expect.any(String),
    });
    renameSync(join(s.base, 'elsewhere'), join(s.base, 'photos'));
    expect(await s.scanned(id)).toMatchObject({ status: 'ok', version: 1, problem: null });
    // Remove the whole share.
    renameSync(s.base, `${s.base}-away`);
    expect(await s.scanned(id)).toMatchObject({ status: 'unreachable', version: 1 });
    mkdirSync(join(s.base, 'photos'), { recursive: true });
    // An empty folder at the mount point of a share is not the share.
    expect(await s.scanned(id)).toMatchObject({ status: 'unreachable', version: 1 });
    rmSync(s.base, { recursive: true });
    renameSync(`${s.base}-away`, s.base);
    expect(await s.scanned(id)).toMatchObject({ status: 'ok', version: 1 });
  });

  test('no loss is accepted while the share is another one; somebody accepts the share first, then the loss', async () => {
    const s = await scene(engine);
    s.put({ a: '1', b: '2', c: '3' });
    const id = await s.create();
    await s.scan();
    // The share goes away; what stands at its mount point is an empty folder. A loss accepted
    // before a scan has noticed it counts as none.
    renameSync(s.base, `${s.base}-away`);
    mkdirSync(join(s.base, 'photos'), { recursive: true });
    expect(await s.scanned(id, { accept_loss: true })).toMatchObject({
      status: 'unreachable',
      version: 1,
      files: 3,
    });
    const refused = await s.api.call('scanDataset', {
      params: { id },
      body: { accept_loss: true },
    });
    expect([refused.status, refused.json['code']]).toEqual([409, 'wrong_state']);
    expect(refused.json['detail']).toMatch(
      /cannot accept a loss of photos: .*\.berth-share is missing/,
    );
    expect((await s.api.call('getDataset', { params: { id } })).json).toMatchObject({
      scanning: false,
    });
    // The refused request has left nothing behind for the next scan.
    expect(await s.scanned(id)).toMatchObject({ status: 'unreachable', version: 1 });
    // The share first, then the loss.
    expect(await s.scanned(id, { accept_share: true })).toMatchObject({
      status: 'suspicious',
      version: 1,
      files: 3,
    });
    expect(await s.scanned(id, { accept_loss: true })).toMatchObject({
      status: 'ok',
      version: 2,
      files: 0,
    });
    // The accepted share got the marker of the first one, which therefore counts as the same share.
    rmSync(s.base, { recursive: true });
    renameSync(`${s.base}-away`, s.base);
    expect(await s.scanned(id)).toMatchObject({ status: 'ok', version: 3, files: 3 });
  });

  test('two monitors on one database scan each dataset once', async () => {
    const s = await scene(engine, { scansByLoop: 2 });
    const ids: string[] = [];
    for (const name of ['a', 'b', 'c', 'd', 'e']) {
      s.put({ file: name }, name);
      ids.push(await s.create(name));
    }
    await Promise.all([s.scan(), s.scan()]);
    for (const id of ids) {
      expect((await s.api.call('datasetVersions', { params: { id } })).json['items']).toHaveLength(
        1,
      );
      expect(await s.history(id)).toEqual(['1 file added']);
    }
  });

  test('an agent reads the trees of a version and the state of the dataset, and requests a scan', async () => {
    const s = await scene(engine);
    s.put({ 'a/one.txt': 'one' });
    const id = await s.create();
    await s.scan();
    const standing = (await s.api.call('agentDataset', { params: { id } })).json;
    expect(standing).toMatchObject({
      dataset_id: id,
      name: 'photos',
      nfs_path: 'photos',
      version: 1,
      files: 1,
      status: 'ok',
      scanning: false,
    });
    const root = String(standing['manifest_digest']);
    const unknown = `sha256:${'0'.repeat(64)}`;
    const { objects } = (
      await s.api.call('agentTrees', { params: { id }, body: { digests: [root, unknown] } })
    ).json as {
      objects: Record<string, string>;
    };
    expect(Object.keys(objects)).toEqual([root]);
    expect(`sha256:${sha256(objects[root] ?? '')}`).toBe(root);
    expect(objects[root]).toMatch(/^berth-tree 1\nd 1 3 [0-9a-f]{64} a\n$/);
    const tooMany = Array.from({ length: 257 }, () => root);
    expect(
      rulesOf(await s.api.call('agentTrees', { params: { id }, body: { digests: tooMany } })),
    ).toEqual(['digests:max_items']);
    expect(
      (await s.api.call('agentTrees', { params: { id: 'nothing' }, body: { digests: [root] } }))
        .status,
    ).toBe(404);

    s.put({ 'a/one.txt': 'ONE' });
    expect((await s.api.call('agentRescan', { params: { id } })).json).toMatchObject({
      version: 1,
      scanning: true,
    });
    await s.scan();
    expect((await s.api.call('agentDataset', { params: { id } })).json).toMatchObject({
      version: 2,
      scanning: false,
    });
  });

  test('a dataset in use cannot be deleted; another one can, and nodes delete their copies', async () => {
    const s = await scene(engine);
    s.put({ a: '1' });
    const id = await s.create();
    await s.scan();
    const project = await createProject(s.api, {
      datasets: [{ dataset_id: id, mode: 'dependency' }],
    });
    const refused = await s.api.call('deleteDataset', { params: { id } });
    expect([refused.status, refused.json['code'], String(refused.json['detail'])]).toEqual([
      409,
      'dataset_in_use',
      expect.stringContaining('shop'),
    ]);
    const cached = [
      { dataset_id: id, version: 1, bytes: 1, last_used_at: new Date().toISOString() },
    ];
    const registered = (): Promise<Row> =>
      s.api
        .call('agentRegister', {
          body: { hostname: 'n1', role: 'deploy', host_ip: '10.0.0.9', max_storage: 1e9, cached },
        })
        .then((r) => r.json);
    expect((await registered())['forget']).toBeUndefined();

    await s.api.call('patchProject', { params: { id: project }, body: { datasets: [] } });
    const gone = await s.api.call('deleteDataset', { params: { id } });
    expect([gone.status, gone.json['deleting']]).toEqual([202, true]);
    expect((await s.api.call('scanDataset', { params: { id } })).json['code']).toBe(
      'being_deleted',
    );
    await s.scan();
    expect((await s.api.call('getDataset', { params: { id } })).status).toBe(404);
    expect((await registered())['forget']).toEqual([id]);
    // The files stay, and the name can be used again.
    expect(
      (await s.api.call('createDataset', { body: { name: 'photos', nfs_path: 'photos' } })).status,
    ).toBe(201);
  });
});

test('a running control plane scans by itself, reports its state, and stops during a scan', async () => {
  const root = mkdtempSync(join(tmpdir(), 'berth-share-'));
  onTestFinished(() => rmSync(root, { recursive: true, force: true }));
  const base = join(root, 'share');
  mkdirSync(join(base, 'photos'), { recursive: true });
  writeFileSync(join(base, 'photos', 'a'), '1');
  const env = {
    DATASET_NFS_BASE_PATH: base,
    DATASET_STATE_DIR: join(root, 'state'),
    DATASET_SCAN_INTERVAL: '1s',
  };
  const api = await createApi({ env, overrides: { loops: true } });
  let closed = false;
  onTestFinished(() => (closed ? undefined : api.close()));
  await api.listen();
  const id = String(
    (await api.call('createDataset', { body: { name: 'photos', nfs_path: 'photos' } })).json['id'],
  );
  const version = async (): Promise<unknown> =>
    (await api.call('getDataset', { params: { id } })).json['version'];
  await expect.poll(version, { timeout: 30_000 }).toBe(1);
  // Started by the scan interval alone.
  writeFileSync(join(base, 'photos', 'a'), '22');
  await expect.poll(version, { timeout: 30_000 }).toBe(2);
  const { text } = await api.call('metrics');
  expect(text).toContain('berth_datasets{status="ok"} 1');
  expect(text).toMatch(/berth_dataset_last_scan_timestamp_seconds\{dataset="photos"\} \d{10}/);
  await api.call('deleteDataset', { params: { id } });
  await expect
    .poll(async () => (await api.call('getDataset', { params: { id } })).status, {
      timeout: 30_000,
    })
    .toBe(404);

  mkdirSync(join(base, 'many'));
  for (let i = 0; i < 5000; i++) writeFileSync(join(base, 'many', `file-${i}`), String(i));
  const { json } = await api.call('createDataset', { body: { name: 'many', nfs_path: 'many' } });
  const claimed = async (): Promise<boolean> =>
    (await api.stores.datasets.get(String(json['id']))).scanning_by !== null;
  await expect.poll(claimed, { timeout: 30_000, interval: 2 }).toBe(true);
  await api.close();
  closed = true;
});

describe('refused requests', () => {
  async function shareWithLinks(): Promise<Scene> {
    const s = await scene('SQLite');
    s.put({ file: 'x' }, 'real');
    symlinkSync('/etc', join(s.base, 'out'));
    symlinkSync('..', join(s.base, 'up'));
    symlinkSync('real', join(s.base, 'in'));
    symlinkSync('loop', join(s.base, 'loop'));
    return s;
  }
  const createAt = (s: Scene, nfs_path: string) =>
    s.api.call('createDataset', { body: { name: 'x', nfs_path } });

  const REFUSED_PATHS: [path: string, rule: string][] = [
    ['/etc', 'absolute'],
    ['../etc', 'dot_dot'],
    ['real/../../etc', 'dot_dot'],
    ['real\nx', 'no_control'],
    ['./', 'outside'],
    ['out', 'outside'],
    ['out/ssl', 'outside'],
    ['up', 'outside'],
    ['loop', 'outside'],
    ['missing', 'missing'],
    ['x'.repeat(300), 'missing'],
    ['real/file', 'not_a_folder'],
    ['real/file/deeper', 'not_a_folder'],
    ['', 'min_length'],
  ];
  test.each(REFUSED_PATHS.map(([path, rule]) => ({ shown: path.slice(0, 30), path, rule })))(
    'the path "$shown" is refused with the rule $rule',
    async ({ path, rule }) => {
      const s = await shareWithLinks();
      const reply = await createAt(s, path);
      expect([reply.status, ...rulesOf(reply)]).toEqual([422, `nfs_path:${rule}`]);
      expect((await s.api.call('listDatasets')).json['items']).toEqual([]);
    },
  );

  test('a path is normalized, and a changed path is checked too', async () => {
    const s = await shareWithLinks();
    expect((await createAt(s, './in//')).status).toBe(201);
    const [made] = (await s.api.call('listDatasets')).json['items'] as Row[];
    expect(made?.['nfs_path']).toBe('in');
    const rulesOfPatch = async (nfs_path: string): Promise<string[]> =>
      rulesOf(
        await s.api.call('patchDataset', {
          params: { id: String(made?.['id']) },
          body: { nfs_path },
        }),
      );
    expect(await rulesOfPatch('out')).toEqual(['nfs_path:outside']);
    expect(await rulesOfPatch('real')).toEqual([]);
    rmSync(s.base, { recursive: true });
    expect(await rulesOfPatch('real')).toEqual(['nfs_path:unreachable']);
  });

  test('a share that does not answer in time is unreachable, and the request does not wait longer', async () => {
    const s = await scene('SQLite');
    s.put({ a: '1' });
    // No process can check within so short a time.
    expect(await createCheckFolder(s.base, 1)('photos')).toMatchObject({ rule: 'unreachable' });
    expect(await createCheckFolder(s.base)('photos')).toBeNull();
  });

  test('without shared storage datasets are refused with this reason', async () => {
    const api = await createApi();
    onTestFinished(() => api.close());
    expect(
      rulesOf(await api.call('createDataset', { body: { name: 'x', nfs_path: 'x' } })),
    ).toEqual(['nfs_path:no_share']);
    // This dataset was created while there was shared storage.
    const left = await api.stores.datasets.create({ name: 'x', nfs_path: 'x' }, Date.now());
    const asked = await api.call('scanDataset', { params: { id: left.id } });
    expect(asked).toMatchObject({
      status: 409,
      json: { code: 'wrong_state', detail: expect.stringContaining('DATASET_NFS_BASE_PATH') },
    });
  });

  test('taken and invalid names, and projects with wrong mounts', async () => {
    const s = await scene('SQLite');
    s.put({ a: '1' }, 'a');
    s.put({ b: '1' }, 'b');
    const [a, b] = [await s.create('a'), await s.create('b')];
    for (const name of ['', '-a', '.a', 'a/b', 'a b', 'x'.repeat(64)])
      expect((await s.api.call('createDataset', { body: { name, nfs_path: 'a' } })).status).toBe(
        422,
      );
    expect(
      (await s.api.call('createDataset', { body: { name: 'a', nfs_path: 'b' } })).json['code'],
    ).toBe('dataset_name_taken');
    expect(
      (await s.api.call('patchDataset', { params: { id: a }, body: { name: 'b' } })).json['code'],
    ).toBe('dataset_name_taken');
    expect((await s.api.call('patchDataset', { params: { id: a }, body: {} })).status).toBe(422);
    const project = (datasets: object[], more: object = {}) =>
      s.api.call('createProject', {
        body: {
          name: 'p',
          domain_prefix: 'p',
          git_url: 'https://git.example.com/p.git',
          datasets,
          ...more,
        },
      });
    expect(rulesOf(await project([{ dataset_id: 'nothing', mode: 'dependency' }]))).toEqual([
      'datasets[0].dataset_id:exists',
    ]);
    expect(
      rulesOf(
        await project([
          { dataset_id: a, mode: 'dependency', mount_path: '/data/b' },
          { dataset_id: b, mode: 'dependency' },
        ]),
      ),
    ).toEqual(['datasets[1].mount_path:unique']);
    expect(
      rulesOf(await project([{ dataset_id: a, mode: 'readwrite' }], { replace: 'rolling' })),
    ).toEqual(['replace:single_writer']);
    expect((await project([{ dataset_id: a, mode: 'readwrite' }])).json).toMatchObject({
      replace: 'recreate',
      on_dataset_change: 'tell',
    });
    s.put({ c: '1' }, 'a/deep');
    const deep = String(
      (await s.api.call('createDataset', { body: { name: 'deep', nfs_path: 'a/deep' } })).json[
        'id'
      ],
    );
    const inner = await project([{ dataset_id: deep, mode: 'readwrite' }], {
      name: 'q',
      domain_prefix: 'q',
    });
    expect([inner.status, ...rulesOf(inner)]).toEqual([
      422,
      'datasets[0].dataset_id:nested_writer',
    ]);
    expect(
      (await project([{ dataset_id: b, mode: 'readwrite' }], { name: 'q', domain_prefix: 'q' }))
        .status,
    ).toBe(201);
    const moved = await s.api.call('patchDataset', {
      params: { id: b },
      body: { nfs_path: 'a/deep' },
    });
    expect([moved.status, ...rulesOf(moved)]).toEqual([422, 'nfs_path:nested_writer']);
  });

  test('progress without a lease, or for another task', async () => {
    const s = await scene('SQLite');
    const node = await register(s.api, { role: 'deploy' });
    s.put({ a: '1' }, 'a');
    const id = await s.create('a');
    await s.scan();
    expect(
      (await s.api.call('prewarmNode', { params: { id: node }, body: { dataset_id: id } })).status,
    ).toBe(202);
    const [task] = (await s.api.call('agentTasks', { query: { node_id: node } }))
      .json as unknown as { id: string }[];
    const params = { id: task?.id ?? '' };
    const { lease_token } = (await s.api.call('agentStart', { params })).json;
    const copy = {
      dataset_id: id,
      name: 'a',
      version: 1,
      step: 'copying',
      bytes_done: 0,
      bytes_total: 1,
      bytes_per_second: null,
      remaining_seconds: null,
    };
    const tell = (token: string | null, body: object = { datasets: [copy] }) =>
      s.api.call('agentProgress', {
        params,
        body,
        headers: token === null ? {} : { 'x-lease-token': token },
      });
    expect(rulesOf(await tell(null))).toEqual(['X-Lease-Token:required']);
    expect((await tell('other')).json['code']).toBe('stale_lease');
    expect((await tell(String(lease_token), {})).status).toBe(422);
    expect((await tell(String(lease_token))).status).toBe(200);
    const [shown] = (await s.api.call('getNode', { params: { id: node } })).json[
      'copying'
    ] as Row[];
    expect(shown).toMatchObject({
      dataset_id: id,
      status: 'copying',
      progress: { step: 'copying', bytes_total: 1 },
    });
  });
});
