/**
 * Several machines on this one. Each host has its own namespaces, address and engine, and all are
 * plugged into one switch. This machine answers them at `gatewayIp`: the registry, git server and
 * control plane listen there. Files are shared: a host sees this machine's files at the same paths,
 * except /run.
 */
import { startSwitch, type Switch } from './cable.ts';
import { startEngine, whyNoOwnEngine } from './engine.ts';
import type { Engine, EngineFaults } from './engine-handle.ts';
import { preferredNetwork } from './engine-home.ts';
import { type Argv, type Finished, run, type RunOptions } from './process.ts';

export type Host = {
  readonly name: string;
  /** Address in the hosts' network; published ports answer here. */
  readonly ip: string;
  readonly engine: Engine;
  /** Prefix that runs a program on this host. */
  readonly enter: readonly string[];
  /**
   * Runs a program on this host to its end: `mount`, `ip` and `tc` change only this host. @throws
   * ProcessFailed unless `mayFail`
   */
  run(argv: Argv, options?: RunOptions): Promise<Finished>;
  /** Pulls its cable: its programs keep running, and no message reaches or leaves it. */
  partition(): Promise<void>;
  /** Plugs its cable in. */
  heal(): Promise<void>;
  /**
   * Cuts the power: first the cable goes down, then every process on it dies, so that no peer is
   * notified.
   */
  kill(): Promise<void>;
  /**
   * After kill(): starts the engine and its containers with a restart policy. The caller starts the
   * agents.
   */
  boot(): Promise<void>;
};

export type Hosts = {
  /** Address of this machine, seen from every host. */
  readonly gatewayIp: string;
  /** The hosts by name. */
  readonly hosts: Readonly<Record<string, Host>>;
  /** Plugs every cable in, so that programs can end in order and send their last messages. */
  heal(): Promise<void>;
  /** Ends everything that runs on the hosts. Idempotent. */
  stop(): Promise<void>;
};

export type HostsOptions = {
  /** Folder for engines' images and logs (`.tools/testbed`). */
  readonly dir: string;
  /**
   * `keeps`: images and build cache stay for the next run (a builder); the other hosts begin empty.
   */
  readonly hosts: readonly { readonly name: string; readonly keeps?: boolean }[];
  readonly log?: (line: string) => void;
};

/** Returns why startHosts() cannot work here; undefined when it should. */
export const whyNoHosts: () => string | undefined = whyNoOwnEngine;

/** @throws when a host does not start; then none is left */
export async function startHosts(options: HostsOptions): Promise<Hosts> {
  const network = await startSwitch({ preferredNetwork: preferredNetwork(options.dir) });
  const started: Host[] = [];
  const stop = async (): Promise<void> => {
    // Stop all hosts, also when one fails to stop.
    const ended = await Promise.allSettled(started.splice(0).map((host) => host.engine.stop()));
    await network.stop();
    const failures = ended.flatMap((end) =>
      end.status === 'rejected' ? [end.reason as unknown] : [],
    );
    if (failures.length > 0) throw new AggregateError(failures, 'not all hosts stopped cleanly');
  };
  const attempts = await Promise.allSettled(
    options.hosts.map(async (wanted) => {
      started.push(await startHost(wanted, network, options));
    }),
  );
  const failed = attempts.find((attempt) => attempt.status === 'rejected');
  if (failed !== undefined) {
    await stop();
    throw failed.reason;
  }
  return {
    gatewayIp: network.gatewayIp,
    hosts: Object.fromEntries(started.map((host) => [host.name, host])),
    async heal() {
      await Promise.all(started.map((host) => host.heal()));
    },
    stop,
  };
}

async function startHost(
  wanted: HostsOptions['hosts'][number],
  network: Switch,
  options: HostsOptions,
): Promise<Host> {
  const { name, keeps = false } = wanted;
  const log = (line: string) => options.log?.(`${name}: ${line}`);
  const engine = await startEngine({
    dir: options.dir,
    name,
    log,
    private: true,
    fresh: !keeps,
    network,
  });
  const faults = engine.faults as EngineFaults;
  const enter = faults.nsenterArgv();
  return {
    name,
    ip: engine.hostIp,
    engine,
    enter,
    run: (argv, runOptions) => run([...enter, ...argv] as unknown as Argv, runOptions),
    partition: () => faults.connect(false),
    heal: () => faults.connect(true),
    async kill() {
      await faults.connect(false);
      await faults.powerOff();
    },
    async boot() {
      await faults.powerOn();
      await faults.connect(true);
    },
  };
}
