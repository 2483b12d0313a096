/**
 * A program goes to its data. Three deploy nodes, each with an engine, and real copies. Placement
 * equals the contract's score, computed by hand. A second version costs only its changes. Projects
 * of a drained node move with their data, and no request of a client fails.
 */
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Dataset } from '@berth/wire/dataset';
import type { Deployment } from '@berth/wire/deployment';
import type { PlacementRow } from '@berth/wire/node';
import type { Project } from '@berth/wire/project';
import { startProber } from '@berth/testbed/prober';
import { waitFor } from '@berth/testbed/wait';
import {
  bytes,
  containersOn,
  dependency,
  getNode,
  halfCopies,
  inode,
  manifestOf,
  mountOf,
  newDataset,
  newProject,
  onlyOn,
  prewarm,
  scan,
  settledWithProgress,
  sha256,
  sumsOf,
  versionFolder,
  versionsOn,
  writeShare,
} from './data-world.ts';
import {
  type ManyNodes,
  type ManyNodesNode,
  startManyNodes,
  whyNotManyNodes,
} from './many-nodes-world.ts';
import { versionOf } from './world.ts';

const reason = whyNotManyNodes();

/** 100, 20, 15 and 6 points for free storage. */
const STORAGE: Record<string, number> = {
  builder: 1_000_000_000,
  'node-1': 200_000_000,
  'node-2': 150_000_000,
  'node-3': 60_000_000,
};
const STARS = 25_000_000;
const ROCKS = 5_000_000;
const README = 'the stars of the northern sky\n'.padEnd(1_000, '.');
/** Tolerance for folders and the small files about versions. */
const SLACK = 500_000;

