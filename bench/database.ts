/**
 * Durable commits per second: plans that each raise the version of a project, on SQLite and on a
 * PostgreSQL with fsync, in turns in one run. Then by two control planes on one PostgreSQL: on
 * separate projects, and all on one project (compare-and-set).
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { emptyPlan } from '@berth/control-plane/domain/deployments/plan';
import { openStores } from '@berth/control-plane/store/open';
import { startPostgres, whyNoPostgres } from '@berth/testbed/postgres';
import { summary } from './stats.ts';

type Stores = Awaited<ReturnType<typeof openStores>>;
const ROUND_MS = 2_000;
const ROUNDS = 3;
const WRITERS = 8;

const quiet = { info: () => undefined, warn: () => undefined };

async function projectsIn(stores: Stores, prefix: string, count: number): Promise<string[]> {
  const names = Array.from({ length: count }, (_, i) => `${prefix}${i}`);
  const made = await Promise.all(
    names.map((name) =>
      stores.projects.create(
        { name, domain_prefix: name, git_url: 'https://git.example/x.git' },
        Date.now(),
      ),
    ),
  );
  return made.map((project) => project.id);
}

/**
 * One writer: reads the facts and commits a plan that raises the version; starts again when the
 * plan was stale.
 */
async function write(
  stores: Stores,
  projectId: string,
  until: number,
): Promise<{ committed: number; stale: number }> {
  const done = { committed: 0, stale: 0 };
  while (performance.now() < until) {
    const { project } = await stores.flow.facts(projectId);
    done[await stores.flow.commit(emptyPlan(project, Date.now(), Date.now()))]++;
  }
  return done;
}

async function rate(
  writers: readonly { stores: Stores; projectId: string }[],
): Promise<{ perSecond: number; stale: number }> {
  const from = performance.now();
  const all = await Promise.all(
    writers.map(({ stores, projectId }) => write(stores, projectId, from + ROUND_MS)),
  );
  const seconds = (performance.now() - from) / 1000;
  const committed = all.reduce((sum, one) => sum + one.committed, 0);
  const stale = all.reduce((sum, one) => sum + one.stale, 0);
  return { perSecond: committed / seconds, stale: stale / (committed + stale) };
}

export async function benchDatabase(): Promise<string[]> {
  const reason = whyNoPostgres();
  if (reason !== undefined) return [`database: skipped: ${reason}`];
  const dir = await mkdtemp(join(tmpdir(), 'berth-bench-'));
  const pg = await startPostgres({ durable: true });
  const open: Stores[] = [];
  const stores = async (databaseUrl: string): Promise<Stores> => {
    const opened = await openStores({ databaseUrl, log: quiet });
    open.push(opened);
    return opened;
  };
  try {
    const file = await stores(`sqlite:${join(dir, 'berth.db')}`);
    const url = await pg.createDatabase('bench');
    const [one, two] = [await stores(url), await stores(url)];
    const [inFile, inServer] = [
      await projectsIn(file, 'p', WRITERS),
      await projectsIn(one, 'p', WRITERS),
    ];
    const [hot = ''] = inServer;
    const rows: Record<string, { stores: Stores; projectId: string }[]> = {
      'SQLite, 8 writers': inFile.map((projectId) => ({ stores: file, projectId })),
      'PostgreSQL, 1 writer': [{ stores: one, projectId: hot }],
      'PostgreSQL, 8 writers': inServer.map((projectId) => ({ stores: one, projectId })),
      'two control planes, 4 + 4 writers': inServer.map((projectId, i) => ({
        stores: i % 2 === 0 ? one : two,
        projectId,
      })),
      'two control planes, 4 + 4 on one project': inServer.map((_, i) => ({
        stores: i % 2 === 0 ? one : two,
        projectId: hot,
      })),
    };
    const figures = new Map<string, { perSecond: number; stale: number }[]>(
      Object.keys(rows).map((name) => [name, []]),
    );
    for (let round = 0; round < ROUNDS; round++)
      for (const [name, writers] of Object.entries(rows))
        figures.get(name)?.push(await rate(writers));
    const base = summary(figures.get('SQLite, 8 writers')?.map((f) => f.perSecond) ?? []).p50;
    return [...figures].map(([name, all]) => {
      const { p50 } = summary(all.map((f) => f.perSecond));
      const stale = summary(all.map((f) => f.stale)).p50;
      return (
        `database: ${name}: ${p50.toFixed(0)} decisions/s (facts + durable commit), ` +
        `${(p50 / base).toFixed(2)} of SQLite, ${(stale * 100).toFixed(0)} % decided again`
      );
    });
  } finally {
    for (const one of open) await one.close();
    await pg.stop();
    await rm(dir, { recursive: true, force: true });
  }
}
