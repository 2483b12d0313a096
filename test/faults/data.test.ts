/**
 * Faults while a node copies data, with real copies between real machines: a program that rewrites
 * the source, a pulled cable, an unmounted share. Each ends with a clear error or with correct
 * data, live versions keep serving, and a folder with a version's name has that version's content
 * at every moment. A single writer is alone on the share.
 */
import { mkdir, readdir, readFile, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Dataset } from '@berth/wire/dataset';
import type { Deployment } from '@berth/wire/deployment';
import type { Project } from '@berth/wire/project';
import { startProber } from '@berth/testbed/prober';
import { waitFor } from '@berth/testbed/wait';
import {
  bytes,
  containersOn,
  dataApp,
  dependency,
  getNode,
  halfCopies,
  manifestOf,
  mountOf,
  newDataset,
  newProject,
  onlyOn,
  scan,
  sumsOf,
  versionFolder,
  versionsOn,
  watchVersions,
} from '../e2e/data-world.ts';
import { startWriter, writerApp } from '../e2e/data-writers.ts';
import {
  type ManyNodes,
  type ManyNodesNode,
  startManyNodes,
  whyNotManyNodes,
} from '../e2e/many-nodes-world.ts';
import { versionOf } from '../e2e/world.ts';

const reason = whyNotManyNodes();

/** Placement prefers node-2 where nothing else counts. node-2 copies slowly, at 2 MiB/s. */
const AGENTS: Record<string, Record<string, string>> = {
  'node-1': { MAX_STORAGE: '300000000' },
  'node-2': { MAX_STORAGE: '1000000000', COPY_BANDWIDTH: '2m' },
  'node-3': { MAX_STORAGE: '200000000' },
};

