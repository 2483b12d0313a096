/**
 * Copies of volumes in the database: what nodes report, what is deleted, and what comes back with
 * its machine.
 */
import { beforeEach, describe, expect, it } from 'vitest';
import type { AllStores } from '../../src/store/open.ts';
import type { VolumeCopy } from '../../src/domain/data/volume-copy.ts';
import { emptyPlan } from '../../src/domain/deployments/plan.ts';
import { markRestored } from '../../src/store/backup/as-new.ts';
import { codeOf, freshPath, nodeIn, NOW, open, projectIn, urlOf } from './fixtures.ts';

let stores: AllStores;
let node: { id: string; hostname: string };
let projectId: string;
const copy = (over: Partial<VolumeCopy> = {}): VolumeCopy => ({
  id: 'v1',
  project_id: projectId,
  project: 'shop',
  node_id: node.id,
  hostname: node.hostname,
  state: 'current',
  names: ['data'],
  bytes: null,
  sizes: {},
  seen: null,
  source: null,
  digest: null,
  created_at: NOW,
  changed_at: NOW,
  ...over,
});
async function put(...copies: VolumeCopy[]): Promise<void> {
  const project = await stores.projects.get(projectId);
  await stores.flow.commit({ ...emptyPlan(project, NOW, NOW), volumes: copies });
}
const reported = (id: string, bytes: number | null = 5) => ({
  copy: id,
  project_id: projectId,
  in_place: true,
  folders: [{ name: 'data', bytes }],
});
const states = async (): Promise<Record<string, string>> =>
  Object.fromEntries((await stores.volumes.onNode(node.id)).map((c) => [c.id, c.state]));
const missing = async () =>
  Object.fromEntries((await stores.volumes.onNode(node.id)).map((c) => [c.id, c.missing_since]));

beforeEach(async () => {
  stores = await open(freshPath());
  projectId = (await projectIn(stores)).id;
  node = await nodeIn(stores, 'n1');
});

async function removeProject(volumes: boolean): Promise<void> {
  await stores.projects.markDeleting(projectId, NOW, { volumes });
  expect(await stores.projects.removeIfGone(projectId)).toBe(true);
}

describe('the report of a node', () => {
  it('gives the sizes, and names what to delete until it is gone', async () => {
    await put(copy(), copy({ id: 'v2', state: 'deleting' }));
    expect(await stores.volumes.unused()).toEqual(new Map([[node.id, ' v2 deleting']]));
    expect(await stores.volumes.report(node, [reported('v1', 7), reported('v2')], NOW)).toEqual({
      remove: ['v2'],
      setAside: [],
    });
    expect(await stores.volumes.ofProject(projectId)).toMatchObject([
      { bytes: 7, sizes: { data: 7 } },
      {},
    ]);
    expect(await stores.volumes.report(node, [reported('v1', null)], NOW)).toEqual({
      remove: [],
      setAside: [],
    });
    expect(await states()).toEqual({ v1: 'current' });
  });
  it('of an agent that confirms deletions ends one only with its confirmation', async () => {
    await put(copy(), copy({ id: 'v2', state: 'deleting' }), copy({ id: 'v3', state: 'left' }));
    await stores.volumes.report(node, [reported('v1'), reported('v2'), reported('v3')], NOW, []);
    await stores.volumes.report(node, [reported('v1'), reported('v3')], NOW + 1, []);
    expect(await missing()).toEqual({ v1: null, v2: NOW + 1, v3: null });
    // A confirmation of what nobody asked for is none.
    await stores.volumes.report(node, [reported('v1')], NOW + 2, ['v2', 'v3']);
    expect(await missing()).toEqual({ v1: null, v3: NOW + 2 });
  });
  it.each([
    ['of this version', []],
    ['of an earlier version', undefined],
  ])(
    'without its disk forgets nothing, and asks again when the disk is back: an agent %s',
    async (_, removed) => {
      await put(
        copy(),
        copy({ id: 'v2', state: 'left' }),
        copy({ id: 'v3', state: 'kept' }),
        copy({ id: 'v4', state: 'deleting' }),
      );
      const all = [reported('v1'), reported('v2'), reported('v3'), reported('v4')];
      const work = { remove: ['v4'], setAside: ['v2'] };
      expect(await stores.volumes.report(node, all, NOW, removed)).toEqual(work);
      expect(await stores.volumes.report(node, [], NOW + 1, removed)).toEqual({
        remove: [],
        setAside: [],
      });
      expect(await stores.volumes.report(node, [], NOW + 2, removed)).toEqual({
        remove: [],
        setAside: [],
      });
      expect(await missing()).toEqual({ v1: NOW + 1, v2: NOW + 1, v3: NOW + 1, v4: NOW + 1 });
      expect(await stores.volumes.report(node, all, NOW + 3, removed)).toEqual(work);
      expect(await missing()).toEqual({ v1: null, v2: null, v3: null, v4: null });
    },
  );
  it('forgets the row of a missing copy only if an admin says so', async () => {
    await put(copy(), copy({ id: 'v2', state: 'left' }));
    await stores.volumes.report(node, [reported('v1'), reported('v2')], NOW, []);
    expect(await codeOf(stores.volumes.forget(node.id, 'v2'))).toBe('wrong_state');
    await stores.volumes.report(node, [], NOW, []);
    expect(await codeOf(stores.volumes.forget(node.id, 'v1'))).toBe('wrong_state');
    await stores.volumes.forget(node.id, 'v2');
    expect(await states()).toEqual({ v1: 'current' });
    expect(await codeOf(stores.volumes.forget(node.id, 'v2'))).toBe('not_found');
  });
  it('forgets at once what never was on the node', async () => {
    await put(copy({ state: 'kept', names: [] }), copy({ id: 'v2', state: 'deleting' }));
    await stores.volumes.report(node, [], NOW, []);
    expect(await states()).toEqual({});
  });
  it('without a copy in use changes nothing: an empty disk must not start the project', async () => {
    await put(copy(), copy({ id: 'v2', state: 'incoming' }), copy({ id: 'v3', state: 'left' }));
    expect(await stores.volumes.report(node, [], NOW)).toEqual({ remove: [], setAside: [] });
    expect(await states()).toEqual({ v1: 'current', v2: 'incoming', v3: 'left' });
  });
  it('sets aside what a move left behind', async () => {
    await put(copy({ state: 'left' }), copy({ id: 'v2', state: 'left' }));
    const given = [reported('v1'), { ...reported('v2'), in_place: false }];
    expect(await stores.volumes.report(node, given, NOW)).toEqual({ remove: [], setAside: ['v1'] });
  });
  it('never deletes a copy that the database does not know', async () => {
    expect(await stores.volumes.report(node, [reported('strange')], NOW)).toEqual({
      remove: [],
      setAside: [],
    });
  });
  it('adopts the copy of a node that was deleted, and not that of another one', async () => {
    const other = await nodeIn(stores, 'n2');
    await put(
      copy({ node_id: 'deleted', hostname: 'old' }),
      copy({ id: 'v2', node_id: other.id, state: 'left' }),
    );
    await stores.volumes.report(node, [reported('v1'), reported('v2')], NOW);
    expect(await stores.volumes.ofProject(projectId)).toMatchObject([
      { id: 'v1', node_id: node.id, hostname: node.hostname },
      { id: 'v2', node_id: other.id },
    ]);
  });
});

