/** What befalls a deploy node's container engine. */
import { expect } from 'vitest';
import { isRunning, signalProcess } from '@berth/testbed/process';
import type { Row } from '../row.ts';
import type { Stage } from '../stage.ts';

const restarted = (how: 'SIGTERM' | 'power-cut' | 'SIGKILL', fault: string, answer: string, quick?: true): Row => ({
  fault,
  answer,
  invariants: ['route-observed', 'nothing-destroyed', 'one-serving'],
  stage: 'main',
  outage: true,
  ...(quick === undefined ? {} : { quick }),
  async run(stage) {
    const before = await stage.running();
    await stage.recorder.fromOutside(async () => stage.engines.node.faults?.restartDaemon(how));
    await stage.serves(stage.version(), 60_000);
    const after = await stage.see(before);
    expect(after.status).toBe('running');
  },
});

/** What the agent says of an engine that it cannot make out. */
const NO_ANSWER = /the container engine does not answer/;

export const ENGINE_ROWS: readonly Row[] = [
  restarted(
    'SIGTERM',
    'engine restarted in order',
    'its containers come back on new ports; the agent sees them and the route follows, within 60 s',
  ),
  restarted('power-cut', 'engine and containers gone at once (power cut)', 'the same'),
  restarted(
    'SIGKILL',
    'engine alone killed with SIGKILL',
    'engine 20.10 stops what outlived it and leaves it stopped: the agent starts again what it saw running, and the route follows',
    true,
  ),
  {
    fault: 'engine and its agent killed together',
    answer:
      'the agent, started again, has on disk what ran and what it had stopped itself: it starts again what the engine left stopped, and nothing else',
    invariants: ['route-observed', 'nothing-destroyed', 'one-serving'],
    stage: 'main',
    outage: true,
    async run(stage) {
      const before = await stage.running();
      const agent = stage.agent('node-1');
      await agent.crash();
      await stage.recorder.fromOutside(async () => stage.engines.node.faults?.restartDaemon('SIGKILL'));
      expect(await stage.containers(stage.engines.node)).toEqual(['svc-app exited']);
      await agent.start();
      await stage.serves(stage.version(), 60_000);
      expect((await stage.see(before)).status).toBe('running');
    },
  },
  {
    fault: 'engine hangs (SIGSTOP)',
    answer:
      'the agent registers without a list of containers, which is not an empty one: nothing is destroyed, the route stays, what serves goes on serving',
    invariants: ['nothing-destroyed'],
    stage: 'main',
    async run(stage) {
      const agent = stage.agent('node-1');
      const pid = stage.engines.node.faults?.daemonPid() ?? 0;
      const before = await stage.running();
      // Started while it hangs: the first look comes at once, not at the next registration.
      await agent.crash();
      signalProcess(pid, 'SIGSTOP');
      const starting = agent.start();
      try {
        await stage.logged(agent, NO_ANSWER);
        expect(isRunning(pid)).toBe(true);
        expect((await stage.see(before)).status).toBe('running');
        await stage.serves(stage.version(), 1_000);
      } finally {
        signalProcess(pid, 'SIGCONT');
      }
      await starting;
      expect(await stage.containers(stage.engines.node)).toEqual(['svc-app running']);
    },
  },
  {
    fault: 'engine answers errors',
    answer: 'the same: an error is not an empty list',
    invariants: ['nothing-destroyed'],
    stage: 'main',
    quick: true,
    run: (stage) => withErrors(stage),
  },
];

async function withErrors(stage: Stage): Promise<void> {
  const agent = stage.agent('node-1');
  const before = await stage.running();
  await agent.crash();
  await stage.shims.node.fail('ps', 'Error response from daemon: layer does not exist');
  const starting = agent.start();
  await stage.logged(agent, NO_ANSWER);
  expect((await stage.see(before)).status).toBe('running');
  await stage.serves(stage.version(), 1_000);
  await stage.shims.node.clear();
  // Seen well again at its next registration.
  await agent.crash();
  await starting.catch(() => undefined);
  await agent.start();
  expect(await stage.containers(stage.engines.node)).toEqual(['svc-app running']);
}
