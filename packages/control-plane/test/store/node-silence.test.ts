/**
 * Two machines with one name: silence is measured by the uptime clock, whatever the machine's clock
 * does. The first machine keeps its node in any case: it may only be cut off, and its containers
 * may still run.
 */
import { expect, test } from 'vitest';
import { NOW, open } from './fixtures.ts';

const SECOND = 1_000;
const HOUR = 3_600_000;
const OFFLINE = 120_000;

type Row = { jump: number; servedMs: number; sinceMs?: number; first: 'alive' | 'silent' };
test.each<[string, Row]>([
  ['no jump, first machine seen 10 s ago', { jump: 0, servedMs: 10 * SECOND, first: 'alive' }],
  ['no jump, first machine silent', { jump: 0, servedMs: OFFLINE, first: 'silent' }],
  [
    'forward 1 h, first machine seen 10 s ago',
    { jump: HOUR, servedMs: 10 * SECOND, first: 'alive' },
  ],
  ['back 1 h, first machine seen 10 s ago', { jump: -HOUR, servedMs: 10 * SECOND, first: 'alive' }],
  ['forward 1 h, first machine silent', { jump: HOUR, servedMs: OFFLINE, first: 'silent' }],
  ['back 1 h, first machine silent', { jump: -HOUR, servedMs: OFFLINE, first: 'silent' }],
  ['back 1 day, first machine silent', { jump: -24 * HOUR, servedMs: OFFLINE, first: 'silent' }],
  // A jump of the machine's clock, which runs on while no control plane serves.
  [
    'the control plane was stopped for 1 h',
    { jump: HOUR, servedMs: 10 * SECOND, sinceMs: 5 * SECOND, first: 'alive' },
  ],
  [
    'the control plane was stopped for 1 h, and serves again for the offline time',
    { jump: HOUR, servedMs: 2 * OFFLINE, sinceMs: OFFLINE, first: 'silent' },
  ],
])(
  'the holder of a name after a second machine registers: %s',
  async (_, { jump, servedMs, sinceMs = 0, first }) => {
    const stores = await open();
    const register = (host_ip: string, boot_id: string, after: number, jumped: number) =>
      stores.nodes.register(
        {
          hostname: 'h',
          role: 'deploy',
          host_ip,
          boot_id,
          max_storage: 1,
          agent_version: '1',
          containers: [],
        },
        NOW + after + jumped,
        undefined,
        { at: NOW + after, since: NOW + sinceMs },
      );
    await register('10.0.0.1', 'a', 0, 0);
    const other = register('10.0.0.2', 'b', servedMs, jump);
    if (first === 'alive') {
      await expect(other).rejects.toMatchObject({ code: 'node_doubled' });
      await register('10.0.0.1', 'a', servedMs + SECOND, jump);
      await expect(register('10.0.0.2', 'b', servedMs + 2 * SECOND, jump)).rejects.toMatchObject({
        code: 'node_doubled',
      });
      expect(await stores.nodes.all()).toMatchObject([
        { hostname: 'h', host_ip: '10.0.0.1', doubled: { host_ip: '10.0.0.2' } },
      ]);
      return;
    }
    const second = (await other).node;
    // Whichever comes next, each machine has a node of its own.
    const again = await register('10.0.0.1', 'a', servedMs + SECOND, jump);
    expect((await register('10.0.0.2', 'b', servedMs + 2 * SECOND, jump)).node.id).toBe(second.id);
    expect(await stores.nodes.all()).toMatchObject([
      { id: second.id, hostname: 'h', host_ip: '10.0.0.2', doubled: null },
      { id: again.node.id, hostname: 'h~10.0.0.1', host_ip: '10.0.0.1', doubled: null },
    ]);
  },
);

