/** Faults of a deploy node's agent. */
import type { Verb } from '../engine-shim.ts';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'vitest';
import { waitFor } from '@berth/testbed/wait';
import type { Row } from '../row.ts';
import { withSecondNode } from '../second-node.ts';
import {
  startTwin,
  startNamesake,
  withClock,
  withHostname,
  whyNoFaketime,
} from '../second-agent.ts';

const LONGER_THAN_LEASE_MS = 8_000;

type Moment = {
  fault: string;
  when: 'before' | 'after';
  verb: Verb;
  answer: string;
  quick?: true;
};
const MOMENTS: readonly Moment[] = [
  {
    fault: 'deploy agent killed before `docker run`',
    when: 'before',
    verb: 'run',
    answer:
      'the restarted agent claims the task again and runs the container; one container remains',
  },
  {
    fault: 'deploy agent killed after `docker run`',
    when: 'after',
    verb: 'run',
    answer:
      'the restarted agent adopts the container that it finds by its labels; one container remains',
    quick: true,
  },
  {
    fault: 'deploy agent killed before its report',
    when: 'after',
    verb: 'update',
    answer:
      'the restarted agent adopts the running container, probes it and reports it; one ' +
      'container, one effect',
  },
  {
    fault: 'deploy agent killed while it retires a container',
    when: 'after',
    verb: 'stop',
    answer:
      'the deployment is already `running`; the restarted agent removes the old container and ' +
      'renames the new one',
  },
];

const killedAt = ({ fault, when, verb, answer, quick }: Moment): Row => ({
  fault,
  answer,
  invariants: ['settles', 'one-serving', 'old-serves', 'report-once'],
  stage: 'main',
  ...(quick === undefined ? {} : { quick }),
  async run(stage) {
    stage.shim.hold(when, verb);
    const asked = await stage.release();
    await stage.shim.reached(when, verb);
    await stage.agent('node-1').crash();
    stage.shim.clear();
    await stage.agent('node-1').start();
    await stage.ends(asked, 'running');
  },
});

