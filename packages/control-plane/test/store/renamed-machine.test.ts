/**
 * A machine returns under another name: its old node never reports again, and its new one has its
 * containers (domain/nodes/renamed-machine.ts).
 */
import { LABELS } from '@berth/wire/vocabulary';
import { expect, test } from 'vitest';
import type { NodeRecord, ProjectRecord } from '../../src/domain/platform/records.ts';
import type { AllStores } from '../../src/store/open.ts';
import { codeOf, commit, deploymentIn, NOW, open, projectIn, taskOf, tasksIn } from './fixtures.ts';

const OFFLINE = 120_001;
type Listed = { id: string; node: string; project: string; deployment?: string };

async function report(
  stores: AllStores,
  hostname: string,
  at: number,
  listed: Listed[],
  boot_id = hostname,
): Promise<NodeRecord> {
  const containers = listed.map(({ id, node, project, deployment }) => ({
    id,
    name: id,
    labels: {
      [LABELS.node]: node,
      [LABELS.project]: project,
      ...(deployment === undefined ? {} : { [LABELS.deployment]: deployment }),
    },
    host_port: 1,
    state: 'running',
  }));
  const body = {
    hostname,
    boot_id,
    role: 'deploy' as const,
    host_ip: '10.0.0.1',
    max_storage: 1,
    agent_version: '1',
    containers,
  };
  return (await stores.nodes.register(body, at)).node;
}

/**
 * The old node `a` has container `c1` of a project; a claimed task of that project was lost there.
 */
async function given(): Promise<{
  stores: AllStores;
  shop: ProjectRecord;
  a: NodeRecord;
  c1: Listed;
}> {
  const stores = await open();
  const shop = await projectIn(stores);
  const { id: node } = await report(stores, 'a', NOW, []);
  await deploymentIn(stores, shop, 'd1');
  await tasksIn(stores, shop, taskOf(shop, 't1', node, { kind: 'deploy', deployment_id: 'd1' }));
  await stores.tasks.claim('t1', { token: 'l', expires_at: NOW + 10 }, NOW, 5);
  const c1 = { id: 'c1', node, project: shop.id };
  const a = await report(stores, 'a', NOW + 1, [c1]);
  await commit(stores, shop.id, {
    now: NOW + 20,
    changeTasks: [{ id: 't1', attempt: 1, end: 'lost' }],
  });
  return { stores, shop, a, c1 };
}
const LATER = NOW + OFFLINE + 20;

test('a node remembers which node its machine was, also after the shared container is gone', async () => {
  const { stores, a, c1 } = await given();
  const earlier = [{ id: a.id, boot_id: 'a', container: 'c1' }];
  await report(stores, 'b', NOW + 10, []);
  expect(await report(stores, 'b', NOW + 30, [c1])).toMatchObject({ earlier_nodes: earlier });
  expect(await report(stores, 'b', NOW + 40, [])).toMatchObject({ earlier_nodes: earlier });
  expect((await stores.nodes.all()).find((n) => n.hostname === 'b')).toMatchObject({
    earlier_nodes: earlier,
  });
});

test('a machine that got another hostname twice was both nodes, although the label names only the first one', async () => {
  const { stores, shop, a, c1 } = await given();
  const container = { ...c1, deployment: 'd1' };
  const b = await report(stores, 'b', NOW + 30, [container]);
  await commit(stores, shop.id, {
    now: NOW + 31,
    changeDeployments: [{ id: 'd1', from: 'pending', set: { node_id: b.id } }],
  });
  const c = await report(stores, 'c', NOW + 40, [container]);
  expect(c.earlier_nodes.map(({ id }) => id).toSorted()).toEqual([a.id, b.id].toSorted());
});

test('a label alone does not prove which machine it is: the old node must have listed that container', async () => {
  const { stores, c1 } = await given();
  expect(await report(stores, 'b', NOW + 30, [{ ...c1, id: 'c2' }])).toMatchObject({
    earlier_nodes: [],
  });
});

test('another machine that got the old name stays another machine', async () => {
  const { stores, a, c1 } = await given();
  await report(stores, 'a', NOW + 30, [], 'second machine');
  expect(await report(stores, 'b', NOW + 40, [c1])).toMatchObject({ earlier_nodes: [] });
  expect((await stores.nodes.get(a.id)).boot_id).toBe('second machine');
});

