/**
 * Owners of custom domains and domain prefixes: unique across projects, and kept for the last
 * project for a while.
 */
import { expect, test } from 'vitest';
import type { DomainError } from '../../src/domain/platform/errors.ts';
import type { Plan } from '../../src/domain/deployments/plan.ts';
import type { ProjectRecord } from '../../src/domain/platform/records.ts';
import type { AllStores } from '../../src/store/open.ts';
import { markRestored } from '../../src/store/backup/as-new.ts';
import {
  codeOf,
  commit,
  deploymentIn,
  freshPath,
  nodeIn,
  NOW,
  open,
  projectIn,
  projectInput,
  routeOf,
  rowsOf,
  runOn,
  urlOf,
} from './fixtures.ts';

const DAY = 86_400_000;
const WWW = 'www.example.com';
const set = (
  stores: AllStores,
  { id }: ProjectRecord,
  domains: string[],
  now = NOW,
): Promise<ProjectRecord> => stores.projects.patch(id, { domains }, now);
/** Makes the project one that had visitors. */
async function publish(stores: AllStores, project: ProjectRecord): Promise<void> {
  const node = await nodeIn(stores, `node-of-${project.name}`);
  const { id } = await deploymentIn(stores, project, `d-${project.name}`, {
    status: 'running',
    node_id: node.id,
  });
  expect(await commit(stores, project.id, { route: { set: routeOf(project, id, node.id) } })).toBe(
    'committed',
  );
}
const claimsIn = async (stores: AllStores): Promise<string[]> =>
  (await stores.policy.read(NOW)).projects.flatMap(({ name, domains = [] }) =>
    domains.map(({ host }) => `${name} ${host}`),
  );

test('two projects cannot have one domain, and the error names each field', async () => {
  const stores = await open();
  const shop = await projectIn(stores, 'shop', { domains: [WWW, 'example.com'] });
  expect(shop.domains).toEqual([WWW, 'example.com']);
  const other = await projectIn(stores, 'other');
  const error = (await set(stores, other, ['free.example', WWW, 'example.com']).catch(
    (e: unknown) => e,
  )) as DomainError;
  expect(error.code).toBe('domain_taken');
  expect(error.fields.map(({ field, rule }) => `${field} ${rule}`)).toEqual([
    'domains[2] taken',
    'domains[1] taken',
  ]);
  expect(error.message).not.toContain('shop');
  expect(await codeOf(projectIn(stores, 'third', { domains: [WWW] }))).toBe('domain_taken');
  // A refused change changes nothing.
  expect((await stores.projects.get(other.id)).domains).toEqual([]);
  expect(await claimsIn(stores)).toEqual([`shop example.com`, `shop ${WWW}`]);
});

test('of concurrent requests for the same domains exactly one gets them', async () => {
  const stores = await open();
  const projects = await Promise.all(
    Array.from({ length: 6 }, (_, i) => projectIn(stores, `p${i}`)),
  );
  const results = await Promise.all(
    projects.map((project, i) =>
      set(
        stores,
        project,
        i % 2 === 0
          ? ['a.example', 'b.example', 'c.example']
          : ['c.example', 'b.example', 'a.example'],
      ).then(
        () => 'done',
        (error: DomainError) => error.code,
      ),
    ),
  );
  expect(results.toSorted()).toEqual([...Array.from({ length: 5 }, () => 'domain_taken'), 'done']);
  expect(await claimsIn(stores)).toHaveLength(3);
});

test('projects that exchange their domains at the same moment do not wait for each other, and each keeps its own', async () => {
  const stores = await open();
  const left = await projectIn(stores, 'left', { domains: ['l.example'] });
  const right = await projectIn(stores, 'right', { domains: ['r.example'] });
  const codes = await Promise.all([
    codeOf(set(stores, left, ['r.example'])),
    codeOf(set(stores, right, ['l.example'])),
  ]);
  expect(codes).toEqual(['domain_taken', 'domain_taken']);
  expect(await claimsIn(stores)).toEqual(['left l.example', 'right r.example']);
});

