// A small machine of our own: network, mount and pid namespaces whose first process dies with us.
//
//   main namespace                       engine's namespaces
//   10.99.x.1  bt<x> ──── veth ──── eth1 10.99.x.2      published ports answer here
//   (registry, git, control plane)       tap0 10.0.2.100 ── slirp4netns ── user-space NAT to the outside
//
// Everything is made inside the namespaces, so the kernel takes it all back when the first process dies:
// containers, mounts, interfaces, iptables rules, ip_forward. Nothing of the machine's own is changed.
import { readFileSync, realpathSync } from 'node:fs';
import { mkdir, readdir, readFile, readlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { findProgram } from './config.ts';
import { type Argv, type RunningProcess, run, signalProcess, startProcess } from './process.ts';
import { messageOf, waitFor } from './wait.ts';

export interface Namespace {
  /** Process id, seen from here, of the first process inside. Killing it ends everything in there. */
  readonly pid: number;
  /** This machine's end of the cable. */
  readonly gatewayIp: string;
  /** The address inside. */
  readonly hostIp: string;
  /** Name of our end of the cable; `ip link set <name> down` cuts the engine off. */
  readonly linkName: string;
  /** Whether connections to the outside work from in there. */
  readonly outward: boolean;
  /** Prefix that runs a program inside. */
  enter(): string[];
  /** Absolute path, from here, of a path inside. */
  inside(path: string): string;
  /** Process ids, seen from here, of everything inside but the first process. */
  processes(): Promise<number[]>;
  /** Pulls (false) or plugs in (true) the cable. */
  connect(on: boolean): Promise<void>;
  stop(): Promise<void>;
}

/** All of the cables' addresses; each namespace takes one /24 of it. */
export const cableNetwork = '10.99.0.0/16';

/** slirp4netns' name server inside the namespace. */
export const slirpNameServer = '10.0.2.3';

export interface NamespaceOptions {
  readonly log: (line: string) => void;
  readonly logFile: string;
  /** 0 to 249: the network to try first. The same one each run lets docker know a registry again by its address. */
  readonly preferredNetwork: number;
}

/** @throws when a tool is missing or the kernel does not let us. */
export async function startNamespace(options: NamespaceOptions): Promise<Namespace> {
  // env --ignore-signal=CHLD: a first process that ignores SIGCHLD leaves no zombies of orphans.
  // --propagation slave: what gets mounted on the machine later (a test's tmpfs) is seen inside, not the reverse.
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
    throw new Error(`no namespace of our own: ${messageOf(error)}\n${holder.tail()}`, { cause: error });
  }
}

async function furnish(holder: RunningProcess, options: NamespaceOptions): Promise<Namespace> {
  const pid = await waitFor('the namespace has its first process', () => firstProcess(holder.pid), { deadlineMs: 5_000, intervalMs: 5 });
  const enter = () => ['nsenter', '--target', String(pid), '--net', '--mount', '--pid', '--'];
  const inside = (path: string) => `/proc/${pid}/root${path}`;
  const within = (...args: string[]) => run([...enter(), ...args] as unknown as Argv);

  const cable = await layCable(pid, options.preferredNetwork);
  const { linkName, gatewayIp, hostIp } = cable;
  await run(['ip', 'address', 'add', `${gatewayIp}/24`, 'dev', linkName]);
  await run(['ip', 'link', 'set', linkName, 'up']);
  await within('ip', 'link', 'set', 'lo', 'up');
  await within('ip', 'address', 'add', `${hostIp}/24`, 'dev', 'eth1');
  await within('ip', 'link', 'set', 'eth1', 'up');
  // Other engines' gateways (a registry that stands at one of them) are this machine too.
  await within('ip', 'route', 'add', cableNetwork, 'via', gatewayIp);

  // An empty /run: shim sockets, network namespaces and xtables.lock of other engines stay apart.
  const resolvConf = realpathSync('/etc/resolv.conf');
  const nameServers = await readFile(resolvConf);
  await within('mount', '-t', 'tmpfs', '-o', 'mode=755', 'tmpfs', '/run');
  const slirp = await startSlirp(pid, options);
  await mkdir(inside('/run/berth'), { recursive: true });
  await writeFile(inside('/run/berth/resolv.conf'), slirp === undefined ? nameServers : `nameserver ${slirpNameServer}\n`);
  if (resolvConf.startsWith('/run/')) {
    // systemd-resolved: /etc/resolv.conf is a link into the /run that was just covered.
    await mkdir(inside(dirname(resolvConf)), { recursive: true });
    await writeFile(inside(resolvConf), await readFile(inside('/run/berth/resolv.conf')));
  } else {
    await within('mount', '--bind', '/run/berth/resolv.conf', resolvConf);
  }

  return {
    pid,
    gatewayIp,
    hostIp,
    linkName,
    enter,
    inside,
    outward: slirp !== undefined,
    processes: () => processesBeside(pid),
    async connect(on) {
      await run(['ip', 'link', 'set', linkName, on ? 'up' : 'down']);
    },
    async stop() {
      await slirp?.stop(1_000);
      // The kernel takes the cable back some time after the namespace; a next run should find the name free now.
      await run(['ip', 'link', 'delete', linkName], { mayFail: true });
      signalProcess(pid, 'SIGKILL');
      await holder.stop(0);
    },
  };
}