test('a deleted project is removed when the new node reports that nothing of it is left', async () => {
  const { stores, shop, c1 } = await given();
  await stores.projects.markDeleting(shop.id, NOW + 25);
  await report(stores, 'b', NOW + 30, [c1]);
  await report(stores, 'b', LATER - 1000, []);
  expect(await stores.projects.removeIfGone(shop.id)).toBe(false);
  await report(stores, 'b', LATER, [c1]);
  expect(await stores.projects.removeIfGone(shop.id)).toBe(false);
  await report(stores, 'b', LATER + 1, []);
  expect(await stores.projects.removeIfGone(shop.id)).toBe(true);
});

test('the old node can be deleted without force', async () => {
  const { stores, a, c1 } = await given();
  await stores.nodes.markDeleting(a.id, NOW + 25);
  await report(stores, 'b', NOW + 30, [c1]);
  expect(await stores.nodes.removeIfGone(a.id, false)).toBe(false);
  await report(stores, 'b', LATER, [c1, c1]);
  expect(await stores.nodes.removeIfGone(a.id, false)).toBe(true);
});

test('the volumes of the machine belong to its new node, once the old one is silent', async () => {
  const { stores, shop, a, c1 } = await given();
  const copy = {
    id: 'v1',
    project_id: shop.id,
    project: 'shop',
    state: 'current' as const,
    names: ['data'],
    bytes: null,
    sizes: {},
  };
  const at = { seen: null, source: null, digest: null, created_at: NOW, changed_at: NOW };
  await commit(stores, shop.id, { volumes: [{ ...copy, ...at, node_id: a.id, hostname: 'a' }] });
  const listed = [
    { copy: 'v1', project_id: shop.id, in_place: true, folders: [{ name: 'data', bytes: 1 }] },
  ];
  const b = await report(stores, 'b', NOW + 30, [c1]);
  await stores.volumes.report(b, listed, NOW + 30);
  // Its old node may be another machine, which is only late.
  expect(await stores.volumes.onNode(b.id)).toEqual([]);
  await report(stores, 'b', LATER, [c1]);
  await stores.nodes.flush();
  await stores.volumes.report(b, listed, LATER);
  expect(await stores.volumes.onNode(b.id)).toMatchObject([
    { id: 'v1', state: 'current', hostname: 'b' },
  ]);
  await stores.nodes.markDeleting(a.id, LATER);
  expect(await stores.nodes.removeIfGone(a.id, false)).toBe(true);
});

test('another node that reports a copy of volumes without its containers does not get it', async () => {
  const { stores, shop, a } = await given();
  const copy = {
    id: 'v1',
    project_id: shop.id,
    project: 'shop',
    state: 'current' as const,
    names: ['data'],
    bytes: null,
    sizes: {},
  };
  const at = { seen: null, source: null, digest: null, created_at: NOW, changed_at: NOW };
  await commit(stores, shop.id, { volumes: [{ ...copy, ...at, node_id: a.id, hostname: 'a' }] });
  const clone = await report(stores, 'clone', LATER, []);
  await stores.volumes.report(
    clone,
    [{ copy: 'v1', project_id: shop.id, in_place: true, folders: [] }],
    LATER,
  );
  expect(await stores.volumes.onNode(a.id)).toMatchObject([{ id: 'v1' }]);
});

test('retention forgets the old node, and a silent node whose agent never claimed its task', async () => {
  const { stores, shop, a, c1 } = await given();
  const never = await report(stores, 'never', NOW, []);
  const lost = await report(stores, 'lost', NOW, []);
  await tasksIn(
    stores,
    shop,
    taskOf(shop, 't2', never.id, { kind: 'deploy', deployment_id: 'd1' }),
  );
  await tasksIn(stores, shop, taskOf(shop, 't3', lost.id, { kind: 'deploy', deployment_id: 'd1' }));
  await stores.tasks.claim('t3', { token: 'l', expires_at: NOW + 10 }, NOW, 5);
  await commit(stores, shop.id, {
    now: NOW + 20,
    changeTasks: [
      { id: 't2', attempt: 0, end: 'lost' },
      { id: 't3', attempt: 1, end: 'lost' },
    ],
  });
  await report(stores, 'b', NOW + 30, [c1]);
  await report(stores, 'b', LATER, [c1, c1]);
  const keep = { deployments: 10, ms: 10_000, logBytes: 1e6 };
  for await (const _step of await stores.retention.begin(keep, () => LATER));
  expect([await codeOf(stores.nodes.get(a.id)), await codeOf(stores.nodes.get(never.id))]).toEqual([
    'not_found',
    'not_found',
  ]);
  expect((await stores.nodes.all()).map((n) => n.hostname)).toEqual(['b', 'lost']);
});
