/** A machine with a fresh Debian and a real systemd, in namespaces of its own. Its changes are in a layer that ends with it. */
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findProgram, toolsDir } from '@berth/testbed/config';
import { type Argv, type Finished, isRunning, run, startProcess } from '@berth/testbed/process';
import { waitFor } from '@berth/testbed/wait';

const SUITE = 'bookworm';
const PACKAGES = 'systemd,systemd-sysv,dbus,adduser,ca-certificates,curl';
const CGROUPS = ['/sys/fs/cgroup/unified', '/sys/fs/cgroup'].find((folder) => existsSync(join(folder, 'cgroup.procs')));

/** Returns why no machine can be made here, or undefined. */
export function whyNoMachine(): string | undefined {
  if (process.getuid?.() !== 0) return 'root is needed';
  const missing = ['debootstrap', 'unshare', 'nsenter', 'dpkg-deb'].filter((name) => findProgram(name) === undefined);
  if (missing.length > 0) return `missing: ${missing.join(', ')} (apt-get install debootstrap)`;
  return CGROUPS === undefined ? 'there are no control groups of version 2' : undefined;
}

export interface Machine {
  /** The root folder, from outside. */
  readonly root: string;
  run(argv: Argv, options?: { mayFail?: boolean; input?: string; env?: Record<string, string>; deadlineMs?: number }): Promise<Finished>;
  /** Writes a file. */
  write(path: string, text: string | Uint8Array, mode?: number): void;
  stop(): Promise<void>;
}

/** Provides the base system, which never changes. */
async function provideBase(): Promise<string> {
  const base = join(toolsDir, 'install', SUITE);
  if (existsSync(base)) return base;
  const draft = `${base}.${process.pid}`;
  mkdirSync(draft, { recursive: true });
  try {
    await run(['debootstrap', '--variant=minbase', `--include=${PACKAGES}`, SUITE, draft], { deadlineMs: 600_000 });
    renameSync(draft, base);
  } finally {
    rmSync(draft, { recursive: true, force: true });
  }
  return base;
}

export async function startMachine(): Promise<Machine> {
  const base = await provideBase();
  const layer = mkdtempSync(join(tmpdir(), 'berth-machine-'));
  const cgroup = join(CGROUPS ?? '', `berth-machine-${process.pid}`);
  mkdirSync(cgroup);
  const outer = await startProcess([process.execPath, join(import.meta.dirname, 'enter-machine.mjs'), base, layer, cgroup], {
    name: 'machine',
  });
  const first = await waitFor('the machine has a first process', () => {
    const pid = Number.parseInt(readFileSync(`/proc/${outer.pid}/task/${outer.pid}/children`, 'utf8'), 10);
    return Number.isNaN(pid) ? undefined : pid;
  });
  const machine: Machine = {
    root: `/proc/${first}/root`,
    run: (argv, options = {}) =>
      run(['nsenter', '--target', String(first), '--all', '--', 'env', '-i', ...environment(options.env), ...argv], {
        deadlineMs: options.deadlineMs ?? 240_000,
        mayFail: options.mayFail === true,
        ...(options.input === undefined ? {} : { input: options.input }),
      }),
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
        const { stdout } = await machine.run(['systemctl', 'is-system-running'], { mayFail: true, deadlineMs: 10_000 });
        return /^(running|degraded)$/.test(stdout.trim());
      },
      { deadlineMs: 120_000, intervalMs: 300 },
    );
  } catch (error) {
    await machine.stop();
    throw error;
  }
  return machine;
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
