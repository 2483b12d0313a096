/** Each planted fault is one finding, and a machine without faults has none. */
import { describe, expect, it } from 'vitest';
import { CHECKS } from '../../src/doctor/checks/table.ts';
import { jsonReport, textReport } from '../../src/doctor/report.ts';
import { findRoles, type MachineRole } from '../../src/doctor/roles.ts';
import { runChecks } from '../../src/doctor/run.ts';
import {
  failed,
  fakeMachine,
  type Fault,
  folder,
  listener,
  NAS,
  NOW,
  PASSWORD,
  PASSWD,
  ran,
  readyz,
  refused,
  SECRET,
  unit,
} from './fake-machine.ts';

async function examine(fault: Fault = {}, role?: MachineRole) {
  const system = fakeMachine(fault);
  const { instances, problems } = await findRoles(system, '/etc/berth');
  const wanted = instances.filter((one) => role === undefined || one.role === role);
  const checked = await runChecks(CHECKS, { system, wanted, all: instances });
  const texts = (state: string) =>
    checked.flatMap(({ results }) =>
      results.flatMap((one) => (one.state === state && 'text' in one ? [one.text] : [])),
    );
  const findings = checked.flatMap(({ results }) =>
    results.flatMap((one) => (one.state === 'finding' ? [one] : [])),
  );
  return {
    system,
    problems,
    findings,
    notChecked: texts('not_checked'),
    notes: texts('note'),
    checked,
    names: wanted.map(({ name }) => name),
  };
}

it('a machine without faults has no finding, and says what it cannot know', async () => {
  const { findings, notChecked, problems } = await examine();
  expect(findings).toEqual([]);
  expect(problems).toEqual([]);
  expect(notChecked).toEqual([
    'ports 80 and 443 from outside: cannot be checked from here; on a machine elsewhere, run: ' +
      'curl -sSI http://apps.example.com https://apps.example.com',
  ]);
});

const DOMAIN = 'apps.example.com';
const eacces = Object.assign(new Error('EACCES'), { code: 'EACCES' });
const notFound = Object.assign(new Error('x'), { code: 'ENOTFOUND' });
const http = (path: string, body: object, status = 200): Fault => ({
  http: { [path]: { status, date: new Date(NOW).toUTCString(), text: JSON.stringify(body) } },
});
const agentConfig = (body: object): Fault => http('http://127.0.0.1:8080/api/agent/config', body);
const REGISTRY = {
  registry_addr: 'registry.lan:5000',
  registry_user: 'berth',
  registry_password: PASSWORD,
};
const remote = (more: Fault): Fault => ({
  ...more,
  http: {
    ...agentConfig(REGISTRY).http,
    'http://registry.lan:5000/v2/': { status: 401, date: null, text: '' },
    ...more.http,
  },
});
const share = (seen: Fault['folders']): Fault => ({ folders: seen ?? {} });
const part = (name: string, detail: string): Fault => ({
  http: {
    'http://127.0.0.1:8080/readyz': readyz({
      status: 'degraded',
      parts: [
        { name: 'backups', ok: true, detail: '' },
        { name: 'secrets', ok: true, detail: '' },
        { name, ok: false, detail },
      ].filter((one, _, all) => one.name !== name || all.at(-1) === one),
    }),
  },
});