describe.skipIf(reason !== undefined)(
  `faults of data${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    let world: ManyNodes;
    let [quick, slow, third] = [{} as ManyNodesNode, {} as ManyNodesNode, {} as ManyNodesNode];
    let map: Project;
    let live: Deployment;

    beforeAll(async () => {
      world = await startManyNodes({
        deployNodes: 3,
        agentEnv: (name) => AGENTS[name] ?? {},
        env: { QUEUE_TIMEOUT: '30s' },
      });
      [quick, slow, third] = world.nodes as [ManyNodesNode, ManyNodesNode, ManyNodesNode];
    });
    afterAll(() => world?.stop());

    const see = (id: string): Promise<Deployment> =>
      world.api.call('getDeployment', { params: { id } });
    const ask = async (prefix: string, path: string): Promise<string> => {
      const answer = await world.ask(prefix, path);
      return answer.status === 200 ? answer.body : `status ${answer.status}`;
    };
    const use = (project: Project, ...datasets: Dataset[]) =>
      world.api.call('patchProject', {
        params: { id: project.id },
        body: { datasets: datasets.map(dependency) },
      });
    const containers = async (project: string) =>
      (await Promise.all(world.nodes.map((n) => containersOn(n, project)))).flat();

    it('a source that is rewritten all the time gives dataset_moving or a complete version, nothing else', {
      timeout: 400_000,
    }, async () => {
      const small = Object.fromEntries(
        Array.from({ length: 30 }, (_, i) => [`rows/${i}.csv`, bytes(`row ${i}`, 20_000)]),
      );
      const ledger = await newDataset(world, 'ledger', {
        'total.bin': bytes('total', 2_000_000),
        ...small,
      });
      await onlyOn(world, quick);
      const books = await newProject(world, 'books', { datasets: [dependency(ledger)] });
      const first = await world.berth.settled(await world.berth.deploy(books));
      expect(first).toMatchObject({ status: 'running', error: null });
      expect(await ask('books', '/data/ledger/rows/7.csv')).toBe(bytes('row 7', 20_000).toString());

      const watch = watchVersions(world, ledger.id);
      const writer = startWriter(join(world.datasetBase, 'ledger'));
      await onlyOn(world, slow);
      const second = await world.berth.settled(await world.berth.deploy(books));
      const written = await writer.stop();
      console.log(
        `rewritten ${written} times while it was copied: ${second.error?.message ?? second.status}`,
      );
      expect(written).toBeGreaterThan(100);
      if (second.status === 'failed') {
        expect(second.error?.code).toBe('dataset_moving');
        expect(await versionsOn(slow, ledger.id)).toEqual([]);
        expect(
          (await world.api.call('getProject', { params: { id: books.id } })).running_deployment_id,
        ).toBe(first.id);
        expect(await ask('books', '/data/ledger/rows/7.csv')).toBe(
          bytes('row 7', 20_000).toString(),
        );
      } else expect(second.status).toBe('running');

      // Rewrites a file from time to time only: the copy keeps up, and the deployment records the
      // version that it mounts.
      const gentle = startWriter(join(world.datasetBase, 'ledger'), 700);
      const followed = await world.berth.settled(await world.berth.deploy(books));
      await gentle.stop();
      const mounts = followed.datasets[0]?.version ?? 0;
      console.log(
        `rewritten now and then: ${followed.error?.message ?? followed.status}, version ${mounts}`,
      );
      if (followed.status === 'failed') expect(followed.error?.code).toBe('dataset_moving');
      else expect(await mountOf(slow, followed, 'ledger')).toMatch(new RegExp(`/v${mounts}$`));

      // The source is at rest: its present content is a version, and that version arrives.
      const rested = await scan(world, ledger.id);
      expect(rested).toMatchObject({ status: 'ok', problem: null });
      const last = await world.berth.settled(await world.berth.deploy(books));
      expect(last).toMatchObject({ status: 'running', error: null, node_id: slow.nodeId });
      expect(last.datasets[0]).toMatchObject({ version: rested.version, moved_on: false });
      const { wrong, seen } = await watch.stop();
      expect(wrong).toEqual([]);
      expect(seen).toEqual(
        expect.arrayContaining([`v1 on ${quick.name}`, `v${rested.version} on ${slow.name}`]),
      );
      expect(await sumsOf(versionFolder(slow, ledger.id, rested.version ?? 0))).toEqual(
        await sumsOf(join(world.datasetBase, 'ledger')),
      );
      expect(await halfCopies(slow)).toEqual([]);
    });

    it('a node is cut off while it copies: the project goes live on another node, once, and no partial copy remains', {
      timeout: 180_000,
    }, async () => {
      await onlyOn(world, quick);
      map = await newProject(world, 'map');
      const old = await world.berth.settled(await world.berth.deploy(map));
      expect(old).toMatchObject({ status: 'running', node_id: quick.nodeId });
      // A copy of a minute: it is far from its end when the cable is plugged in again.
      await slow.stopAgent();
      await slow.startAgent({ COPY_BANDWIDTH: '1m' });
      const atlas = await newDataset(world, 'atlas', {
        'name.txt': 'atlas',
        'sheet.bin': bytes('sheet', 60_000_000),
      });
      await use(map, atlas);
      await onlyOn(world, slow, third);
      const watch = watchVersions(world, atlas.id);
      const prober = startProber({
        entry: world.berth.entry,
        host: `map.${world.berth.baseDomain}`,
        perSecond: 10,
        versionOf,
      });
      await world.git.commit('map', dataApp(2), 'version 2');
      const asked = await world.berth.deploy(map);
      await waitFor(
        'the slow node is copying',
        async () => {
          const d = await see(asked.id);
          return (
            d.node_id === slow.nodeId &&
            d.progress?.datasets.some((p) => p.step === 'copying' && p.bytes_done > 0)
          );
        },
        { deadlineMs: 30_000 },
      );
      await slow.partition();
      live = await world.berth.settled(asked);
      expect(live).toMatchObject({ status: 'running', error: null, node_id: third.nodeId });
      expect(await halfCopies(slow)).toHaveLength(1);
      await slow.heal();
      await waitFor(
        'the node removed its partial copy',
        async () => (await halfCopies(slow)).length === 0,
        {
          deadlineMs: 30_000,
        },
      );
      await waitFor(
        'exactly one container remains',
        async () => (await containers('map')).length === 1,
        { deadlineMs: 30_000 },
      );
      expect(await containersOn(third, 'map')).toEqual([
        { id: expect.any(String), state: 'running' },
      ]);
      // The old version never answers after the new one has answered.
      expect(await prober.stop()).toMatchObject({
        failures: [],
        failed: 0,
        stale: 0,
        versions: [1, 2],
      });
      expect((await watch.stop()).wrong).toEqual([]);
      expect(await versionsOn(slow, atlas.id)).toEqual([]);
      expect(await ask('map', '/data/atlas/name.txt')).toBe('atlas');
      expect(await sumsOf(versionFolder(third, atlas.id, 1))).toEqual(
        await manifestOf(world, atlas.id, 1),
      );
    });

    it('a share that is unmounted on one node gives dataset_unreachable there, and the live version keeps serving', async () => {
      const tides = await newDataset(world, 'tides', {
        'name.txt': 'tides',
        'level.bin': bytes('level', 1_000_000),
      });
      const [atlas] = (await world.api.call('listDatasets', { query: {} })).items.filter(
        (d) => d.name === 'atlas',
      ) as [Dataset];
      await use(map, atlas, tides);
      await onlyOn(world, third);
      await third.run(['mount', '-t', 'tmpfs', 'tmpfs', world.datasetBase]);
      const failed = await world.berth.settled(await world.berth.deploy(map));
      expect(failed).toMatchObject({ status: 'failed', error: { code: 'dataset_unreachable' } });
      expect(failed.error?.message).toContain('tides');
      expect((await see(live.id)).status).toBe('running');
      expect(await ask('map', '/data/atlas/name.txt')).toBe('atlas');
      expect(await containersOn(third, 'map')).toHaveLength(1);
      // A cached version needs no share.
      await use(map, atlas);
      live = await world.berth.settled(await world.berth.deploy(map));
      expect(live).toMatchObject({ status: 'running', error: null });

      await third.run(['umount', world.datasetBase]);
      await use(map, atlas, tides);
      live = await world.berth.settled(await world.berth.deploy(map));
      expect(live).toMatchObject({ status: 'running', error: null });
      expect(await ask('map', '/data/tides/name.txt')).toBe('tides');
      expect(await mountOf(third, live, 'tides')).toContain(tides.id);
    });

    it('an emptied or unmounted share is not a deletion: no version is recorded, and a mount restores everything', async () => {
      const wells = await newDataset(world, 'wells', {
        'a.txt': 'a',
        'b.txt': 'b',
        'deep/c.txt': 'c',
      });
      const folder = join(world.datasetBase, 'wells');
      const aside = join(world.dir, 'aside');
      await rename(folder, aside);
      await mkdir(folder);
      const empty = await scan(world, wells.id);
      expect(empty).toMatchObject({ status: 'suspicious', version: 1, files: 3 });
      expect(empty.problem).not.toBeNull();

      const base = `${world.datasetBase}-away`;
      await rename(world.datasetBase, base);
      expect(await scan(world, wells.id)).toMatchObject({
        status: 'unreachable',
        version: 1,
        files: 3,
      });
      // An unmounted share: an empty folder remains at the mount point.
      await mkdir(join(world.datasetBase, 'wells'), { recursive: true });
      const unmounted = await scan(world, wells.id);
      expect(unmounted).toMatchObject({ status: 'unreachable', version: 1, files: 3 });
      await rename(world.datasetBase, join(world.dir, 'nothing'));
      await rename(base, world.datasetBase);

      await rename(folder, join(world.dir, 'empty'));
      await rename(aside, folder);
      expect(await scan(world, wells.id)).toMatchObject({
        status: 'ok',
        problem: null,
        version: 1,
        files: 3,
      });
      const history = await world.api.call('datasetHistory', {
        params: { id: wells.id },
        query: {},
      });
      expect(history.items.map((r) => r.change)).toEqual(['added', 'added', 'added']);
    });

    it('a single writer is alone on the share, also when it moves to another node', {
      timeout: 180_000,
    }, async () => {
      const out = join(world.datasetBase, 'out');
      const results = await newDataset(world, 'results', { 'keep.txt': 'mine' });
      await mkdir(out, { recursive: true });
      await onlyOn(world, ...world.nodes);
      const { url } = await world.git.createRepo('scribe', writerApp(1));
      const scribe = await world.berth.createProject({
        name: 'scribe',
        git_url: url,
        domain_prefix: 'scribe',
        stop_grace_seconds: 5,
        datasets: [{ dataset_id: results.id, mode: 'readwrite', mount_path: '/data/out' }],
      });
      expect(scribe.replace).toBe('recreate');
      const at = join(world.datasetBase, 'results');
      const turnLines = async (): Promise<string[]> =>
        (await readFile(join(at, 'lines'), 'utf8')).split('\n').filter((l) => l !== '');

      const one = await world.berth.settled(await world.berth.deploy(scribe));
      expect(one).toMatchObject({ status: 'running', error: null });
      expect(one.datasets[0]).toMatchObject({ mode: 'readwrite', version: null, moved_on: false });
      await waitFor('the writer writes to the share', async () =>
        (await turnLines()).includes('1 began'),
      );
      expect(await ask('scribe', '/data/out/keep.txt')).toBe('mine');

      await world.git.commit('scribe', writerApp(2), 'version 2');
      const two = await world.berth.settled(await world.berth.deploy(scribe));
      expect(two).toMatchObject({ status: 'running', error: null, node_id: one.node_id });

      const home = world.node(two.node_id);
      await world.api.call('drainNode', { params: { id: home.nodeId } });
      await waitFor(
        'the writer has moved',
        async () => {
          const { drain } = await getNode(world, home);
          if (drain?.left.every((l) => l.project !== 'scribe') !== true) return false;
          const { running_deployment_id: id } = await world.api.call('getProject', {
            params: { id: scribe.id },
          });
          return id !== null && (await see(id)).node_id !== home.nodeId;
        },
        { deadlineMs: 60_000 },
      );
      await waitFor(
        'exactly one container remains',
        async () => (await containers('scribe')).length === 1,
        { deadlineMs: 30_000 },
      );
      await world.api.call('uncordonNode', { params: { id: home.nodeId } });

      // The node may keep writing while it is cut off: nothing starts elsewhere until it has
      // reported that nothing runs there.
      const { running_deployment_id: serving } = await world.api.call('getProject', {
        params: { id: scribe.id },
      });
      const lost = world.node((await see(serving ?? '')).node_id);
      await lost.partition();
      await world.git.commit('scribe', writerApp(3), 'version 3');
      const three = await world.berth.deploy(scribe);
      await waitFor(
        'the deployment waits',
        async () =>
          (await see(three.id)).events.some((e) => e.message.includes('may still be writing')),
        // If its last list was complete, the node is asked to stop, until it counts as offline.
        { deadlineMs: 70_000 },
      );
      expect((await containers('scribe')).map((c) => c.state)).toEqual(['running']);
      expect(await containersOn(lost, 'scribe')).toHaveLength(1);
      await lost.heal();
      expect(await world.berth.settled(three)).toMatchObject({ status: 'running', error: null });
      await waitFor(
        'exactly one container remains',
        async () => (await containers('scribe')).length === 1,
        { deadlineMs: 30_000 },
      );

      // The writers take turns: the file on the share shows that each ended before the next began.
      const turns = (await turnLines()).filter(
        (line) => line.endsWith('began') || line.endsWith('ended') || line.endsWith('not alone'),
      );
      expect(turns).toEqual([
        '1 began',
        '1 ended',
        '2 began',
        '2 ended',
        '2 began',
        '2 ended',
        '3 began',
      ]);
      expect(await readFile(join(at, 'keep.txt'), 'utf8')).toBe('mine');
      expect(await readdir(slow.svcRoot + '/objects')).not.toContain(results.id);
    });
  },
);
