/** Faults during the copy of a dataset. Each row has its own dataset. */
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'vitest';
import type { Dataset } from '@berth/wire/dataset';
import type { Deployment } from '@berth/wire/deployment';
import { processesOf } from '@berth/testbed/process';
import { waitFor } from '@berth/testbed/wait';
import {
  bytes,
  halfCopies,
  manifestOf,
  scan,
  sumsOf,
  versionFolder,
  versionsOn,
} from '../../../e2e/data-world.ts';
import { fill } from '../fill.ts';
import type { Row } from '../row.ts';
import type { Stage } from '../stage.ts';

/** 5 s at the stage's bandwidth. */
const SIZE = 10_000_000;

/** Writes five files with different content into the folder. */
async function writeFiles(stage: Stage, name: string, size: number): Promise<void> {
  const folder = join(stage.share, name);
  await mkdir(folder, { recursive: true });
  for (let i = 0; i < 5; i++)
    await writeFile(join(folder, `${i}.bin`), bytes(`${name} ${i}`, size / 5));
}

/** Creates a dataset of such files. The project mounts it from its next release on. */
async function newDataset(stage: Stage, name: string, size: number): Promise<Dataset> {
  const { api } = stage.berth;
  await writeFiles(stage, name, size);
  const { id } = await api.call('createDataset', { body: { name, nfs_path: name } });
  const dataset = await waitFor(`${name} has a version`, async () => {
    const now = await api.call('getDataset', { params: { id } });
    return now.version !== null && now;
  });
  const datasets = [{ dataset_id: id, mode: 'dependency' as const }];
  await api.call('patchProject', { params: { id: stage.project.id }, body: { datasets } });
  return dataset;
}

/** Requests a release with a new dataset, and waits until its node copies it. */
async function copying(
  stage: Stage,
  name: string,
): Promise<{ asked: Deployment; dataset: Dataset }> {
  const dataset = await newDataset(stage, name, SIZE);
  const asked = await stage.release();
  await waitFor(
    'the node is copying the dataset',
    async () =>
      (await stage.see(asked)).progress?.datasets.some(
        (p) => p.step === 'copying' && p.bytes_done > SIZE / 10,
      ),
    { deadlineMs: 60_000 },
  );
  return { asked, dataset };
}

/** Checks that the node's copy equals the version and that no partial copy remains. */
async function expectComplete({ berth, svc }: Stage, { id }: Dataset): Promise<void> {
  expect(await sumsOf(versionFolder(svc, id, 1))).toEqual(await manifestOf(berth, id, 1));
  expect(await halfCopies(svc)).toEqual([]);
}

/** Waits until the old container is gone and the new one has its name. */
async function untilOnlyContainer(stage: Stage): Promise<void> {
  const alone = async (): Promise<boolean> =>
    (await stage.containers(stage.engines.node)).join() === 'svc-app running';
  await waitFor('only the new container exists', alone, { deadlineMs: 30_000 });
}

/** Checks that the project's container reads version 1 of the dataset, file by file. */
async function expectReadable(stage: Stage, { id, name }: Dataset): Promise<void> {
  const { stdout } = await stage.engines.node.docker([
    'exec',
    'svc-app',
    'sh',
    '-c',
    `cd /data/${name} && sha256sum *`,
  ]);
  const lines = stdout.trim().split('\n');
  const sums = Object.fromEntries(
    lines.map((line) => line.split(/\s+/).toReversed() as [string, string]),
  );
  expect(sums).toEqual(await manifestOf(stage.berth, id, 1));
}

/** After a deployment that did not go live: checks that no part of the dataset remains. */
async function expectAbsent(stage: Stage, { id }: Dataset): Promise<void> {
  stage.keepPreviousVersion();
  expect(await versionsOn(stage.svc, id)).toEqual([]);
  expect(await halfCopies(stage.svc)).toEqual([]);
  await stage.serves(stage.version());
}

/** Returns the process ids of the rsync that copies to the node. */
const rsyncs = ({ svc }: Stage): Promise<number[]> =>
  processesOf(
    (argv) =>
      argv[0]?.endsWith('rsync') === true && argv.some((word) => word.startsWith(svc.svcRoot)),
  );