describe('each fault is found once', () => {
  it.each<[string, Fault, RegExp, MachineRole?]>([
    [
      'the engine is not installed',
      { runs: { 'docker version': null } },
      /^the program docker is not installed$/,
      'agent',
    ],
    [
      'the engine does not run',
      {
        runs: {
          'docker version': failed(
            'Cannot connect to the Docker daemon at unix:///var/run/docker.sock.',
          ),
        },
      },
      /the container engine does not answer: Cannot connect/,
      'agent',
    ],
    [
      'no permission for the engine',
      { runs: { 'docker version': failed('permission denied while trying to connect') } },
      /this user may not use the container engine/,
      'agent',
    ],
    [
      'the engine hangs',
      { runs: { 'docker version': ran('', { code: null, ended: 'timeout' }) } },
      /does not answer: docker did not end in time/,
      'agent',
    ],
    [
      'an old engine',
      { runs: { 'docker version': ran('19.03.5') } },
      /the container engine is 19\.03\.5; Berth needs 20\.10 or newer/,
      'agent',
    ],
    [
      'no buildx',
      { runs: { 'docker buildx version': failed("docker: 'buildx' is not a docker command.") } },
      /buildx is missing/,
    ],
    [
      'an old buildx',
      { runs: { 'docker buildx version': ran('github.com/docker/buildx 0.9.1 x') } },
      /buildx is 0\.9\.1; Berth needs 0\.10/,
    ],
    [
      'a buildx that cannot build',
      { runs: { 'docker buildx build': failed('ERROR: no builder instance') } },
      /cannot build: ERROR: no builder instance/,
    ],
    [
      'a clock that is ahead',
      { clock: 90_000 },
      /^the clock of this machine is \d+ s ahead of the control plane’s$/,
    ],
    ['a clock that is behind', { clock: -45_000 }, /^the clock of this machine is \d+ s behind/],
    [
      'no time server',
      { runs: { 'timedatectl show': ran('no\n') } },
      /^no time server sets the clock/,
    ],
    [
      'a full disk',
      { folders: { '/var/lib/docker': folder({ device: 7, free: 2e9 }) } },
      /^2\.0 % of the disk is free \(2\.0 GB of 100\.0 GB\): the container engine \(\/var\/lib\/docker\)$/,
    ],
    [
      'a full disk of SVC_ROOT',
      { folders: { '/svc/data': folder({ device: 8, free: 49e8 }) } },
      /^4\.9 % of the disk is free .*SVC_ROOT/,
    ],
    [
      'no inodes',
      { folders: { '/var/lib/berth': folder({ device: 9, freeInodes: 10 }) } },
      /^0\.0 % of the inodes are free/,
    ],
    [
      'a folder that hangs',
      { folders: { '/mnt/backups': 'hangs' } },
      /^BACKUP_TO \(\/mnt\/backups\) does not answer/,
    ],
    [
      'no record of the domain',
      { names: { [DOMAIN]: notFound }, world: { [DOMAIN]: [] } },
      /^the name apps\.example\.com leads nowhere$/,
    ],
    [
      'no wildcard record',
      { names: { [`*.${DOMAIN}`]: notFound }, world: { [`*.${DOMAIN}`]: [] } },
      /^the name \*\.apps\.example\.com leads nowhere$/,
    ],
    [
      'a record of another machine',
      { world: { [DOMAIN]: ['198.51.100.1'] }, names: { [DOMAIN]: ['198.51.100.1'] } },
      /leads to 198\.51\.100\.1; PUBLIC_IPS has 203\.0\.113\.7/,
    ],
    [
      'nobody at port 443',
      {
        runs: {
          'ss -Hltnp': ran(
            [80, 8080, 4180, 8082, 5000, 7070, 7071]
              .map((port) => listener(port, 'node'))
              .join('\n'),
          ),
        },
      },
      /^nothing listens on port 443 for the reverse proxy \(https\)$/,
    ],
    [
      'another program at port 80',
      {
        runs: {
          'ss -Hltnp': ran(
            [
              listener(80, 'nginx', 77),
              ...[443, 8080, 4180, 8082, 5000, 7070, 7071].map((port) => listener(port, 'node')),
            ].join('\n'),
          ),
        },
      },
      /^port 80 for the reverse proxy \(http\) is in use by nginx \(process 77\)$/,
    ],
    [
      'the relay at port 8081',
      {
        files: {
          '/etc/berth/relay.env':
            'CONTROL_PLANE_URL=http://127.0.0.1:8080\nLISTEN=127.0.0.1:8081\n',
        },
        http: { 'http://127.0.0.1:8081/readyz': readyz() },
        runs: {
          'ss -Hltnp': ran(
            [80, 443, 8080, 4180, 8081, 5000, 7070, 7071]
              .map((port) => listener(port, 'node'))
              .join('\n'),
          ),
        },
      },
      /^relay listens on port 8081$/,
    ],
    [
      'a registry without https that the engine does not know',
      remote({}),
      /speaks plain http, and this engine does not list it in insecure-registries/,
      'agent',
    ],
    [
      'a registry that does not answer',
      agentConfig(REGISTRY),
      /^the registry registry\.lan:5000 does not answer/,
      'agent',
    ],
    [
      'a wrong login',
      { runs: { 'docker login': failed('Error response from daemon: unauthorized') } },
      /^the login at the registry 127\.0\.0\.1:5000 as berth fails: Error response from daemon: unauthorized$/,
      'agent',
    ],
    [
      'no registry',
      agentConfig({ registry_addr: '' }),
      /^the control plane has no registry$/,
      'agent',
    ],
    [
      'a refused node',
      {
        ...http('http://127.0.0.1:8080/api/agent/config', {}, 401),
        files: { '/etc/berth/agent-builder.env': undefined },
      },
      /^agent-deploy: the control plane refuses the secret of this node \(401\)$/,
      'agent',
    ],
    ['a share that hangs', share({ '/mnt/nas': 'hangs' }), /^the share at \/mnt\/nas hangs/],
    ['a stale share', share({ '/mnt/nas': folder({ error: 'ESTALE' }) }), /stale file handle/],
    [
      'a share that root may not read',
      share({ '/mnt/nas': folder({ error: 'EACCES' }) }),
      /may not be read/,
    ],
    [
      'a share that is not mounted',
      { files: { '/proc/self/mountinfo': '25 1 8:1 / / rw - ext4 /dev/sda1 rw\n' } },
      /^the share is not mounted: \/etc\/fstab has \/mnt\/nas/,
    ],
    [
      'an empty folder instead of the share',
      {
        files: { '/proc/self/mountinfo': '', '/etc/fstab': '' },
        folders: { '/mnt/nas': folder({ isEmpty: true }) },
      },
      /is an empty folder on the system disk/,
    ],
    [
      'a damaged marker',
      share({ '/mnt/nas': folder({ device: 31, marker: '' }) }),
      /does not hold an id of Berth/,
    ],
    [
      'a soft writable mount',
      { files: { '/proc/self/mountinfo': NAS.replace('hard', 'soft') } },
      /is mounted soft and writable/,
    ],
    [
      'a writable mount with setuid',
      { files: { '/proc/self/mountinfo': NAS.replace('nosuid', 'suid') } },
      /writable and without nosuid/,
    ],
    [
      'a share that was mounted by hand',
      { runs: { 'systemctl show --property=FragmentPath --value': ran('\n') } },
      /was mounted by hand/,
    ],
    [
      'a secret for everybody',
      {
        access: {
          '/etc/berth/secrets/control-plane/AGENT_SECRET': { mode: 0o644, uid: 900, gid: 900 },
          '/etc/berth/secrets/control-plane': { mode: 0o755, uid: 900, gid: 900 },
        },
      },
      /AGENT_SECRET has mode 0644: other users of this machine can read it$/,
    ],
    [
      'a secret of another user',
      {
        access: {
          '/etc/berth/secrets/control-plane/AGENT_SECRET': { mode: 0o600, uid: 0, gid: 0 },
        },
      },
      /AGENT_SECRET belongs to user 0; control-plane runs as user 900$/,
    ],
    [
      'a secret that is missing',
      { files: { '/etc/berth/secrets/agent-deploy/AGENT_SECRET': undefined } },
      /AGENT_SECRET_FILE names .*, which does not exist$/,
    ],
    [
      'an empty secret',
      { files: { '/etc/berth/secrets/agent-deploy/AGENT_SECRET': '\n' } },
      /agent-deploy\/AGENT_SECRET is empty$/,
    ],
    [
      'a secret in a file for everybody',
      {
        files: {
          '/etc/berth/gateway.env': 'SESSION_SECRET=abc\nCONTROL_PLANE_URL=http://127.0.0.1:8080\n',
        },
        access: { '/etc/berth/gateway.env': { mode: 0o644, uid: 0, gid: 0 } },
      },
      /gateway\.env holds a secret, and every user/,
    ],
    [
      'a key that does not open the secrets',
      part('secrets', 'SECRETS_KEY does not open the keys of 2 of 3 projects'),
      /^the key of the secrets does not open all of them/,
    ],
    [
      'an old backup',
      part('backups', 'the last backup is 9 h 3 min old; the log has the error (backup failed)'),
      /^backups: the last backup is 9 h 3 min old.*\(BACKUP_TO=\/mnt\/backups, every 1h\)$/,
    ],
    [
      'no backup',
      {
        http: {
          'http://127.0.0.1:8080/readyz': readyz({
            parts: [{ name: 'secrets', ok: true, detail: '' }],
          }),
        },
      },
      /^there is no backup, and no schedule/,
    ],
    [
      'backups by hand only',
      {
        files: {
          '/etc/berth/control-plane.env': 'BASE_DOMAIN=apps.example.com\nPUBLIC_IPS=203.0.113.7\n',
        },
        http: {
          'http://127.0.0.1:8080/readyz': readyz({
            parts: [{ name: 'backups', ok: true, detail: 'the last backup is 400 d old' }],
          }),
        },
      },
      /^there is no schedule for backups \(the last backup is 400 d old\)$/,
    ],
    [
      'a failing loop',
      part('loop scheduler', 'the last run failed'),
      /^control-plane reports: loop scheduler: the last run failed$/,
    ],
    [
      'an agent that is not ready',
      http(
        'http://127.0.0.1:7070/readyz',
        { status: 'not ready', reasons: ['the container engine does not answer'] },
        503,
      ),
      /^agent-deploy is not ready: the container engine does not answer$/,
    ],
    [
      'a gateway without its control plane',
      http('http://127.0.0.1:4180/readyz', {
        status: 'ready',
        reasons: [],
        control_plane: 'no answer',
      }),
      /^gateway does not reach the control plane: no answer$/,
    ],
    [
      'a note about a second machine',
      {
        http: {
          'http://127.0.0.1:8080/readyz': readyz({
            warnings: [
              {
                kind: 'other',
                text: 'deploy node a: a second machine tries to register under this name',
              },
            ],
          }),
        },
      },
      /^deploy node a: a second machine/,
    ],
    ['an old Node.js', { nodeVersion: '24.21.0' }, /^Node\.js 24\.21\.0 lacks security fixes/],
    [
      'an old Traefik',
      { runs: { 'traefik version': ran('Version:      3.7.12\n') } },
      /^Traefik is 3\.7\.12; Berth needs 3\.7\.13/,
    ],
    [
      'an old Debian',
      { files: { '/etc/os-release': 'ID=debian\nVERSION_ID="11"\n' } },
      /runs Debian 11/,
    ],
    [
      'agents of an earlier version',
      {
        http: {
          'http://127.0.0.1:8080/readyz': readyz({
            warnings: [{ kind: 'older_agents', text: 'the agents of a, b are older than 0.2.0' }],
          }),
        },
      },
      /^the agents of a, b are older/,
    ],
    [
      'certificates that other users may read',
      { access: { '/var/lib/berth-proxy/acme.json': { mode: 0o640, uid: 903, gid: 903 } } },
      /acme\.json has mode 0640$/,
    ],
    [
      'the default certificate of Traefik',
      { certificate: { subject: 'TRAEFIK DEFAULT CERT', names: [] } },
      /^Traefik has no certificate for apps\.example\.com/,
    ],
    [
      'a certificate of another name',
      { certificate: { names: ['other.example.com'] } },
      /is for other\.example\.com, not for apps\.example\.com$/,
    ],
    [
      'an expired certificate',
      { certificate: { validTo: NOW - 86_400_000 } },
      /expired 1 days ago$/,
    ],
    [
      'a certificate that is not renewed',
      { certificate: { validTo: NOW + 5 * 86_400_000 } },
      /expires in 5 days, and it was not renewed$/,
    ],
    [
      'a failed unit',
      {
        runs: {
          'systemctl show --property=LoadState,ActiveState,SubState,UnitFileState,NRestarts,Result,ActiveEnterTimestamp -- berth-relay':
            unit({ ActiveState: 'failed', Result: 'exit-code' }),
        },
      },
      /^berth-relay failed \(exit-code\)$/,
    ],
    [
      'a unit in a loop',
      {
        runs: {
          'systemctl show --property=LoadState,ActiveState,SubState,UnitFileState,NRestarts,Result,ActiveEnterTimestamp -- berth-agent@deploy':
            unit({ ActiveState: 'activating', SubState: 'auto-restart', NRestarts: '41' }),
        },
      },
      /^berth-agent@deploy restarts again and again \(41 times\)$/,
    ],
    [
      'a unit that was never started',
      {
        runs: {
          'systemctl show --property=LoadState,ActiveState,SubState,UnitFileState,NRestarts,Result,ActiveEnterTimestamp -- berth-gateway':
            unit({ ActiveState: 'inactive', SubState: 'dead' }),
        },
      },
      /^berth-gateway is not started/,
    ],
    [
      'a unit that does not start with the machine',
      {
        runs: {
          'systemctl show --property=LoadState,ActiveState,SubState,UnitFileState,NRestarts,Result,ActiveEnterTimestamp -- berth-proxy':
            unit({ UnitFileState: 'disabled' }),
        },
      },
      /^berth-proxy runs, but does not start with the machine$/,
    ],
  ])('%s', async (_, fault, problem, role) => {
    const { findings } = await examine(fault, role);
    const matching = findings.filter((one) => problem.test(one.problem));
    expect(matching.length, JSON.stringify(findings, null, 1)).toBe(1);
    expect(findings).toEqual(matching);
    for (const { consequence, remedy } of findings)
      expect([consequence, remedy].every((text) => text.length > 5)).toBe(true);
  });
});

