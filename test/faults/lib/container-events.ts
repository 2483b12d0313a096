/**
 * Follows an engine's events about the containers of one project, also over restarts of the engine,
 * which forgets its events.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Engine } from '@berth/testbed/engine-handle';
import { type RunningProcess, startProcess } from '@berth/testbed/process';

export type ContainerEvent = {
  at: number;
  change: 'started' | 'stopped' | 'removed';
  container: string;
  deployment: string;
  node: string;
};

const CHANGES: Record<string, ContainerEvent['change']> = {
  start: 'started',
  stop: 'stopped',
  destroy: 'removed',
};
/** Interval of reconnections to an engine that died. */
const RECONNECT_MS = 100;

export function followContainers(engine: Engine, project: string) {
  const filters = [
    '--filter',
    'type=container',
    '--filter',
    `label=berth.project=${project}`,
    '--format',
    '{{json .}}',
  ];
  const seen = new Map<string, ContainerEvent>();
  let stopped = false;
  let from = Date.now();
  let stream: RunningProcess | undefined;
  let given = 0;
  let rest = '';

  function read(text: string): void {
    const lines = (rest + text).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) {
      // The client's own message about an engine that ended.
      if (!line.startsWith('{')) continue;
      const { Action, Actor, timeNano } = JSON.parse(line) as {
        Action: string;
        Actor: { ID: string; Attributes: Record<string, string> };
        timeNano: number;
      };
      const at = timeNano / 1e6;
      from = Math.max(from, at);
      const change = CHANGES[Action];
      const [deployment, node] = [
        Actor.Attributes['berth.deployment'] ?? '',
        Actor.Attributes['berth.node'] ?? '',
      ];
      // A reconnection starts with the last event again, so that one comes twice.
      if (change !== undefined)
        seen.set(`${timeNano} ${Actor.ID} ${Action}`, {
          at,
          change,
          container: Actor.ID,
          deployment,
          node,
        });
    }
  }

  const following = (async () => {
    while (!stopped) {
      rest = '';
      const argv = ['docker', 'events', '--since', String(from / 1000), ...filters] as const;
      stream = await startProcess(argv, { name: 'docker-events', env: engine.env, onOutput: read });
      await stream.exited;
      await sleep(RECONNECT_MS);
    }
  })();

  return {
    /** Returns the events that no earlier call returned. */
    async upTo(until: number): Promise<ContainerEvent[]> {
      const bounds = ['--since', String(from / 1000), '--until', String(until / 1000)];
      rest = '';
      read((await engine.docker(['events', ...bounds, ...filters])).stdout);
      const fresh = [...seen.values()].slice(given);
      given = seen.size;
      return fresh;
    },
    async stop(): Promise<void> {
      stopped = true;
      await stream?.stop();
      await following;
    },
  };
}