/** Name resolution and connections outward without touching this machine's iptables or ip_forward. */
async function startSlirp(pid: number, options: NamespaceOptions): Promise<RunningProcess | undefined> {
  const program = findProgram('slirp4netns');
  if (program === undefined) {
    options.log('slirp4netns is not installed: builds inside the engine cannot reach the outside');
    return undefined;
  }
  const slirp = await startProcess([program, '--configure', '--mtu=65520', '--disable-host-loopback', String(pid), 'tap0'], {
    name: 'slirp4netns',
    logFile: options.logFile,
  });
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
    options.log(`slirp4netns does not work here, builds inside the engine cannot reach the outside: ${messageOf(error)}`);
    await slirp.stop(0);
    return undefined;
  }
}

/** A free /24 of the cables' network: making the link is the lock, its name holds the number. */
async function layCable(pid: number, preferred: number): Promise<{ linkName: string; gatewayIp: string; hostIp: string }> {
  const addresses = (await run(['ip', '-4', '-oneline', 'address', 'show'])).stdout;
  for (let i = 0; i < 250; i++) {
    const x = 1 + ((preferred + i) % 250);
    if (addresses.includes(` 10.99.${x}.`)) continue;
    const linkName = `bt${x}`;
    const made = await run(['ip', 'link', 'add', linkName, 'type', 'veth', 'peer', 'name', 'eth1', 'netns', String(pid)], {
      mayFail: true,
    });
    if (made.code === 0) return { linkName, gatewayIp: `10.99.${x}.1`, hostIp: `10.99.${x}.2` };
    if (!made.stderr.includes('File exists')) throw new Error(`cannot make a veth pair: ${made.stderr.trim()}`);
  }
  throw new Error('no free network among 10.99.1.0 to 10.99.250.0');
}

/** The only child of `unshare --fork`, once it has become `sleep`: before that its mounts are not ready. */
function firstProcess(unsharePid: number): number | undefined {
  const pid = onlyChild(unsharePid);
  if (pid === undefined) return undefined;
  return readFileSync(join('/proc', String(pid), 'comm'), 'utf8').trim() === 'sleep' ? pid : undefined;
}

/** Process id of a process' only child, undefined when it has none (yet). */
export function onlyChild(pid: number): number | undefined {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim();
  return children === '' ? undefined : Number(children.split(' ')[0]);
}

/** Every other process of a process' pid namespace. */
async function processesBeside(pid: number): Promise<number[]> {
  const namespaceOf = (id: string) => readlink(`/proc/${id}/ns/pid`);
  const wanted = await namespaceOf(String(pid));
  const found: number[] = [];
  for (const id of await readdir('/proc')) {
    if (!/^\d+$/.test(id) || id === String(pid)) continue;
    try {
      if ((await namespaceOf(id)) === wanted) found.push(Number(id));
    } catch (error) {
      // It ended while we looked, or is one we may not look into: then it is not one of ours.
      if (!['ENOENT', 'ESRCH', 'EACCES'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
    }
  }
  return found;
}
