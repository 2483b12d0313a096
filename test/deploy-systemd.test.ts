/**
 * The units of deploy/systemd: each process is confined as far as possible, and may write only
 * where it has to.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import {
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { AGENT_SETTINGS } from '../packages/agent/src/config.ts';
import { SETTINGS as GATEWAY_SETTINGS } from '../packages/gateway/src/config.ts';

const ROOT = path.resolve(import.meta.dirname, '..');
const UNITS = globSync('deploy/systemd/*.service', { cwd: ROOT }).toSorted();
const read = (unit: string): string => readFileSync(path.join(ROOT, unit), 'utf8');
/** Returns the values of each directive of [Service], in their order. */
function service(unit: string): Map<string, string[]> {
  const found = new Map<string, string[]>();
  const section =
    read(unit)
      .split(/^\[Service\]$/m)[1]
      ?.split(/^\[/m)[0] ?? '';
  for (const line of section.split('\n')) {
    const [, key, value] = /^(\w+)=(.*)$/.exec(line) ?? [];
    if (key !== undefined && value !== undefined)
      found.set(key, [...(found.get(key) ?? []), value]);
  }
  return found;
}
const AGENT = 'deploy/systemd/berth-agent.service';
/** Go programs: they need no memory that is writable and executable. */
const PROXY = 'deploy/systemd/berth-proxy.service';
const REGISTRY = 'deploy/systemd/berth-registry.service';
const GO = [PROXY, REGISTRY];

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

test('each process has a unit', () => {
  expect(UNITS.map((unit) => path.basename(unit, '.service'))).toEqual([
    'berth-agent',
    'berth-control-plane',
    'berth-gateway',
    'berth-proxy',
    'berth-registry',
    'berth-relay',
  ]);
});

describe.each(UNITS)('%s', (unit) => {
  const directives = service(unit);
  test('is confined', () => {
    expect(Object.fromEntries(directives)).toMatchObject(EVERYWHERE);
    expect(directives.get('SystemCallFilter')?.[0]).toBe('@system-service');
  });
  test.skipIf(GO.includes(unit))(
    'allows the memory that Node.js compiles into, and a comment says why',
    () => {
      expect(directives.has('MemoryDenyWriteExecute')).toBe(false);
      expect(read(unit)).toMatch(/^# .*MemoryDenyWriteExecute=.*Node\.js/m);
    },
  );
  test.skipIf(unit === AGENT)(
    'has no capability of root and hides its files from other users',
    () => {
      expect(directives.has('User') || directives.get('DynamicUser')?.[0] === 'yes').toBe(true);
      expect(Object.fromEntries(directives)).toMatchObject({
        CapabilityBoundingSet: [unit === PROXY ? 'CAP_NET_BIND_SERVICE' : ''],
        ProtectHome: ['true'],
        SystemCallFilter: ['@system-service', '~@privileged'],
        UMask: ['0077'],
      });
    },
  );
  const analyze = spawnSync(
    'systemd-analyze',
    ['security', '--offline=true', '--threshold=100', path.join(ROOT, unit)],
    {
      encoding: 'utf8',
    },
  );
  test.skipIf(analyze.error !== undefined || !analyze.stdout.includes('exposure level'))(
    'passes systemd-analyze',
    () => {
      const level = Number(/exposure level for \S+: ([\d.]+)/.exec(analyze.stdout)?.[1]);
      expect(level).toBeLessThanOrEqual(unit === AGENT ? 3 : 2);
    },
  );
});

test('the socket of the gateway is the default of LISTEN, starts with the gateway, and stays through an upgrade', () => {
  const socket = read('deploy/systemd/berth-gateway.socket');
  expect(socket).toContain(`ListenStream=${GATEWAY_SETTINGS.LISTEN.default}\n`);
  expect(read('deploy/systemd/berth-gateway.service')).toMatch(
    /^Wants=.*\bberth-gateway\.socket$/m,
  );
  const postinst = readFileSync(path.join(ROOT, 'deploy/debian/postinst'), 'utf8');
  expect(/^units=.*$/m.exec(postinst)?.[0]).not.toContain('socket');
  for (const file of ['postinst', 'postrm', 'prerm'])
    expect(readFileSync(path.join(ROOT, 'deploy/debian', file), 'utf8'), file).toContain(
      'berth-gateway.socket',
    );
});

describe.each(GO)('%s', (unit) => {
  const directives = service(unit);
  const name = path.basename(unit, '.service');
  test('has a user of its own, who may enter /etc/berth and write one folder, which nobody else can read', () => {
    expect(Object.fromEntries(directives)).toMatchObject({
      User: [name],
      SupplementaryGroups: ['berth'],
      MemoryDenyWriteExecute: ['true'],
      ProtectProc: ['invisible'],
      StateDirectory: [name],
      StateDirectoryMode: ['0700'],
    });
    expect(directives.has('ReadWritePaths')).toBe(false);
  });
  test('the package creates and deletes its user, and does not restart it at an upgrade of Berth', () => {
    const script = (file: string): string =>
      readFileSync(path.join(ROOT, 'deploy/debian', file), 'utf8');
    expect(script('postinst')).toMatch(new RegExp(`for user in .*\\b${name}\\b[^]*?adduser`));
    expect(script('postrm')).toMatch(new RegExp(`for user in .*\\b${name}\\b`));
    for (const file of ['postinst', 'postrm', 'prerm'])
      expect(script(file), file).toContain(`${name}.service`);
    expect(/^units=.*$/m.exec(script('postinst'))?.[0]).not.toContain(name);
  });
});

test('the configuration of the registry names the folders of its unit', () => {
  const text = readFileSync(path.join(ROOT, 'deploy/registry/registry.yml'), 'utf8');
  expect(text).toContain('rootdirectory: /var/lib/berth-registry\n');
  expect(text).toContain('path: /etc/berth/secrets/registry/htpasswd\n');
  expect(text).toMatch(/delete:\n\s+enabled: true/);
});

describe('the agent', () => {
  const directives = service(AGENT);
  test('may write the default STATE_DIR, the default SVC_ROOT, the lock file of iptables and what a clean-up of the registry writes', () => {
    expect(`/var/lib/${directives.get('StateDirectory')?.[0]}`).toBe(
      AGENT_SETTINGS.STATE_DIR.default,
    );
    expect(directives.get('ReadWritePaths')).toEqual([
      `-${AGENT_SETTINGS.SVC_ROOT.default}`,
      '-/run/xtables.lock',
      '-/etc/berth/registry.yml',
      '-/var/lib/berth-registry',
    ]);
    // The unit could not start without the folder.
    expect(directives.get('ExecStartPre')).toEqual([
      `+/bin/mkdir -p ${AGENT_SETTINGS.SVC_ROOT.default}`,
    ]);
  });
  test('has only the capabilities that files of several users and iptables need', () => {
    expect(directives.get('CapabilityBoundingSet')).toEqual([
      'CAP_CHOWN CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_FOWNER CAP_NET_ADMIN CAP_NET_RAW',
    ]);
  });
  test('checks out sources that the user of an image can read, and finds the keys of SSH_KEY_HOSTS', () => {
    expect(directives.get('UMask')).toEqual(['0022']);
    expect(directives.get('ProtectHome')).toEqual(['read-only']);
  });
  test('a comment says why each missing part of the sandbox is missing', () => {
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

test('the control plane may write backups to /var/backups/berth', () => {
  const unit = UNITS.find((one) => one.endsWith('berth-control-plane.service')) ?? '';
  expect(service(unit).get('ReadWritePaths')).toEqual(['/var/lib/berth', '-/var/backups/berth']);
});

describe('purge of the package', () => {
  /** Runs postrm with all its folders below a temporary one. */
  const purge = (root: string): string => {
    const script = readFileSync(path.join(ROOT, 'deploy/debian/postrm'), 'utf8')
      .replaceAll(/\/(?:etc|var|svc|run)\//g, (folder) => `${root}${folder}`)
      .replaceAll('deb-systemd-helper', 'true')
      .replaceAll('getent', 'false');
    return execFileSync('sh', ['-s', 'purge'], { input: script, encoding: 'utf8' });
  };
  test.each([
    ['deletes the settings', [], false],
    [
      'keeps the settings and secrets that compose uses, and says so',
      ['etc/berth/compose/compose.yml'],
      true,
    ],
  ])('%s', (_, files, isKept) => {
    const root = mkdtempSync(path.join(tmpdir(), 'berth-postrm-'));
    onTestFinished(() => rmSync(root, { recursive: true }));
    for (const folder of ['etc/berth/secrets', 'etc/berth/compose', 'var/lib/berth'])
      mkdirSync(path.join(root, folder), { recursive: true });
    for (const file of files) writeFileSync(path.join(root, file), '');
    const output = purge(root);
    expect(existsSync(path.join(root, 'etc/berth/secrets'))).toBe(isKept);
    expect(existsSync(path.join(root, 'var/lib/berth'))).toBe(false);
    expect(output.includes(`kept: ${path.join(root, 'etc/berth')},`)).toBe(isKept);
  });
});
