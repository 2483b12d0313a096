/** `berth relay`: stands beside the reverse proxy and hands it the last configuration while the control plane is away (ADR 9). */
import { createClosers, closeOnSignals } from '@berth/kit/closers';
import { createLogger } from '@berth/kit/log';
import { readConfig } from './config.ts';
import { openKept } from './kept.ts';
import { createRelayServer } from './server.ts';
import { followUpstream } from './upstream.ts';

export async function main(): Promise<void> {
  const config = readConfig();
  const log = createLogger({ name: 'relay', level: config.LOG_LEVEL, format: config.logFormat });
  const closers = createClosers(log);
  const kept = await openKept(config.STATE_DIR, log);
  const upstream = followUpstream(config.CONTROL_PLANE_URL, kept, log);
  closers.add('upstream', () => upstream.stop());
  const server = createRelayServer(kept, upstream);
  const { address, port } = await server.listen(config.LISTEN);
  closers.add('server', () => server.close());
  closeOnSignals(closers, log);
  log.info({ address: `${address}:${port}`, kept: kept.current() !== null }, 'listening');
}
