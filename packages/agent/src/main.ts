/**
 * Entry of `berth agent`. Exits with 2 on wrong settings, with 1 if the start fails, and with 0
 * after SIGTERM.
 */
import { closeOnSignals, createClosers } from '@berth/kit/closers';
import { settingsOrExit } from '@berth/kit/config';
import { armFailPoints } from '@berth/kit/fail-point';
import { createLogger } from '@berth/kit/log';
import { openTracing } from '@berth/kit/tracing';
import manifest from '../package.json' with { type: 'json' };
import { startAgent } from './agent.ts';
import { readConfig, reloading } from './config.ts';

export async function main(): Promise<void> {
  // First, so that SIGHUP does not end a process that starts, and a file that changes after it was
  // read is news.
  const settings = reloading(() => log);
  const config = settingsOrExit(readConfig);
  const log = createLogger({
    name: `agent-${config.NODE_ROLE}`,
    level: config.LOG_LEVEL,
    format: config.logFormat,
    traces: config.OTEL_EXPORTER_OTLP_ENDPOINT !== undefined,
  });
  armFailPoints(config.BERTH_FAIL_POINTS ?? []);
  const closers = createClosers(log, 20_000);
  closeOnSignals(closers, log);
  const tracing = await openTracing(
    config,
    { name: `berth-agent-${config.NODE_ROLE}`, version: manifest.version },
    log,
  );
  if (tracing !== null) closers.add('traces', () => tracing.close());
  const agent = await startAgent(config, log, tracing).catch((error: unknown) => {
    log.fatal({ err: error }, 'starting the agent failed');
    process.exit(1);
  });
  closers.add('agent', () => agent.stop());
  settings.ready(agent.replace);
  closers.add('reload', () => settings.close());
  log.info(
    {
      control_plane: config.CONTROL_PLANE_URL,
      role: config.NODE_ROLE,
      health_port: agent.healthPort(),
    },
    'agent started',
  );
}

if (import.meta.main) await main();