test('a domain of a project that ran is kept for it, and its own return gets a new claim', async () => {
  const stores = await open();
  const shop = await projectIn(stores, 'shop', { domains: [WWW] });
  const other = await projectIn(stores, 'other');
  await publish(stores, shop);
  const claimOf = async (): Promise<string | undefined> =>
    (await stores.policy.read(NOW)).projects.find((p) => p.id === shop.id)?.domains?.[0]?.claim;
  const first = await claimOf();
  await set(stores, shop, [], NOW + 1);
  expect(await claimsIn(stores)).toEqual([]);
  const error = (await set(stores, other, [WWW], NOW + DAY).catch(
    (e: unknown) => e,
  )) as DomainError;
  expect(error.fields).toMatchObject([{ field: 'domains[0]', rule: 'kept' }]);
  expect(error.message).toContain(new Date(NOW + 1 + 7 * DAY).toISOString());
  await set(stores, shop, [WWW], NOW + DAY);
  expect(await claimOf()).not.toBe(first);
  await set(stores, shop, [], NOW + DAY);
  expect((await set(stores, other, [WWW], NOW + 8 * DAY)).domains).toEqual([WWW]);
});

test('a domain of a project that never ran is free at once', async () => {
  const stores = await open();
  const typo = await projectIn(stores, 'typo', { domains: [WWW] });
  const shop = await projectIn(stores, 'shop');
  await set(stores, typo, []);
  expect((await set(stores, shop, [WWW])).domains).toEqual([WWW]);
});

test('the domains of a deleted project are kept too, and swept when the time is over', async () => {
  const path = freshPath();
  const stores = await open(path);
  const shop = await projectIn(stores, 'shop', { domains: [WWW] });
  const other = await projectIn(stores, 'other');
  await deploymentIn(stores, shop, 'd1', { status: 'retired' });
  await stores.projects.markDeleting(shop.id, NOW);
  expect(await codeOf(set(stores, other, [WWW]))).toBe('domain_taken');
  expect(await stores.projects.removeIfGone(shop.id)).toBe(true);
  expect(await codeOf(set(stores, other, [WWW], NOW + DAY))).toBe('domain_taken');
  expect(await stores.domains.sweep(NOW + 7 * DAY - 1)).toBe(0);
  expect(await stores.domains.sweep(NOW + 7 * DAY)).toBe(1);
  expect(await rowsOf(path, 'domain_claims')).toEqual([]);
});

test('domains of a project that an older version deleted become free after the quarantine', async () => {
  const path = freshPath();
  const stores = await open(path);
  const shop = await projectIn(stores, 'shop', { domains: [WWW] });
  await runOn(path, `delete from projects where id = '${shop.id}'`);
  expect(await stores.domains.sweep(NOW)).toBe(0);
  expect(await codeOf(projectIn(stores, 'other', { domains: [WWW] }))).toBe('domain_taken');
  expect(await stores.domains.sweep(NOW + 7 * DAY)).toBe(1);
  await projectIn(stores, 'other', { domains: [WWW] });
});

test('a project cannot fill the table with domains that it gives up', async () => {
  const stores = await open();
  const shop = await projectIn(stores, 'shop');
  await publish(stores, shop);
  const batch = (i: number): string[] => Array.from({ length: 20 }, (_, j) => `d${i}-${j}.example`);
  for (let i = 0; i < 11; i++) await set(stores, shop, batch(i));
  const error = (await set(stores, shop, batch(11)).catch((e: unknown) => e)) as DomainError;
  expect(error.fields).toMatchObject([{ field: 'domains', rule: 'max_kept' }]);
});

/** The next deployment of the project is live at this prefix, and the earlier one is retired. */
async function goLive(stores: AllStores, { id }: ProjectRecord): Promise<void> {
  const project = await stores.projects.get(id);
  const retire: Partial<Plan> = {
    changeDeployments: [{ id: `d-${project.name}`, from: 'running', set: { status: 'retired' } }],
  };
  expect(await commit(stores, id, retire)).toBe('committed');
  const node = await nodeIn(stores, `node-of-${project.name}`);
  await deploymentIn(stores, project, `e-${project.name}`, {
    status: 'running',
    node_id: node.id,
    generation: 2,
  });
  expect(
    await commit(stores, id, { route: { set: routeOf(project, `e-${project.name}`, node.id) } }),
  ).toBe('committed');
}
const takePrefix = async (
  stores: AllStores,
  name: string,
  now: number,
): Promise<DomainError | string> =>
  stores.projects.create(projectInput(name, { domain_prefix: 'shop' }), now).then(
    (project) => project.domain_prefix,
    (error: unknown) => error as DomainError,
  );
const prefixClaims = async (stores: AllStores, id: string): Promise<Record<string, string>> =>
  Object.fromEntries(
    (await stores.policy.read(NOW)).projects
      .find((p) => p.id === id)
      ?.claims?.map((c) => [c.prefix, c.claim]) ?? [],
  );

