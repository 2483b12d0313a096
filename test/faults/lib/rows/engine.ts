/** Faults of a deploy node's container engine. */
import { expect } from 'vitest';
import type { PlacementRow } from '@berth/wire/node';
import type { Project } from '@berth/wire/project';
import { isRunning, signalProcess } from '@berth/testbed/process';
import { waitFor } from '@berth/testbed/wait';
import { pageApp } from '../../../e2e/world.ts';
import { type Hosts, loadText, underLoad } from '../host-load.ts';
import type { Row } from '../row.ts';
import { withSecondNode } from '../second-node.ts';
import type { Stage } from '../stage.ts';

const restarted = (
  how: 'SIGTERM' | 'power-cut' | 'SIGKILL',
  fault: string,
  answer: string,
  quick?: true,
): Row => ({
  fault,
  answer,
  invariants: [
    ...(quick === undefined ? (['own-host'] as const) : []),
    'route-observed',
    'nothing-destroyed',
    'one-serving',
  ],
  // Traefik is in front of the relay stage only. The quick row stays on the stage of `npm test`.
  stage: quick === undefined ? 'relay' : 'main',
  outage: true,
  ...(quick === undefined ? {} : { quick }),
  // Three more projects are deployed and deleted.
  lastsMs: 180_000,
  async run(stage) {
    const before = await stage.running();
    const restart = (): Promise<unknown> =>
      stage.recorder.fromOutside(async () => stage.engines.node.faults?.restartDaemon(how));
    if (quick === true) await restart();
    else
      await withNeighbours(stage, how.toLowerCase(), (hosts) =>
        expectOwnAnswers(stage, fault, hosts, restart),
      );
    await stage.serves(stage.version(), 60_000);
    const after = await stage.see(before);
    expect(after.status).toBe('running');
  },
});

const NEIGHBOURS = ['north', 'east', 'south'];

/** Three more projects on the node, whose pages show their names. */
async function withNeighbours(
  stage: Stage,
  round: string,
  play: (hosts: Hosts) => Promise<void>,
): Promise<void> {
  const { berth, git } = stage;
  // The prefix of a deleted project is kept for it.
  const names = NEIGHBOURS.map((name) => `${name}-${round}`);
  const projects: Project[] = [];
  try {
    for (const name of names) {
      const { url } = await git.createRepo(name, pageApp(name));
      const project = await berth.createProject({
        name,
        git_url: url,
        domain_prefix: name,
        drain_seconds: 0,
        stop_grace_seconds: 1,
      });
      projects.push(project);
      let d = await berth.settled(await berth.deploy(project), 90_000);
      // The time limits of the stage are seconds: on a busy machine, a build may need another try.
      for (let tries = 1; tries < 3 && d.status !== 'running'; tries++)
        d = await berth.settled(await berth.deploy(project), 90_000);
      expect(d.status, d.error?.message).toBe('running');
    }
    const pages = new Map([
      ['app', /^version \d+$/],
      ...names.map((name) => [name, new RegExp(`^version ${name}$`)] as const),
    ]);
    await play({ pages, get: (prefix) => stage.askHost(prefix) });
  } finally {
    for (const { id } of projects) await berth.api.call('deleteProject', { params: { id } });
    await waitFor(
      'the neighbours are deleted',
      async () => (await berth.api.call('listProjects', { query: {} })).items.length === 1,
      {
        deadlineMs: 60_000,
      },
    );
  }
}

async function expectOwnAnswers(
  stage: Stage,
  fault: string,
  hosts: Hosts,
  play: () => Promise<unknown>,
): Promise<void> {
  const wrong = (prefix: string, by: string): void =>
    stage.recorder.record({ type: 'shown', project: prefix, by });
  const load = await underLoad(hosts, play, { perSecond: 50, wrong });
  console.log(`${fault}: ${loadText(load)}`);
  expect(load.wrong).toEqual([]);
  expect(load.right).toBeGreaterThan(0);
}

/** The agent's log line about an engine whose state it cannot read. */
const NO_ANSWER = /listing containers failed; registering without them/;

