/**
 * npm run soak: redeploys projects again and again behind the real Traefik, under requests and
 * streams, with clean-ups of the registry in between. `--redeploys N` ends after N redeployments;
 * `--minutes N` ends after that time, and also kills Berth's processes with -9 at random. The
 * images run in an engine of their own with a disk (MAX_STORAGE) that is too small for all releases
 * that a rollback can go to. At the end come retention, the invariants (docs/invariants.md) of the
 * first project, and rollbacks. Needs root. Prints the figures, and exits with 1 when a request or
 * a deployment failed, an answer was old, cut or of another project, an invariant was broken, an
 * image or a rollback is missing, or the disk, the registry or the database exceeded its budget.
 */
import { parseArgs } from 'node:util';
import { whyNoOwnEngine } from '@berth/testbed/engine';
import { waitFor } from '@berth/testbed/wait';
import { whyNot } from '../test/e2e/world.ts';
import { checkRetention, cleanUp, watchDisk } from './lib/soak/budgets.ts';
import { checkIdle, checkRollbacks } from './lib/soak/checks.ts';
import { startKills } from './lib/soak/kills.ts';
import { startLoad } from './lib/soak/load.ts';
import { mb, printLine, violations } from './lib/soak/report.ts';
import { LATE, redeploy, type Size, type Soak, startSoak, type Target } from './lib/soak/world.ts';

/** Returns the size of the run from the options. */
function sizeOfRun(): Size {
  const { values } = parseArgs({
    options: {
      redeploys: { type: 'string' },
      minutes: { type: 'string', default: '10' },
      projects: { type: 'string', default: '4' },
      gigabytes: { type: 'string', default: '0' },
      keep: { type: 'string', default: '3' },
      'clean-ups': { type: 'string', default: '1' },
      seed: { type: 'string', default: String(Date.now() % 1_000_000) },
    },
  });
  const redeploys = values.redeploys === undefined ? null : Number(values.redeploys);
  const [minutes, projects] = [Number(values.minutes), Number(values.projects)];
  // About 25 redeployments go through in a minute.
  const images = projects + (redeploys ?? minutes * 25);
  return {
    redeploys,
    minutes,
    projects,
    imageBytes: Math.max(1e6, Math.round((Number(values.gigabytes) * 1e9) / images)),
    keep: Number(values.keep),
    cleanUps: Number(values['clean-ups']),
    seed: Number(values.seed),
  };
}

/**
 * Calls `work` for one project after the other until it returns false, for three projects at a
 * time. The first project, whose history is recorded, is one of them all the time.
 */
async function inTurn(
  { targets: [first, ...others] }: Soak,
  work: (target: Target, turn: number) => Promise<boolean>,
): Promise<void> {
  const halves = [0, 1].map((half) => others.filter((_other, i) => i % 2 === half));
  await Promise.all(
    [[first], ...halves].map(async (some) => {
      for (let turn = 0; ; turn++) {
        const target = some[turn % some.length];
        if (target === undefined || !(await work(target, Math.floor(turn / some.length)))) return;
      }
    }),
  );
}

/** Redeploys until the run has its size, and cleans the registry meanwhile. */
async function redeployAll(soak: Soak): Promise<void> {
  const { redeploys, minutes, cleanUps } = soak.size;
  const began = Date.now();
  let [begun, finished, cleaned] = [0, 0, 0];
  const part = (count: number): number =>
    redeploys === null ? (Date.now() - began) / (minutes * 60_000) : count / redeploys;
  await inTurn(soak, async (target) => {
    if (part(begun) >= 1) return false;
    begun += 1;
    await redeploy(soak, target);
    finished += 1;
    if (finished % 10 === 0) printLine(`${finished} redeployments have ended`);
    const due = Math.min(cleanUps, Math.floor(part(finished) * (cleanUps + 1)));
    if (due > cleaned) {
      cleaned = due;
      await cleanUp(soak, { mayFail: redeploys === null });
    }
    return true;
  });
}

async function run(soak: Soak): Promise<void> {
  const { size, world } = soak;
  await waitFor(
    'the agent that cleans the registry is registered',
    async () => (await world.berth.api.call('cleanUps', {})).unavailable === undefined,
    LATE,
  );
  const disk = watchDisk(soak);
  await inTurn(soak, async (target, turn) => {
    if (turn > 0) return false;
    const { status, error } = await redeploy(soak, target);
    if (status !== 'running')
      throw new Error(
        `the first version of ${target.project.name} is ${status}: ${error?.message}`,
      );
    return true;
  });
  printLine('each project has its first version; the load begins');
  const load = startLoad(soak);
  const kills = size.redeploys === null ? startKills(world.berth, size.seed) : null;
  await redeployAll(soak);
  await kills?.stop();
  printLine('the last redeployment has ended; waiting until everything is idle');
  await load.stop();
  await checkIdle(soak);
  await cleanUp(soak, { mayFail: false });
  await checkRetention(soak);
  await checkRollbacks(soak);
  await disk.stop();
}

const reason = (await whyNot('traefik')) ?? whyNoOwnEngine();
if (reason !== undefined) throw new Error(`the soak needs real parts: ${reason}`);
const size = sizeOfRun();
const howLong =
  size.redeploys === null
    ? `${size.minutes} minutes with kill -9 at random, seed ${size.seed}`
    : `${size.redeploys} redeployments`;
printLine(`${howLong}; ${size.projects} projects, ${mb(size.imageBytes)} for each release`);
const stops: (() => Promise<void>)[] = [];
const stop = async (): Promise<void> => {
  for (const end of stops.splice(0).toReversed()) await end();
};
for (const signal of ['SIGINT', 'SIGTERM'] as const)
  process.once(signal, () => void stop().finally(() => process.exit(1)));
try {
  await run(await startSoak(size, stops));
} finally {
  await stop();
}
printLine(`${violations.length} violations`);
process.exit(violations.length === 0 ? 0 : 1);