const berth = { agent_version: '1', containers: [] };
const later = NOW + OFFLINE;
type Comes = { first: object; second: object; reset?: true; is: 'the node' | 'another' };
/** The second register comes after the offline time. */
test.each<[string, Comes]>([
  [
    'another process at the same address: a restart, or a reinstall',
    { first: { ...berth, boot_id: 'a' }, second: { ...berth, boot_id: 'b' }, is: 'the node' },
  ],
  ['a contract-only agent at the same address', { first: {}, second: {}, is: 'the node' }],
  [
    'an agent that was upgraded from a contract-only one',
    { first: {}, second: { ...berth, boot_id: 'b' }, is: 'the node' },
  ],
  [
    'the same process at another address',
    {
      first: { ...berth, boot_id: 'a' },
      second: { ...berth, boot_id: 'a', host_ip: '10.0.0.2' },
      is: 'the node',
    },
  ],
  [
    'another process at another address',
    {
      first: { ...berth, boot_id: 'a' },
      second: { ...berth, boot_id: 'b', host_ip: '10.0.0.2' },
      is: 'another',
    },
  ],
  [
    'a contract-only agent at another address',
    { first: {}, second: { host_ip: '10.0.0.2' }, is: 'another' },
  ],
  [
    'a contract-only agent at another address than a Berth agent',
    { first: { ...berth, boot_id: 'a' }, second: { host_ip: '10.0.0.2' }, is: 'another' },
  ],
  [
    'another address, and an admin has reset the secret',
    {
      first: { ...berth, boot_id: 'a' },
      second: { ...berth, boot_id: 'b', host_ip: '10.0.0.2' },
      reset: true,
      is: 'the node',
    },
  ],
])('after the offline time: %s', async (_, { first, second, reset, is }) => {
  const stores = await open();
  const machine = { hostname: 'h', role: 'deploy', host_ip: '10.0.0.1', max_storage: 1 } as const;
  const seen = { name: 'svc-p', labels: { 'berth.project': 'p' }, host_port: 1, state: 'running' };
  const { id } = (await stores.nodes.register({ ...machine, ...first }, NOW)).node;
  if ('containers' in first)
    await stores.nodes.register({ ...machine, ...first, containers: [seen] }, NOW);
  if (reset === true) await stores.nodes.resetSecret(id, NOW + SECOND);
  const entered = await stores.nodes.register({ ...machine, ...second }, later);
  expect(entered.node.id === id).toBe(is === 'the node');
  if (is === 'the node')
    return expect((await stores.nodes.all()).map((n) => n.hostname)).toEqual(['h']);
  expect(entered).toMatchObject({ before: null, displaced: { id, hostname: 'h~10.0.0.1' } });
  // The containers of the first stay known, and it keeps its node when it returns, also after a
  // restart.
  const kept = await stores.nodes.get(id);
  expect(kept).toMatchObject({
    host_ip: '10.0.0.1',
    containers: 'containers' in first ? [seen] : [],
  });
  const back = { ...machine, ...first, ...('boot_id' in first ? { boot_id: 'a2' } : {}) };
  expect((await stores.nodes.register(back, later + SECOND)).node).toMatchObject({
    id,
    hostname: 'h~10.0.0.1',
  });
  const says = (await stores.events.read(0, 100)).items.map((e) => e.message);
  expect(says).toContain(
    'deploy h~10.0.0.1 was renamed from h: it was silent, and another machine, at 10.0.0.2, ' +
      'has that name now',
  );
});

test('the first machine has its name again when the second one’s node is deleted', async () => {
  const stores = await open();
  const register = async (host_ip: string, boot_id: string, at: number) =>
    (
      await stores.nodes.register(
        {
          hostname: 'h',
          role: 'deploy',
          host_ip,
          boot_id,
          max_storage: 1,
          agent_version: '1',
          containers: [],
        },
        at,
      )
    ).node;
  const first = await register('10.0.0.1', 'a', NOW);
  const second = await register('10.0.0.2', 'b', later);
  await stores.nodes.markDeleting(second.id, later);
  await stores.nodes.removeIfGone(second.id, true);
  expect(await register('10.0.0.1', 'a', later + SECOND)).toMatchObject({
    id: first.id,
    hostname: 'h',
  });
  // The reverse: a node that is deleted by force is gone, also when another machine waits for its
  // name.
  const third = await register('10.0.0.2', 'b', later + SECOND + OFFLINE);
  expect(third.id).not.toBe(first.id);
  await stores.nodes.markDeleting(first.id, later);
  await stores.nodes.removeIfGone(first.id, true);
  expect((await stores.nodes.all()).map((n) => [n.id, n.hostname])).toEqual([[third.id, 'h']]);
});

test('a third machine, and one that comes to an address that had the name before', async () => {
  const stores = await open();
  const register = async (host_ip: string, boot_id: string, times: number) =>
    (
      await stores.nodes.register(
        {
          hostname: 'h',
          role: 'deploy',
          host_ip,
          boot_id,
          max_storage: 1,
          agent_version: '1',
          containers: [],
        },
        NOW + times * OFFLINE,
      )
    ).node;
  const ids = [
    await register('10.0.0.1', 'a', 0),
    await register('10.0.0.2', 'b', 1),
    await register('10.0.0.3', 'c', 2),
  ].map((n) => n.id);
  expect(new Set(ids).size).toBe(3);
  // The same process; its address had the name before.
  expect((await register('10.0.0.1', 'c', 3)).id).toBe(ids[2]);
  const fourth = await register('10.0.0.4', 'd', 4);
  expect((await stores.nodes.all()).map((n) => n.hostname).sort()).toEqual(
    ['h', 'h~10.0.0.1', 'h~10.0.0.2', `h~10.0.0.1~${ids[2] ?? ''}`].sort(),
  );
  expect(fourth).toMatchObject({ hostname: 'h' });
});

test('the time at which a node got its address stays until the address changes', async () => {
  const stores = await open();
  const register = (hostname: string, host_ip: string, at: number) =>
    stores.nodes.register(
      { hostname, role: 'deploy', host_ip, boot_id: hostname, max_storage: at, ...berth },
      NOW + at,
      undefined,
      { at, since: 0 },
    );
  const addressed = async () =>
    (await stores.nodes.heardNodes()).map((node) => [
      node.hostname,
      node.host_ip,
      node.addressed_at,
    ]);
  await register('a', '10.0.0.1', 100);
  await register('b', '10.0.0.2', 200);
  await register('a', '10.0.0.1', 300);
  expect(await addressed()).toEqual([
    ['a', '10.0.0.1', 100],
    ['b', '10.0.0.2', 200],
  ]);
  await register('b', '10.0.0.1', 400);
  await register('b', '10.0.0.1', 500);
  expect(await addressed()).toEqual([
    ['a', '10.0.0.1', 100],
    ['b', '10.0.0.1', 400],
  ]);
});