describe.skipIf(reason !== undefined)(
  `data on many nodes${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    let world: ManyNodes;
    let [stars, rocks] = [{} as Dataset, {} as Dataset];
    let [reader, second] = [{} as Project, {} as Project];
    let [first, next] = [{} as Deployment, {} as Deployment];
    let byName: (name: string) => ManyNodesNode;

    beforeAll(async () => {
      world = await startManyNodes({
        deployNodes: 3,
        agentEnv: (name) => ({ MAX_STORAGE: String(STORAGE[name]), COPY_BANDWIDTH: '8m' }),
      });
      byName = (name) => {
        const found = world.nodes.find((n) => n.name === name);
        if (found === undefined) throw new Error(`no ${name}`);
        return found;
      };
    });
    afterAll(() => world?.stop());

    const see = (id: string): Promise<Deployment> =>
      world.api.call('getDeployment', { params: { id } });
    const placement = (project: Project) =>
      world.api.call('placement', { query: { project_id: project.id } });
    const logs = async (d: Deployment): Promise<string> => (await world.berth.logs(d)).join('\n');
    const ask = async (prefix: string, path: string): Promise<string> => {
      const answer = await world.ask(prefix, path);
      return answer.status === 200 ? answer.body : `status ${answer.status}`;
    };
    const containerOf = async (d: Deployment, project: Project): Promise<string> => {
      const found = await containersOn(world.node(d.node_id), project.name);
      return found.find((c) => c.state === 'running')?.id ?? '';
    };

    /** Computes the contract's formula from the data that the test put on the nodes. */
    function rowsByHand(lacks: Record<string, { cached: number; missing: number; used: number }>) {
      return Object.entries(STORAGE)
        .map(([hostname, max]) => {
          const { cached, missing, used } = lacks[hostname] ?? { cached: 0, missing: 0, used: 0 };
          return {
            hostname,
            cached,
            missing,
            free: max - used,
            score: cached * 10 - missing * 0.000001 + (max - used) * 0.0000001,
          };
        })
        .toSorted((a, b) => b.score - a.score);
    }
    function expectRows(
      rows: readonly PlacementRow[],
      byHand: ReturnType<typeof rowsByHand>,
    ): void {
      expect(rows.map((r) => r.hostname)).toEqual(byHand.map((h) => h.hostname));
      for (const [i, hand] of byHand.entries()) {
        const row = rows[i] as PlacementRow;
        expect(row, hand.hostname).toMatchObject({
          cached_dataset_count: hand.cached,
          missing_bytes: hand.missing,
        });
        expect(
          Math.abs(row.free_storage_bytes - hand.free),
          `free on ${hand.hostname}`,
        ).toBeLessThan(SLACK);
        expect(row.score).toBeCloseTo(
          row.cached_dataset_count * 10 -
            row.missing_bytes * 0.000001 +
            row.free_storage_bytes * 0.0000001,
          9,
        );
        expect(row, hand.hostname).toMatchObject(
          hand.hostname === 'builder'
            ? { eligible: false, reason: 'is a builder' }
            : { eligible: true, reason: null },
        );
      }
    }

    it('a project goes to the node with the highest score, computed by hand, and the progress of its copy is shown', async () => {
      const big = Object.fromEntries(
        ['a', 'b', 'c', 'd', 'e'].map((n) => [`sky/${n}.bin`, bytes(n, (STARS - 1_000) / 5)]),
      );
      stars = await newDataset(world, 'stars', { 'readme.txt': README, ...big });
      rocks = await newDataset(world, 'rocks', {
        'basalt.bin': bytes('basalt', 1_000_000),
        'granite.bin': bytes('granite', 4_000_000),
      });
      expect(stars).toMatchObject({ version: 1, status: 'ok', bytes: STARS, files: 6 });
      expect(rocks).toMatchObject({ version: 1, status: 'ok', bytes: ROCKS, files: 2 });
      await prewarm(world, byName('node-3'), rocks);
      await waitFor('the prewarm is reported as done', async () => {
        const [copy] = (await getNode(world, byName('node-3'))).copying ?? [];
        return (
          copy?.status === 'done' &&
          copy.name === 'rocks' &&
          copy.version === 1 &&
          copy.error === null
        );
      });
      reader = await newProject(world, 'reader', {
        datasets: [dependency(stars), { ...dependency(rocks), mount_path: '/data/minerals' }],
      });

      // 100 - 30 = 70, but a builder; 10 - 25 + 5.5 = -9.5; 20 - 30 = -10; 15 - 30 = -15.
      const all = { cached: 0, missing: STARS + ROCKS, used: 0 };
      const byHand = rowsByHand({
        builder: all,
        'node-1': all,
        'node-2': all,
        'node-3': { cached: 1, missing: STARS, used: ROCKS },
      });
      expect(byHand.map((h) => h.hostname)).toEqual(['builder', 'node-3', 'node-1', 'node-2']);
      const answer = await placement(reader);
      expectRows(answer.items, byHand);
      expect(answer.winner).toBe(byName('node-3').nodeId);
      const estimate = answer.items.find((r) => r.hostname === 'node-3')?.estimated_seconds ?? 0;
      expect(estimate).toBeCloseTo(
        STARS / ((await getNode(world, byName('node-3'))).copy_rate ?? Number.NaN),
        6,
      );

      const { deployment, progress } = await settledWithProgress(
        world,
        await world.berth.deploy(reader),
      );
      first = deployment;
      expect(first).toMatchObject({
        status: 'running',
        error: null,
        node_id: byName('node-3').nodeId,
        progress: null,
      });
      expectRows(
        first.placement?.items ?? [],
        byHand.filter((h) => h.hostname !== 'builder'),
      );
      expect(first.datasets).toEqual([
        {
          dataset_id: stars.id,
          name: 'stars',
          mode: 'dependency',
          version: 1,
          current_version: 1,
          moved_on: false,
        },
        {
          dataset_id: rocks.id,
          name: 'rocks',
          mode: 'dependency',
          version: 1,
          current_version: 1,
          moved_on: false,
        },
      ]);
      const copying = progress.filter((p) => p.name === 'stars' && p.step === 'copying');
      expect(new Set(copying.map((p) => p.bytes_total))).toEqual(new Set([STARS]));
      expect(
        copying.some(
          (p) => p.bytes_done > 0 && p.bytes_done < STARS && (p.bytes_per_second ?? 0) > 0,
        ),
      ).toBe(true);
      expect(copying.some((p) => p.remaining_seconds !== null && p.remaining_seconds > 0)).toBe(
        true,
      );
      expect(progress.some((p) => p.name === 'rocks' && p.step === 'copying')).toBe(false);
    });

    it('its container reads the data at the path of the contract and cannot write it', async () => {
      const node = byName('node-3');
      expect(await ask('reader', '/data/stars/readme.txt')).toBe(README);
      expect(await sumsOf(versionFolder(node, stars.id, 1))).toEqual(
        await manifestOf(world, stars.id, 1),
      );
      expect(join(node.svcRoot, 'mounts', first.id, await mountOf(node, first, 'stars'))).toBe(
        versionFolder(node, stars.id, 1),
      );
      expect(join(node.svcRoot, 'mounts', first.id, await mountOf(node, first, 'rocks'))).toBe(
        versionFolder(node, rocks.id, 1),
      );
      const id = await containerOf(first, reader);
      const { stdout } = await node.docker([
        'exec',
        id,
        'sha256sum',
        '/data/minerals/basalt.bin',
        '/data/stars/sky/a.bin',
      ]);
      const seen = stdout.split('\n').flatMap((line) => (line === '' ? [] : [line.split(/ +/)[0]]));
      expect(seen).toEqual([
        sha256(bytes('basalt', 1_000_000)),
        sha256(bytes('a', (STARS - 1_000) / 5)),
      ]);
      for (const path of [
        '/data/stars/new',
        '/data/stars/readme.txt',
        '/data/minerals/basalt.bin',
      ]) {
        const wrote = await node.docker(['exec', id, 'sh', '-c', `echo x >> ${path}`], {
          mayFail: true,
        });
        expect(wrote.code, path).not.toBe(0);
        expect(wrote.stderr).toMatch(/read-only file system/i);
      }
    });

    it('a second project with the same data goes to the same node without a copy', async () => {
      const node = byName('node-3');
      second = await newProject(world, 'second', {
        datasets: [dependency(stars)],
        on_dataset_change: 'redeploy',
      });
      const byHand = rowsByHand({
        builder: { cached: 0, missing: STARS, used: 0 },
        'node-1': { cached: 0, missing: STARS, used: 0 },
        'node-2': { cached: 0, missing: STARS, used: 0 },
        'node-3': { cached: 1, missing: 0, used: STARS + ROCKS },
      });
      const answer = await placement(second);
      expectRows(answer.items, byHand);
      expect(answer.winner).toBe(node.nodeId);
      expect(answer.items.find((r) => r.node_id === node.nodeId)?.estimated_seconds).toBe(0);

      const was = await inode(versionFolder(node, stars.id, 1));
      const { deployment, progress } = await settledWithProgress(
        world,
        await world.berth.deploy(second),
      );
      expect(deployment).toMatchObject({ status: 'running', error: null, node_id: node.nodeId });
      expect(progress.filter((p) => p.bytes_done > 0)).toEqual([]);
      expect(await logs(deployment)).toContain('stars v1 is already cached on this node');
      expect(await logs(deployment)).not.toMatch(/copying stars|copied/);
      expect(await inode(versionFolder(node, stars.id, 1))).toBe(was);
      expect(await ask('second', '/data/stars/readme.txt')).toBe(README);
      next = deployment;
    });

    it('a new version is announced, and a project that follows versions is deployed with it', async () => {
      const node = byName('node-3');
      // An older version counts nothing in the score, however much content it shares: without this
      // line, projects would go to node-1.
      await onlyOn(world, node);
      await writeShare(world, 'stars', {
        'sky/a.bin': bytes('another a', 2_000_000),
        'sky/b.bin': null,
        'sky/f.txt': 'new\n',
      });
      // The content stays the same, only the time changes.
      await writeShare(world, 'stars', { 'readme.txt': README });
      stars = await scan(world, stars.id);
      expect(stars).toMatchObject({ version: 2, status: 'ok', files: 6 });
      const history = await world.api.call('datasetHistory', {
        params: { id: stars.id },
        query: { version: 2 },
      });
      const v1 = await manifestOf(world, stars.id, 1);
      expect(
        history.items.map((r) => [r.change, r.path, r.size, r.checksum, r.previous_checksum]),
      ).toEqual(
        expect.arrayContaining([
          [
            'modified',
            'sky/a.bin',
            2_000_000,
            sha256(bytes('another a', 2_000_000)),
            v1['sky/a.bin'],
          ],
          ['removed', 'sky/b.bin', null, null, v1['sky/b.bin']],
          ['added', 'sky/f.txt', 4, sha256('new\n'), null],
        ]),
      );
      expect(history.items).toHaveLength(3);
      expect(
        (
          await world.api.call('datasetVersions', { params: { id: stars.id }, query: {} })
        ).items.map((v) => v.version),
      ).toEqual([2, 1]);

      // One project is notified, the other is deployed again.
      expect((await see(first.id)).datasets[0]).toMatchObject({
        version: 1,
        current_version: 2,
        moved_on: true,
      });
      await waitFor('the story announces the newer version', async () =>
        (await see(first.id)).events.some(
          (e) => e.kind === 'dataset' && e.message.includes('stars'),
        ),
      );
      const redeployed = await waitFor(
        'the other project is live on version 2',
        async () => {
          const list = await world.api.call('listDeployments', {
            query: { project_id: second.id },
          });
          return list.items.find((d) => d.id !== next.id && d.status === 'running');
        },
        { deadlineMs: 60_000 },
      );
      const before = next;
      next = await see(redeployed.id);
      expect(next.datasets[0]).toMatchObject({ version: 2, current_version: 2, moved_on: false });
      // The same release: it is not built again.
      expect(next).toMatchObject({
        generation: 2,
        node_id: node.nodeId,
        rollback_of: next.rollback_of ?? '',
        commit: before.commit,
        image_digest: before.image_digest,
      });
      expect(next.events.map((e) => e.kind)).not.toContain('building');
      expect(await ask('second', '/data/stars/sky/f.txt')).toBe('new\n');
      expect(await ask('reader', '/data/stars/sky/f.txt')).toBe('status 404');

      // 2 MB of 15 MB changed; the other files are the same.
      expect(await logs(next)).toMatch(
        /copied 2\.0 MB of stars v2 .*; 4 of 6 files were already on this node/,
      );
      const [old, now] = [versionFolder(node, stars.id, 1), versionFolder(node, stars.id, 2)];
      expect(await sumsOf(now)).toEqual(await manifestOf(world, stars.id, 2));
      for (const path of ['readme.txt', 'sky/c.bin', 'sky/d.bin', 'sky/e.bin'])
        expect(await inode(join(now, path)), path).toBe(await inode(join(old, path)));
      expect(await inode(join(now, 'sky/a.bin'))).not.toBe(await inode(join(old, 'sky/a.bin')));
      expect(await sumsOf(old)).toEqual(v1);

      const released = first;
      first = await world.berth.settled(await world.berth.deploy(reader));
      expect(first).toMatchObject({ status: 'running', error: null });
      expect(first.datasets[0]).toMatchObject({ version: 2, moved_on: false });
      expect(await ask('reader', '/data/stars/sky/f.txt')).toBe('new\n');
      expect(await logs(first)).toContain('stars v2 is already cached on this node');

      // The rollback runs the old program on today's data, and the story mentions both versions.
      const back = await world.berth.settled(
        await world.api.call('rollback', {
          params: { id: reader.id },
          body: { deployment_id: released.id },
        }),
      );
      expect(back).toMatchObject({ status: 'running', error: null, commit: released.commit });
      expect(back.datasets[0]).toMatchObject({ version: 2, moved_on: false });
      expect(back.events.map((e) => e.message).join('\n')).toContain(
        'dataset stars: version 2 (the release had version 1)',
      );
      first = await see(back.id);
      await onlyOn(world, ...world.nodes);
    });

    it('projects of a drained node move with their data, and none of 50 requests per second fails', async () => {
      const [from, to] = [byName('node-3'), byName('node-1')];
      const prober = startProber({
        entry: world.berth.entry,
        host: `reader.${world.berth.baseDomain}`,
        perSecond: 50,
        versionOf,
      });
      const begun = await world.api.call('drainNode', { params: { id: from.nodeId } });
      expect(begun).toMatchObject({ schedulable: false, drain: { finished_at: null, moved: 0 } });
      expect(begun.drain?.left.map((l) => l.project).toSorted()).toEqual(['reader', 'second']);
      const moving = await waitFor('the drain names the target nodes', async () => {
        const { drain } = await getNode(world, from);
        return drain?.left.find((l) => l.project_id === reader.id)?.moving_to;
      });
      // During the copy, the old deployment is the running one.
      await waitFor('the data is copied to the new node', async () => {
        const d = await see(moving);
        return d.progress?.datasets.some((p) => p.step === 'copying' && p.bytes_done > 0);
      });
      expect(
        (await world.api.call('getProject', { params: { id: reader.id } })).running_deployment_id,
      ).toBe(first.id);
      const done = await waitFor(
        'the node is drained',
        async () => {
          const now = await getNode(world, from);
          return now.drain?.finished_at !== null && now;
        },
        { deadlineMs: 60_000 },
      );
      expect(done.drain).toMatchObject({ moved: 2, left: [] });
      for (const project of [reader, second]) {
        const { running_deployment_id } = await world.api.call('getProject', {
          params: { id: project.id },
        });
        const moved = await see(running_deployment_id ?? '');
        expect(moved, project.name).toMatchObject({
          node_id: to.nodeId,
          status: 'running',
          note: 'node node-3 is drained',
        });
        await waitFor(
          `${project.name} is gone from the old node`,
          async () =>
            (await containersOn(from, project.name)).length === 0 &&
            (await containersOn(to, project.name)).length === 1,
          { deadlineMs: 30_000 },
        );
      }
      const report = await prober.stop();
      console.log(
        `drain: ${report.sent} requests, ${report.failed} failed; p99 ${report.p99.toFixed(1)} ms`,
      );
      expect(report).toMatchObject({ failures: [], failed: 0 });
      expect(await ask('reader', '/data/stars/sky/f.txt')).toBe('new\n');
      expect(await sumsOf(versionFolder(to, stars.id, 2))).toEqual(
        await manifestOf(world, stars.id, 2),
      );
      // Two projects need one copy.
      expect(await versionsOn(to, stars.id)).toEqual([2]);
      expect(await halfCopies(to)).toEqual([]);

      const back = await world.api.call('uncordonNode', { params: { id: from.nodeId } });
      expect(back).toMatchObject({ schedulable: true, drain: null });
    });
  },
);
