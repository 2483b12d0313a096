/**
 * npm run test:backup: backups of a control plane under load, each restored and compared
 * (packages/control-plane/test/backup/load). Exits with 1 when a restored copy differs. With a
 * planted bug it exits with 1 because the bug was found.
 */
import { parseArgs } from 'node:util';
import { startPostgres, whyNoPostgres } from '@berth/testbed/postgres';
import {
  backupRounds,
  type Plant,
  PLANTS,
} from '../packages/control-plane/test/backup/load/rounds.ts';

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '100' },
    engine: { type: 'string', default: 'both' },
    plant: { type: 'string', default: 'none' },
    pause: { type: 'string', default: '30' },
    help: { type: 'boolean', default: false },
  },
});
const wrong =
  !Object.hasOwn(PLANTS, values.plant) ||
  !['sqlite', 'postgres', 'both'].includes(values.engine) ||
  !(Number(values.rounds) > 0) ||
  !(Number(values.pause) >= 0);
if (values.help || wrong) {
  console.log(`npm run test:backup -- [options]
  --rounds N      backups for each engine (default 100)
  --engine NAME   sqlite, postgres or both (default both)
  --pause MS      pause of each client after a write (default 30)
  --plant NAME    plants a bug: ${Object.keys(PLANTS).join(', ')}`);
  process.exit(wrong ? 2 : 0);
}

const started = performance.now();
const print = (line: string): void =>
  console.log(`${((performance.now() - started) / 1000).toFixed(0).padStart(5)} s  ${line}`);
const milliseconds = ({ n, p50, p99 }: { n: number; p50: number; p99: number }): string =>
  `p50 ${p50.toFixed(1)} ms, p99 ${p99.toFixed(1)} ms (${n} requests)`;

for (const engine of values.engine === 'both'
  ? (['sqlite', 'postgres'] as const)
  : [values.engine]) {
  const reason = engine === 'postgres' ? whyNoPostgres() : undefined;
  if (reason !== undefined) {
    print(`${engine}: skipped: ${reason}`);
    process.exitCode = 1;
    continue;
  }
  const postgres = engine === 'postgres' ? await startPostgres() : null;
  try {
    print(
      `${engine}: ${values.rounds} rounds` +
        (values.plant === 'none' ? '' : `, planted bug: ${PLANTS[values.plant as Plant]}`),
    );
    const [rounds, pauseMs] = [Number(values.rounds), Number(values.pause)];
    const report = await backupRounds({
      rounds,
      postgres,
      plant: values.plant as Plant,
      pauseMs,
      print,
    });
    const { latency, backupMs } = report;
    print(
      `${engine}: ${report.rounds} backups of ${report.writes} answered writes; ` +
        `${report.unchanged} rows compared`,
    );
    for (const kind of ['write', 'read'] as const)
      print(
        `  ${kind}s during a backup: ${milliseconds(latency[kind].during)}; otherwise: ` +
          `${milliseconds(latency[kind].otherwise)}; ` +
          `ratio of p50 ${(latency[kind].during.p50 / latency[kind].otherwise.p50).toFixed(2)}`,
      );
    print(
      `  backup: p50 ${backupMs.p50.toFixed(0)} ms, longest ${backupMs.max.toFixed(0)} ms; ` +
        `failed requests: ${report.failures.length}`,
    );
    for (const failure of report.failures.slice(0, 5)) print(`  ${failure}`);
    print(
      `${engine}: ` +
        (report.problems.length === 0
          ? 'every restored copy is equal'
          : `${report.problems.length} problems`),
    );
    if (report.problems.length > 0 || report.failures.length > 0) process.exitCode = 1;
  } finally {
    await postgres?.stop();
  }
}
