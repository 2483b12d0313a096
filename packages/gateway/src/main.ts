/** The gateway as a process: settings, logs, signals, workers. `bin/berth gateway` calls `main`. */
import { type Closers, createClosers, closeOnSignals } from '@berth/kit/closers';
import { settingsOrExit } from '@berth/kit/config';
import { createLogger, type Logger } from '@berth/kit/log';
import { createGateway, type Overrides } from './app.ts';
import { type Config, readConfig } from './config.ts';
import { isWorker, superviseWorkers, type WorkerSide, workerSide } from './workers.ts';

export async function main(): Promise<void> {
  const config = settingsOrExit(readConfig);
  const log = createLogger({
    name: 'gateway',
    level: config.LOG_LEVEL,
    format: config.LOG_FORMAT,
    traces: config.OTEL_EXPORTER_OTLP_ENDPOINT !== undefined,
  });
  const closers = createClosers(log, 20_000);
  if (isWorker()) {
    const side = workerSide();
    side.onDrain(() => void closers.close().then(() => process.exit(0)));
    return start(config, log, closers, side);
  }
  // Install the handlers first, so that a signal during the start ends the process too.
  closeOnSignals(closers, log);
  if (config.GATEWAY_WORKERS === 1) return start(config, log, closers, {});
  const workers = superviseWorkers(config.GATEWAY_WORKERS, log, () => void closers.close().then(() => process.exit(1)));
  closers.add('workers', () => workers.close());
}

async function start(config: Config, log: Logger, closers: Closers, overrides: Partial<Overrides> & Partial<WorkerSide>): Promise<void> {
  try {
    const gateway = await createGateway(config, { log, processMetrics: true, ...overrides });
    overrides.shareMetrics?.(gateway.metrics.registry);
    closers.add('gateway', () => gateway.close());
    const { address, port } = await gateway.listen();
    log.info(
      { address: `${address}:${port}`, public_url: config.PUBLIC_URL, policy: gateway.deps.policy.view().loaded },
      'gateway is listening',
    );
  } catch (error) {
    log.fatal({ err: error }, error instanceof Error ? error.message : 'start failed');
    await closers.close();
    process.exit(1);
  }
}
