/** Nodes in memory of a control plane while another one writes to the same database. */
import type { NodeRegister } from '@berth/wire/node';
import { startPostgres, whyNoPostgres } from '@berth/testbed/postgres';
import { afterAll, describe, expect, onTestFinished, test } from 'vitest';
import { DEFAULT_LIMITS } from '../../src/domain/deployments/facts.ts';
import { silentNodes } from '../../src/domain/nodes/failover.ts';
import type { AllStores } from '../../src/store/open.ts';
import { openStores } from '../../src/store/open.ts';
import { codeOf, commit, deploymentIn, NOW, projectIn, quiet } from './fixtures.ts';

const reason = whyNoPostgres();
const server = reason === undefined ? await startPostgres() : undefined;
afterAll(() => server?.stop());

const SAME: NodeRegister = {
  hostname: 'h',
  role: 'deploy',
  host_ip: '10.0.0.1',
  max_storage: 9,
  agent_version: '1',
  containers: [],
};

describe.skipIf(server === undefined)(
  `two control planes${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    if (server === undefined) return;
    const pg = server;
    let made = 0;
    async function two(): Promise<[AllStores, AllStores]> {
      const url = await pg.createDatabase(`n${made++}`);
      const opened = [
        await openStores({ databaseUrl: url, log: quiet }),
        await openStores({ databaseUrl: url, log: quiet }),
      ] as const;
      onTestFinished(async () => void (await Promise.all(opened.map((stores) => stores.close()))));
      return [...opened];
    }

    test('a registration is compared with memory; a row of the other control plane is read after the next flush of marks', async () => {
      const [here, there] = await two();
      const { node } = await here.nodes.register(SAME, NOW);
      await there.nodes.register({ ...SAME, host_ip: '10.0.0.9' }, NOW + 1);
      // The change is not known yet, so this is only a mark. The flush of marks finds that the row
      // has changed.
      expect((await here.nodes.register(SAME, NOW + 2)).before?.host_ip).toBe('10.0.0.1');
      await here.nodes.flush();
      expect((await there.nodes.get(node.id)).host_ip).toBe('10.0.0.9');
      expect((await here.nodes.register(SAME, NOW + 3)).before?.host_ip).toBe('10.0.0.9');
      expect(await there.nodes.get(node.id)).toMatchObject({
        host_ip: '10.0.0.1',
        last_seen_at: NOW + 3,
      });

      await there.nodes.setSchedulable(node.id, false);
      await here.nodes.register(SAME, NOW + 4);
      await here.nodes.flush();
      expect((await here.nodes.register(SAME, NOW + 5)).node.schedulable).toBe(false);
      // Marks alone do not drop a row.
      await there.nodes.register(SAME, NOW + 6);
      await there.nodes.flush();
      const { containers } = (await here.nodes.register(SAME, NOW + 7)).node;
      await here.nodes.flush();
      expect((await here.nodes.register(SAME, NOW + 8)).node.containers).toBe(containers);
    });

    test('what one control plane heard, the other one knows after the next flush of marks', async () => {
      const [here, there] = await two();
      const agent = { ...SAME, capabilities: ['beat'] };
      const heard = async (stores: AllStores) =>
        (await stores.nodes.heardNodes()).map(({ beats, heard_at }) => [beats, heard_at]);
      const { node } = await here.nodes.register(agent, NOW, undefined, { at: 1_000, since: 0 });
      expect(await heard(here)).toEqual([[true, 1_000]]);
      await here.nodes.flush();
      expect(await heard(there)).toEqual([[true, 1_000]]);
      // The beats arrive at the other control plane, which has no row of the node in memory.
      expect(there.nodes.heard(node.id, 9_000)).toBe(false);
      expect(await there.nodes.heardOnce(node.id, 9_000)).toBe(true);
      expect(await heard(here)).toEqual([[true, 1_000]]);
      await there.nodes.flush();
      expect(await heard(here)).toEqual([[true, 9_000]]);
      // An older time never replaces a newer one.
      here.nodes.heard(node.id, 8_000);
      await here.nodes.flush();
      expect(await heard(there)).toEqual([[true, 9_000]]);
      const clock = (at: number) => ({ now: NOW, uptime: { at, since: 0 } });
      const silentAt = async (stores: AllStores, at: number) =>
        silentNodes(await stores.nodes.heardNodes(), clock(at), DEFAULT_LIMITS).length;
      expect([await silentAt(here, 38_999), await silentAt(here, 39_000)]).toEqual([0, 1]);
      expect([await silentAt(there, 38_999), await silentAt(there, 39_000)]).toEqual([0, 1]);
      expect(await there.nodes.heardOnce('nobody', 9_000)).toBe(false);
    });

    test('a control plane of an earlier version takes no beats: its agents are silent only after the offline time', async () => {
      const [here, there] = await two();
      const agent = { ...SAME, capabilities: ['beat'] };
      await here.nodes.register(agent, NOW, undefined, { at: 1_000, since: 0 });
      await here.nodes.flush();
      // The earlier version writes `observed_at` only.
      await pg.query('update nodes set observed_at = 20000', `n${made - 1}`);
      expect(await there.nodes.heardNodes()).toMatchObject([{ beats: false }]);
    });

    test('a node that the other control plane removed registers again', async () => {
      const [here, there] = await two();
      const { node } = await here.nodes.register(SAME, NOW);
      await there.nodes.markDeleting(node.id, NOW);
      expect(await there.nodes.removeIfGone(node.id, false)).toBe(true);
      await here.nodes.register(SAME, NOW + 1);
      await here.nodes.flush();
      expect(await codeOf(here.tasks.openFor(node.id, NOW + 2))).toBe('not_found');
      expect((await here.nodes.register(SAME, NOW + 3)).node.id).not.toBe(node.id);
    });

    test('a reconciled node is queried again after a commit of the other control plane, and without a recent watch', async () => {
      const [here, there] = await two();
      await here.nodes.register(SAME, NOW);
      const { node } = await here.nodes.register(SAME, NOW + 1);
      const project = await projectIn(here);
      await deploymentIn(here, project, 'd1', { status: 'running', node_id: node.id });
      const settle = async (): Promise<void> =>
        (await here.deployments.concerning(node, ['d1']))?.markReconciled();
      await settle();
      expect(await here.deployments.concerning(node, ['d1'])).not.toBeNull();
      await here.flow.watch();
      await settle();
      expect(await here.deployments.concerning(node, ['d1'])).toBeNull();

      await commit(there, project.id, {
        changeDeployments: [
          { id: 'd1', from: 'running', set: { status: 'retired', node_id: null } },
        ],
      });
      await here.flow.watch();
      expect((await here.deployments.concerning(node, ['d1']))?.known).toMatchObject([
        { id: 'd1', status: 'retired' },
      ]);

      // The other control plane placed it there; this one does not know it.
      await here.flow.watch();
      await settle();
      await deploymentIn(there, await projectIn(there, 'other'), 'd2', {
        status: 'running',
        node_id: node.id,
      });
      await here.flow.watch();
      expect((await here.deployments.concerning(node, ['d1']))?.serving).toMatchObject([
        { id: 'd2' },
      ]);
    });
  },
);
