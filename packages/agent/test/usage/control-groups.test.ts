/**
 * Control groups of both versions, as files in a folder. The texts are those of Linux 6 with
 * Docker.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { createControlGroups, parseNetwork } from '../../src/usage/control-groups.ts';

const ID = 'ab12'.repeat(16);
const OTHER = 'cd34'.repeat(16);

function files(given: Record<string, string>): string {
  const root = mkdtempSync(join(tmpdir(), 'berth-cgroup-'));
  onTestFinished(() => rmSync(root, { recursive: true, force: true }));
  for (const [path, text] of Object.entries(given)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
  return root;
}
async function reading(root: string, id = ID) {
  const groups = createControlGroups(root);
  const group = (await groups.find([id])).get(id);
  return group === undefined ? 'no group' : groups.read(group);
}
const SCOPE = `system.slice/docker-${ID}.scope`;
const V2 = {
  'cgroup.controllers': 'cpuset cpu io memory hugetlb pids\n',
  [`${SCOPE}/cpu.stat`]:
    'usage_usec 2500000\nuser_usec 1\nsystem_usec 1\nnr_periods 400\nnr_throttled ' +
    '100\nthrottled_usec 1500000\n',
  [`${SCOPE}/memory.current`]: '104857600\n',
  [`${SCOPE}/memory.max`]: '134217728\n',
  [`${SCOPE}/memory.events`]: 'low 0\nhigh 0\nmax 90\noom 3\noom_kill 2\noom_group_kill 0\n',
  [`${SCOPE}/memory.stat`]: 'anon 50\nfile 4096\nactive_file 7\ninactive_file 4857600\n',
  [`${SCOPE}/cgroup.procs`]: '0\n4711\n4712\n',
};

it('version 2, below systemd', async () => {
  expect(await reading(files(V2))).toEqual({
    cpuSeconds: 2.5,
    memoryBytes: 100_000_000,
    memoryLimit: 134_217_728,
    oomKills: 2,
    periods: 400,
    throttledPeriods: 100,
    throttledSeconds: 1.5,
    pid: 4711,
  });
});

it('version 2 without limits, and with a process that only another pid namespace sees', async () => {
  const root = files({
    ...V2,
    [`${SCOPE}/cpu.stat`]: 'usage_usec 10\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n',
    [`${SCOPE}/memory.max`]: 'max\n',
    [`${SCOPE}/cgroup.procs`]: '0\n0\n',
  });
  expect(await reading(root)).toMatchObject({
    memoryLimit: null,
    periods: null,
    throttledPeriods: null,
    throttledSeconds: null,
    pid: null,
  });
});

it('a machine without the memory controller still tells the CPU time', async () => {
  const root = files({
    'cgroup.controllers': 'cpu\n',
    [`docker/${ID}/cpu.stat`]: 'usage_usec 1000000\n',
  });
  expect(await reading(root)).toMatchObject({
    cpuSeconds: 1,
    memoryBytes: null,
    memoryLimit: null,
    oomKills: null,
  });
});

it.each(['cpu,cpuacct', 'cpuacct,cpu', 'apart'])(
  'version 1, with the controllers %s, below the parent of the engine',
  async (mounted) => {
    const cpu = mounted === 'apart' ? 'cpu' : mounted;
    const cpuacct = mounted === 'apart' ? 'cpuacct' : mounted;
    const at = `berth-17/${ID}`;
    const root = files({
      [`memory/${at}/memory.usage_in_bytes`]: '5000\n',
      [`memory/${at}/memory.limit_in_bytes`]: '9223372036854771712\n',
      [`memory/${at}/memory.oom_control`]: 'oom_kill_disable 0\nunder_oom 0\noom_kill 4\n',
      [`memory/${at}/memory.stat`]: 'cache 1\ninactive_file 3\ntotal_inactive_file 1000\n',
      [`memory/${at}/cgroup.procs`]: '99\n',
      [`${cpuacct}/${at}/cpuacct.usage`]: '3000000000\n',
      [`${cpu}/${at}/cpu.stat`]: 'nr_periods 10\nnr_throttled 5\nthrottled_time 250000000\n',
    });
    expect(await reading(root)).toEqual({
      cpuSeconds: 3,
      memoryBytes: 4000,
      memoryLimit: null,
      oomKills: 4,
      periods: 10,
      throttledPeriods: 5,
      throttledSeconds: 0.25,
      pid: 99,
    });
  },
);

it('finds each of several containers, and no group of a container that is not there or of a machine without control groups', async () => {
  const root = files({ ...V2, [`docker/${OTHER}/cpu.stat`]: 'usage_usec 7\n' });
  const found = await createControlGroups(root).find([ID, OTHER, 'ef56'.repeat(16)]);
  expect([...found.keys()].sort()).toEqual([ID, OTHER]);
  expect(await reading('/nonexistent')).toBe('no group');
  expect(await reading(files({ 'memory/x': '' }))).toBe('no group');
});

it('a container that ended has no reading', async () => {
  const root = files(V2);
  const groups = createControlGroups(root);
  const group = (await groups.find([ID])).get(ID);
  rmSync(join(root, SCOPE), { recursive: true });
  expect(group === undefined ? 'no group' : await groups.read(group)).toBeNull();
});

it('adds up the traffic of all interfaces but the loopback', () => {
  const text = [
    'Inter-|   Receive                                                |  Transmit',
    ' face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs ' +
      'drop fifo colls carrier compressed',
    '    lo:     999       1    0    0    0     0          0         0      999       1    0   ' +
      ' 0    0     0       0          0',
    '  eth0:    1500      10    0    0    0     0          0         0     2500      12    0   ' +
      ' 0    0     0       0          0',
    '  eth1:12345678901  10    0    0    0     0          0         0        1      12    0    ' +
      '0    0     0       0          0',
  ].join('\n');
  expect(parseNetwork(text)).toEqual({ rx: 12_345_680_401, tx: 2501 });
  expect(parseNetwork('')).toBeNull();
});