test('a prefix of a project that ran and moved is kept for it, and its own return gets a new claim', async () => {
  const stores = await open();
  const shop = await projectIn(stores, 'shop');
  await publish(stores, shop);
  const first = (await prefixClaims(stores, shop.id))['shop'];
  await stores.projects.patch(shop.id, { domain_prefix: 'moved' }, NOW + 1);
  // Its next deployment is live: nothing serves the old prefix.
  await goLive(stores, shop);
  const refused = await takePrefix(stores, 'other', NOW + DAY);
  expect(refused).toMatchObject({
    code: 'domain_prefix_taken',
    fields: [{ field: 'domain_prefix', rule: 'kept' }],
  });
  expect((refused as DomainError).message).toContain(new Date(NOW + 1 + 7 * DAY).toISOString());
  expect((refused as DomainError).message).not.toContain('moved');
  // Why, and what to do.
  expect((refused as DomainError).message).toMatch(
    /still hold cookies.*Choose another one, take it back in the project.*ask an admin.*berth domain free/,
  );
  const other = await projectIn(stores, 'elsewhere');
  expect(await codeOf(stores.projects.patch(other.id, { domain_prefix: 'shop' }, NOW + DAY))).toBe(
    'domain_prefix_taken',
  );
  await stores.projects.patch(shop.id, { domain_prefix: 'shop' }, NOW + DAY);
  expect((await prefixClaims(stores, shop.id))['shop']).not.toBe(first);
  await stores.projects.patch(shop.id, { domain_prefix: 'again' }, NOW + 2 * DAY);
  expect(await takePrefix(stores, 'late', NOW + 9 * DAY)).toBe('shop');
});

test('the quarantine of a prefix begins when nothing serves it any more', async () => {
  const stores = await open();
  const shop = await projectIn(stores, 'shop');
  await publish(stores, shop);
  await stores.projects.patch(shop.id, { domain_prefix: 'moved' }, NOW);
  await stores.domains.sweep(NOW + 10 * DAY);
  await goLive(stores, shop);
  expect(await takePrefix(stores, 'other', NOW + 16 * DAY)).toMatchObject({
    code: 'domain_prefix_taken',
  });
  await stores.domains.sweep(NOW + 17 * DAY);
  expect(await takePrefix(stores, 'other', NOW + 17 * DAY)).toBe('shop');
});

test('a prefix of a project that never ran is free at once, that of a deleted project that ran is kept', async () => {
  const stores = await open();
  const typo = await projectIn(stores, 'typo', { domain_prefix: 'shop' });
  await stores.projects.patch(typo.id, { domain_prefix: 'typo' }, NOW);
  const shop = await projectIn(stores, 'shop', { domain_prefix: 'shop' });
  await deploymentIn(stores, shop, 'd1', { status: 'retired' });
  await stores.projects.markDeleting(shop.id, NOW);
  expect(await stores.projects.removeIfGone(shop.id)).toBe(true);
  expect(await takePrefix(stores, 'other', NOW + 6 * DAY)).toMatchObject({
    fields: [{ rule: 'kept' }],
  });
  expect(await takePrefix(stores, 'other', NOW + 7 * DAY + 1)).toBe('shop');
});

test('claims follow projects that an older version created, moved and deleted', async () => {
  const path = freshPath();
  const stores = await open(path);
  const shop = await projectIn(stores, 'shop');
  await publish(stores, shop);
  const gone = await projectIn(stores, 'gone');
  await runOn(path, `delete from prefix_claims where project_id = '${shop.id}'`);
  await runOn(path, `delete from projects where id = '${gone.id}'`);
  await stores.domains.sweep(NOW);
  expect(Object.keys(await prefixClaims(stores, shop.id))).toEqual(['shop']);
  expect(await codeOf(projectIn(stores, 'next', { domain_prefix: 'gone' }))).toBe(
    'domain_prefix_taken',
  );
  await runOn(path, `update projects set domain_prefix = 'moved' where id = '${shop.id}'`);
  await runOn(path, `update routes set domain_prefix = 'moved' where project_id = '${shop.id}'`);
  await runOn(
    path,
    `update deployments set domain_prefix = 'moved' where project_id = '${shop.id}'`,
  );
  await stores.domains.sweep(NOW + 1);
  expect(Object.keys(await prefixClaims(stores, shop.id))).toEqual(['moved', 'shop']);
  expect(await takePrefix(stores, 'other', NOW + DAY)).toMatchObject({
    fields: [{ rule: 'kept' }],
  });
});

