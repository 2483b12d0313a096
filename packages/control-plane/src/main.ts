/** `berth control-plane`: the API, the scheduler and the database. */
import { type ProcessContext, runProcess } from '@berth/kit/run-process';
import { createApp } from './app.ts';
import { type Config, readConfig, reloading, type SETTINGS } from './config.ts';

export async function main(): Promise<void> {
  await runProcess({
    reloading,
    readConfig,
    logOf: (config) => ({ name: 'control-plane', format: config.LOG_FORMAT }),
    start,
  });
}

async function start({
  config,
  log,
  closers,
  ready,
}: ProcessContext<Config, typeof SETTINGS>): Promise<void> {
  const app = await createApp(config, { log, processMetrics: true });
  closers.add('app', () => app.close());
  const address = await app.listen();
  ready(app.secrets.replace, app.secrets.replaced);
  log.info(
    { address, public_url: config.PUBLIC_URL, base_domain: config.BASE_DOMAIN },
    'control plane is listening',
  );
}
