/** `berth gateway`: one process, or a supervisor with GATEWAY_WORKERS workers. */
import { type ProcessContext, runProcess } from '@berth/kit/run-process';
import { createGateway, type Overrides } from './app.ts';
import { type Config, inheritedSocket, readConfig, reloading, type SETTINGS } from './config.ts';
import {
  acceptInWorkers,
  isWorker,
  superviseWorkers,
  type WorkerSide,
  workerSide,
} from './workers.ts';

type GatewayProcess = ProcessContext<Config, typeof SETTINGS>;

export async function main(): Promise<void> {
  await runProcess({
    reloading,
    readConfig,
    logOf: (config) => ({ name: 'gateway', format: config.LOG_FORMAT }),
    handlesSignals: !isWorker(),
    start: isWorker() ? startWorker : startMain,
  });
}

async function startWorker(running: GatewayProcess): Promise<void> {
  const side = workerSide();
  side.onDrain(() => void running.closers.close().then(() => process.exit(0)));
  side.onReload(() => void running.reload());
  await serve(running, { ...side, inherited: inheritedSocket(process.ppid) });
}

async function startMain(running: GatewayProcess): Promise<void> {
  const inherited = inheritedSocket(process.pid);
  if (running.config.GATEWAY_WORKERS === 1) return serve(running, { inherited });
  if (inherited !== undefined) acceptInWorkers();
  const { config, log, closers } = running;
  const workers = superviseWorkers(
    config.GATEWAY_WORKERS,
    log,
    () => void closers.close().then(() => process.exit(1)),
  );
  // The primary process uses no secrets itself. A worker that starts later reads the current files.
  process.on('SIGHUP', () => workers.reload());
  closers.add('workers', () => workers.close());
}

async function serve(
  { config, log, closers, ready }: GatewayProcess,
  overrides: Partial<Overrides> & Partial<WorkerSide>,
): Promise<void> {
  const gateway = await createGateway(config, { log, processMetrics: true, ...overrides });
  overrides.shareMetrics?.(gateway.metrics.registry);
  closers.add('gateway', () => gateway.close());
  const { address, port } = await gateway.listen();
  ready(gateway.reload.replace, gateway.reload.replaced);
  log.info(
    {
      address: `${address}:${port}`,
      public_url: config.PUBLIC_URL,
      policy: gateway.deps.policy.view().loaded,
    },
    'gateway is listening',
  );
}
