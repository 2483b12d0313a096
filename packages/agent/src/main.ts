/** `berth agent`: builds or runs containers on this machine. */
import { type ProcessContext, runProcess } from '@berth/kit/run-process';
import { openTracing } from '@berth/kit/tracing';
import manifest from '../package.json' with { type: 'json' };
import { startAgent } from './agent.ts';
import { type AgentOptions, type AGENT_SETTINGS, readConfig, reloading } from './config.ts';

export async function main(): Promise<void> {
  await runProcess({
    reloading,
    readConfig,
    logOf: (config) => ({ name: `agent-${config.NODE_ROLE}`, format: config.logFormat }),
    logFailure: (log, error) => log.fatal({ err: error }, 'starting the agent failed'),
    start,
  });
}

async function start({
  config,
  log,
  closers,
  ready,
}: ProcessContext<AgentOptions, typeof AGENT_SETTINGS>): Promise<void> {
  const tracing = await openTracing(
    config,
    { name: `berth-agent-${config.NODE_ROLE}`, version: manifest.version },
    log,
  );
  if (tracing !== null) closers.add('traces', () => tracing.close());
  const agent = await startAgent(config, log, tracing);
  closers.add('agent', () => agent.stop());
  ready(agent.replace);
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
