/**
 * `berth relay`: runs beside the reverse proxy and serves it the last configuration while the
 * control plane is away (docs/adr/0009-configuration-relay.md).
 */
import { createClosers, closeOnSignals } from '@berth/kit/closers';
import { createLogger } from '@berth/kit/log';
import { readConfig, reloading } from './config.ts';
import { openConfigStore } from './config-store.ts';
import { createMetrics } from './metrics.ts';
import { createRelayServer } from './server.ts';
import { followUpstream } from './upstream.ts';

export async function main(): Promise<void> {
  const settings = reloading(() => log);
  const config = readConfig();
  const log = createLogger({ name: 'relay', level: config.LOG_LEVEL, format: config.logFormat });
  const closers = createClosers(log);
  const store = await openConfigStore(config.STATE_DIR, log);
  const upstream = followUpstream(config.CONTROL_PLANE_URL, store, log);
  closers.add('upstream', () => upstream.stop());
  const server = createRelayServer(store, upstream, {
    metrics: createMetrics(store, upstream, { processMetrics: true }),
  });
  const { address, port } = await server.listen(config.LISTEN);
  closers.add('server', () => server.close());
  settings.ready({});
  closers.add('reload', () => settings.close());
  closeOnSignals(closers, log);
  log.info(
    { address: `${address}:${port}`, has_configuration: store.current() !== null },
    'relay listening',
  );
}
