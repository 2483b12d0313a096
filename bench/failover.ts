/**
 * Measures the effect of a machine that stops on its visitors, with default settings: three
 * machines, real agents and the real proxy, 50 requests a second.
 *
 * - One instance whose data another machine has by `data_copies`: time from the power cut to the
 *   next 200, and bytes that were copied.
 * - Two instances: share of failed requests of 1,000 around the power cut.
 * - A cable that is out for 20 s: whether anything moves.
 * - Redeployments of three instances: failed requests, and answers of an older version.
 *
 * Other platforms on the same kind of machine (shared/design/APPLICATIONS.md): Docker Swarm 40 s;
 * Kubernetes 350 s with its defaults, 55 s with a short toleration.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { waitFor } from '@berth/testbed/wait';
import { bytes, dependency, newDataset } from '../test/e2e/data-world.ts';
import {
  type ManyNodes,
  type ManyNodesNode,
  whyNotManyNodes,
} from '../test/e2e/many-nodes-world.ts';
import { pageApp } from '../test/e2e/world.ts';
import {
  type Application,
  deployApplication,
  PER_SECOND,
  startFailoverWorld,
} from '../test/faults/lib/failover-world.ts';

const ROUNDS = 3;
const CUT_MS = 20_000;
/** Requests that are sent after the power cut of one of two machines, with those before it 1,000. */
const REQUESTS = 1_000;
const DATASET_BYTES = 100_000_000;
const GOAL = { nextMs: 45_000, failedShare: 0.01 };
const MINUTE = 60_000;

type Round = { nextMs: number; copied: number; failed: number; sent: number; moved: number };

export async function benchFailover(redeployments: number): Promise<string[]> {
  const reason = whyNotManyNodes();
  if (reason !== undefined) return [`failover: skipped (${reason})`];
  const world = await startFailoverWorld(3, { FAILOVER_AFTER: '30s', OFFLINE_AFTER: '2m' });
  try {
    const stars = await newDataset(world, 'stars', { 'stars.bin': bytes('stars', DATASET_BYTES) });
    const one = await deployApplication(world, 'one', 1, {
      datasets: [dependency(stars)],
      data_copies: 2,
    });
    const two = await deployApplication(world, 'two', 2);
    const rounds: Round[] = [];
    for (let i = 0; i < ROUNDS; i++) rounds.push(await oneRound(world, one, two));
    return [...linesOf(rounds), await redeploy(world, redeployments)];
  } finally {
    await world.stop();
  }
}

async function oneRound(world: ManyNodes, one: Application, two: Application): Promise<Round> {
  await waitFor(
    'two machines hold the dataset',
    async () =>
      (await world.api.call('projectDataCopies', { params: { id: one.project.id } })).have === 2,
    { deadlineMs: MINUTE },
  );
  const copiesBefore = await copiesOf(world, one);
  const nextMs = await cutPower(await one.home(), () => one.nextAnswer());
  const copied = (await copiesOf(world, one)) - copiesBefore;
  await settled(one, two);

  const [, second] = await two.serving();
  const report = await cutPower(world.node(second?.node_id ?? null), async (cut) => {
    const load = two.load();
    await sleep((REQUESTS / PER_SECOND / 10) * 1_000);
    await cut();
    await sleep((REQUESTS / PER_SECOND) * 900);
    return load.stop();
  });
  await settled(one, two);

  const before = [...(await one.containers()), ...(await two.containers())].map(({ id }) => id);
  const home = await one.home();
  await home.partition();
  await sleep(CUT_MS);
  await home.heal();
  await registersAgain(world, home);
  await settled(one, two);
  const after = [...(await one.containers()), ...(await two.containers())];
  return {
    nextMs,
    copied,
    failed: report.failed,
    sent: report.sent,
    moved: after.filter(({ id }) => !before.includes(id)).length,
  };
}

/**
 * Cuts the power of the machine and measures; then the machine starts again. `measure` cuts by
 * itself if it takes `cut`.
 */
async function cutPower<T>(
  node: ManyNodesNode,
  measure: (cut: () => Promise<void>) => Promise<T>,
): Promise<T> {
  if (measure.length === 0) await node.kill();
  const result = await measure(() => node.kill());
  await node.boot();
  await node.startAgent();
  return result;
}

/** The silence of the cut must not count for the next round. */
async function registersAgain(world: ManyNodes, node: ManyNodesNode): Promise<void> {
  const from = Date.now();
  await waitFor(
    `${node.name} registers again`,
    async () => {
      const { last_seen_at } = await world.api.call('getNode', { params: { id: node.nodeId } });
      return Date.parse(last_seen_at) > from;
    },
    { deadlineMs: MINUTE },
  );
}

async function settled(one: Application, two: Application): Promise<void> {
  await one.settledAt(1);
  await two.settledAt(2);
}

/** Returns how many copies of the dataset the log of the deployment names. */
async function copiesOf(world: ManyNodes, one: Application): Promise<number> {
  const lines = await world.berth.logs(await one.live());
  return lines.filter((line) => /copying stars/.test(line)).length;
}

const seconds = (ms: number): string => (ms / 1_000).toFixed(1);

function linesOf(rounds: readonly Round[]): string[] {
  const all = (of: (round: Round) => string | number): string => rounds.map(of).join(', ');
  const worst = Math.max(...rounds.map(({ nextMs }) => nextMs));
  const share = Math.max(...rounds.map(({ failed, sent }) => failed / sent));
  const goal = (isMet: boolean): string => (isMet ? 'met' : 'MISSED');
  return [
    `failover: one instance, data in place: next 200 after ${all((r) => seconds(r.nextMs))} s ` +
      `(goal 45 s: ${goal(worst <= GOAL.nextMs)}); copies of the dataset ` +
      `${all((r) => r.copied)} (goal 0: ${goal(rounds.every((r) => r.copied === 0))}). Docker ` +
      'Swarm 40 s, Kubernetes 350 s (55 s with a short toleration)',
    `failover: two instances: failed ${all((r) => `${r.failed} of ${r.sent}`)} requests (goal 1 %: ` +
      `${goal(share <= GOAL.failedShare)})`,
    `failover: cable out for 20 s: moved instances ${all((r) => r.moved)} (goal 0: ` +
      `${goal(rounds.every((r) => r.moved === 0))})`,
  ];
}

async function redeploy(world: ManyNodes, times: number): Promise<string> {
  const three = await deployApplication(world, 'three', 3);
  const load = three.load();
  for (let i = 0; i < times; i++) {
    await world.git.commit('three', pageApp(i + 2), `version ${i + 2}`);
    const done = await world.berth.settled(await world.berth.deploy(three.project), 2 * MINUTE);
    if (done.status !== 'running') throw new Error(`redeployment: ${JSON.stringify(done.error)}`);
  }
  const { sent, failed, stale, failures } = await load.stop();
  return (
    `failover: ${times} redeployments of three instances: ${failed} of ${sent} requests failed, ` +
    `${stale} answers of an older version (goal 0 and 0: ` +
    `${failed === 0 && stale === 0 ? 'met' : `MISSED ${failures.slice(0, 3).join(' | ')}`})`
  );
}
