/** The gateway as a process: settings, logs, signals, workers. `bin/berth gateway` calls `main`. */
import { type Closers, createClosers, closeOnSignals } from '@berth/kit/closers';
import { settingsOrExit } from '@berth/kit/config';
import { createLogger, type Logger } from '@berth/kit/log';
import { createGateway, type Overrides } from './app.ts';
import { type Config, inheritedSocket, readConfig, reloading, type SETTINGS } from './config.ts';
import type { Reloading } from '@berth/kit/reload';
import {
  acceptInWorkers,
  isWorker,
  superviseWorkers,
  type WorkerSide,
  workerSide,
} from './workers.ts';

export async function main(): Promise<void> {
  // First, so that SIGHUP does not end a process that starts, and a file that changes after it was
  // read is news.
  const settings = reloading(() => log);
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
    side.onReload(() => void settings.reload());
    return start(
      { config, settings, log, closers },
      { ...side, inherited: inheritedSocket(process.ppid) },
    );
  }
  // Install the handlers first, so that a signal during the start ends the process too.
  closeOnSignals(closers, log);
  const inherited = inheritedSocket(process.pid);
  if (config.GATEWAY_WORKERS === 1) return start({ config, settings, log, closers }, { inherited });
  if (inherited !== undefined) acceptInWorkers();
  const workers = superviseWorkers(
    config.GATEWAY_WORKERS,
    log,
    () => void closers.close().then(() => process.exit(1)),
  );
  // This process uses no secret itself. A worker that starts later reads the files as they are
  // then.
  process.on('SIGHUP', () => workers.reload());
  closers.add('workers', () => workers.close());
}

type Process = {
  config: Config;
  settings: Reloading<typeof SETTINGS>;
  log: Logger;
  closers: Closers;
};

async function start(
  { config, settings, log, closers }: Process,
  overrides: Partial<Overrides> & Partial<WorkerSide>,
): Promise<void> {
  try {
    const gateway = await createGateway(config, { log, processMetrics: true, ...overrides });
    overrides.shareMetrics?.(gateway.metrics.registry);
    closers.add('gateway', () => gateway.close());
    const { address, port } = await gateway.listen();
    settings.ready(gateway.reload.replace, gateway.reload.replaced);
    closers.add('reload', () => settings.close());
    log.info(
      {
        address: `${address}:${port}`,
        public_url: config.PUBLIC_URL,
        policy: gateway.deps.policy.view().loaded,
      },
      'gateway is listening',
    );
  } catch (error) {
    log.fatal({ err: error }, error instanceof Error ? error.message : 'start failed');
    await closers.close();
    process.exit(1);
  }
}
