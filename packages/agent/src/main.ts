/** Entry of `berth agent`. Exits with 2 on wrong settings, with 1 if the start fails, and with 0 after SIGTERM. */
import { closeOnSignals, createClosers } from '@berth/kit/closers';
import { settingsOrExit } from '@berth/kit/config';
import { armFailPoints } from '@berth/kit/fail-point';
import { createLogger } from '@berth/kit/log';
import { startAgent } from './agent.ts';
import { readConfig } from './config.ts';

export async function main(): Promise<void> {
  const config = settingsOrExit(readConfig);
  const log = createLogger({ name: `agent-${config.NODE_ROLE}`, level: config.LOG_LEVEL, format: config.logFormat });
  armFailPoints(config.BERTH_FAIL_POINTS ?? []);
  const closers = createClosers(log, 20_000);
  closeOnSignals(closers, log);
  const agent = await startAgent(config, log).catch((error: unknown) => {
    log.fatal({ err: error }, 'starting the agent failed');
    process.exit(1);
  });
  closers.add('agent', () => agent.stop());
  log.info({ control_plane: config.CONTROL_PLANE_URL, role: config.NODE_ROLE, health_port: agent.healthPort() }, 'agent started');
}

if (import.meta.main) await main();