describe('a check that cannot run is not ok', () => {
  it.each<[string, Fault, RegExp[]]>([
    [
      'the control plane does not answer',
      {
        http: {
          'http://127.0.0.1:8080/readyz': refused(),
          'http://127.0.0.1:8080/healthz': refused(),
          'http://127.0.0.1:8080/api/agent/config': refused(),
        },
      },
      [
        /^the clock: the control plane at .* \(connection refused\)$/,
        /^the age of the last backup/,
        /^whether the key of the secrets opens them/,
        /^agent-deploy: the registry: the control plane at/,
      ],
    ],
    [
      'no systemd',
      {
        runs: {
          'systemctl show': null,
          'systemctl show --property=LoadState --value': null,
          'timedatectl show': null,
        },
      },
      [
        /^the unit berth-control-plane: the program systemctl is not installed$/,
        /^whether a time server/,
      ],
    ],
    [
      'ports of other users',
      {
        runs: {
          'ss -Hltnp': ran(
            [80, 443, 8080, 4180, 8082, 5000, 7070, 7071]
              .map((port) => `LISTEN 0 511 0.0.0.0:${port} 0.0.0.0:*`)
              .join('\n'),
          ),
        },
      },
      [/^which program listens on port 443 .*only root sees it$/],
    ],
    [
      'no name server',
      { world: { [DOMAIN]: notFound, [`*.${DOMAIN}`]: notFound } },
      [/^what other networks see for apps/],
    ],
    [
      'a share without a marker',
      share({ '/mnt/nas': folder({ device: 31 }) }),
      [/^whether \/mnt\/nas \(nfs4 from nas:\/export\) is the right share/],
    ],
    [
      'a secret that this user may not read',
      { files: { '/etc/berth/secrets/agent-deploy/AGENT_SECRET': eacces } },
      [/AGENT_SECRET: this user may not read it; run as root$/],
    ],
  ])('%s', async (_, fault, expected) => {
    const { notChecked } = await examine(fault);
    for (const text of expected) expect(notChecked).toContainEqual(expect.stringMatching(text));
  });

  it('settings that cannot be read are named', async () => {
    expect((await examine({ files: { '/etc/berth/gateway.env': eacces } })).problems).toEqual([
      '/etc/berth/gateway.env: permission denied; run as root',
    ]);
  });
});

