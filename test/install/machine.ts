/**
 * A machine with a fresh Debian and a real systemd, in namespaces of its own. Its changes are in a
 * layer that ends with it.
 */
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findProgram, toolsDir } from '@berth/testbed/config';
import { type Argv, type Finished, isRunning, run, startProcess } from '@berth/testbed/process';
import { waitFor } from '@berth/testbed/wait';

const SUITE = 'bookworm';
const PACKAGES = 'systemd,systemd-sysv,dbus,adduser,ca-certificates,curl';
/**
 * A machine of someone who followed docs/install.md: what the agents and the registry need, from
 * Debian's mirror.
 */
const ENGINE = {
  include: `${PACKAGES},iproute2,iptables,git,openssh-client,rsync,procps`,
  /**
   * Their scripts start services, so they come after debootstrap, which has no policy against that.
   */
  later: ['docker.io', 'docker-registry'],
};
const CGROUPS = ['/sys/fs/cgroup/unified', '/sys/fs/cgroup'].find((folder) =>
  existsSync(join(folder, 'cgroup.procs')),
);

/** Returns why no machine can be made here, or undefined. */
export function whyNoMachine(): string | undefined {
  if (process.getuid?.() !== 0) return 'root is needed';
  const missing = ['debootstrap', 'unshare', 'nsenter', 'dpkg-deb'].filter(
    (name) => findProgram(name) === undefined,
  );
  if (missing.length > 0) return `missing: ${missing.join(', ')} (apt-get install debootstrap)`;
  return CGROUPS === undefined ? 'there are no control groups of version 2' : undefined;
}

export interface Machine {
  /** The root folder, from outside. */
  readonly root: string;
  run(
    argv: Argv,
    options?: {
      mayFail?: boolean;
      input?: string;
      env?: Record<string, string>;
      deadlineMs?: number;
    },
  ): Promise<Finished>;
  /** Writes a file. */
  write(path: string, text: string | Uint8Array, mode?: number): void;
  stop(): Promise<void>;
}

/** Provides the base system, which never changes. */
async function provideBase(hasEngine: boolean): Promise<string> {
  const base = join(toolsDir, 'install', hasEngine ? `${SUITE}-engine` : SUITE);
  if (existsSync(base)) return base;
  const draft = `${base}.${process.pid}`;
  mkdirSync(draft, { recursive: true });
  try {
    const include = hasEngine ? ENGINE.include : PACKAGES;
    await run(['debootstrap', '--variant=minbase', `--include=${include}`, SUITE, draft], {
      deadlineMs: 900_000,
    });
    if (hasEngine) await addEngine(draft);
    renameSync(draft, base);
  } finally {
    rmSync(draft, { recursive: true, force: true });
  }
  return base;
}

async function addEngine(root: string): Promise<void> {
  const policy = join(root, 'usr/sbin/policy-rc.d');
  writeFileSync(policy, '#!/bin/sh\nexit 101\n', { mode: 0o755 });
  const env = { DEBIAN_FRONTEND: 'noninteractive' };
  await run(
    ['chroot', root, 'apt-get', 'install', '-y', '--no-install-recommends', ...ENGINE.later],
    { env, deadlineMs: 900_000 },
  );
  rmSync(policy);
}

export interface MachineOptions {
  /** With Debian's container engine and registry, as the pages for operators say. */
  readonly engine?: boolean;
  /** The network that it is plugged into, and its address there. */
  readonly network?: { readonly bridge: string; readonly address: string };
  readonly hostname?: string;
}

let machines = 0;