/** Returns the process ids of the control plane's scan process, which may be idle. */
const scanners = ({ dir }: Stage): Promise<number[]> =>
  processesOf(
    (argv) =>
      argv.some((word) => /scan-child\.[jt]s$/.test(word)) &&
      argv.some((word) => word.startsWith(dir)),
  );
async function signalRsync(stage: Stage, signal: 'SIGKILL' | 'SIGSTOP'): Promise<void> {
  const pids = await rsyncs(stage);
  expect(pids.length).toBeGreaterThan(0);
  for (const pid of pids) process.kill(pid, signal);
}

export const DATA_ROWS: readonly Row[] = [
  {
    fault: 'rsync killed while a node copies a dataset',
    answer:
      'the agent keeps and verifies the files that arrived and copies the rest again; the ' +
      'deployment ends `running` on the whole version',
    invariants: ['settles', 'old-serves', 'one-serving'],
    stage: 'data',
    async run(stage) {
      const { asked, dataset } = await copying(stage, 'killed');
      await signalRsync(stage, 'SIGKILL');
      await stage.says(asked, /copying the remaining files/);
      await stage.ends(asked, 'running');
      await expectComplete(stage, dataset);
    },
  },
  {
    fault: 'agent killed while it copies a dataset',
    answer:
      'the restarted agent deletes the half copy and claims the task again (attempt 2); the ' +
      'deployment ends `running` on the whole version',
    invariants: ['settles', 'old-serves', 'one-serving', 'one-lease'],
    stage: 'data',
    async run(stage) {
      const { asked, dataset } = await copying(stage, 'begun-anew');
      await stage.agent('node-1').crash();
      await waitFor('rsync is gone', async () => (await rsyncs(stage)).length === 0);
      expect(await versionsOn(stage.svc, dataset.id)).toEqual([]);
      await stage.agent('node-1').start();
      await stage.ends(asked, 'running');
      await expectComplete(stage, dataset);
    },
  },
  {
    fault: 'shared storage hangs while a node copies a dataset (rsync stopped)',
    answer: '`failed` (`dataset_unreachable`) after `COPY_STALL`; no half copy remains',
    invariants: ['settles', 'old-serves', 'bounded'],
    stage: 'data',
    async run(stage) {
      const { asked, dataset } = await copying(stage, 'hung');
      await signalRsync(stage, 'SIGSTOP');
      await stage.ends(asked, 'failed', 'dataset_unreachable');
      expect(await rsyncs(stage)).toEqual([]);
      await expectAbsent(stage, dataset);
      await stage.ends(await stage.release(), 'running');
      await expectComplete(stage, dataset);
    },
  },
  {
    fault: 'disk full while a node copies a dataset',
    answer: '`failed` (`disk_full`); no half copy remains',
    invariants: ['settles', 'old-serves', 'bounded'],
    stage: 'data',
    async run(stage) {
      const { asked, dataset } = await copying(stage, 'full');
      const empty = await fill(stage.small.svc);
      try {
        await stage.ends(asked, 'failed', 'disk_full');
        await expectAbsent(stage, dataset);
      } finally {
        await empty();
      }
      await stage.ends(await stage.release(), 'running');
      await expectComplete(stage, dataset);
    },
  },
  {
    fault: 'engine and containers killed at once (power cut) with a dataset mounted',
    answer: 'the container starts again with the same version of the dataset, read-only',
    invariants: ['route-observed', 'nothing-destroyed', 'one-serving'],
    stage: 'data',
    outage: true,
    async run(stage) {
      const { asked, dataset } = await copying(stage, 'mounted');
      await stage.ends(asked, 'running');
      const { docker } = stage.engines.node;
      await untilOnlyContainer(stage);
      await stage.recorder.fromOutside(async () =>
        stage.engines.node.faults?.restartDaemon('power-cut'),
      );
      await stage.serves(stage.version());
      const { stdout } = await docker(['exec', 'svc-app', 'sha256sum', '/data/mounted/0.bin']);
      expect(stdout.split(' ')[0]).toBe((await manifestOf(stage.berth, dataset.id, 1))['0.bin']);
      const wrote = await docker(['exec', 'svc-app', 'touch', '/data/mounted/0.bin'], {
        mayFail: true,
      });
      expect(wrote.stderr).toMatch(/read-only file system/i);
    },
  },
  {
    fault:
      'a dataset on the share loses its content while a project mounts it (first empty files, ' +
      'then no files)',
    answer:
      'each scan ends `suspicious` and records no version; the container keeps its data; new ' +
      'deployments get the last good version; when the data is back, the dataset is `ok` with ' +
      'the same version',
    invariants: ['settles', 'old-serves', 'one-serving'],
    stage: 'data',
    async run(stage) {
      const { api } = stage.berth;
      const size = 50_000;
      const dataset = await newDataset(stage, 'emptied', size);
      const params = { id: dataset.id };
      const folder = join(stage.share, 'emptied');
      const goesLive = async (): Promise<void> => {
        await stage.ends(await stage.release(), 'running');
        await untilOnlyContainer(stage);
        await expectReadable(stage, dataset);
      };
      const isSuspicious = async (problem: RegExp): Promise<void> => {
        const found = await scan(stage.berth, dataset.id);
        expect(found).toMatchObject({
          status: 'suspicious',
          version: 1,
          files: 5,
          bytes: size,
          manifest_digest: dataset.manifest_digest,
        });
        expect(found.problem).toMatch(problem);
        expect((await api.call('datasetVersions', { params, query: {} })).items).toHaveLength(1);
      };
      await goesLive();

      for (let i = 0; i < 5; i++) await writeFile(join(folder, `${i}.bin`), '');
      await isSuspicious(/half of the content of emptied is gone: 0 bytes are left of 50000/);
      await expectReadable(stage, dataset);
      await goesLive();

      for (let i = 0; i < 5; i++) await rm(join(folder, `${i}.bin`));
      await isSuspicious(/The folder emptied is empty; the newest version has 5 files/);
      await expectReadable(stage, dataset);
      await goesLive();
      expect(await versionsOn(stage.svc, dataset.id)).toEqual([1]);
      await expectComplete(stage, dataset);

      await writeFiles(stage, 'emptied', size);
      expect(await scan(stage.berth, dataset.id)).toMatchObject({
        status: 'ok',
        problem: null,
        version: 1,
        files: 5,
        bytes: size,
      });
      const { items } = await api.call('datasetHistory', { params, query: {} });
      expect(items.map((row) => row.change)).toEqual(['added', 'added', 'added', 'added', 'added']);
      await goesLive();
      await expectComplete(stage, dataset);
    },
  },
  {
    fault: 'control plane killed while it scans a dataset',
    answer:
      'when the claim of the killed process expires (30 s), the scan starts again and ends ' +
      'with one whole version 1; nothing of the killed scan is visible',
    invariants: ['settles', 'acknowledged-stays'],
    stage: 'data',
    async run(stage) {
      const { api, controlPlane } = stage.berth;
      const folder = join(stage.share, 'many');
      for (let i = 0; i < 40; i++) {
        await mkdir(join(folder, String(i)), { recursive: true });
        for (let j = 0; j < 100; j++)
          await writeFile(join(folder, String(i), `${j}.txt`), `${i} ${j}`);
      }
      const { id } = await api.call('createDataset', { body: { name: 'many', nfs_path: 'many' } });
      // The claim comes before the process, and an idle process of an earlier scan may exist.
      const isUnderWay = async (): Promise<boolean> =>
        (await api.call('getDataset', { params: { id } })).scanning &&
        (await scanners(stage)).length === 1;
      await waitFor('the scan is in progress', isUnderWay, { intervalMs: 10 });
      await controlPlane.crash();
      await waitFor('the scan process is gone', async () => (await scanners(stage)).length === 0);
      await controlPlane.start();
      expect((await api.call('getDataset', { params: { id } })).version).toBeNull();
      await waitFor(
        'the dataset is scanned',
        async () => (await api.call('getDataset', { params: { id } })).version !== null,
        {
          deadlineMs: 60_000,
        },
      );
      expect(await api.call('getDataset', { params: { id } })).toMatchObject({
        version: 1,
        files: 4_000,
        status: 'ok',
      });
      expect((await api.call('datasetVersions', { params: { id }, query: {} })).items).toHaveLength(
        1,
      );
      expect(await manifestOf(stage.berth, id, 1)).toEqual(await sumsOf(folder));
    },
  },
];