it('split horizon and settings that are not set are notes', async () => {
  const text =
    'PUBLISH_IP is not set on a: published ports of containers there are reachable on every ' +
    'address of the machine';
  const seen = await examine({
    names: { [DOMAIN]: ['10.0.0.5'] },
    http: {
      'http://127.0.0.1:8080/readyz': readyz({ warnings: [{ kind: 'setting_missing', text }] }),
    },
  });
  expect(seen.findings).toEqual([]);
  expect(seen.notes).toEqual([
    expect.stringMatching(/^PUBLISH_IP is not set on a/),
    expect.stringMatching(
      /^split horizon: this machine sees 10\.0\.0\.5 for apps\.example\.com, the world sees 203\.0\.113\.7/,
    ),
  ]);
});

it('notes of an earlier version, which have no kinds, are notes', async () => {
  const notes = ['the agents of a, b are older than this control plane (0.2.0)'];
  const http = { 'http://127.0.0.1:8080/readyz': readyz({ notes, warnings: undefined }) };
  const seen = await examine({ http });
  expect(seen.findings).toEqual([]);
  expect(seen.notes).toEqual(notes);
  expect(seen.notChecked).toContainEqual(expect.stringContaining('is of an earlier version'));
});

it('no secret is in the report or in the arguments of a program', async () => {
  const seen = await examine(
    { runs: { 'docker login': failed(`denied for ${PASSWORD}`) } },
    'agent',
  );
  const shown = [
    textReport(seen.names, seen.checked),
    jsonReport(seen.names, seen.checked),
    ...seen.system.asked,
  ].join('\n');
  expect(shown).not.toContain(PASSWORD);
  expect(shown).not.toContain(SECRET);
  expect(seen.system.inputs).toContain(PASSWORD);
  expect(PASSWD).toContain('berth');
});

