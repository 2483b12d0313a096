/**
 * Child process of killed.real.test.ts. It prepares the mounts of one deployment and kills itself
 * at a fail point.
 */
import { armFailPoints, failPoints } from '@berth/kit/fail-point';
import { silentLogger } from '@berth/kit/log';
import { createClient } from '@berth/wire/client';
import { createDatasetParts } from '../../src/data/dataset-parts.ts';
import { createStorage } from '../../src/disk/storage.ts';
import type { TaskOf } from '@berth/wire/task';

export type ChildOrder = {
  root: string;
  share: string;
  plane: string;
  maxStorage: number;
  task: TaskOf<'deploy'>;
  points: string;
};
const order = JSON.parse(process.argv[2] ?? '') as ChildOrder;
const inherit = { PATH: process.env['PATH'] };
const log = silentLogger();
const { signal } = new AbortController();
armFailPoints(failPoints(order.points));
const data = await createDatasetParts({
  client: createClient({ baseUrl: order.plane }),
  storage: createStorage({ root: order.root, maxStorage: order.maxStorage, inherit, log }),
  listRuns: async () => [],
  listContainers: async () => [],
  log,
  root: order.root,
  share: order.share,
  agent: 'agent-1',
  keepReleases: () => 1,
  keepVersions: 3,
  copiesAtOnce: 2,
  watermarks: { high: 0.9, low: 0.8 },
  onChange: () => undefined,
  rsync: { inherit, stallMs: 20_000, timeoutMs: 60_000, bandwidth: undefined },
});
await data.removeLeftovers(signal);
const context = {
  attempt: 1,
  signal,
  log: () => undefined,
  logStep: () => undefined,
  progress: () => undefined,
  learned: () => undefined,
  room: () => null,
  note: () => undefined,
  secrets: [],
  secretsDigest: null,
};
const { datasets } = await data.prepare.mounts(order.task, order.task.deployment_id ?? '', context);
process.stdout.write(JSON.stringify(datasets));
await data.stop();
