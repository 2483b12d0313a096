/**
 * The feed of events is in order, bounded and written with the change. On PostgreSQL no reader ever
 * skips an event.
 */
import { expect, onTestFinished, test } from 'vitest';
import { openDatabase } from '../../src/store/engine/database.ts';
import { writeEvents } from '../../src/store/events.ts';
import { storesOn } from '../../src/store/open.ts';
import {
  codeOf,
  commit,
  deploymentIn,
  nodeIn,
  NOW,
  open,
  projectIn,
  quiet,
  urlOf,
} from './fixtures.ts';

const kinds = async (stores: Awaited<ReturnType<typeof open>>, after = 0): Promise<string[]> =>
  (await stores.events.read(after, 1_000)).items.map((event) => event.kind);

test('a change and its event are written together or not at all', async () => {
  const stores = await open();
  const project = await projectIn(stores);
  expect(await kinds(stores)).toEqual(['project.created']);
  const refusal = stores.projects.patch(
    project.id,
    { domain_prefix: 'shop', replace: 'rolling' },
    NOW,
  );
  await refusal;
  expect(await codeOf(projectIn(stores, 'shop'))).toBe('name_taken');
  expect(await kinds(stores)).toEqual(['project.created', 'project.changed']);
});

test('each line of a deployment’s story is an event', async () => {
  const stores = await open();
  const project = await projectIn(stores);
  const { id } = await deploymentIn(stores, project, 'd1');
  const event = { deployment_id: id, kind: 'build_started', message: 'b1 builds' };
  expect(await commit(stores, project.id, { storyLines: [event] })).toBe('committed');
  const { items } = await stores.events.read(0, 10);
  expect(items.at(-1)).toMatchObject({
    kind: 'deployment.build_started',
    project_id: project.id,
    deployment_id: id,
    message: 'b1 builds',
    at: NOW,
  });
});

test('a node has events for registration, a new address, cordoning, and each change of its state once', async () => {
  const stores = await open();
  const node = await nodeIn(stores);
  await nodeIn(stores);
  await nodeIn(stores, 'b1', { host_ip: '10.0.0.2' });
  await stores.nodes.setSchedulable(node.id, false);
  await stores.nodes.setSchedulable(node.id, false);
  for (const state of ['online', 'online', 'offline', 'online'] as const)
    await stores.nodes.announce(new Map([[node.id, state]]));
  expect(await kinds(stores)).toEqual([
    'node.registered',
    'node.host_ip',
    'node.cordoned',
    'node.online',
    'node.offline',
    'node.online',
  ]);
});

test('the last 10,000 events are kept, and a reader behind them learns of the gap', {
  timeout: 60_000,
}, async () => {
  const db = await openDatabase(await urlOf(':memory:'), quiet, () => NOW);
  onTestFinished(() => db.close());
  const stores = storesOn(db, () => NOW);
  const event = { at: NOW, kind: 'deployment.line', message: '' };
  for (let i = 0; i < 25; i++)
    await db.write((tx) =>
      writeEvents(
        db,
        tx,
        Array.from({ length: 450 }, () => event),
      ),
    );
  const { items, oldest, newest, gap } = await stores.events.read(0, 10);
  expect(gap).toBe(true);
  expect(items[0]?.seq).toBe(oldest);
  expect(newest - (oldest ?? 0) + 1).toBeGreaterThanOrEqual(10_000);
  expect(newest - (oldest ?? 0) + 1).toBeLessThan(10_500);
  expect((await stores.events.read(oldest ?? 0, 10)).gap).toBe(false);
  expect(await stores.events.read(newest, 10)).toMatchObject({ items: [], gap: false });
  // After a restore from a backup a reader is ahead.
  expect((await stores.events.read(newest + 1, 10)).gap).toBe(true);
  expect((await stores.events.read(null, 3)).items.map((event) => event.seq)).toEqual([
    newest - 2,
    newest - 1,
    newest,
  ]);
});

test('a reader concurrent with many writers sees every event once, in order', {
  timeout: 60_000,
}, async () => {
  const stores = await open();
  const projects = await Promise.all(
    Array.from({ length: 8 }, (_, i) => projectIn(stores, `p${i}`)),
  );
  let writing = true;
  const seen: number[] = [];
  const reader = (async () => {
    for (let after = 0; ; ) {
      const done = !writing;
      const { items } = await stores.events.read(after, 1_000);
      seen.push(...items.map((event) => event.seq));
      after = items.at(-1)?.seq ?? after;
      if (done && items.length === 0) return;
    }
  })();
  const rounds = 25;
  await Promise.all(
    projects.map(async ({ id }) => {
      for (let i = 0; i < rounds; i++) await stores.projects.patch(id, { branch: `b${i}` }, NOW);
    }),
  );
  writing = false;
  await reader;
  const all = (await stores.events.read(0, 1_000)).items.map((event) => event.seq);
  expect(all).toHaveLength(8 + 8 * rounds);
  expect(seen).toEqual(all);
});
