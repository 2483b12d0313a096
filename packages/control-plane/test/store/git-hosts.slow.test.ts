/** The table of ssh host keys: the import after an upgrade, and its bounds. */
import { expect, test } from 'vitest';
import {
  BY_LOOK,
  type HostKey,
  hostName,
  type StoredKey,
  presented,
  trust,
} from '../../src/domain/git/git-hosts.ts';
import type { AllStores } from '../../src/store/open.ts';
import { codeOf, emptyUrlOf, freshPath, NOW, open } from './fixtures.ts';
import { migrateBefore, raw } from './raw.ts';

const FP = (text: string): string => `SHA256:${text.padEnd(43, 'x')}`;
const key = (host: string, text: string, key_type = 'ssh-ed25519') => ({
  host,
  fingerprint: FP(text),
  key_type,
});
const trustIn = (stores: AllStores, host: string, given: HostKey): Promise<StoredKey[]> =>
  stores.gitHosts.change(
    host,
    (stored) => ({ ...trust(host, stored, given, 'ada@example.com', NOW), event: null }),
    NOW,
  );
const showIn = (
  stores: AllStores,
  host: string,
  keys: HostKey[],
  at: number,
  by: typeof BY_LOOK | null = null,
): Promise<StoredKey[]> =>
  stores.gitHosts.change(
    host,
    (stored) => ({ ...presented(host, stored, keys, at, by), event: null }),
    at,
  );
const messages = async (stores: AllStores): Promise<string[]> =>
  (await stores.events.read(null, 50)).items.map((event) => event.message);

test('a builder from before the upgrade imports its host keys once, for hosts without a trusted key', async () => {
  const path = freshPath();
  await raw(await emptyUrlOf(path), async (db, capabilities) => {
    await migrateBefore('0017', db, capabilities);
    for (const [id, role] of [
      ['old-builder', 'builder'],
      ['deploy', 'deploy'],
    ] as const)
      await db
        .insertInto('nodes')
        .values({
          id,
          hostname: id,
          role,
          host_ip: '10.0.0.1',
          max_storage: 1,
          max_builds: 1,
          schedulable: 1,
          cached: '[]',
          containers: '[]',
          last_seen_at: NOW,
          created_at: NOW,
        })
        .execute();
  });
  const stores = await open(path);
  await trustIn(stores, 'trusted.example.org', key('', 'admin'));
  const keys = [
    key('git.example.org', 'a'),
    key('git.example.org', 'b', 'ssh-rsa'),
    key('[git.example.org]x', 'invalid'),
    key('github.com', 'false'),
    key('trusted.example.org', 'other'),
  ];
  expect(await stores.gitHosts.import('deploy', keys, NOW)).toBe(0);
  expect(await stores.gitHosts.import('nobody', keys, NOW)).toBe(0);
  expect(await stores.gitHosts.import('old-builder', keys, NOW)).toBe(1);
  expect(
    (await stores.gitHosts.of('git.example.org')).map((k) => [k.fingerprint, k.state]),
  ).toEqual([
    [FP('a'), 'builder'],
    [FP('b'), 'builder'],
  ]);
  expect(await stores.gitHosts.of('github.com')).toEqual([]);
  expect((await stores.gitHosts.of('trusted.example.org')).map((k) => k.fingerprint)).toEqual([
    FP('admin'),
  ]);
  expect((await messages(stores)).at(-1)).toBe(
    'host keys imported that builder old-builder already trusted: git.example.org',
  );
  expect(await stores.gitHosts.import('old-builder', [key('late.example.org', 'c')], NOW)).toBe(0);
  expect(await stores.gitHosts.of('late.example.org')).toEqual([]);
  await stores.close();
});

