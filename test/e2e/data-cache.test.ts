/**
 * The budget of a node: a full cache evicts the least recently used versions, never mounted ones,
 * and removes deleted datasets.
 */
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Dataset } from '@berth/wire/dataset';
import type { Deployment } from '@berth/wire/deployment';
import type { Project } from '@berth/wire/project';
import { isSettled } from '@berth/wire/vocabulary';
import { waitFor } from '@berth/testbed/wait';
import {
  bytes,
  containersOn,
  dependency,
  getNode,
  manifestOf,
  newDataset,
  newProject,
  prewarm,
  sha256,
  sumsOf,
  versionFolder,
  versionsOn,
} from './data-world.ts';
import {
  type ManyNodes,
  type ManyNodesNode,
  startManyNodes,
  whyNotManyNodes,
} from './many-nodes-world.ts';

const reason = whyNotManyNodes();

describe.skipIf(reason !== undefined)(
  `the cache of a node${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    let world: ManyNodes;
    let node: ManyNodesNode;
    beforeAll(async () => {
      world = await startManyNodes({
        deployNodes: 1,
        // 90 % of the budget are 30.6 MB, 80 % are 27.2 MB. The image of the project uses about 2
        // MB of it.
        agentEnv: (name) => (name === 'node-1' ? { MAX_STORAGE: '34000000' } : {}),
        // A short timeout for deployments whose data does not fit.
        env: { QUEUE_TIMEOUT: '8s' },
      });
      node = world.nodes[0] as ManyNodesNode;
    });
    afterAll(() => world?.stop());

    const see = (id: string): Promise<Deployment> =>
      world.api.call('getDeployment', { params: { id } });
    const ask = async (prefix: string, path: string): Promise<string> =>
      (await world.ask(prefix, path)).body;

    it('a full cache evicts the least recently used version, never a mounted one; data that cannot fit fails with no_room', async () => {
      const make = (name: string, size = 8_000_000) =>
        newDataset(world, name, { 'x.bin': bytes(name, size), 'name.txt': name });
      const [mounted, older, newer, last] = [
        await make('mounted'),
        await make('older'),
        await make('newer'),
        await make('last'),
      ];
      const keeper = await newProject(world, 'keeper', { datasets: [dependency(mounted)] });
      const live = await world.berth.settled(await world.berth.deploy(keeper));
      expect(live).toMatchObject({ status: 'running', error: null, node_id: node.nodeId });
      await prewarm(world, node, older);
      await prewarm(world, node, newer);

      const named = async () =>
        (await getNode(world, node)).cached
          .map((c) => c.name ?? '')
          .toSorted((a, b) => a.localeCompare(b));
      expect(await named()).toEqual(['mounted', 'newer', 'older']);
      const preview = await world.api.call('cacheRoom', {
        params: { id: node.nodeId },
        query: { bytes: last.bytes },
      });
      expect(preview).toMatchObject({
        enough: true,
        pinned_bytes: mounted.bytes,
        freed_bytes: older.bytes,
        wanted_bytes: last.bytes,
      });
      expect(preview.evict.map((c) => c.name)).toEqual(['older']);
      expect(await named()).toEqual(['mounted', 'newer', 'older']);
      await prewarm(world, node, last);
      await waitFor(
        'the node reports the eviction',
        async () => (await named()).join() === 'last,mounted,newer',
      );
      expect(await versionsOn(node, older.id)).toEqual([]);
      expect(await sumsOf(versionFolder(node, mounted.id, 1))).toEqual(
        await manifestOf(world, mounted.id, 1),
      );

      const disk = await world.api.call('nodeDisk', {
        params: { id: node.nodeId },
        query: { bytes: last.bytes },
      });
      expect(disk.unavailable).toBeUndefined();
      expect(disk.evict[0]).toMatchObject({ kind: 'dataset', bytes: newer.bytes });

      const huge = await make('huge', 27_500_000);
      const room = await world.api.call('cacheRoom', {
        params: { id: node.nodeId },
        query: { bytes: huge.bytes },
      });
      expect(room).toMatchObject({ enough: false, pinned_bytes: mounted.bytes });
      await world.api.call('patchProject', {
        params: { id: keeper.id },
        body: { datasets: [dependency(mounted), dependency(huge)] },
      });
      const failed = await world.berth.settled(await world.berth.deploy(keeper));
      expect(failed).toMatchObject({ status: 'failed', error: { code: 'no_room' } });
      expect(await ask('keeper', '/data/mounted/name.txt')).toBe('mounted');
      expect((await see(live.id)).status).toBe('running');
      expect(await named()).toEqual(['last', 'mounted', 'newer']);
    });

    it('a dataset in use is kept; a deleted one is removed from the nodes, and its files stay on the share', async () => {
      const all = (await world.api.call('listDatasets', { query: {} })).items;
      const [mounted, last] = [
        all.find((d) => d.name === 'mounted'),
        all.find((d) => d.name === 'last'),
      ] as [Dataset, Dataset];
      const refused = world.api.call('deleteDataset', { params: { id: mounted.id } });
      await expect(refused).rejects.toMatchObject({
        code: 'dataset_in_use',
        message: expect.stringContaining('keeper'),
      });
      await world.api.call('deleteDataset', { params: { id: last.id } });
      // The node learns of the deletion when it registers.
      await node.stopAgent();
      await node.startAgent();
      await waitFor(
        'the node removed its copy',
        async () => (await versionsOn(node, last.id)).length === 0,
      );
      expect(await sumsOf(join(world.datasetBase, 'last'))).toMatchObject({
        'name.txt': sha256('last'),
      });
      expect(await ask('keeper', '/data/mounted/name.txt')).toBe('mounted');
    });

    it('a drain that cannot move a project says why, and the project keeps serving until it is stopped', async () => {
      const [keeper] = (await world.api.call('listProjects', { query: {} })).items as [Project];
      const [used] = keeper.datasets as [Project['datasets'][number]];
      await world.api.call('patchProject', {
        params: { id: keeper.id },
        body: { datasets: [used] },
      });
      await world.api.call('drainNode', { params: { id: node.nodeId } });
      const left = await waitFor(
        'the drain says why the project cannot be moved',
        async () => {
          const { drain } = await getNode(world, node);
          return drain?.left.find((l) => l.project_id === keeper.id && l.problem !== null);
        },
        { deadlineMs: 30_000 },
      );
      expect(left).toMatchObject({
        project: 'keeper',
        deployment_id: keeper.running_deployment_id,
      });
      expect(left.problem).toContain('is being drained');
      expect(await ask('keeper', '/data/mounted/name.txt')).toBe('mounted');
      expect((await getNode(world, node)).drain).toMatchObject({ finished_at: null, moved: 0 });
      expect(await world.api.call('uncordonNode', { params: { id: node.nodeId } })).toMatchObject({
        schedulable: true,
        drain: null,
      });
      // The current try finds a node now.
      await waitFor(
        'no deployment is in progress',
        async () => {
          const { items } = await world.api.call('listDeployments', {
            query: { project_id: keeper.id },
          });
          return (
            items.every((d) => isSettled(d.status)) &&
            (await containersOn(node, 'keeper')).length === 1
          );
        },
        { deadlineMs: 60_000 },
      );
      expect(await ask('keeper', '/data/mounted/name.txt')).toBe('mounted');
    });
  },
);