test('a rollback takes its prefix back, and not one that another project gave up recently', async () => {
  const stores = await open();
  const shop = await projectIn(stores, 'shop');
  await publish(stores, shop);
  await stores.projects.patch(shop.id, { domain_prefix: 'moved' }, NOW);
  await goLive(stores, shop);
  const first = (await prefixClaims(stores, shop.id))['shop'];
  await deploymentIn(stores, await stores.projects.get(shop.id), 'back', {
    generation: 3,
    rollback_of: 'd-shop',
    settings: { ...shop, domain_prefix: 'shop' },
  });
  const second = (await prefixClaims(stores, shop.id))['shop'];
  expect(second).not.toBe(first);
  // It is over: another project gets the prefix after the quarantine, gives it up, and keeps it for
  // itself.
  await commit(stores, shop.id, {
    changeDeployments: [{ id: 'back', from: 'pending', set: { status: 'retired' } }],
  });
  await stores.domains.sweep(NOW);
  const other = await stores.projects.create(
    projectInput('other', { domain_prefix: 'shop' }),
    NOW + 8 * DAY,
  );
  await deploymentIn(stores, other, 'd-other', { status: 'retired' });
  await stores.projects.patch(other.id, { domain_prefix: 'other' }, NOW + 8 * DAY);
  const again = deploymentIn(stores, await stores.projects.get(shop.id), 'again', {
    generation: 4,
    rollback_of: 'd-shop',
    settings: { ...shop, domain_prefix: 'shop' },
  });
  expect(await codeOf(again)).toBe('domain_prefix_taken');
});

test('a prefix that a deployment in progress brings live after the change is kept too', async () => {
  const stores = await open();
  const shop = await projectIn(stores, 'shop');
  await deploymentIn(stores, shop, 'd-shop', { status: 'building' });
  await stores.projects.patch(shop.id, { domain_prefix: 'moved' }, NOW);
  // The deployment goes live at the prefix that it began with, and has visitors there until the
  // next one is live.
  const node = await nodeIn(stores, 'node-of-shop');
  const live: Partial<Plan> = {
    changeDeployments: [
      { id: 'd-shop', from: 'building', set: { status: 'running', node_id: node.id } },
    ],
    route: { set: routeOf(shop, 'd-shop', node.id) },
  };
  expect(await commit(stores, shop.id, live)).toBe('committed');
  await goLive(stores, shop);
  expect(await takePrefix(stores, 'other', NOW + DAY)).toMatchObject({
    code: 'domain_prefix_taken',
    fields: [{ rule: 'kept' }],
  });
});

test('a prefix that a project serves without a claim gets one, and is kept afterwards', async () => {
  const path = freshPath();
  const stores = await open(path);
  const shop = await projectIn(stores, 'shop');
  await publish(stores, shop);
  await stores.projects.patch(shop.id, { domain_prefix: 'moved' }, NOW);
  // A control plane of an earlier version knows no claims.
  await runOn(path, `delete from prefix_claims where prefix = 'shop'`);
  await stores.domains.sweep(NOW);
  await goLive(stores, shop);
  expect(await takePrefix(stores, 'other', NOW + DAY)).toMatchObject({
    code: 'domain_prefix_taken',
    fields: [{ rule: 'kept' }],
  });
});

test.each([false, true])(
  'a restored database has new claims: cookies that another project may have seen since do not open a host',
  async (as_new) => {
    const path = freshPath();
    const stores = await open(path);
    const shop = await projectIn(stores, 'shop', { domains: [WWW], auth_required: true });
    const claims = async (all: AllStores): Promise<string[]> => {
      const { projects } = await all.policy.read(NOW);
      return projects.flatMap(({ claims: prefixes = [], domains = [] }) =>
        [...prefixes, ...domains].map(({ claim }) => claim),
      );
    };
    const before = await claims(stores);
    await markRestored(await urlOf(path), { name: 'b', backup_at: 'x', restored_at: 'y', as_new });
    const after = await claims(stores);
    expect(after).toHaveLength(2);
    expect(after.filter((claim) => before.includes(claim))).toEqual([]);
    // The owner stays.
    expect((await stores.projects.get(shop.id)).domains).toEqual([WWW]);
    expect(await codeOf(projectIn(stores, 'other', { domains: [WWW] }))).toBe('domain_taken');
  },
);