it('advice about a missing key never makes a new one', async () => {
  const path = '/etc/berth/secrets/control-plane/SECRETS_KEY';
  const { findings } = await examine({
    files: {
      '/etc/berth/control-plane.env': `BASE_DOMAIN=${DOMAIN}\nBACKUP_TO=/mnt/backups\nSECRETS_KEY_FILE=${path}\n`,
      [path]: undefined,
    },
  });
  const found = findings.find(({ problem }) =>
    problem.startsWith('control-plane: SECRETS_KEY_FILE names'),
  );
  expect(found?.remedy).toBe(
    'put the key back (docs/disasters.md "The key is gone"); do not make a new one',
  );
});

describe('with compose', () => {
  const file = '/etc/berth/compose/compose.yml';
  const agent = {
    command: ['agent'],
    environment: { NODE_ROLE: 'deploy', CONTROL_PLANE_URL: 'http://127.0.0.1:8080' },
  };
  const project = {
    services: {
      prepare: { command: [], environment: {} },
      'control-plane': {
        command: ['control-plane'],
        environment: {
          LISTEN: '0.0.0.0:8080',
          BASE_DOMAIN: DOMAIN,
          BACKUP_TO: '/mnt/backups',
          AGENT_SECRET_FILE: '/etc/berth/secrets/control-plane/AGENT_SECRET',
          NOTHING: null,
        },
        volumes: [
          { type: 'bind', source: '/srv/secrets', target: '/etc/berth/secrets/control-plane' },
        ],
      },
      'agent-deploy': agent,
      traefik: { environment: {} },
    },
  };
  const containers = (more: object = {}) =>
    ran(
      ['control-plane', 'agent-deploy', 'traefik']
        .map((Service) => JSON.stringify({ Service, State: 'running', Status: 'Up', ...more }))
        .join('\n'),
    );
  const composed = (more: Fault = {}): Fault => ({
    ...more,
    files: { [file]: 'services: {}', '/srv/secrets/AGENT_SECRET': SECRET, ...more.files },
    access: {
      '/srv/secrets/AGENT_SECRET': { mode: 0o600, uid: 10_001, gid: 10_001 },
      ...more.access,
    },
    http: { 'http://172.20.0.2:8080/readyz': readyz(), ...more.http },
    runs: {
      'docker compose config': ran(JSON.stringify(project)),
      [`docker compose ps`]: containers(),
      [`docker compose exec -T traefik traefik version`]: ran('Version: 3.7.13'),
      'docker ps': ran('abc\n'),
      'docker inspect': ran('172.20.0.2 \n'),
      ...more.runs,
    },
  });

  it('the services are the roles; env files beside them add to their containers', async () => {
    const { findings, names } = await examine(composed());
    expect(names).toEqual(['control-plane', 'agent-deploy', 'traefik']);
    expect(findings).toEqual([]);
  });
  it.each<[string, Fault, RegExp]>([
    [
      'a container that restarts',
      { runs: { [`docker compose ps`]: containers({ State: 'restarting' }) } },
      /^the container of traefik restarts again/,
    ],
    [
      'no container',
      { runs: { [`docker compose ps`]: ran('[]') } },
      /there is no container of traefik$/,
    ],
    [
      'a secret of root',
      { access: { '/srv/secrets/AGENT_SECRET': { mode: 0o600, uid: 0, gid: 0 } } },
      /belongs to user 0; control-plane runs as user 10001$/,
    ],
  ])('%s', async (_, fault, problem) => {
    const { findings } = await examine(composed(fault));
    expect(findings.filter((one) => problem.test(one.problem))).toHaveLength(1);
  });
  it('advice about compose keeps compose.override.yml', async () => {
    const { findings } = await examine(composed({ runs: { 'docker compose ps': ran('[]') } }));
    expect(findings.map(({ remedy }) => remedy)).toContain(
      'cd /etc/berth/compose && docker compose up --detach traefik',
    );
  });
  it('a project that compose refuses is named', async () => {
    const { problems } = await examine(
      composed({ runs: { 'docker compose config': failed('set BASE_DOMAIN in .env') } }),
    );
    expect(problems).toEqual([`${file}: docker compose config failed: set BASE_DOMAIN in .env`]);
  });
});