export const ENGINE_ROWS: readonly Row[] = [
  restarted(
    'SIGTERM',
    'engine restarted cleanly',
    'its containers keep their ports, so each of four hosts leads to its own project as soon ' +
      'as that runs again, and never to another one',
  ),
  restarted('power-cut', 'engine and containers killed at once (power cut)', 'the same'),
  restarted(
    'SIGKILL',
    'engine alone killed with SIGKILL',
    'engine 20.10 stops the surviving containers; the agent starts those that it had seen ' +
      'running, on the same ports',
    true,
  ),
  {
    fault: 'engine and its agent killed together',
    answer:
      'the restarted agent reads from disk which containers ran and which it had stopped; it ' +
      'starts exactly those that the engine left stopped',
    invariants: ['route-observed', 'nothing-destroyed', 'one-serving'],
    stage: 'main',
    outage: true,
    async run(stage) {
      const before = await stage.running();
      const agent = stage.agent('node-1');
      await agent.crash();
      await stage.recorder.fromOutside(async () =>
        stage.engines.node.faults?.restartDaemon('SIGKILL'),
      );
      expect(await stage.containers(stage.engines.node)).toEqual(['svc-app exited']);
      await agent.start();
      await stage.serves(stage.version(), 60_000);
      expect((await stage.see(before)).status).toBe('running');
    },
  },
  {
    fault: 'engine hangs (SIGSTOP)',
    answer:
      'the agent registers without a container list, which does not mean an empty list: ' +
      'nothing is destroyed, the routes stay, projects keep serving',
    invariants: ['nothing-destroyed'],
    stage: 'main',
    async run(stage) {
      const agent = stage.agent('node-1');
      const pid = stage.engines.node.faults?.daemonPid() ?? 0;
      const before = await stage.running();
      // The agent starts while the engine hangs: it reads the containers at once, not at the next
      // registration.
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
    answer: 'the same: an error does not mean an empty list',
    invariants: ['nothing-destroyed'],
    stage: 'main',
    quick: true,
    run: (stage) => withErrors(stage),
  },
  {
    fault: 'a node with a dead engine beside a healthy node',
    answer:
      'the node stays online and placement refuses it with the reason; deployments go live on ' +
      'the healthy node; when the engine is back, the node gets work again',
    invariants: ['settles', 'one-serving', 'nothing-destroyed'],
    stage: 'main',
    outage: true,
    run: (stage) => withSecondNode(stage, () => withDeadEngine(stage)),
  },
];

async function withDeadEngine(stage: Stage): Promise<void> {
  const { api } = stage.berth;
  const [node, other] = [stage.engines.node, stage.engines.build];
  const placed = async (): Promise<PlacementRow | undefined> =>
    (await api.call('placement', { query: { project_id: stage.project.id } })).items.find(
      (n) => n.hostname === 'node-1',
    );
  const refused = /has a container engine that does not respond: ./;
  await node.faults?.powerOff();
  try {
    // A node registers every 30 s.
    await waitFor(
      'placement refuses node-1 because of its engine',
      async () => refused.test((await placed())?.reason ?? ''),
      {
        deadlineMs: 75_000,
      },
    );
    const view = (await api.call('listNodes', { query: {} })).items.find(
      (n) => n.hostname === 'node-1',
    );
    expect([view?.status, view?.engine?.ok]).toEqual(['online', false]);
    for (let i = 0; i < 2; i++) {
      await stage.ends(await stage.release(), 'running');
      await stage.serves(stage.version());
      expect((await placed())?.eligible).toBe(false);
    }
    await waitFor(
      'only the last version runs on node-2',
      async () => (await stage.containers(other)).length === 1,
    );
  } finally {
    await node.faults?.powerOn();
  }
  await waitFor('node-1 can take work again', async () => (await placed())?.eligible === true, {
    deadlineMs: 75_000,
  });
  await waitFor(
    'the old container is gone',
    async () => (await stage.containers(node)).length === 0,
    { deadlineMs: 60_000 },
  );
}

async function withErrors(stage: Stage): Promise<void> {
  const agent = stage.agent('node-1');
  const before = await stage.running();
  await agent.crash();
  stage.shim.fail('ps', 'layer does not exist');
  const starting = agent.start();
  await stage.logged(agent, NO_ANSWER);
  expect((await stage.see(before)).status).toBe('running');
  await stage.serves(stage.version(), 1_000);
  stage.shim.clear();
  // A new start registers at once, and the engine counts as healthy again.
  await agent.crash();
  await starting.catch(() => undefined);
  await agent.start();
  expect(await stage.containers(stage.engines.node)).toEqual(['svc-app running']);
}