describe('the deletion of the project', () => {
  it('keeps its volumes until an admin deletes them', async () => {
    await put(copy(), copy({ id: 'v2', state: 'incoming' }), copy({ id: 'v3', state: 'left' }));
    expect(await codeOf(stores.volumes.requestDelete(node.id, 'v1', NOW))).toBe('wrong_state');
    await removeProject(false);
    expect(await states()).toEqual({ v1: 'kept', v2: 'deleting', v3: 'left' });
    expect(await codeOf(stores.volumes.requestDelete('another', 'v1', NOW))).toBe('not_found');
    await stores.volumes.requestDelete(node.id, 'v1', NOW);
    expect(await stores.volumes.report(node, [reported('v1')], NOW)).toEqual({
      remove: ['v1'],
      setAside: [],
    });
  });
  it('deletes them too if it is asked for', async () => {
    await put(copy(), copy({ id: 'v3', state: 'left' }));
    await removeProject(true);
    expect(await states()).toEqual({ v1: 'deleting', v3: 'deleting' });
  });
});

describe('a move', () => {
  const digest = 'a'.repeat(64);
  const seen = { containers: { c1: '2026-11-21T12:00:00Z' }, proven_at: NOW };
  const proofs = async () =>
    (await stores.volumes.ofProject(projectId)).map((c) => [c.id, c.state, c.digest, c.seen]);

  it('is found by its project as long as a copy is being received', async () => {
    await put(copy());
    expect(await stores.volumes.received()).toEqual([]);
    await put(
      copy({ id: 'v2', state: 'incoming', source: 'v1' }),
      copy({ id: 'v3', state: 'incoming', source: 'v1' }),
    );
    expect(await stores.volumes.received()).toEqual([projectId]);
  });
  it('keeps its proof when a node reports sizes', async () => {
    await put(
      copy({ digest, seen }),
      copy({ id: 'v2', state: 'incoming', source: 'v1', digest, seen }),
    );
    await stores.volumes.report(node, [reported('v1', 7), reported('v2', 7)], NOW);
    expect(await proofs()).toEqual([
      ['v1', 'current', digest, seen],
      ['v2', 'incoming', digest, seen],
    ]);
  });
  it.each([true, false])(
    'has ended after a restore, and no copy is deleted that may be the newest by now; as new: %s',
    async (as_new) => {
      const path = freshPath();
      stores = await open(path);
      projectId = (await projectIn(stores)).id;
      node = await nodeIn(stores, 'n1');
      await put(
        copy({ digest, seen }),
        copy({ id: 'v2', state: 'incoming', source: 'v1', digest, seen }),
      );
      await stores.close();
      await markRestored(await urlOf(path), {
        name: 'b',
        backup_at: 'x',
        restored_at: 'y',
        as_new,
      });
      stores = await open(path);
      expect(await proofs()).toEqual([
        ['v1', 'current', null, null],
        ['v2', 'left', null, null],
      ]);
      expect(
        await stores.volumes.report(node, [reported('v1'), reported('v2')], NOW),
      ).toMatchObject({ remove: [] });
    },
  );
});
