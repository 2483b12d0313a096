/**
 * A machine, its cable, its agent, its engine or the control plane stops while clients send 50
 * requests a second through the real proxy. FAILOVER_AFTER is 10 s here instead of 30 s, so that
 * the rows take less time; `failover-defaults.test.ts` runs the most important rows with 30 s.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { waitFor } from '@berth/testbed/wait';
import { type ManyNodes, type ManyNodesNode, whyNotManyNodes } from '../e2e/many-nodes-world.ts';
import {
  cableOutForLonger,
  cableOutShortly,
  clean,
  controlPlaneAway,
  type FailoverStage,
  powerCutOfOne,
  powerCutOfTwo,
  seconds,
  startFailoverStage,
  up,
} from './lib/failover-rows.ts';
import type { Application } from './lib/failover-world.ts';

const reason = whyNotManyNodes();
const MINUTE = 60_000;
const FAILOVER_MS = 10_000;

describe.skipIf(reason !== undefined)(
  `failover${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    let stage: FailoverStage;
    let world: ManyNodes;
    let one: Application;
    let note: FailoverStage['note'];
    let whole: FailoverStage['whole'];
    let two: Application;
    beforeAll(async () => {
      stage = await startFailoverStage({ FAILOVER_AFTER: `${FAILOVER_MS / 1_000}s` });
      ({ world, one, two, note, whole } = stage);
    }, 4 * MINUTE);
    afterAll(() => stage?.stop());

    const isSilent = (node: ManyNodesNode) =>
      waitFor(
        `${node.name} is silent`,
        async () =>
          ((await world.api.call('getNode', { params: { id: node.nodeId } })).failover ?? null) !==
          null,
        { deadlineMs: MINUTE },
      );

    it(
      'power cut of the machine of one instance: it answers from another one, and the old container is removed at the return',
      () => powerCutOfOne(stage),
      6 * MINUTE,
    );

    it(
      'power cut of a machine of two instances: at most 1 % of the requests fail, and a new instance starts',
      () => powerCutOfTwo(stage),
      6 * MINUTE,
    );

    it(
      'a cable that is out for half of FAILOVER_AFTER: nothing moves',
      () => cableOutShortly(stage, FAILOVER_MS / 2),
      3 * MINUTE,
    );

    it(
      'a cable that is out for longer: the instance moves; at the return the old one ends, and the story says it',
      () => cableOutForLonger(stage, 1.2 * FAILOVER_MS),
      4 * MINUTE,
    );

    it(
      'an agent that is dead for longer than FAILOVER_AFTER: no request fails, also when it is back',
      async () => {
        const home = await one.home();
        const load = one.load();
        await home.agent.crash();
        await waitFor('another machine serves', async () => (await one.home()).name !== home.name, {
          deadlineMs: MINUTE,
        });
        await home.startAgent();
        await whole();
        const report = await load.stop();
        note('agent dead', report);
        expect(report).toMatchObject(clean);
      },
      4 * MINUTE,
    );

    it(
      'an engine that is killed: its instances serve again there, and nothing moves to another machine',
      async () => {
        const [, second] = await two.serving();
        const home = world.node(second?.node_id ?? null);
        const stories = [await one.story(), await two.story()];
        const { faults } = home.engine;
        if (faults === undefined) throw new Error('the engine is not a private one');
        const load = two.load();
        await faults.restartDaemon('SIGKILL');
        await whole();
        const report = await load.stop();
        note('engine killed, two instances', report);
        expect(report.failed / report.sent).toBeLessThan(0.01);
        expect([await one.story(), await two.story()]).toEqual(stories);
      },
      4 * MINUTE,
    );

    it(
      'two of three machines are cut: nothing moves until a person says so',
      async () => {
        const home = await one.home();
        const [other] = world.nodes.filter(({ name }) => name !== home.name);
        const before = await one.story();
        const cut = [home, other as ManyNodesNode];
        const load = one.load();
        await Promise.all(cut.map((node) => node.partition()));
        await Promise.all(cut.map(isSilent));
        const node = { id: home.nodeId };
        // Longer than any failover of the rows above.
        await sleep(2 * FAILOVER_MS);
        expect((await world.api.call('getNode', { params: node })).failover).toMatchObject({
          held: true,
          silent_nodes: 2,
          nodes: 3,
        });
        expect(await one.story()).toEqual(before);
        const answer = await world.api.call('failoverNode', { params: node, body: {} });
        expect(answer.moved).toContainEqual(expect.objectContaining({ project: 'one', number: 1 }));
        const back = await one.nextAnswer();
        const report = await load.stop();
        note('two of three cut', report, `next 200 ${seconds(back)} after the command`);
        const returning = one.load();
        await Promise.all(cut.map((one_) => one_.heal()));
        await whole();
        const returned = await returning.stop();
        note('return of both', returned);
        expect(returned).toMatchObject(clean);
      },
      5 * MINUTE,
    );

    it(
      'a control plane that was away for longer than FAILOVER_AFTER moves nothing when it is back',
      () => controlPlaneAway(stage, 1.5 * FAILOVER_MS),
      4 * MINUTE,
    );

    it(
      'a machine that stops while the control plane is away moves FAILOVER_AFTER after its return',
      async () => {
        const home = await one.home();
        await world.berth.controlPlane.stop();
        await home.kill();
        await sleep(1.5 * FAILOVER_MS);
        const from = performance.now();
        await world.berth.controlPlane.start();
        await one.nextAnswer();
        // Silence counts from the return.
        expect(performance.now() - from).toBeGreaterThan(FAILOVER_MS);
        await up(home);
        await whole();
      },
      5 * MINUTE,
    );

    it(
      'a failover whose target stops too starts on the third machine',
      async () => {
        const home = await one.home();
        const load = one.load();
        await home.kill();
        const target = await waitFor(
          'the new instance has a machine',
          async () => {
            const { instances } = await one.live();
            const next = instances.find(
              ({ node_id, state }) => node_id !== home.nodeId && state !== 'lost',
            );
            return next?.node_id !== undefined && next.node_id !== null && world.node(next.node_id);
          },
          { deadlineMs: MINUTE },
        );
        await target.kill();
        // Two of three are silent, so the brake holds what ran on the target. What still starts there
        // is a lost task: it starts on the third machine by itself.
        const isHeld = async (): Promise<boolean> => {
          const params = { id: target.nodeId };
          const { failover } = await world.api.call('getNode', { params });
          return failover?.held === true && failover.waiting > 0;
        };
        const answers = async (): Promise<boolean> =>
          world
            .ask('one', '/', { timeoutMs: 1_000 })
            .then(({ status }) => status === 200)
            .catch(() => false);
        const how = await waitFor(
          'it answers, or the brake holds it',
          async () => ((await answers()) ? 'lost task' : (await isHeld()) && 'brake'),
          { deadlineMs: MINUTE },
        );
        if (how === 'brake')
          await world.api.call('failoverNode', { params: { id: target.nodeId }, body: {} });
        await one.nextAnswer();
        const report = await load.stop();
        note('the target stops too', report, how);
        const last = await one.home();
        expect([home.name, target.name]).not.toContain(last.name);
        await Promise.all([up(home), up(target)]);
        await whole();
      },
      6 * MINUTE,
    );
  },
);
