/**
 * Time from `git push` to the first answer of the pushed version, through the real Traefik: with a
 * hook of the real Gitea, against the same push followed at once by the request of a deployment. In
 * turns, in one run. Each round is one ratio.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type ForgeWorld, startForgeWorld, whyNoForge } from '../test/e2e/forge-world.ts';
import { versionOf } from '../test/e2e/world.ts';
import { summary } from './stats.ts';

const ROUNDS = 3;
const DEADLINE_MS = 120_000;
type Way = 'hook' | 'hand';

async function pushed(world: ForgeWorld, way: Way): Promise<number> {
  const { berth, project } = world;
  const params = { id: project.id };
  await berth.api.call('patchProject', { params, body: { deploy_on_push: way === 'hook' } });
  const from = performance.now();
  const commit = await world.push();
  if (way === 'hand') await berth.deploy(project);
  const late = AbortSignal.timeout(DEADLINE_MS);
  // No answer, or an answer of the old version, means "not yet". The deadline ends the wait.
  const isLive = async (): Promise<boolean> =>
    versionOf((await berth.get('app')).body) === world.version();
  while (!(await isLive().catch(() => false))) await sleep(5, undefined, { signal: late });
  const took = performance.now() - from;
  // The next steps (retiring the old container) must not run during the next round.
  const [deployment] = (await berth.api.call('projectDeployments', { params, query: { limit: 1 } }))
    .items;
  if (deployment === undefined || (await berth.settled(deployment)).commit !== commit)
    throw new Error(`commit ${commit} was not deployed`);
  return took;
}

export async function benchPush(): Promise<string[]> {
  const reason = await whyNoForge();
  if (reason !== undefined) return [`push: skipped: ${reason}`];
  const world = await startForgeWorld();
  try {
    const took: Record<Way, number[]> = { hook: [], hand: [] };
    for (let round = 0; round <= ROUNDS; round++)
      // The order alternates, so that neither always profits from the other's warm cache.
      for (const way of round % 2 === 0
        ? (['hook', 'hand'] as const)
        : (['hand', 'hook'] as const)) {
        const ms = await pushed(world, way);
        // The first round only warms up both.
        if (round > 0) took[way].push(ms);
      }
    const [hook, hand] = [summary(took.hook), summary(took.hand)];
    const ratios = took.hook.map((ms, i) => ms / (took.hand[i] ?? Number.NaN));
    const list = (values: number[], digits: number): string =>
      values.map((v) => v.toFixed(digits)).join(', ');
    return [
      `push (git push to first answer, real Gitea and Traefik, ${ROUNDS} rounds in turns): by ` +
        `hook ${list(took.hook, 0)} ms, by hand ${list(took.hand, 0)} ms`,
      `push: ratio ${list(ratios, 2)}; of the p50s ${(hook.p50 / hand.p50).toFixed(2)} ` +
        `(${((hook.p50 - hand.p50) / 1000).toFixed(2)} s more than by hand)`,
    ];
  } finally {
    await world.stop();
  }
}
