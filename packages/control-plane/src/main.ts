/**
 * Runs the control plane as a process: reads settings, writes logs, handles signals.
 * `bin/berth control-plane` calls `main`.
 */
import { createClosers, closeOnSignals } from '@berth/kit/closers';
import { settingsOrExit } from '@berth/kit/config';
import { armFailPoints } from '@berth/kit/fail-point';
import { createLogger } from '@berth/kit/log';
import { createApp } from './app.ts';
import { readConfig, reloading } from './config.ts';

export async function main(): Promise<void> {
  // First, so that SIGHUP does not end a process that starts, and a file that changes after it was
  // read is news.
  const settings = reloading(() => log);
  const config = settingsOrExit(readConfig);
  const log = createLogger({
    name: 'control-plane',
    level: config.LOG_LEVEL,
    format: config.LOG_FORMAT,
    traces: config.OTEL_EXPORTER_OTLP_ENDPOINT !== undefined,
  });
  armFailPoints(config.BERTH_FAIL_POINTS ?? []);
  const closers = createClosers(log, 20_000);
  // Installed first, so that a signal during the start ends the process too.
  closeOnSignals(closers, log);
  try {
    const app = await createApp(config, { log, processMetrics: true });
    closers.add('app', () => app.close());
    const address = await app.listen();
    settings.ready(app.secrets.replace, app.secrets.replaced);
    closers.add('reload', () => settings.close());
    log.info(
      { address, public_url: config.PUBLIC_URL, base_domain: config.BASE_DOMAIN },
      'control plane is listening',
    );
  } catch (error) {
    log.fatal({ err: error }, error instanceof Error ? error.message : 'start failed');
    await closers.close();
    process.exit(1);
  }
}
