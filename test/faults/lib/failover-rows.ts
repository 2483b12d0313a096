/**
 * Rows that `failover.test.ts` runs with a short FAILOVER_AFTER and `failover-defaults.test.ts`
 * with the default. A machine, its cable or the control plane stops under load.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'vitest';
import type { ProbeReport } from '@berth/testbed/prober';
import { waitFor } from '@berth/testbed/wait';
import type { ManyNodes, ManyNodesNode } from '../../e2e/many-nodes-world.ts';
import { type Application, deployApplication, startFailoverWorld } from './failover-world.ts';

const MINUTE = 60_000;
export const clean = { failures: [], failed: 0 };
export const seconds = (ms: number): string => `${(ms / 1_000).toFixed(1)} s`;

/** Three machines; `one` has one instance, `two` has two. */
export type FailoverStage = {
  world: ManyNodes;
  one: Application;
  two: Application;
  /** Keeps the figures of a row; stop() prints them. */
  note(row: string, report: ProbeReport, more?: string): void;
  /** Waits until every application is whole, so that each row begins with the same state. */
  whole(): Promise<void>;
  stop(): Promise<void>;
};

export async function startFailoverStage(env: Record<string, string>): Promise<FailoverStage> {
  const world = await startFailoverWorld(3, env);
  const figures: string[] = [];
  try {
    const one = await deployApplication(world, 'one', 1);
    const two = await deployApplication(world, 'two', 2);
    return {
      world,
      one,
      two,
      note(row, { sent, failed }, more = '') {
        figures.push(
          `${row}: ${failed} of ${sent} requests failed${more === '' ? '' : `; ${more}`}`,
        );
      },
      async whole() {
        await one.settledAt(1);
        await two.settledAt(2);
      },
      async stop() {
        await world.stop();
        for (const line of figures) console.log(line);
      },
    };
  } catch (error) {
    await world.stop();
    throw error;
  }
}

export async function up(node: ManyNodesNode): Promise<void> {
  await node.boot();
  await node.startAgent();
}

const idsOf = async (application: Application): Promise<string[]> =>
  (await application.containers()).map(({ id }) => id).toSorted();

/** Returns what must stay the same while nothing moves. */
const placesOf = async ({ one, two }: FailoverStage): Promise<string[][]> => [
  await idsOf(one),
  await idsOf(two),
  await one.story(),
  await two.story(),
];

/** It answers from another machine, and the old container is removed at the return. */
export async function powerCutOfOne(stage: FailoverStage): Promise<void> {
  const { one, two, note, whole } = stage;
  const home = await one.home();
  const load = one.load();
  await home.kill();
  const back = await one.nextAnswer();
  const report = await load.stop();
  note('power cut, one instance', report, `next 200 after ${seconds(back)}`);
  await two.servesWith(2);
  expect((await one.home()).name).not.toBe(home.name);
  expect(await one.story()).toContainEqual(
    expect.stringMatching(new RegExp(`^web 1 moves from ${home.name} to node-\\d; `)),
  );
  // The old container is removed after the new one answered: no visitor notices the return.
  const returning = one.load();
  await up(home);
  await whole();
  const returned = await returning.stop();
  note('return of that machine', returned);
  expect(returned).toMatchObject(clean);
  expect((await one.home()).name).not.toBe(home.name);
}

/** At most 1 % of the requests fail, and a new instance starts. */
export async function powerCutOfTwo(stage: FailoverStage): Promise<void> {
  const { world, two, note, whole } = stage;
  const [, second] = await two.serving();
  const home = world.node(second?.node_id ?? null);
  const load = two.load();
  await home.kill();
  await waitFor(
    'another instance starts',
    async () => (await two.live()).instances.some(({ state }) => state === 'lost'),
    { deadlineMs: 2 * MINUTE },
  );
  await two.servesWith(2);
  const report = await load.stop();
  note('power cut, two instances', report);
  expect(report.failed / report.sent).toBeLessThan(0.01);
  await up(home);
  await whole();
}

/** The cable of a machine is out for less than FAILOVER_AFTER: nothing moves. */
export async function cableOutShortly(stage: FailoverStage, forMs: number): Promise<void> {
  const { one, two, note, whole } = stage;
  const before = await placesOf(stage);
  const home = await one.home();
  const load = two.load();
  await home.partition();
  // The time is the fault: a switch that restarts.
  await sleep(forMs);
  await home.heal();
  await one.nextAnswer();
  await whole();
  const report = await load.stop();
  note(`cable out for ${seconds(forMs)}`, report);
  expect(report.failed / report.sent).toBeLessThan(0.01);
  expect(await placesOf(stage)).toEqual(before);
}

/**
 * The cable of a machine is out for longer than FAILOVER_AFTER, for `forMs` at least: the instance
 * moves once; at the return the old one ends, and the story says it.
 */
export async function cableOutForLonger(stage: FailoverStage, forMs: number): Promise<void> {
  const { one, note, whole } = stage;
  const moves = async (): Promise<number> =>
    (await one.story()).filter((line) => line.includes(' moves from ')).length;
  const before = await moves();
  const home = await one.home();
  const load = one.load();
  await home.partition();
  const [back] = await Promise.all([one.nextAnswer(), sleep(forMs)]);
  const report = await load.stop();
  note('cable out', report, `next 200 after ${seconds(back)}`);
  expect((await one.home()).name).not.toBe(home.name);
  expect((await one.containers()).length).toBe(2);
  const returning = one.load();
  await home.heal();
  await whole();
  const returned = await returning.stop();
  note('cable back', returned);
  expect(returned).toMatchObject(clean);
  expect(await one.story()).toContainEqual(expect.stringContaining('beside its replacement'));
  expect(await moves()).toBe(before + 1);
}

/** The control plane is away while everything runs: no request fails, and nothing moves. */
export async function controlPlaneAway(stage: FailoverStage, forMs: number): Promise<void> {
  const { world, one, two, note, whole } = stage;
  const before = await placesOf(stage);
  const loads = [one.load(), two.load()] as const;
  await world.berth.controlPlane.stop();
  await sleep(forMs);
  await world.berth.controlPlane.start();
  await whole();
  const [ofOne, ofTwo] = await Promise.all([loads[0].stop(), loads[1].stop()]);
  note(`control plane away for ${seconds(forMs)}, one instance`, ofOne);
  note(`control plane away for ${seconds(forMs)}, two instances`, ofTwo);
  expect([ofOne, ofTwo]).toMatchObject([clean, clean]);
  expect(await placesOf(stage)).toEqual(before);
}
