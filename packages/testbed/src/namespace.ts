// A small machine: network, mount and pid namespaces whose first process dies with this one.
//
//   main namespace                           engine's namespaces
//   10.99.x.1 ── cable or switch (cable.ts) ── eth1 10.99.x.2    published ports answer here
//   (registry, git, control plane)           tap0 10.0.2.100 ── slirp4netns ── user-space NAT to the outside
//
// Everything is created inside the namespaces, so the kernel removes all of it when the first
// process dies: containers, mounts, interfaces, iptables rules, ip_forward. Nothing on the machine
// itself changes.
import { realpathSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { cableNetwork, layCable, type NetworkOptions, runs, type Switch } from './cable.ts';
import { findProgram } from './config.ts';
import { membersOf, onlyChild } from './process-tree.ts';
import { type Argv, type RunningProcess, run, signalProcess, startProcess } from './process.ts';
import { messageWithCause, waitFor } from './wait.ts';

export interface Namespace {
  /** Process id of the first process inside, seen from here. Killing it ends everything inside. */
  readonly pid: number;
  /** Address of this machine's end of the cable. */
  readonly gatewayIp: string;
  /** Address inside. */
  readonly hostIp: string;
  /** Whether connections from inside to the internet work. */
  readonly outward: boolean;
  /** Returns the prefix that runs a program inside. */
  enter(): string[];
  /** Returns the absolute path, from here, of a path inside. */
  inside(path: string): string;
  /** Returns the process ids, seen from here, of all processes inside except the first. */
  processes(): number[];
  /** Pulls the cable (false) or plugs it in (true). */
  connect(on: boolean): Promise<void>;
  stop(): Promise<void>;
}

/** Address of slirp4netns' name server inside the namespace. */
export const slirpNameServer = '10.0.2.3';

export interface NamespaceOptions extends NetworkOptions {
  readonly log: (line: string) => void;
  readonly logFile: string;
  /** Switch into which it is plugged; left out: its own cable to this machine. */
  readonly network?: Switch | undefined;
}

/** @throws when a tool is missing or the kernel refuses */
export async function startNamespace(options: NamespaceOptions): Promise<Namespace> {
  // env --ignore-signal=CHLD: a first process that ignores SIGCHLD leaves no zombies of orphans.
  // --propagation slave: a later mount on the machine (a test's tmpfs) is visible inside, not the
  // reverse.
  const holder = await startProcess(
    [
      'unshare',
      '--net',
      '--mount',
      '--pid',
      '--fork',
      '--kill-child=KILL',
      '--mount-proc',
      '--propagation',
      'slave',
      'env',
      '--ignore-signal=CHLD',
      'sleep',
      'infinity',
    ],
    { name: 'namespace', logFile: options.logFile },
  );
  try {
    return await furnish(holder, options);
  } catch (error) {
    await holder.stop(0);
    throw new Error(`cannot create namespaces: ${messageWithCause(error)}\n${holder.tail()}`, {
      cause: error,
    });
  }
}

async function furnish(holder: RunningProcess, options: NamespaceOptions): Promise<Namespace> {
  const pid = await waitFor('the namespace has its first process', () => firstProcess(holder.pid), {
    deadlineMs: 5_000,
    intervalMs: 5,
  });
  const enter = () => ['nsenter', '--target', String(pid), '--net', '--mount', '--pid', '--'];
  const inside = (path: string) => `/proc/${pid}/root${path}`;
  const within = (...args: string[]) => run([...enter(), ...args] as unknown as Argv);

  const cable = await (options.network?.plug(pid) ?? layCable(pid, options));
  const { gatewayIp, hostIp } = cable;
  await within('ip', 'link', 'set', 'lo', 'up');
  await within('ip', 'address', 'add', `${hostIp}/24`, 'dev', 'eth1');
  await within('ip', 'link', 'set', 'eth1', 'up');
  // The gateways of other engines (a registry can listen at one of them) are this machine too.
  await within('ip', 'route', 'add', cableNetwork, 'via', gatewayIp);

  // An empty /run keeps shim sockets, network namespaces and xtables.lock of other engines apart.
  const resolvConf = realpathSync('/etc/resolv.conf');
  const nameServers = await readFile(resolvConf);
  await within('mount', '-t', 'tmpfs', '-o', 'mode=755', 'tmpfs', '/run');
  const slirp = await startSlirp(pid, options);
  await mkdir(inside('/run/berth'), { recursive: true });
  await writeFile(
    inside('/run/berth/resolv.conf'),
    slirp === undefined ? nameServers : `nameserver ${slirpNameServer}\n`,
  );
  if (resolvConf.startsWith('/run/')) {
    // With systemd-resolved, /etc/resolv.conf is a link into the /run that the tmpfs now covers.
    await mkdir(inside(dirname(resolvConf)), { recursive: true });
    await writeFile(inside(resolvConf), await readFile(inside('/run/berth/resolv.conf')));
  } else {
    await within('mount', '--bind', '/run/berth/resolv.conf', resolvConf);
  }

  return {
    pid,
    gatewayIp,
    hostIp,
    enter,
    inside,
    outward: slirp !== undefined,
    processes: () => membersOf(pid),
    connect: cable.connect,
    async stop() {
      await slirp?.stop(1_000);
      // The kernel removes the cable some time after the namespace; the next run must find the name
      // free at once.
      await cable.remove();
      signalProcess(pid, 'SIGKILL');
      await holder.stop(0);
    },
  };
}

/**
 * Provides name resolution and outgoing connections without a change of this machine's iptables or
 * ip_forward.
 */
async function startSlirp(
  pid: number,
  options: NamespaceOptions,
): Promise<RunningProcess | undefined> {
  const program = findProgram('slirp4netns');
  if (program === undefined) {
    options.log('slirp4netns is not installed: builds inside the engine cannot reach the outside');
    return undefined;
  }
  const slirp = await startProcess(
    [program, '--configure', '--mtu=65520', '--disable-host-loopback', String(pid), 'tap0'],
    {
      name: 'slirp4netns',
      logFile: options.logFile,
    },
  );
  try {
    await waitFor(
      'slirp4netns has made tap0',
      async () => {
        if (slirp.exit() !== undefined) throw new Error(slirp.tail());
        return (await readFile(`/proc/${pid}/net/route`, 'utf8')).includes('tap0');
      },
      { deadlineMs: 5_000, intervalMs: 10 },
    );
    return slirp;
  } catch (error) {
    options.log(
      'slirp4netns does not work here, builds inside the engine cannot reach the outside: ' +
        messageWithCause(error),
    );
    await slirp.stop(0);
    return undefined;
  }
}

/**
 * Returns the only child of `unshare --fork` once it has become `sleep`: before that its mounts are
 * not ready.
 */
function firstProcess(unsharePid: number): number | undefined {
  const pid = onlyChild(unsharePid);
  if (pid === undefined) return undefined;
  return runs(pid, 'sleep') ? pid : undefined;
}
