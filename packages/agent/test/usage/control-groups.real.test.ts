/**
 * Values that the kernel writes into the files of a control group, for processes whose use is
 * known. Groups are made below the machine's own hierarchies, version 2 and 1; one of them has the
 * controllers cpu and memory. With a container: test/e2e/isolation.test.ts.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, mkdtemp, readFile, rm, rmdir, symlink, writeFile } from 'node:fs/promises';
import { existsSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { waitFor } from '@berth/testbed/wait';
import { describe, expect, it, onTestFinished } from 'vitest';
import { createControlGroups, type GroupReading } from '../../src/usage/control-groups.ts';

const MB = 1_048_576;
type Limits = { memory?: number };
type Hierarchy = {
  name: string;
  version: 1 | 2;
  /** Its mount point: of version 1, the folder that has a folder for each controller. */
  root: string;
  hasMemory: boolean;
  hasCpu: boolean;
  /** Makes a group with limits. Returns its folders. */
  make(id: string, limits: Limits): Promise<string[]>;
  limitCpu(dirs: readonly string[], cpus: number): Promise<void>;
};

/**
 * Where a hierarchy of version 2 is mounted. Controllers that a hierarchy of version 1 has are
 * missing in it.
 */
function second(root: string): Hierarchy {
  const controllers = readFileSync(join(root, 'cgroup.controllers'), 'utf8').trim().split(' ');
  const has = (name: string): boolean => controllers.includes(name);
  return {
    name:
      'version 2, with the controllers ' +
      (['cpu', 'memory'].filter(has).join(' and ') || 'of the kernel alone'),
    version: 2,
    root,
    hasMemory: has('memory'),
    hasCpu: has('cpu'),
    async make(id, { memory }) {
      for (const name of ['cpu', 'memory'].filter(has))
        await writeFile(join(root, 'cgroup.subtree_control'), `+${name}`);
      const dir = join(root, id);
      await mkdir(dir);
      if (memory !== undefined && has('memory'))
        await writeFile(join(dir, 'memory.max'), String(memory));
      return [dir];
    },
    limitCpu: ([dir = ''], cpus) => writeFile(join(dir, 'cpu.max'), `${cpus * 100_000} 100000`),
  };
}
const first = (root: string): Hierarchy => ({
  name: 'version 1',
  version: 1,
  root,
  hasMemory: true,
  hasCpu: true,
  async make(id, { memory }) {
    const dirs = ['memory', 'cpu', 'cpuacct'].map((controller) => join(root, controller, id));
    // Where cpu and cpuacct are one hierarchy, they have one folder.
    for (const dir of dirs) await mkdir(dir, { recursive: true });
    const [forMemory = ''] = dirs;
    if (memory !== undefined)
      await writeFile(join(forMemory, 'memory.limit_in_bytes'), String(memory));
    return dirs;
  },
  limitCpu: ([, dir = ''], cpus) =>
    writeFile(join(dir, 'cpu.cfs_quota_us'), String(cpus * 100_000)),
});

const SYSTEM = '/sys/fs/cgroup';
const found: Hierarchy[] = [];
if (existsSync(join(SYSTEM, 'cgroup.controllers'))) found.push(second(SYSTEM));
if (existsSync(join(SYSTEM, 'unified/cgroup.controllers')))
  found.push(second(join(SYSTEM, 'unified')));
if (
  existsSync(join(SYSTEM, 'memory/memory.limit_in_bytes')) &&
  existsSync(join(SYSTEM, 'cpu/cpu.cfs_quota_us'))
)
  found.push(first(SYSTEM));
const isRoot = process.getuid?.() === 0;
const reason = !isRoot
  ? 'needs root'
  : found.length === 0
    ? 'this machine shows no control groups'
    : undefined;

/**
 * Runs the script in a new group until the test ends. It reads commands line by line, and answers
 * each with a line.
 */
