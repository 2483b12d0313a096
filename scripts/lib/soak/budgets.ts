/** Budgets of npm run soak: the disk of its node, the registry and the database. */
import { readdir, readFile, stat } from 'node:fs/promises';
import { DatabaseSync } from 'node:sqlite';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { waitFor } from '@berth/testbed/wait';
import { mb, printLine, violated } from './report.ts';
import { KEEP_LOG_BYTES, LATE, nodeBudget, type Soak } from './world.ts';

const UNITS: Readonly<Record<string, number>> = { '': 1, K: 1e3, M: 1e6, G: 1e9, T: 1e12 };
/** Parses a size as docker prints it, e.g. `1.234GB`, in bytes; 0 for any other text. */
function bytesOf(text: string): number {
  const [, digits = '0', unit = ''] = /^([\d.]+)([kKMGT]?)B$/.exec(text.trim()) ?? [];
  return Math.round(Number(digits) * (UNITS[unit.toUpperCase()] ?? 0));
}

/**
 * Measures the images of the node until it is stopped, and compares the most with MAX_STORAGE.
 * Layers that images share count once.
 */
export function watchDisk({ node, size, baseBytes, world }: Soak): { stop(): Promise<void> } {
  const ending = new AbortController();
  let [now, most] = [0, 0];
  const watching = (async () => {
    while (!ending.signal.aborted) {
      const df = ['system', 'df', '--format', '{{.Type}} {{.Size}}'];
      const { stdout } = await node.docker(df, { mayFail: true, deadlineMs: 120_000 });
      now = bytesOf(/^Images (.*)$/m.exec(stdout)?.[1] ?? '');
      most = Math.max(most, now);
      await sleep(2_000, undefined, { signal: ending.signal }).catch(() => undefined);
    }
  })();
  return {
    async stop() {
      ending.abort();
      await watching;
      const budget = nodeBudget(size, baseBytes);
      const log = await readFile(world.berth.agents['node-1']?.logFile ?? '', 'utf8');
      printLine(
        `images of node-1: at most ${mb(most)}, at the end ${mb(now)}, of ${mb(budget)}; ` +
          `${log.split('image evicted to make room').length - 1} evicted to make room`,
      );
      if (most === 0) violated('the disk of node-1 was never measured');
      if (most > budget) violated(`node-1 had ${mb(most)}, its budget is ${mb(budget)}`);
    },
  };
}

/**
 * Cleans the registry and compares what is left with its budget. With `mayFail`, a kill may end the
 * clean-up.
 */
export async function cleanUp(soak: Soak, { mayFail }: { mayFail: boolean }): Promise<void> {
  const { size, world, baseBytes } = soak;
  const { api } = world.berth;
  const before = await sizeOf(world.registry.data);
  let last: string | undefined;
  const done = await waitFor(
    'the clean-up ends',
    async () => {
      const { items, current } = await api.call('cleanUps', {});
      const newest = items[0]?.id ?? 'none';
      last ??= newest;
      if (newest !== last) return items[0];
      if (current === null) await api.call('startCleanUp', {});
      return undefined;
    },
    LATE,
  );
  const after = await sizeOf(world.registry.data);
  // The kept images and the running one, and what was built meanwhile.
  const budget = (baseBytes + (size.projects * (size.keep + 1) + 6) * size.imageBytes) * 1.1;
  printLine(
    `clean-up ${done.state}: registry ${mb(before)} -> ${mb(after)} of ${mb(budget)}, ` +
      `${done.removed} images removed`,
  );
  if (done.state !== 'done')
    (mayFail ? printLine : violated)(`clean-up: ${done.error?.code} ${done.error?.message}`);
  else if (after > budget) violated(`the registry has more than its budget after a clean-up`);
}

const sizeOf = async (folder: string): Promise<number> => {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const sizes = entries
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => stat(join(parentPath, name)).catch(() => ({ size: 0 })));
  return (await Promise.all(sizes)).reduce((sum, { size }) => sum + size, 0);
};

/**
 * Two days pass while the control plane is stopped. Then its retention must leave KEEP_DEPLOYMENTS
 * and KEEP_LOG_BYTES, and the database its budget.
 */
export async function checkRetention({ size, world, query }: Soak): Promise<void> {
  const numberOf = (sql: string): number => Number(Object.values(query(sql)[0] ?? {})[0]);
  const counts = () => ({
    deployments: numberOf('select count(*) from deployments'),
    whole: numberOf('select count(*) from deployments where thinned_at is null'),
    logs: numberOf('select coalesce(sum(bytes), 0) from log_heads'),
  });
  const over = `select count(*) from deployments d where thinned_at is null
    and status in ('retired', 'failed', 'cancelled', 'superseded')
    and ${size.keep} <= (select count(*) from deployments n
      where n.project_id = d.project_id and n.generation > d.generation)`;
  const before = counts();
  const { controlPlane } = world.berth;
  await controlPlane.stop();
  const database = new DatabaseSync(join(world.dir, 'berth.db'));
  const days = 2 * 86_400_000;
  database.exec(
    `update deployments set state_since = state_since - ${days}, finished_at = finished_at - ${days}`,
  );
  database.close();
  await controlPlane.start({ KEEP_DEPLOYMENT_DAYS: '1' });
  await waitFor(
    'retention has worked',
    () => numberOf(over) === 0 && counts().logs <= KEEP_LOG_BYTES,
    LATE,
  ).catch((error: unknown) => violated(String(error)));
  const { deployments, whole, logs } = counts();
  const used =
    numberOf('pragma page_size') *
    (numberOf('pragma page_count') - numberOf('pragma freelist_count'));
  // A deployment takes about 110 KB with its log and its tasks, a record alone 2 KB
  // (docs/operating.md), and 20 MB are for the rest. The file itself gives space back in small
  // steps, so it is larger for a while.
  const budget = 20e6 + whole * 110_000 + (deployments - whole) * 2_000;
  printLine(
    `retention: of ${deployments} deployments, ${before.whole} -> ${whole} have their history; ` +
      `logs ${mb(before.logs)} -> ${mb(logs)} of ${mb(KEEP_LOG_BYTES)}; database ${mb(used)} of ` +
      mb(budget),
  );
  if (used > budget) violated(`the database uses ${mb(used)}, its budget is ${mb(budget)}`);
}
