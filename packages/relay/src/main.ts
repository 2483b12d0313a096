/**
 * `berth relay`: runs beside the reverse proxy and serves the last configuration to it while the
 * control plane is unreachable (docs/adr/0009-configuration-relay.md).
 */
import { type ProcessContext, runProcess } from '@berth/kit/run-process';
import { type RelayConfig, readConfig, reloading, type SETTINGS } from './config.ts';
import { openConfigStore } from './config-store.ts';
import { createMetrics } from './metrics.ts';
import { createRelayServer } from './server.ts';
import { followUpstream } from './upstream.ts';

export async function main(): Promise<void> {
  await runProcess({
    reloading,
    readConfig,
    logOf: (config) => ({ name: 'relay', format: config.logFormat }),
    start,
  });
}

async function start({
  config,
  log,
  closers,
  ready,
}: ProcessContext<RelayConfig, typeof SETTINGS>): Promise<void> {
  const store = await openConfigStore(config.STATE_DIR, log);
  const upstream = followUpstream(config.CONTROL_PLANE_URL, store, log);
  closers.add('upstream', () => upstream.stop());
  const server = createRelayServer(store, upstream, {
    metrics: createMetrics(store, upstream, { processMetrics: true }),
  });
  const { address, port } = await server.listen(config.LISTEN);
  closers.add('server', () => server.close());
  ready({});
  log.info(
    { address: `${address}:${port}`, has_configuration: store.current() !== null },
    'relay listening',
  );
}