export async function startMachine(options: MachineOptions = {}): Promise<Machine> {
  const base = await provideBase(options.engine === true);
  const layer = mkdtempSync(join(tmpdir(), 'berth-machine-'));
  const cgroup = join(CGROUPS ?? '', `berth-machine-${process.pid}-${machines++}`);
  mkdirSync(cgroup);
  const outer = await startProcess(
    [process.execPath, join(import.meta.dirname, 'enter-machine.mjs'), base, layer, cgroup],
    {
      name: 'machine',
    },
  );
  const first = await waitFor('the machine has a first process', () => {
    const pid = Number.parseInt(
      readFileSync(`/proc/${outer.pid}/task/${outer.pid}/children`, 'utf8'),
      10,
    );
    return Number.isNaN(pid) ? undefined : pid;
  });
  const machine: Machine = {
    root: `/proc/${first}/root`,
    run: (argv, options = {}) =>
      run(
        [
          'nsenter',
          '--target',
          String(first),
          '--all',
          '--',
          'env',
          '-i',
          ...environment(options.env),
          ...argv,
        ],
        {
          deadlineMs: options.deadlineMs ?? 240_000,
          mayFail: options.mayFail === true,
          ...(options.input === undefined ? {} : { input: options.input }),
        },
      ),
    write(path, text, mode = 0o644) {
      const file = join(machine.root, path);
      writeFileSync(file, text, { mode });
    },
    async stop() {
      await outer.stop();
      await waitFor('the machine is gone', () => !isRunning(first));
      rmSync(layer, { recursive: true, force: true });
      await removeGroups(cgroup);
    },
  };
  try {
    await waitFor(
      'systemd has started',
      async () => {
        if (outer.exit() !== undefined) throw new Error(outer.tail());
        // Its connection may hang when it comes before the bus.
        const { stdout } = await machine.run(['systemctl', 'is-system-running'], {
          mayFail: true,
          deadlineMs: 10_000,
        });
        return /^(running|degraded)$/.test(stdout.trim());
      },
      { deadlineMs: 120_000, intervalMs: 300 },
    );
    if (options.hostname !== undefined) await machine.run(['hostname', options.hostname]);
    await plugIn(first, options.network);
  } catch (error) {
    await machine.stop();
    throw error;
  }
  return machine;
}

/**
 * Brings up loopback and, in a network, the cable to its bridge. The cable ends with the machine.
 */
async function plugIn(first: number, network: MachineOptions['network']): Promise<void> {
  const inside = ['nsenter', '--target', String(first), '--net', '--', 'ip'] as const;
  await run([...inside, 'link', 'set', 'lo', 'up']);
  if (network === undefined) return;
  const [cable, peer] = [`bm${first}a`, `bm${first}b`];
  await run(['ip', 'link', 'add', cable, 'type', 'veth', 'peer', 'name', peer]);
  await run(['ip', 'link', 'set', peer, 'netns', String(first)]);
  await run(['ip', 'link', 'set', cable, 'master', network.bridge, 'up']);
  await run([...inside, 'link', 'set', peer, 'name', 'eth0']);
  await run([...inside, 'addr', 'add', `${network.address}/24`, 'dev', 'eth0']);
  await run([...inside, 'link', 'set', 'eth0', 'up']);
}

export interface Network {
  readonly bridge: string;
  /** The address of the test on this network. */
  readonly here: string;
  /** Returns the address of the n-th machine. */
  address(n: number): string;
  stop(): Promise<void>;
}

/** A network for machines and this process, without a way to the internet. */
export async function startNetwork(): Promise<Network> {
  const bridge = `berthi${process.pid % 100_000}`;
  const subnet = `10.98.${process.pid % 250}`;
  await run(['ip', 'link', 'add', bridge, 'type', 'bridge']);
  await run(['ip', 'addr', 'add', `${subnet}.1/24`, 'dev', bridge]);
  await run(['ip', 'link', 'set', bridge, 'up']);
  return {
    bridge,
    here: `${subnet}.1`,
    address: (n) => `${subnet}.${n + 1}`,
    stop: async () => void (await run(['ip', 'link', 'delete', bridge], { mayFail: true })),
  };
}

const environment = (extra: Record<string, string> = {}): string[] =>
  Object.entries({
    PATH: '/usr/sbin:/usr/bin:/sbin:/bin',
    HOME: '/root',
    LANG: 'C.UTF-8',
    DEBIAN_FRONTEND: 'noninteractive',
    ...extra,
  }).map(([name, value]) => `${name}=${value}`);

/** Control groups are removed from the innermost one, once they are empty. */
async function removeGroups(group: string): Promise<void> {
  const { stdout } = await run(['find', group, '-depth', '-type', 'd']);
  for (const folder of stdout.split('\n').filter((line) => line !== ''))
    await waitFor(`${folder} is empty`, () => {
      rmdirSync(folder);
      return true;
    });
}
