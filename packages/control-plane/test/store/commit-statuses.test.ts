/** Claims of the outbox of commit statuses. */
import { expect, onTestFinished, test } from 'vitest';
import { openDatabase } from '../../src/store/engine/database.ts';
import { storesOn } from '../../src/store/open.ts';
import { deploymentIn, NOW, projectIn, quiet, urlOf } from './fixtures.ts';

async function scene() {
  const db = await openDatabase(await urlOf(':memory:'), quiet, () => NOW);
  onTestFinished(() => db.close());
  const stores = storesOn(db, () => NOW);
  const statusesOf = async (
    name: string,
    rows: { commit: string; next_at: number; claimed_until?: number }[],
  ): Promise<void> => {
    const project = await projectIn(stores, name);
    await deploymentIn(stores, project, name);
    const one = {
      project_id: project.id,
      deployment_id: name,
      description: '',
      tries: 0,
      give_up_at: 9_000,
      created_at: NOW,
    };
    const values = rows.map((row, i) => ({ ...one, state: `failure of ${i}` as const, ...row }));
    await db.kysely.insertInto('commit_statuses').values(values).execute();
  };
  const claim = async (uptime: number) =>
    (await stores.commitStatuses.claim({ uptime, until: uptime + 10 }, 20)).map(
      ({ deployment_id, commit }) => `${deployment_id} ${commit}`,
    );
  return { statusesOf, claim };
}

test('however many statuses wait for their next try, those that are due are claimed', async () => {
  const { statusesOf, claim } = await scene();
  await statusesOf(
    'down',
    Array.from({ length: 600 }, (_, i) => ({ commit: `c${i}`, next_at: 1_000 })),
  );
  await statusesOf('other', [{ commit: 'x', next_at: 0 }]);
  expect(await claim(100)).toEqual(['other x']);
  expect(await claim(100)).toEqual([]);
  expect(await claim(1_000)).toHaveLength(20);
});

test('of one commit only the newest is claimed, when it is due and no other one is being sent', async () => {
  const { statusesOf, claim } = await scene();
  await statusesOf('shop', [
    { commit: 'sending', next_at: 0, claimed_until: 200 },
    { commit: 'sending', next_at: 0 },
    { commit: 'later', next_at: 0 },
    { commit: 'later', next_at: 300 },
  ]);
  expect(await claim(100)).toEqual([]);
  expect(await claim(200)).toEqual(['shop sending']);
  expect(await claim(300)).toEqual(['shop sending', 'shop later']);
});
