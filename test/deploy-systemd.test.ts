/** The units of deploy/systemd: each process is confined as far as it works, and what a unit makes writable is what the process writes. */
import { spawnSync } from 'node:child_process';
import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { AGENT_SETTINGS } from '../packages/agent/src/config.ts';

const ROOT = path.resolve(import.meta.dirname, '..');
const UNITS = globSync('deploy/systemd/*.service', { cwd: ROOT }).toSorted();
const read = (unit: string): string => readFileSync(path.join(ROOT, unit), 'utf8');
/** Values of each directive of [Service], in their order. */
function service(unit: string): Map<string, string[]> {
  const found = new Map<string, string[]>();
  const section =
    read(unit)
      .split(/^\[Service\]$/m)[1]
      ?.split(/^\[/m)[0] ?? '';
  for (const line of section.split('\n')) {
    const [, key, value] = /^(\w+)=(.*)$/.exec(line) ?? [];
    if (key !== undefined && value !== undefined) found.set(key, [...(found.get(key) ?? []), value]);
  }
  return found;
}
const AGENT = 'deploy/systemd/berth-agent.service';

const EVERYWHERE = {
  NoNewPrivileges: ['true'],
  ProtectSystem: ['strict'],
  PrivateTmp: ['true'],
  PrivateDevices: ['true'],
  ProtectClock: ['true'],
  ProtectControlGroups: ['true'],
  ProtectHostname: ['true'],
  ProtectKernelLogs: ['true'],
  ProtectKernelModules: ['true'],
  ProtectKernelTunables: ['true'],
  LockPersonality: ['true'],
  RestrictNamespaces: ['true'],
  RestrictRealtime: ['true'],
  RestrictSUIDSGID: ['true'],
  RestrictAddressFamilies: ['AF_UNIX AF_INET AF_INET6 AF_NETLINK'],
  SystemCallArchitectures: ['native'],
  SystemCallErrorNumber: ['EPERM'],
  LimitCORE: ['0'],
};

test('there is a unit for each process', () => {
  expect(UNITS.map((unit) => path.basename(unit, '.service'))).toEqual([
    'berth-agent',
    'berth-control-plane',
    'berth-gateway',
    'berth-relay',
  ]);
});

describe.each(UNITS)('%s', (unit) => {
  const directives = service(unit);
  test('is confined', () => {
    expect(Object.fromEntries(directives)).toMatchObject(EVERYWHERE);
    expect(directives.get('SystemCallFilter')?.[0]).toBe('@system-service');
  });
  test('does not forbid what Node.js needs to compile JavaScript, and says so', () => {
    expect(directives.has('MemoryDenyWriteExecute')).toBe(false);
    expect(read(unit)).toMatch(/^# .*MemoryDenyWriteExecute=.*Node\.js/m);
  });
  test.skipIf(unit === AGENT)('has no right of root and shows its files to nobody else', () => {
    expect(directives.has('User') || directives.get('DynamicUser')?.[0] === 'yes').toBe(true);
    expect(Object.fromEntries(directives)).toMatchObject({
      CapabilityBoundingSet: [''],
      ProtectHome: ['true'],
      SystemCallFilter: ['@system-service', '~@privileged'],
      UMask: ['0077'],
    });
  });
  const analyze = spawnSync('systemd-analyze', ['security', '--offline=true', '--threshold=100', path.join(ROOT, unit)], {
    encoding: 'utf8',
  });
  test.skipIf(analyze.error !== undefined || !analyze.stdout.includes('exposure level'))('is found OK by systemd-analyze', () => {
    const level = Number(/exposure level for \S+: ([\d.]+)/.exec(analyze.stdout)?.[1]);
    expect(level).toBeLessThanOrEqual(unit === AGENT ? 3 : 2);
  });
});

describe('the agent', () => {
  const directives = service(AGENT);
  test('may write its STATE_DIR, its SVC_ROOT and the lock file of iptables, by the defaults of its settings', () => {
    expect(`/var/lib/${directives.get('StateDirectory')?.[0]}`).toBe(AGENT_SETTINGS.STATE_DIR.default);
    expect(directives.get('ReadWritePaths')).toEqual([AGENT_SETTINGS.SVC_ROOT.default, '-/run/xtables.lock']);
    // Without the folder the unit could not start.
    expect(directives.get('ExecStartPre')).toEqual([`+/bin/mkdir -p ${AGENT_SETTINGS.SVC_ROOT.default}`]);
  });
  test('keeps the rights that files of several users and iptables need, and no other', () => {
    expect(directives.get('CapabilityBoundingSet')).toEqual(['CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_FOWNER CAP_NET_ADMIN CAP_NET_RAW']);
  });
  test('checks sources out with modes that the user of an image can read, and finds the keys of SSH_KEY_HOSTS', () => {
    expect(directives.get('UMask')).toEqual(['0022']);
    expect(directives.get('ProtectHome')).toEqual(['read-only']);
  });
  test('says of each part of the sandbox that it lacks why', () => {
    for (const missing of [
      'User',
      'DynamicUser',
      'PrivateUsers',
      'PrivateNetwork',
      'IPAddressDeny',
      'ProtectProc',
      'ProcSubset',
      'RootDirectory',
    ]) {
      expect(directives.has(missing), missing).toBe(false);
      expect(read(AGENT)).toMatch(new RegExp(`^# .*\\b${missing}=`, 'm'));
    }
  });
});
