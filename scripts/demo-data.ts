/**
 * The part of the demo about data: a dataset is copied to a node once, and the next project that
 * needs it goes to that node.
 */
import { randomBytes } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Deployment } from '@berth/wire/deployment';
import type { Dataset } from '@berth/wire/dataset';
import type { Project } from '@berth/wire/project';
import type { GitServer } from '@berth/testbed/git-server';
import type { Platform } from '@berth/testbed/platform';
import { repositoryRoot } from '@berth/testbed/config';
import { waitFor } from '@berth/testbed/wait';

const DATASET = 'stations';
const STATIONS = [
  'Adelboden',
  'Bergen',
  'Cuxhaven',
  'Davos',
  'Einsiedeln',
  'Foula',
  'Grimsel',
  'Husum',
];
const READINGS = 2_000;
const MB = 1_000_000;
const ARCHIVE_BYTES = 150 * MB;
/** Slows a copy within one machine to 250 Mbit/s, so that people can watch it. */
export const COPY_BANDWIDTH = '30m';

export const DATA_PROJECTS = [
  {
    name: 'stations',
    title: 'reads a dataset, copied to its node when it was deployed',
    path: '/stations.json',
  },
  {
    name: 'weather-report',
    title: 'reads it too, on the node that had it already',
    path: '/stations.json',
  },
] as const;

export type DataDemo = {
  berth: Platform;
  git: GitServer;
  /** The shared storage. */
  share: string;
  printLine: (text: string) => void;
  /**
   * Prints the story of a deployment until it has settled. Calls `also` with each answer of the
   * API.
   */
  follow: (
    name: string,
    asked: Deployment,
    also?: (now: Deployment) => void,
  ) => Promise<Deployment>;
};

/**
 * Temperatures of weather stations: small tables, and an archive that is large enough to make the
 * copy visible.
 */
export async function writeShare(share: string): Promise<void> {
  const dir = join(share, DATASET);
  await mkdir(join(dir, 'archive'), { recursive: true });
  for (const [i, name] of STATIONS.entries()) {
    const rows = Array.from({ length: READINGS }, (_, hour) => {
      const at = new Date(Date.UTC(2026, 0, 1, hour)).toISOString();
      return `${at},${(4 + i - 6 * Math.cos(hour / 1_400) + 3 * Math.sin(hour / 4)).toFixed(1)}\n`;
    });
    await writeFile(join(dir, `${name}.csv`), rows.join(''));
  }
  await writeFile(join(dir, 'archive', '1990-2025.bin'), randomBytes(ARCHIVE_BYTES));
}

export async function demonstrateData(demo: DataDemo): Promise<boolean> {
  const { berth, printLine } = demo;
  const dataset = await registered(demo);
  const [first, second] = DATA_PROJECTS;
  const copied = await deployed(demo, dataset, first.name);
  const there = await deployed(demo, dataset, second.name);
  if (copied === undefined || there === undefined) return false;
  const nodes = await berth.api.call('listNodes', { query: {} });
  const holders = nodes.items.filter((node) =>
    node.cached.some((c) => c.dataset_id === dataset.id),
  );
  const name = holders.find((node) => node.id === there.deployment.node_id)?.hostname;
  const once =
    holders.length === 1 && name !== undefined && copied.bytes > ARCHIVE_BYTES && there.bytes === 0;
  printLine(
    `${second.name}: ` +
      (once
        ? `placed on ${name}, which has the data: nothing was copied`
        : 'NOT placed on the node with the data'),
  );
  return once;
}

async function registered({ berth, printLine }: DataDemo): Promise<Dataset> {
  const { id } = await berth.api.call('createDataset', {
    body: { name: DATASET, nfs_path: DATASET },
  });
  const dataset = await waitFor(
    'the dataset is scanned',
    async () => {
      const now = await berth.api.call('getDataset', { params: { id } });
      return now.version !== null && now;
    },
    { deadlineMs: 60_000, intervalMs: 50 },
  );
  printLine(
    `dataset ${DATASET}: version ${dataset.version}, ${dataset.files} files, ` +
      `${inMb(dataset.bytes)}, ${dataset.manifest_digest}`,
  );
  return dataset;
}

/** Returns the number of bytes that were copied for it. */
async function deployed(
  demo: DataDemo,
  dataset: Dataset,
  name: string,
): Promise<{ deployment: Deployment; bytes: number } | undefined> {
  const { berth, git, printLine, follow } = demo;
  const { url } = await git.createRepo(name, join(repositoryRoot, 'examples', 'stations'));
  const project = await berth.createProject({
    name,
    git_url: url,
    domain_prefix: name,
    health_path: '/healthz',
    datasets: [{ dataset_id: dataset.id, mode: 'dependency', mount_path: `/data/${DATASET}` }],
    drain_seconds: 1,
    stop_grace_seconds: 3,
  });
  await printPlacement(demo, project);
  let bytes = 0;
  let printed = 0;
  const done = await follow(name, await berth.deploy(project, { note: 'the demo' }), (now) => {
    for (const copy of now.progress?.datasets ?? []) {
      bytes = Math.max(bytes, copy.bytes_done);
      if (copy.step !== 'copying' || copy.bytes_done - printed < ARCHIVE_BYTES / 5) continue;
      printed = copy.bytes_done;
      const remaining =
        copy.remaining_seconds === null ? '' : `, ${Math.ceil(copy.remaining_seconds)} s left`;
      printLine(
        `${name}: copying ${copy.name}: ${inMb(copy.bytes_done)} of ` +
          `${inMb(copy.bytes_total)}${remaining}`,
      );
    }
  });
  const mounted = done.datasets.map((d) => `${d.name} version ${d.version}`).join(', ');
  printLine(
    `${name}: ` +
      (done.status === 'running' ? `live at ${berth.address(name)} with ${mounted}` : 'FAILED'),
  );
  return done.status === 'running' ? { deployment: done, bytes } : undefined;
}

/** Prints where the project would go, and why, before the scheduler does anything. */
async function printPlacement({ berth, printLine }: DataDemo, project: Project): Promise<void> {
  const { items } = await berth.api.call('placement', { query: { project_id: project.id } });
  for (const row of items.filter(({ eligible }) => eligible))
    printLine(
      `${project.name}: on ${row.hostname} ${inMb(row.missing_bytes)} would have to be copied; ` +
        `score ${row.score.toFixed(1)}`,
    );
}

const inMb = (bytes: number): string => `${(bytes / MB).toFixed(0)} MB`;
