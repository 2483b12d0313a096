/**
 * npm run sim: seeded runs of the lifecycle on simulated time (packages/control-plane/test/sim).
 * Exits 1 on a broken invariant.
 */
import { parseArgs } from 'node:util';
import { startPostgres, whyNoPostgres } from '@berth/testbed/postgres';
import { onPostgres } from '../packages/control-plane/test/sim/on-postgres.ts';
import { PLANTS, type PlantName } from '../packages/control-plane/test/sim/plants.ts';
import { keepHistory, report } from '../packages/control-plane/test/sim/report.ts';
import { run, type RunOptions } from '../packages/control-plane/test/sim/run.ts';

const USAGE = `npm run sim -- [options]
  --seeds N      runs N seeds (default 1000; with --postgres 100)
  --from N       starts with seed N (default 1)
  --seed N       runs only this seed
  --repeat N     runs each seed N times: on PostgreSQL the same seed is not the same run
  --trace        prints every event of the history as a JSON line
  --plant NAME   plants a bug: ${Object.keys(PLANTS).join(', ')}
  --crowded      four projects on one or two nodes in each run
  --scaled       projects with several instances, and silent machines, in each run
  --jobs         projects with jobs, runs and release commands in each run
  --without-web  people take the process web from projects and bring it back in each run
  --restless     people change their minds in each run
  --postgres     runs two control planes on a private PostgreSQL; locks and sockets are not seeded
  --at-once N    runs N seeds at the same time (default 1; with --postgres 3)`;

const { values } = parseArgs({
  options: {
    seed: { type: 'string' },
    seeds: { type: 'string' },
    from: { type: 'string', default: '1' },
    repeat: { type: 'string', default: '1' },
    plant: { type: 'string', default: 'none' },
    trace: { type: 'boolean', default: false },
    postgres: { type: 'boolean', default: false },
    crowded: { type: 'boolean', default: false },
    scaled: { type: 'boolean', default: false },
    jobs: { type: 'boolean', default: false },
    'without-web': { type: 'boolean', default: false },
    restless: { type: 'boolean', default: false },
    'at-once': { type: 'string' },
    help: { type: 'boolean', default: false },
  },
});
if (values.help) {
  console.log(USAGE);
  process.exit(0);
}
if (!Object.hasOwn(PLANTS, values.plant)) refuse(`unknown planted bug "${values.plant}"`);
const plant = values.plant as PlantName;
const from = wholeNumber('seed', values.seed ?? values.from);
const count =
  values.seed === undefined
    ? wholeNumber('seeds', values.seeds ?? (values.postgres ? '100' : '1000'))
    : 1;
const repeat = wholeNumber('repeat', values.repeat);
const atOnce = wholeNumber('at-once', values['at-once'] ?? (values.postgres ? '3' : '1'));
const reason = values.postgres ? whyNoPostgres() : undefined;
if (reason !== undefined) refuse(`--postgres: ${reason}`);

const began = performance.now();
const sum = { violations: 0, deployments: 0, events: 0, simulatedMs: 0 };
const flags = [
  values.crowded ? ' --crowded' : '',
  values.scaled ? ' --scaled' : '',
  values.jobs ? ' --jobs' : '',
  values['without-web'] ? ' --without-web' : '',
  values.restless ? ' --restless' : '',
  values.postgres ? ' --postgres' : '',
  plant === 'none' ? '' : ` --plant "${plant}"`,
].join('');
const server = values.postgres ? await startPostgres() : undefined;
try {
  const database = server === undefined ? {} : { database: await onPostgres(server) };
  const favoured = {
    ...(values.crowded ? { crowded: 1 } : {}),
    ...(values.scaled ? { scales: 1 } : {}),
    ...(values.jobs ? { jobs: 1 } : {}),
    ...(values['without-web'] ? { withoutWeb: 1 } : {}),
    ...(values.restless ? { restless: true } : {}),
  };
  const options = {
    plant,
    ...favoured,
    ...database,
    ...(values.trace ? { trace: (event: object) => console.log(JSON.stringify(event)) } : {}),
  };
  const waiting = Array.from({ length: count * repeat }, (_, i) => from + (i % count));
  await Promise.all(Array.from({ length: atOnce }, () => work(waiting, options)));
} finally {
  await server?.stop();
}
const seconds = (performance.now() - began) / 1000;
console.log(
  `${count * repeat} runs, ${sum.deployments} deployments, ${sum.events} events, ` +
    `${(sum.simulatedMs / 60_000).toFixed(0)} simulated minutes in ${seconds.toFixed(1)} s: ` +
    `${sum.violations} violations`,
);
process.exitCode = sum.violations === 0 ? 0 : 1;

async function work(waiting: number[], options: Omit<RunOptions, 'seed'>): Promise<void> {
  for (let seed = waiting.shift(); seed !== undefined; seed = waiting.shift()) {
    const result = await run({ seed, ...options });
    sum.violations += result.violations.length;
    sum.deployments += result.deployments;
    sum.events += result.history.length;
    sum.simulatedMs += result.simulatedMs;
    if (result.violations.length === 0) continue;
    console.log(report(result, flags));
    // The same failure may not occur again, so its history is kept.
    if (values.postgres) console.log(`  its history: ${keepHistory(result)}`);
  }
}

function wholeNumber(name: string, text: string): number {
  return /^\d{1,9}$/.test(text)
    ? Number(text)
    : refuse(`--${name}: "${text}" is not a whole number`);
}

function refuse(why: string): never {
  console.error(`${why}\n\n${USAGE}`);
  process.exit(2);
}