test('a host keeps 20 keys, and presented keys of all hosts are the newest 500 for as long as the sweep lets them', async () => {
  const stores = await open();
  for (let i = 0; i < 20; i++)
    await trustIn(stores, 'h', { fingerprint: FP(`t${i}`), key_type: null });
  expect(await codeOf(trustIn(stores, 'h', { fingerprint: FP('t20'), key_type: null }))).toBe(
    'validation',
  );
  const many = Array.from({ length: 30 }, (_, i) => ({
    fingerprint: FP(`p${i}`),
    key_type: 'ssh-rsa',
  }));
  await showIn(stores, 'seen', many, NOW);
  expect(await stores.gitHosts.of('seen')).toHaveLength(20);
  await showIn(stores, 'seen', [{ fingerprint: FP('newest'), key_type: 'ssh-rsa' }], NOW + 1);
  const kept = await stores.gitHosts.of('seen');
  expect(kept).toHaveLength(20);
  expect(kept.at(-1)?.fingerprint).toBe(FP('newest'));
  for (let i = 0; i < 30; i++) await showIn(stores, `host-${i}`, many, NOW + 10 + i);
  const all = (await stores.gitHosts.all()).filter((k) => k.state === 'presented');
  expect(all).toHaveLength(500);
  expect(all.some((k) => k.host === 'seen')).toBe(false);
  expect(await stores.gitHosts.sweep(NOW + 30)).toBeGreaterThan(0);
  expect(
    (await stores.gitHosts.all()).every((k) => k.state !== 'presented' || k.at >= NOW + 30),
  ).toBe(true);
  expect(await stores.gitHosts.of('h')).toHaveLength(20);
  await stores.close();
});

test('looks into repositories without a project remove no keys that builds presented: they keep 50 hosts of their own', async () => {
  const stores = await open();
  const keys = (host: string): HostKey[] =>
    Array.from({ length: 20 }, (_, i) => key(host, `${host}-${i}`));
  await showIn(stores, 'built', [key('', 'built')], NOW);
  for (let i = 0; i < 60; i++)
    await showIn(stores, `look-${i}`, keys(`look-${i}`), NOW + 1 + i, BY_LOOK);
  const hosts = async (): Promise<string[]> => [
    ...new Set((await stores.gitHosts.all()).map(({ host }) => host)),
  ];
  expect(await hosts()).toHaveLength(51);
  expect(await hosts()).toEqual(expect.arrayContaining(['built', 'look-10', 'look-59']));
  // A build shows the key that a look showed: it is a key of builds from now on, also if a look
  // shows it again.
  await showIn(stores, 'look-10', [key('', 'look-10-0')], NOW + 100);
  await showIn(stores, 'look-10', [key('', 'look-10-0')], NOW + 101, BY_LOOK);
  for (let i = 0; i < 60; i++)
    await showIn(stores, `late-${i}`, [key('', `late-${i}`)], NOW + 200 + i, BY_LOOK);
  expect((await stores.gitHosts.of('look-10')).map(({ fingerprint }) => fingerprint)).toEqual([
    FP('look-10-0'),
  ]);
  expect(await stores.gitHosts.of('built')).toHaveLength(1);
  await stores.close();
});

test('200 hosts can be trusted', async () => {
  const stores = await open();
  for (let i = 0; i < 200; i++) await trustIn(stores, `host-${i}`, key('', `k${i}`));
  expect(await codeOf(trustIn(stores, 'host-200', key('', 'k200')))).toBe('wrong_state');
  await stores.gitHosts.remove('host-0', NOW);
  await trustIn(stores, 'host-200', key('', 'k200'));
  await stores.close();
});

test.each([
  ['Git.Example.org', 'git.example.org'],
  ['git.example.org.', 'git.example.org'],
  ['git.example.org.:2222', 'git.example.org:2222'],
  ['git.example.org:22', 'git.example.org'],
  ['[::1]:2222', '[::1]:2222'],
  ['10.0.0.1', '10.0.0.1'],
])('the host %s is %s', (given, name) => {
  expect(hostName(given)).toBe(name);
});
