/**
 * The unchanged control plane in a separate process, for bench/agents.ts. It prints
 * `committed <epoch ms> <task id>` after each commit that created a task, and `delay <longest, ms>`
 * each second. With BENCH_PROFILE set, SIGUSR2 starts a CPU profile and the next SIGUSR2 writes it
 * to that file.
 */
import { writeFileSync } from 'node:fs';
import { Session } from 'node:inspector/promises';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { closeOnSignals, createClosers } from '@berth/kit/closers';
import { createLogger } from '@berth/kit/log';
import { createApp } from '../packages/control-plane/src/app.ts';
import { readConfig } from '../packages/control-plane/src/config.ts';
import { openStores } from '../packages/control-plane/src/store/open.ts';

const config = readConfig();
const log = createLogger({ name: 'control-plane', level: config.LOG_LEVEL, format: 'json' });
const stores = await openStores({ databaseUrl: config.DATABASE_URL, log });
const { commit } = stores.flow;
stores.flow.commit = async (plan) => {
  const outcome = await commit(plan);
  const at = performance.timeOrigin + performance.now();
  if (outcome === 'committed')
    for (const task of plan.createTasks) process.stdout.write(`committed ${at} ${task.id}\n`);
  return outcome;
};
const app = await createApp(config, { log, stores, processMetrics: true });
const closers = createClosers(log, 20_000);
closers.add('app', () => app.close());
closeOnSignals(closers, log);
await app.listen();

// Event loop delay: the machine's share in a slow answer. The resolution is coarse, so that the
// measurement itself costs little: at 5 ms it took 0.9 % of a core.
const SAMPLE_MS = 50;
const delay = monitorEventLoopDelay({ resolution: SAMPLE_MS });
delay.enable();
setInterval(() => {
  // The delay between two samples, without the intended pause.
  process.stdout.write(`delay ${Math.max(0, delay.max / 1e6 - SAMPLE_MS).toFixed(1)}\n`);
  delay.reset();
}, 1_000).unref();

const file = process.env['BENCH_PROFILE'];
if (file !== undefined) {
  const session = new Session();
  session.connect();
  await session.post('Profiler.enable');
  let running = false;
  const toggle = async (): Promise<void> => {
    running = !running;
    if (running) await session.post('Profiler.start');
    else writeFileSync(file, JSON.stringify((await session.post('Profiler.stop')).profile));
  };
  process.on('SIGUSR2', () => void toggle());
}