async function inGroup(hierarchy: Hierarchy, limits: Limits = {}) {
  const id = randomBytes(32).toString('hex');
  const dirs = await hierarchy.make(id, limits);
  const script = `
    const kept = [];
    const commands = {
      burn(ms) { for (const end = process.cpuUsage(); (process.cpuUsage(end).user + process.cpuUsage(end).system) / 1000 < ms; ); return process.cpuUsage(); },
      keep(mb) { kept.push(Buffer.alloc(mb * ${MB}, 1)); return true; },
    };
    require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
      const [name, value] = JSON.parse(line);
      console.log(JSON.stringify(commands[name](value)));
    });`;
  const start = (): ChildProcess => {
    // The shell enters the group before the program begins, so that all its memory counts.
    const enter = dirs.map((dir) => `echo $$ > ${dir}/cgroup.procs`).join(' && ');
    return spawn('/bin/sh', ['-c', `${enter} && exec "$0" -e "$1"`, process.execPath, script], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
  };
  const child = start();
  onTestFinished(async () => {
    if (child.exitCode === null && child.signalCode === null) {
      child.kill('SIGKILL');
      await once(child, 'exit');
    }
    for (const dir of new Set(dirs))
      await waitFor('the group is removed', () =>
        rmdir(dir).then(
          () => true,
          (error: NodeJS.ErrnoException) => error.code === 'ENOENT',
        ),
      );
  });
  const ask = async <T>(name: string, value: number): Promise<T> => {
    child.stdin?.write(`${JSON.stringify([name, value])}\n`);
    const [answer] = (await once(child.stdout as NodeJS.ReadableStream, 'data')) as [Buffer];
    return JSON.parse(String(answer)) as T;
  };
  const groups = createControlGroups(hierarchy.root);
  const read = async (): Promise<GroupReading> => {
    const group = (await groups.find([id])).get(id);
    expect(group?.version).toBe(hierarchy.version);
    const reading = group === undefined ? null : await groups.read(group);
    if (reading === null) throw new Error('the group has no reading');
    return reading;
  };
  return { child, ask, read, dirs, id, groups };
}

describe.skipIf(reason !== undefined)(
  `control groups of this kernel${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    describe.each(found)('$name', (hierarchy) => {
      const { hasMemory, hasCpu } = hierarchy;

      it('CPU time is what the process used, and grows with it', async () => {
        const { child, ask, read } = await inGroup(hierarchy);
        const used = await ask<{ user: number; system: number }>('burn', 400);
        const before = await read();
        // The kernel counts for the group what it counts for its process; the shell was there for a
        // moment too.
        const seconds = (used.user + used.system) / 1e6;
        expect(before.cpuSeconds).toBeGreaterThanOrEqual(seconds * 0.9);
        expect(before.cpuSeconds).toBeLessThan(seconds + 5);
        await ask('burn', 300);
        expect((await read()).cpuSeconds).toBeGreaterThanOrEqual((before.cpuSeconds ?? 0) + 0.27);
        expect(before.pid).toBe(child.pid);
        expect(before).toMatchObject({
          periods: null,
          throttledPeriods: null,
          throttledSeconds: null,
        });
      });

      it('memory is what the process keeps, and there is no limit', async () => {
        const { ask, read } = await inGroup(hierarchy);
        await ask('keep', 1);
        const before = await read();
        await ask('keep', 64);
        const after = await read();
        if (!hasMemory)
          return expect(after).toMatchObject({
            memoryBytes: null,
            memoryLimit: null,
            oomKills: null,
          });
        expect((after.memoryBytes ?? 0) - (before.memoryBytes ?? 0)).toBeGreaterThan(60 * MB);
        expect((after.memoryBytes ?? 0) - (before.memoryBytes ?? 0)).toBeLessThan(80 * MB);
        expect(after).toMatchObject({ memoryLimit: null, oomKills: 0 });
      });

      it.skipIf(!hasMemory)('file cache that nobody uses does not count', async () => {
        const { dirs, read, ask } = await inGroup(hierarchy);
        await ask('keep', 1);
        const before = await read();
        const folder = await mkdtemp(join(tmpdir(), 'berth-cache-'));
        onTestFinished(() => rm(folder, { recursive: true, force: true }));
        const fill =
          `echo $$ > ${dirs[0]}/cgroup.procs && exec dd if=/dev/zero of=${folder}/file bs=1M ` +
          'count=64 conv=fsync';
        const [code] = await once(spawn('/bin/sh', ['-c', fill], { stdio: 'ignore' }), 'exit');
        expect(code).toBe(0);
        const after = await read();
        expect(Math.abs((after.memoryBytes ?? 0) - (before.memoryBytes ?? 0))).toBeLessThan(
          24 * MB,
        );
      });

      it.skipIf(!hasMemory)(
        'a process that needs more than the limit is counted as killed',
        async () => {
          const { child, ask, read } = await inGroup(hierarchy, { memory: 160 * MB });
          await ask('keep', 1);
          expect(await read()).toMatchObject({ memoryLimit: 160 * MB, oomKills: 0 });
          child.stdin?.on('error', () => undefined);
          const ended = once(child, 'exit');
          void ask('keep', 400).catch(() => undefined);
          expect(await ended).toEqual([null, 'SIGKILL']);
          expect(await read()).toMatchObject({ memoryLimit: 160 * MB, oomKills: 1, pid: null });
        },
      );

      it.skipIf(!hasCpu)('time that the CPU limit took is counted', async () => {
        const { ask, read, dirs } = await inGroup(hierarchy);
        await ask('keep', 1);
        // So little that the limit stops the process before a busy machine does.
        await hierarchy.limitCpu(dirs, 0.02);
        await ask('burn', 20);
        const { periods, throttledPeriods, throttledSeconds } = await read();
        expect(periods).toBeGreaterThan(3);
        expect(throttledPeriods).toBeGreaterThan(1);
        expect(throttledPeriods).toBeLessThanOrEqual(periods ?? 0);
        expect(throttledSeconds).toBeGreaterThan(0.1);
      });

      it('a group that ended has no reading, and one that this process may not see is not found', async () => {
        const { child, ask, dirs, groups, id } = await inGroup(hierarchy);
        await ask('keep', 1);
        const group = (await groups.find([id])).get(id);
        child.kill('SIGKILL');
        await once(child, 'exit');
        for (const dir of new Set(dirs))
          await waitFor('the group is gone', () =>
            rmdir(dir).then(
              () => true,
              () => false,
            ),
          );
        expect(group === undefined ? 'not found' : await groups.read(group)).toBeNull();
        // An agent in a container with a control group of its own sees another root.
        const elsewhere = await mkdtemp(join(tmpdir(), 'berth-groups-'));
        onTestFinished(() => rm(elsewhere, { recursive: true, force: true }));
        await symlink('/proc/self/cgroup', join(elsewhere, 'cgroup.controllers'));
        expect((await createControlGroups(elsewhere).find([id])).size).toBe(0);
        expect(await readFile(join(elsewhere, 'cgroup.controllers'), 'utf8')).not.toBe('');
      });
    });
  },
);
