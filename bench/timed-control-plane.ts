/**
 * The control plane as it is, in a process of its own, that also says on stdout when each commit that created a task was over:
 * `committed <epoch ms> <task id>`. What bench/agents.ts measures from.
 */
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
  if (outcome === 'committed') for (const task of plan.createTasks) process.stdout.write(`committed ${at} ${task.id}\n`);
  return outcome;
};
const app = await createApp(config, { log, stores, processMetrics: true });
const closers = createClosers(log, 20_000);
closers.add('app', () => app.close());
closeOnSignals(closers, log);
await app.listen();
