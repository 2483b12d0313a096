/**
 * Random faults until the end of the faults: then every process runs, every partition is healed,
 * and every freeze is over.
 */
import type { Happening, History } from '@berth/testbed/history';
import type { Agent } from './agent.ts';
import type { ControlPlaneProcess } from './control-plane.ts';
import type { Forge } from './forge.ts';
import type { Network } from './network.ts';
import type { Proxy } from './proxy.ts';
import type { Life, World } from './world.ts';

export type Faults = {
  begin(forMs: number): void;
  /** Receives events, for faults that wait for a certain moment. */
  heard(event: Happening): void;
  /** Stops all control planes for this time. */
  absence(afterMs: number, forMs: number): void;
  end(): void;
};

/**
 * A new machine that gets the address of an old one, whose power is cut. It does not run until
 * then.
 */
export type Heir = { machine: Agent; old: Agent; nextAddress: string };

const HOUR = 3_600_000;
const DAY = 24 * HOUR;

export function createFaults(deps: {
  world: World;
  network: Network;
  history: History;
  controlPlanes: readonly ControlPlaneProcess[];
  agents: readonly Agent[];
  /** Second processes with the identity of a first one; none runs until a fault starts it. */
  twins: readonly Agent[];
  /**
   * Second machines, each with its own engine, that register under the name of a first; none runs
   * until a fault starts it.
   */
  doubles: readonly Agent[];
  /** Weight of the faults that restart an engine, or cut the power of its machine. */
  engineRestarts: number;
  /** Null in most runs. */
  heir: Heir | null;
  /**
   * Whether there are such machines. Then no fault keeps a first machine silent for the offline
   * time, unless `mayTakeOver` is set.
   */
  isDoubled: boolean;
  /**
   * A first machine may be cut off for longer than that while the second one runs: both continue,
   * each as its own node.
   */
  mayTakeOver: boolean;
  /** Drains the deployment's node: it takes no work until the returned function is called. */
  drain: (deployment: string) => () => void;
  /** Stops the deployment's project. */
  stop: (deployment: string) => void;
  /** Restarts a project. */
  restart: (project: string) => Promise<void>;
  /** Weight of the fault that gives the port of a stopped version to another project. */
  takenPorts: number;
  /** Proxies that a fault may hit. */
  proxies: readonly Proxy[];
  /** Weight of the fault that moves a stop-first project before its node's next list. */
  unseenMoves: number;
  /** Null without commit statuses. */
  forge: Pick<Forge, 'up'> | null;
}): Faults {
  const {
    world,
    network,
    controlPlanes,
    agents,
    twins,
    doubles,
    isDoubled,
    mayTakeOver,
    drain,
    stop,
    proxies,
    unseenMoves,
    forge,
    engineRestarts,
    restart,
    takenPorts,
  } = deps;
  let { heir } = deps;
  const { random } = world;
  const chaos: Life = { name: 'chaos', alive: true };
  const heal: (() => void)[] = [];
  let renames = 0;
  let isAway = false;
  /** The next deployment that goes live must move at once, and the clock is set back. */
  let movesBack = false;
  /**
   * The same for the next stop-first project, whose node sends no list from before the end of its
   * task until the move.
   */
  let movesUnseen = false;
  let unseen: string | null = null;
  /** The project of the next deployment that reaches this state is stopped. */
  let stopsAt: string | null = null;
  /**
   * The next stop-first deployment fails after its route was published, and meanwhile another
   * project got the port of the old version.
   */
  let takesPort = false;
  type Stopped = { agent: Agent; port: number; other: string };
  /**
   * The version that a deployment which has just started has stopped, if the engine chose its port.
   */
  const stoppedBy = new Map<string, Stopped>();
  const stopFirst = new Set<string>();

  /** Calls `undo` after a while, at the latest at the end of the faults. */
  function forAWhile(ms: number, undo: () => unknown): void {
    let done = false;
    const once = (): void => {
      if (done) return;
      done = true;
      undo();
    };
    heal.push(once);
    world.after(ms, chaos, once);
  }
  const whileMs = (): number =>
    random.chance(0.3) ? random.int(5_000, 30_000) : random.int(50, 4_000);

  const FAULTS: { weight: number; strike: () => void }[] = [
    {
      // Before, after or during one of its next calls to the database: every commit is such a
      // moment. No node counts as silent until a control plane has served for the offline time.
      weight: (mayTakeOver ? 0.5 : 4) * controlPlanes.length,
      strike() {
        const one = random.pick(controlPlanes);
        const moment = random.pick(['before', 'after'] as const);
        if (random.chance(0.5) || !one.dieOnWire(random.int(1, 60), moment))
          one.dieAtCall(random.int(1, 25), moment);
        forAWhile(random.int(200, 3_000), () => isAway || one.start());
      },
    },
    {
      weight: isDoubled ? 0 : controlPlanes.length,
      // Where another one serves: also for longer than a claim of a commit status.
      strike: () =>
        random
          .pick(controlPlanes)
          .freeze(
            controlPlanes.length > 1 && random.chance(0.2) ? random.int(30_000, 45_000) : whileMs(),
          ),
    },
    {
      weight: forge === null ? 0 : 2,
      strike() {
        if (forge === null) return;
        forge.up = false;
        forAWhile(whileMs(), () => (forge.up = true));
      },
    },
    {
      // The clock of one machine, or all clocks at once.
      weight: 3,
      strike() {
        const ms = random.pick([1, -1]) * random.pick([random.int(500, 10_000), HOUR, HOUR, DAY]);
        const struck = random.chance(0.5) ? controlPlanes : [random.pick(controlPlanes)];
        for (const one of struck) one.jump(ms);
      },
    },
    { weight: 2, strike: () => void (movesBack = true) },
    {
      weight: 1,
      strike: () =>
        void (stopsAt = random.pick(['building', 'built', 'deploying', 'published', 'running'])),
    },
    { weight: proxies.length === 0 || isDoubled ? 0 : takenPorts, strike: restartAlone },
    // Does nothing where a machine must be heard in time.
    { weight: isDoubled ? 0 : unseenMoves, strike: () => void (movesUnseen = true) },
    {
      // Its agent answers, and every task of it fails at once.
      weight: isDoubled ? 0 : 1,
      strike() {
        const { engine } = random.pick(agents);
        engine.up = false;
        forAWhile(random.int(10_000, 60_000), () => engine.restart());
      },
    },
    // Does nothing where there are no connections. Each costs 0.1 s of real time.
    { weight: 1, strike: () => void random.pick(controlPlanes).loseConnections() },
    {
      weight: isDoubled ? 0 : 3,
      strike() {
        const agent = random.pick(agents);
        agent.kill();
        forAWhile(whileMs(), () => agent.start());
      },
    },
    {
      weight: isDoubled ? 0 : 2,
      strike() {
        const twin = random.pick(twins);
        twin.start();
        forAWhile(random.int(2_000, 20_000), () => twin.kill());
      },
    },
    {
      // Two machines with one hostname.
      weight: isDoubled && !mayTakeOver ? 8 : 0,
      strike() {
        const double = random.pick(doubles);
        // The second machine is gone before the first could be silent for the offline time (20 s).
        const lastsMs = random.int(3_000, 10_000);
        const first = agents.find((a) => a.hostname === double.hostname);
        if (first === undefined || world.now() - first.knownAt() > 9_000) return;
        double.start();
        // One that got a node all the same, because the first one was silent for another reason,
        // stays.
        forAWhile(lastsMs, () => double.knownAt() > 0 || double.kill());
      },
    },
    {
      // The first machine is cut off and keeps running, and a second machine takes its name. One
      // that got a node stays.
      weight: mayTakeOver ? 8 : 0,
      strike() {
        const double = random.pick(doubles);
        const first = agents.find((a) => a.hostname === double.hostname);
        if (first === undefined) return;
        const awayMs = random.int(15_000, 60_000);
        if (random.chance(0.5)) first.freeze(awayMs);
        else {
          first.kill();
          forAWhile(awayMs, () => first.start());
        }
        world.after(random.int(0, 10_000), chaos, () => {
          double.start();
          forAWhile(random.int(10_000, 60_000), () => double.knownAt() > 0 || double.kill());
        });
      },
    },
    { weight: isDoubled ? 0 : 2, strike: () => random.pick(agents).freeze(whileMs()) },
    {
      weight: isDoubled ? 0 : 2,
      // A node on which something runs: for another one, no effect would be visible.
      strike() {
        const agent = random.maybe(
          agents.filter((a) => a.engine.up && a.engine.list().some((c) => c.running)),
        );
        agent?.rename(`${agent.hostname}-${++renames}`);
      },
    },
    {
      // The disk of the volumes and of the engine's images is not mounted for a while.
      weight: 1,
      strike() {
        const agent = random.maybe(agents.filter((a) => a.engine.disk.reported().length > 0));
        if (agent === undefined) return;
        agent.engine.disk.takeOut();
        forAWhile(random.chance(0.5) ? random.int(5_000, 40_000) : whileMs(), () =>
          agent.engine.disk.putBack(),
        );
      },
    },
    {
      // Power cut: the agent starts with the engine, or later.
      weight: isDoubled ? 0 : engineRestarts / 2,
      strike() {
        const agent = random.maybe(
          agents.filter((a) => a.engine.up && a.engine.list().some((c) => c.running)),
        );
        if (agent === undefined) return;
        agent.kill();
        agent.engine.cutPower();
        forAWhile(whileMs(), () => {
          agent.engine.powerOn();
          world.after(random.pick([0, random.int(0, 8_000)]), chaos, agent.start);
        });
      },
    },
    {
      // Once: a machine is silent, and a new one gets its address. The old one comes back with
      // another address.
      weight: heir === null ? 0 : 4,
      strike() {
        if (heir === null || heir.old.engine.isOff()) return;
        const { machine, old, nextAddress } = heir;
        heir = null;
        old.kill();
        old.engine.cutPower();
        world.after(random.int(0, 10_000), chaos, machine.start);
        forAWhile(random.int(15_000, 60_000), () => {
          old.engine.moveTo(nextAddress);
          old.engine.powerOn();
          old.start();
        });
      },
    },
    {
      weight: engineRestarts,
      strike() {
        const busy = agents.filter(
          (a) => a.engine.up && a.engine.list().filter((c) => c.running).length > 1,
        );
        const { engine } =
          engineRestarts > 2 && busy.length > 0 ? random.pick(busy) : random.pick(agents);
        engine.up = false;
        forAWhile(random.int(100, 6_000), () => engine.restart());
      },
    },
    {
      weight: isDoubled ? 0 : 3,
      strike() {
        const one = random.pick([...agents.map((a) => a.hostname), ...proxies.map((p) => p.name)]);
        network.split.add(one);
        forAWhile(whileMs(), () => network.split.delete(one));
      },
    },
    {
      weight: proxies.length === 0 ? 0 : 1,
      strike() {
        const proxy = random.pick(proxies);
        proxy.kill();
        forAWhile(whileMs(), () => proxy.start());
      },
    },
    {
      weight: proxies.length === 0 ? 0 : 1,
      strike() {
        const { shutOut } = random.pick(proxies);
        const { address } = random.pick(agents).engine;
        shutOut.add(address);
        forAWhile(whileMs(), () => shutOut.delete(address));
      },
    },
  ];

  function strike(): void {
    let at = random.next() * FAULTS.reduce((sum, f) => sum + f.weight, 0);
    for (const fault of FAULTS) {
      at -= fault.weight;
      if (at < 0) return fault.strike();
    }
  }

  /** Restarts a stop-first project whose port the engine chose, beside another project. */
  function restartAlone(): void {
    const all = agents.flatMap(({ engine }) => {
      const loose = engine.up
        ? engine.list().filter((c) => c.running && c.stays && !c.keepsPort)
        : [];
      return loose.filter((c) => c.alone && loose.some((other) => other.project !== c.project));
    });
    const one = random.maybe(all);
    if (one === undefined) return;
    takesPort = true;
    void restart(one.project).catch(() => undefined);
  }

  function noteStopped({
    address,
    project,
    deployment,
  }: Extract<Happening, { type: 'container' }>): void {
    const agent = agents.find(
      (a) => a.engine.up && address?.startsWith(`${a.engine.address}:`) === true,
    );
    const listed = agent?.engine.list() ?? [];
    const old = listed.find((c) => c.project === project && !c.running && !c.keepsPort);
    const other = random.maybe(
      listed.filter((c) => c.project !== project && c.running && c.stays && !c.keepsPort),
    );
    if (agent !== undefined && old !== undefined && other !== undefined)
      stoppedBy.set(deployment, { agent, port: old.port, other: other.project });
  }

  /**
   * The proxies get the new route when the other project has the port, and do not reach the new
   * version then.
   */
  function takePort({ agent: { engine }, port, other }: Stopped): void {
    engine.nextPort(port);
    void restart(other).catch(() => undefined);
    for (const { name } of proxies) network.split.add(name);
    const { address } = engine;
    forAWhile(random.int(9_000, 13_000), () => {
      for (const { name, shutOut } of proxies) {
        network.split.delete(name);
        shutOut.add(address);
      }
      forAWhile(random.int(3_000, 8_000), () => {
        for (const { shutOut } of proxies) shutOut.delete(address);
      });
    });
  }

  return {
    begin(forMs) {
      // Some runs are quiet, so that the remaining faults show by themselves.
      const bad = random.pick([0, 0.5, 1, 1]);
      network.weather.lost = bad * 0.05;
      network.weather.late = bad * 0.05;
      network.weather.repeated = bad * 0.1;
      const every = random.pick([1_500, 4_000, 12_000]);
      for (let t = random.int(0, every); t < forMs; t += random.int(1, 2 * every))
        world.after(t, chaos, strike);
    },
    heard(event) {
      // A fault that began after the end would last for ever: nothing heals it.
      if (!chaos.alive) return;
      if (event.type === 'single_writer') stopFirst.add(event.project);
      if (
        takesPort &&
        event.type === 'container' &&
        event.change === 'started' &&
        event.cause === 'task' &&
        event.alone === true
      )
        noteStopped(event);
      const stopped =
        event.type === 'moved' && event.to === 'published'
          ? stoppedBy.get(event.deployment)
          : undefined;
      if (takesPort && stopped !== undefined) {
        takesPort = false;
        stoppedBy.clear();
        takePort(stopped);
      }
      if (event.type === 'moved' && event.to === stopsAt) {
        stopsAt = null;
        const { deployment } = event;
        world.after(random.int(0, 1_500), chaos, () => stop(deployment));
      }
      if (
        movesUnseen &&
        event.type === 'container' &&
        event.change === 'started' &&
        event.cause === 'task' &&
        stopFirst.has(event.project)
      ) {
        const agent = agents.find(
          (a) => event.address?.startsWith(`${a.engine.address}:`) === true,
        );
        if (agent === undefined) return;
        movesUnseen = false;
        unseen = event.deployment;
        // Its last list seems newer than the end of the task that has just started this container.
        const back = -random.int(20_000, 45_000);
        for (const one of controlPlanes) one.jump(back);
        agent.holdReports(random.int(8_000, 15_000));
      }
      if (event.type === 'moved' && event.to === 'running' && event.deployment === unseen) {
        unseen = null;
        const { deployment } = event;
        world.after(random.int(100, 500), chaos, () =>
          forAWhile(random.int(5_000, 20_000), drain(deployment)),
        );
        return;
      }
      if (!movesBack || event.type !== 'moved' || event.to !== 'running') return;
      movesBack = false;
      const { deployment } = event;
      // Before the remaining work there ends, so that this end seems older than the node's last
      // report.
      const back = -random.int(2_000, 20_000);
      for (const one of controlPlanes) one.jump(back);
      world.after(random.int(300, 1_500), chaos, () =>
        forAWhile(random.int(5_000, 20_000), drain(deployment)),
      );
    },
    absence(afterMs, forMs) {
      world.after(afterMs, chaos, () => {
        isAway = true;
        for (const one of controlPlanes) one.kill();
        forAWhile(forMs, () => {
          isAway = false;
          for (const one of controlPlanes) one.start();
        });
      });
    },
    end() {
      chaos.alive = false;
      network.weather.lost = 0;
      network.weather.late = 0;
      network.weather.repeated = 0;
      network.split.clear();
      for (const undo of heal) undo();
      for (const one of controlPlanes) one.start();
      for (const one of [...agents, ...proxies]) one.start();
    },
  };
}
