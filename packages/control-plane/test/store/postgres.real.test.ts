/** Rules of PostgreSQL only: concurrent writers, and a server that may disappear at any moment. */
import { startPostgres, whyNoPostgres } from '@berth/testbed/postgres';
import { waitFor } from '@berth/testbed/wait';
import { sql } from 'kysely';
import { afterAll, describe, expect, onTestFinished, test } from 'vitest';
import type { Topic } from '../../src/domain/platform/changes.ts';
import type { DomainError } from '../../src/domain/platform/errors.ts';
import { type Database, openDatabase } from '../../src/store/engine/database.ts';
import { StoreError } from '../../src/store/engine/errors.ts';
import { openStores } from '../../src/store/open.ts';
import { createNotifier } from '../../src/store/engine/postgres-notify.ts';
import { newTaskColumns } from '../../src/store/rows/task.ts';
import {
  commit,
  deploymentIn,
  deploymentOf,
  nodeIn,
  NOW,
  planFor,
  projectIn,
  quiet,
  routeOf,
  taskOf,
} from './fixtures.ts';

const reason = whyNoPostgres();
const server = reason === undefined ? await startPostgres() : undefined;
afterAll(() => server?.stop());

describe.skipIf(server === undefined)(
  `PostgreSQL${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    if (server === undefined) return;
    const pg = server;
    let made = 0;
    const database = (): Promise<string> => pg.createDatabase(`p${made++}`);
    const stores = async (databaseUrl: string) => {
      const opened = await openStores({ databaseUrl, log: quiet, now: () => NOW });
      onTestFinished(() => opened.close());
      return opened;
    };
    const raw = async (url: string): Promise<Database> => {
      const opened = await openDatabase(url, quiet, () => NOW);
      onTestFinished(() => opened.close());
      return opened;
    };
    const refusal = async (url: string): Promise<StoreError> => {
      const error: unknown = await openStores({ databaseUrl: url, log: quiet }).then(
        (opened) => opened.close(),
        (e: unknown) => e,
      );
      if (error instanceof StoreError) return error;
      throw error;
    };

    test('one of several control planes that start together on an empty database migrates it, and all serve', async () => {
      const url = await database();
      const applied: object[] = [];
      const log = { info: (fields: object) => applied.push(fields), warn: () => {} };
      const all = await Promise.all(
        Array.from({ length: 4 }, () => openStores({ databaseUrl: url, log })),
      );
      expect(applied).toHaveLength(1);
      await Promise.all(all.map((opened, i) => projectIn(opened, `p${i}`)));
      expect((await all[0]?.projects.list({ limit: 9, cursor: null }))?.items).toHaveLength(4);
      await Promise.all(all.map((opened) => opened.close()));
    });

    test('autovacuum of the tables that retention empties begins at 2 % dead rows', async () => {
      const { kysely } = await raw(await database());
      const { rows } = await sql<{ relname: string }>`
      select relname from pg_class where reloptions @> array['autovacuum_vacuum_scale_factor=0.02'] order by relname`.execute(
        kysely,
      );
      expect(rows.map(({ relname }) => relname)).toEqual([
        'audit_log',
        'deployment_events',
        'deployments',
        'log_lines',
        'tasks',
      ]);
    });

    test('the error for a database that cannot be opened contains no password', async () => {
      const secret = 'hunter2';
      const there = new URL(pg.url('nowhere'));
      there.password = secret;
      const absent = await refusal(there.toString());
      expect(absent.code).toBe('cannot_open');
      expect(absent.message).toMatch(/nowhere at 127\.0\.0\.1:\d+ .*does not exist/);
      expect(absent.message).not.toContain(secret);
      await pg.query(`create database latin template template0 encoding 'LATIN1' locale 'C'`);
      expect((await refusal(pg.url('latin'))).message).toContain('encoding UTF8');
    });

    test('a server that can lose commits is logged', async () => {
      const warned: object[] = [];
      const opened = await openStores({
        databaseUrl: await database(),
        log: { info: () => {}, warn: (fields) => warned.push(fields) },
      });
      await opened.close();
      expect(warned).toMatchObject([{ off: ['fsync'] }]);
    });

    test('reads and writes wait for a restarted server; nothing is done twice', async () => {
      const one = await stores(await database());
      const project = await projectIn(one);
      const restarted = pg.restart();
      try {
        await deploymentIn(one, project, 'd1');
      } finally {
        await restarted;
      }
      await deploymentIn(one, project, 'd2');
      expect((await one.flow.facts(project.id)).live.map((d) => d.generation)).toEqual([1, 2]);
    });

    test('a connection lost before the commit is retried; one lost during the commit is an error and never retried', async () => {
      const db = await raw(await database());
      let runs = 0;
      await db.write(async (tx) => {
        await tx
          .insertInto('meta')
          .values({ key: `k${runs}`, value: 'v' })
          .execute();
        if (runs++ === 0) await sql`select pg_terminate_backend(pg_backend_pid())`.execute(tx);
      });
      expect(await db.kysely.selectFrom('meta').select('key').execute()).toEqual([{ key: 'k1' }]);

      await sql`create function die() returns trigger language plpgsql as $$ begin perform pg_terminate_backend(pg_backend_pid()); return null; end $$`.execute(
        db.kysely,
      );
      await sql`create constraint trigger die after insert on meta deferrable initially deferred for each row execute function die()`.execute(
        db.kysely,
      );
      runs = 0;
      const lost = db.write(async (tx) => {
        runs++;
        await tx.insertInto('meta').values({ key: 'x', value: 'v' }).execute();
      });
      await expect(lost).rejects.toMatchObject({ code: 'unknown_outcome' });
      expect(runs).toBe(1);
    });

    test('one of two deadlocked transactions is retried, and both succeed', async () => {
      const db = await raw(await database());
      for (const key of ['a', 'b'])
        await db.kysely.insertInto('meta').values({ key, value: '' }).execute();
      let runs = 0;
      const locked = new Set<string>();
      const both = (first: string, second: string): Promise<void> =>
        db.write(async (tx) => {
          runs++;
          const add = (key: string) =>
            tx
              .updateTable('meta')
              .set((eb) => ({ value: eb(eb.ref('value'), '||', eb.val(first)) }))
              .where('key', '=', key)
              .execute();
          await add(first);
          locked.add(first);
          await waitFor('each transaction has locked its first row', () => locked.size === 2);
          await add(second);
        });
      await Promise.all([both('a', 'b'), both('b', 'a')]);
      expect(runs).toBeGreaterThan(2);
      const rows = await db.kysely.selectFrom('meta').selectAll().orderBy('key').execute();
      expect(rows.map((row) => row.value.split('').sort().join(''))).toEqual(['ab', 'ab']);
    });

    test('exactly one of two control planes’ plans from one state is written', async () => {
      const url = await database();
      const [one, two] = [await stores(url), await stores(url)];
      const { id } = await projectIn(one);
      for (let round = 1; round <= 12; round++) {
        const project = await one.projects.get(id);
        const plan = (i: number) =>
          planFor(project, { createDeployment: deploymentOf(project, `r${round}-${i}`) });
        const outcomes = await Promise.all(
          Array.from({ length: 8 }, (_, i) => (i % 2 === 0 ? one : two).flow.commit(plan(i))),
        );
        expect(outcomes.filter((o) => o === 'committed')).toHaveLength(1);
      }
      expect((await two.flow.facts(id)).live.map((d) => d.generation)).toEqual(
        Array.from({ length: 12 }, (_, i) => i + 1),
      );
    });

    test('one of two projects gets a prefix that one takes while a rollback of the other brings it back', async () => {
      const url = await database();
      const [one, two] = [await stores(url), await stores(url)];
      const ended = { won: 0, lost: 0 };
      for (let round = 0; round < 15; round++) {
        const a = await projectIn(one, `a${round}`);
        const b = await projectIn(one, `b${round}`);
        const settings = { ...deploymentOf(a, 'x').settings, domain_prefix: `shared${round}` };
        const outcomes = await Promise.allSettled([
          one.flow.commit(
            planFor(a, { createDeployment: deploymentOf(a, `d${round}`, { settings }) }),
          ),
          two.projects.patch(b.id, { domain_prefix: `shared${round}` }, NOW),
        ]);
        for (const { status } of outcomes) ended[status === 'fulfilled' ? 'won' : 'lost']++;
      }
      expect(ended).toEqual({ won: 15, lost: 15 });
    });

    test('one of two concurrent readwrite mounts of nested folders is refused across control planes', async () => {
      const url = await database();
      const [one, two] = [await stores(url), await stores(url)];
      for (let round = 0; round < 15; round++) {
        const outer = await one.datasets.create(
          { name: `outer${round}`, nfs_path: `r${round}` },
          NOW,
        );
        const inner = await one.datasets.create(
          { name: `inner${round}`, nfs_path: `r${round}/inner` },
          NOW,
        );
        const written = (id: string) => ({
          replace: 'recreate' as const,
          datasets: [{ dataset_id: id, mode: 'readwrite' as const }],
        });
        const outcomes = await Promise.allSettled([
          projectIn(one, `a${round}`, written(outer.id)),
          projectIn(two, `b${round}`, written(inner.id)),
        ]);
        expect(outcomes.filter((o) => o.status === 'fulfilled')).toHaveLength(1);
        expect(
          outcomes.flatMap((o) => (o.status === 'rejected' ? [o.reason as unknown] : [])),
        ).toMatchObject([{ code: 'validation', fields: [{ rule: 'nested_writer' }] }]);
      }
    });

    test('a route follows a node that moves while the route is being written', async () => {
      const url = await database();
      const [one, db] = [await stores(url), await raw(url)];
      const project = await projectIn(one);
      const node = await nodeIn(one, 'w', { role: 'deploy' });
      await deploymentIn(one, project, 'd1', { status: 'deploying', node_id: node.id });
      let moved: Promise<unknown> | undefined;
      await db.write(async (tx) => {
        await tx
          .updateTable('projects')
          .set((eb) => ({ flow_version: eb('flow_version', '+', 1) }))
          .execute();
        await tx
          .insertInto('routes')
          .values({
            ...routeOf(project, 'd1', node.id, { host_ip: node.host_ip }),
            servers: null,
            stopped: 0,
          })
          .execute();
        moved = nodeIn(one, 'w', { role: 'deploy', host_ip: '10.0.0.99' });
        // The registration waits for the lock of this transaction.
        await waitFor(
          'the registration waits for the lock',
          async () => (await pg.query(`select count(*) from pg_locks where not granted`)) !== '0',
        );
      });
      await moved;
      expect(await one.routes.all()).toMatchObject([{ host_ip: '10.0.0.99' }]);
    });

    test('a project that gets a task while its removal is checked stays', async () => {
      const url = await database();
      const [one, db] = [await stores(url), await raw(url)];
      const project = await projectIn(one);
      const node = await nodeIn(one);
      await one.projects.markDeleting(project.id, NOW);
      let gone: Promise<boolean> | undefined;
      await db.write(async (tx) => {
        await tx
          .updateTable('projects')
          .set((eb) => ({ flow_version: eb('flow_version', '+', 1) }))
          .execute();
        await tx
          .insertInto('tasks')
          .values(
            newTaskColumns(taskOf(project, 't1', node.id, { kind: 'retire' }), project.id, NOW),
          )
          .execute();
        gone = one.projects.removeIfGone(project.id);
        await waitFor(
          'the removal waits for the lock',
          async () => (await pg.query(`select count(*) from pg_locks where not granted`)) !== '0',
        );
      });
      expect(await gone).toBe(false);
      expect(await one.tasks.get('t1')).toMatchObject({ status: 'pending' });
    });

    test('a node that another control plane deletes while it is cordoned is not found', async () => {
      const url = await database();
      const [one, db] = [await stores(url), await raw(url)];
      const { id } = await nodeIn(one);
      let cordoned: Promise<unknown> | undefined;
      await db.write(async (tx) => {
        await tx.deleteFrom('nodes').where('id', '=', id).execute();
        cordoned = one.nodes.setSchedulable(id, false).catch((error: unknown) => error);
        await waitFor(
          'the cordon waits for the lock',
          async () => (await pg.query(`select count(*) from pg_locks where not granted`)) !== '0',
        );
      });
      expect(await cordoned).toMatchObject({ code: 'not_found' });
    });

    test('of two control planes that give one domain to two projects at the same moment, one is refused', async () => {
      const url = await database();
      const planes = [await stores(url), await stores(url)] as const;
      const projects = [
        await projectIn(planes[0], 'one'),
        await projectIn(planes[0], 'two'),
      ] as const;
      for (let round = 0; round < 25; round++) {
        const domains = [`d${round}.example`];
        const results = await Promise.all(
          planes.map((plane, i) =>
            plane.projects.patch(projects[i as 0 | 1].id, { domains }, NOW).then(
              () => 'done',
              (error: DomainError) => error.code,
            ),
          ),
        );
        expect(results.toSorted(), `round ${round}`).toEqual(['domain_taken', 'done']);
      }
    });

    test('a text with NUL is stored, not refused', async () => {
      const one = await stores(await database());
      const project = await projectIn(one);
      await deploymentIn(one, project, 'd1', { note: 'a\0b' });
      expect((await one.deployments.get('d1')).note).toBe('a\uFFFDb');
      await commit(one, project.id, {
        storyLines: [{ deployment_id: 'd1', kind: 'k', message: '\0' }],
      });
    });

    test('changes reach the other control plane, even after a restart of the server, and are not echoed', async () => {
      const url = await database();
      const [one, two] = [createNotifier(url, quiet), createNotifier(url, quiet)];
      onTestFinished(async () => void (await Promise.all([one.close(), two.close()])));
      const heard = { one: new Set<Topic>(), two: new Set<Topic>() };
      // Every new connection notifies 'routes' and 'work'.
      const up = (topics: readonly Topic[]): boolean => topics.includes('routes');
      let connected = 0;
      one.subscribe((topics) =>
        up(topics) ? connected++ : topics.forEach((t) => heard.one.add(t)),
      );
      two.subscribe((topics) =>
        up(topics) ? connected++ : topics.forEach((t) => heard.two.add(t)),
      );
      await waitFor('both listen', () => connected === 2);
      // More topics than one message can hold.
      const many = Array.from({ length: 2_000 }, (_, i): Topic => `logs:deployment-${i}`);
      one.send(many);
      await waitFor('all topics arrived', () => heard.two.size === many.length);
      await pg.restart();
      await waitFor('both listen again', () => connected >= 4);
      two.send(['node:n1']);
      await waitFor('the topic arrived', () => heard.one.has('node:n1'));
      expect([...heard.one]).toEqual(['node:n1']);
      expect(heard.two.has('node:n1')).toBe(false);
    });
  },
);
