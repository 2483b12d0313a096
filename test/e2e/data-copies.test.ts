/**
 * `data_copies: 2` with real agents and real copies: two nodes hold what the project uses, so that
 * it moves to the second one without a copy.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Dataset } from '@berth/wire/dataset';
import type { Deployment } from '@berth/wire/deployment';
import type { Project } from '@berth/wire/project';
import { waitFor } from '@berth/testbed/wait';
import {
  bytes,
  dependency,
  getNode,
  manifestOf,
  newDataset,
  newProject,
  scan,
  sumsOf,
  versionFolder,
  writeShare,
} from './data-world.ts';
import {
  type ManyNodes,
  type ManyNodesNode,
  startManyNodes,
  whyNotManyNodes,
} from './many-nodes-world.ts';

const reason = whyNotManyNodes();

describe.skipIf(reason !== undefined)(
  `data on two nodes${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    let world: ManyNodes;
    let stars = {} as Dataset;
    let [reader, first] = [{} as Project, {} as Deployment];

    beforeAll(async () => {
      world = await startManyNodes({ deployNodes: 2 });
    });
    afterAll(() => world?.stop());

    const copies = () => world.api.call('projectDataCopies', { params: { id: reader.id } });
    const bothHold = (version: number) =>
      waitFor(
        `both nodes hold version ${version}`,
        async () => {
          const { have, versions } = await copies();
          return have === 2 && versions[0]?.version === version;
        },
        { deadlineMs: 60_000 },
      );
    const other = (d: Deployment): ManyNodesNode => {
      const found = world.nodes.find(({ nodeId }) => nodeId !== d.node_id);
      if (found === undefined) throw new Error('there is no second node');
      return found;
    };
    async function expectWhole(version: number): Promise<void> {
      const manifest = await manifestOf(world, stars.id, version);
      for (const node of world.nodes)
        expect(await sumsOf(versionFolder(node, stars.id, version)), node.name).toEqual(manifest);
    }

    it('the node that does not run the project gets a whole copy too, and names it as pinned', async () => {
      stars = await newDataset(world, 'stars', {
        'readme.txt': 'the stars of the northern sky\n',
        'sky/a.bin': bytes('a', 3_000_000),
        'sky/b.bin': bytes('b', 3_000_000),
      });
      reader = await newProject(world, 'reader', {
        datasets: [dependency(stars)],
        data_copies: 2,
      });
      first = await world.berth.settled(await world.berth.deploy(reader));
      expect(first).toMatchObject({ status: 'running', error: null });
      await bothHold(1);
      await expectWhole(1);
      const second = other(first);
      const disk = await world.api.call('nodeDisk', { params: { id: second.nodeId } });
      expect(disk.copies).toMatchObject([
        { name: 'stars', version: 1, project: 'reader', why: 'copy for project reader' },
      ]);
      await waitFor('the agent reports the copy as pinned', async () =>
        (await getNode(world, second)).cached.some((c) => c.version === 1 && c.pinned === true),
      );
    });

    it('a new version arrives on both nodes after a deployment', async () => {
      await writeShare(world, 'stars', { 'sky/a.bin': bytes('another a', 1_000_000) });
      stars = await scan(world, stars.id);
      expect(stars.version).toBe(2);
      first = await world.berth.settled(await world.berth.deploy(reader));
      expect(first).toMatchObject({ status: 'running', error: null });
      await bothHold(2);
      await expectWhole(2);
    });

    it('a deployment on the second node copies nothing', async () => {
      const second = other(first);
      await world.api.call('cordonNode', { params: { id: first.node_id ?? '' } });
      const moved = await world.berth.settled(await world.berth.deploy(reader));
      expect(moved).toMatchObject({ status: 'running', error: null, node_id: second.nodeId });
      const log = (await world.berth.logs(moved)).join('\n');
      expect(log).toContain('stars v2 is already cached on this node');
      expect(log).not.toMatch(/copying stars|copied/);
      // The only other node is cordoned, so there is one copy, and the answer says why.
      await waitFor('the answer names the cordoned node', async () => {
        const { have, why } = await copies();
        return have === 1 && why?.includes('is cordoned');
      });
    });
  },
);