export const NODE_ROWS: readonly Row[] = [
  ...MOMENTS.map(killedAt),
  {
    fault: 'agent frozen (SIGSTOP) until its lease expired, then continued',
    answer:
      'another node gets the task; the late report gets 409, and the agent removes the ' +
      'container that it started',
    invariants: ['one-lease', 'one-serving', 'report-once', 'own-clock'],
    stage: 'main',
    async run(stage) {
      await withSecondNode(stage, async () => {
        const agent = stage.agent('node-1');
        stage.shim.hold('after', 'run');
        const asked = await stage.release();
        await stage.shim.reached('after', 'run');
        agent.process().kill('SIGSTOP');
        await stage.says(asked, /node-1 stopped reporting/);
        const done = await stage.ends(asked, 'running');
        expect(done.events.map((e) => e.message).join('\n')).toMatch(/assigned to node-2/);
        stage.shim.clear();
        agent.process().kill('SIGCONT');
        await waitFor(
          'node-1 has removed its container',
          async () => (await stage.containers(stage.engines.node)).length === 0,
          {
            deadlineMs: 60_000,
          },
        );
        await stage.serves(stage.version());
      });
    },
  },
  {
    fault: 'node cut off from the network, its project moves, then the node comes back',
    answer:
      'a new deployment moves the project and its route to another node; when the node is ' +
      'back, its old container is removed and never serves again',
    invariants: ['one-serving', 'nothing-destroyed', 'settles', 'old-serves'],
    stage: 'main',
    outage: true,
    async run(stage) {
      await withSecondNode(stage, async () => {
        const agent = stage.agent('node-1');
        const { faults } = stage.engines.node;
        agent.process().kill('SIGSTOP');
        await faults?.connect(false);
        const asked = await stage.release();
        await stage.ends(asked, 'running');
        await stage.serves(stage.version());
        // The unreachable container was not touched.
        expect(await stage.containers(stage.engines.node)).toEqual(['svc-app running']);
        await faults?.connect(true);
        agent.process().kill('SIGCONT');
        await waitFor(
          'the old container is gone',
          async () => (await stage.containers(stage.engines.node)).length === 0,
          {
            deadlineMs: 60_000,
          },
        );
        await stage.serves(stage.version());
      });
    },
  },
  {
    fault: 'a node comes back after an admin deleted it with `force`',
    answer:
      'it gets a new id; its agent reports the containers of the old id; the container of the ' +
      'ended deployment is removed; the next deployment goes live there',
    invariants: ['settles', 'one-serving', 'terminal-stays'],
    stage: 'main',
    outage: true,
    async run(stage) {
      const { api } = stage.berth;
      const agent = stage.agent('node-1');
      const idOf = async (): Promise<string | undefined> =>
        (await api.call('listNodes', { query: {} })).items.find((n) => n.hostname === 'node-1')?.id;
      const before = await idOf();
      await agent.crash();
      await api.call('deleteNode', { params: { id: before ?? '' }, query: { force: true } });
      // The unreachable container was not touched.
      expect(await stage.containers(stage.engines.node)).toEqual(['svc-app running']);
      await agent.start();
      expect(await idOf()).not.toBe(before);
      await waitFor(
        'the container of the old id is gone',
        async () => (await stage.containers(stage.engines.node)).length === 0,
        {
          deadlineMs: 60_000,
        },
      );
      await stage.ends(await stage.release(), 'running');
    },
  },
  {
    fault: 'two agents with one identity (same NODE_NAME and role)',
    answer:
      'each claim voids the lease of the other agent; the story counts the attempts; the ' +
      'deployment ends, and one container serves',
    invariants: ['one-lease', 'one-serving', 'report-once', 'settles'],
    stage: 'main',
    async run(stage) {
      const twin = await startTwin(stage, 'node-1');
      try {
        const asked = await stage.release();
        const done = await stage.berth.settled(asked, 90_000);
        // Either agent may win. The deployment must end and one container must serve.
        expect(['running', 'failed']).toContain(done.status);
        if (done.status === 'failed') stage.keepPreviousVersion();
        await stage.logged(stage.berth.controlPlane, /stale_lease|409/);
      } finally {
        await twin.stop();
      }
      // The remaining agent removes what the other one had started.
      await stage.serves(stage.version());
    },
  },
  {
    fault: 'a machine is renamed (another hostname, the same disk)',
    answer:
      'the node keeps its id and takes the new name; its projects keep serving, and the next ' +
      'deployment goes live there',
    invariants: ['old-serves', 'nothing-destroyed', 'one-serving', 'settles'],
    stage: 'main',
    async run(stage) {
      const nodes = async () => (await stage.berth.api.call('listNodes', { query: {} })).items;
      const before = (await nodes()).find((n) => n.hostname === 'node-1');
      await withHostname(stage, 'node-1', 'node-renamed', async () => {
        const renamed = (await nodes()).filter(
          (n) => n.hostname === 'node-renamed' || n.hostname === 'node-1',
        );
        expect(renamed.map((n) => [n.hostname, n.id])).toEqual([['node-renamed', before?.id]]);
        await stage.serves(stage.version());
        expect(await stage.containers(stage.engines.node)).toEqual(['svc-app running']);
        await stage.ends(await stage.release(), 'running');
      });
      await waitFor('the node has its old name again', async () =>
        (await nodes()).some((n) => n.hostname === 'node-1' && n.id === before?.id),
      );
    },
  },
  {
    fault: 'two machines with one hostname',
    answer:
      'the machine without the node’s own secret is refused and gets no task; the node shows ' +
      'both; the first one keeps serving',
    invariants: ['old-serves', 'nothing-destroyed', 'one-serving', 'settles'],
    stage: 'main',
    async run(stage) {
      const nodes = async () =>
        (await stage.berth.api.call('listNodes', { query: {} })).items.filter(
          (n) => n.hostname === 'node-1',
        );
      const [before] = await nodes();
      const other = await startNamesake(stage, 'node-1', '127.0.0.9');
      try {
        // The node may show the twin of an earlier row for a moment longer.
        await waitFor(
          'the node shows both',
          async () => (await nodes()).some((n) => n.doubled?.host_ip === '127.0.0.9'),
          {
            deadlineMs: 90_000,
          },
        );
        await stage.ends(await stage.release(), 'running');
        expect((await nodes()).map((n) => [n.id, n.host_ip])).toEqual([
          [before?.id, before?.host_ip],
        ]);
      } finally {
        await other.stop();
      }
      await stage.serves(stage.version());
    },
  },
  ...(['+1h', '-1h'] as const).map(
    (offset): Row => ({
      fault: `an agent’s clock is an hour ${offset === '+1h' ? 'ahead' : 'behind'}`,
      answer:
        'nothing changes: deadlines use the control plane’s clock, and the agent renews its ' +
        'lease in time',
      invariants: ['own-clock', 'settles'],
      stage: 'main',
      skip: whyNoFaketime,
      async run(stage) {
        await withClock(stage, 'node-1', offset, async () => {
          // Longer than the lease.
          stage.shim.hold('after', 'run');
          const asked = await stage.release();
          await stage.shim.reached('after', 'run');
          await sleep(LONGER_THAN_LEASE_MS);
          stage.shim.clear();
          const done = await stage.ends(asked, 'running');
          expect(done.events.map((e) => e.message).join('\n')).not.toMatch(/stopped reporting/);
        });
      },
    }),
  ),
];
