/** The dataset versions that nodes keep for projects, in the database. */
import { beforeEach, expect, it } from 'vitest';
import type { DatasetPin } from '../../src/domain/data/data-copies.ts';
import type { AllStores } from '../../src/store/open.ts';
import { datasetIn } from './datasets-in.ts';
import { nodeIn, NOW, open, projectIn } from './fixtures.ts';

let stores: AllStores;
let project: string;
let [one, two, dataset] = ['', '', ''];
beforeEach(async () => {
  stores = await open();
  project = (await projectIn(stores, 'shop', { data_copies: 2 })).id;
  one = (await nodeIn(stores, 'n1', { role: 'deploy' })).id;
  two = (await nodeIn(stores, 'n2', { role: 'deploy', host_ip: '10.0.0.2' })).id;
  dataset = (await datasetIn(stores, 'genomes')).id;
});
const pin = (node_id: string, version = 1, project_id = project): DatasetPin => ({
  project_id,
  node_id,
  dataset_id: dataset,
  version,
});
const add = (...pins: DatasetPin[]) => stores.dataCopies.change({ add: pins, remove: [] });

it('a project has one copy unless it says otherwise', async () => {
  expect((await stores.projects.get(project)).data_copies).toBe(2);
  expect((await projectIn(stores, 'plain')).data_copies).toBe(1);
  await stores.projects.patch(project, { data_copies: 5 }, NOW);
  expect((await stores.projects.get(project)).data_copies).toBe(5);
});

it('the same change twice has one effect, also from two control planes at once', async () => {
  await Promise.all([add(pin(one), pin(two)), add(pin(one), pin(two))]);
  expect(await stores.dataCopies.pins()).toHaveLength(2);
  await add(pin(one));
  expect(await stores.dataCopies.onNode(one)).toEqual([
    { ...pin(one), project: 'shop', name: 'genomes' },
  ]);
  const gone = { add: [pin(two, 2)], remove: [pin(two, 1), pin(two, 9)] };
  await stores.dataCopies.change(gone);
  await stores.dataCopies.change(gone);
  expect(new Set(await stores.dataCopies.pins())).toEqual(new Set([pin(one), pin(two, 2)]));
});

it('a removed node or project takes its pins along, and gets none afterwards', async () => {
  const other = (await projectIn(stores, 'other')).id;
  await add(pin(one), pin(two), pin(one, 1, other));
  await stores.nodes.markDeleting(two, NOW);
  expect(await stores.nodes.removeIfGone(two, true)).toBe(true);
  await add(pin(two));
  expect(await stores.dataCopies.onNode(two)).toEqual([]);
  await stores.projects.markDeleting(other, NOW);
  expect(await stores.projects.removeIfGone(other)).toBe(true);
  await add(pin(one, 1, other));
  expect(await stores.dataCopies.pins()).toEqual([pin(one)]);
});

it('projects without a running deployment, or with one copy, are not listed', async () => {
  expect(await stores.dataCopies.projects()).toEqual([]);
  expect(await stores.dataCopies.ofProject(project)).toBeNull();
});
