/** A machine with every role, without problems. A test plants one fault. */
import type { OperatorNote } from '@berth/wire/system';
import type { Folder } from '../../src/doctor/folder-script.ts';
import type { Answer, SeenCertificate, FileFacts, Ran, System } from '../../src/doctor/system.ts';

export const NOW = Date.parse('2026-11-23T12:00:00Z');
export const SECRET = 'agent-secret-of-this-test';
export const PASSWORD = 'registry-password-of-this-test';

export const ran = (stdout: string, more: Partial<Ran> = {}): Ran => ({
  code: 0,
  stdout,
  stderr: '',
  ended: null,
  ...more,
});
export const failed = (stderr: string): Ran => ({ code: 1, stdout: '', stderr, ended: null });
export const folder = (more: Partial<Folder> = {}): Folder => ({
  error: null,
  device: 1,
  isEmpty: false,
  total: 100e9,
  free: 50e9,
  inodes: 1e6,
  freeInodes: 5e5,
  marker: null,
  ...more,
});
const answer = (body: unknown, more: Partial<Answer> = {}): Answer => ({
  status: 200,
  date: new Date(NOW).toUTCString(),
  text: JSON.stringify(body),
  ...more,
});

export type Readyz = {
  status: string;
  parts: { name: string; ok: boolean; detail: string }[];
  notes: string[];
  /** undefined: as from an earlier version. */
  warnings: OperatorNote[] | undefined;
};
export const readyz = (more: Partial<Readyz> = {}): Answer =>
  answer({
    status: 'ready',
    parts: [
      { name: 'database', ok: true, detail: 'answers' },
      {
        name: 'secrets',
        ok: true,
        detail: '0 of 3 project keys are wrapped by an earlier SECRETS_KEY',
      },
      { name: 'backups', ok: true, detail: 'the last backup is 20 min old' },
    ],
    notes: (more.warnings ?? []).map(({ text }) => text),
    warnings: [],
    ...more,
  });

const RUNS_UNIT = [
  'LoadState=loaded',
  'ActiveState=active',
  'SubState=running',
  'UnitFileState=enabled',
  'NRestarts=0',
  'Result=success',
  'ActiveEnterTimestamp=Mon 2026-11-23 08:00:00 UTC',
];
export const unit = (more: Record<string, string> = {}): Ran =>
  ran(
    RUNS_UNIT.map((line) =>
      more[line.split('=')[0] ?? ''] === undefined
        ? line
        : `${line.split('=')[0]}=${more[line.split('=')[0] ?? '']}`,
    ).join('\n'),
  );

export const listener = (port: number, name: string, pid = 10): string =>
  `LISTEN 0      511        127.0.0.1:${port}       0.0.0.0:*    ` +
  `users:(("${name}",pid=${pid},fd=18))`;
const LISTENERS = [
  listener(80, 'traefik'),
  listener(443, 'traefik'),
  listener(8080, 'node'),
  listener(4180, 'node'),
  listener(8082, 'node'),
  listener(5000, 'registry'),
  listener(7070, 'node'),
  listener(7071, 'node'),
];

export const PASSWD =
  'root:x:0:0:root:/root:/bin/bash\nberth:x:900:900::/var/lib/berth:/usr/sbin/nologin\nberth-gateway:x:901:901::/:/usr/sbin/nologin\n';
const ETC: Record<string, string> = {
  '/etc/berth/control-plane.env':
    'BASE_DOMAIN=apps.example.com\nPUBLIC_IPS=203.0.113.7\nBACKUP_TO=/mnt/backups\nDATASET_NFS_BASE_PATH=/mnt/nas\nAGENT_SECRET_FILE=/etc/berth/secrets/control-plane/AGENT_SECRET\n',
  '/etc/berth/gateway.env':
    'BASE_DOMAIN=apps.example.com\nCONTROL_PLANE_URL=http://127.0.0.1:8080\n',
  '/etc/berth/relay.env': 'CONTROL_PLANE_URL=http://127.0.0.1:8080\nLISTEN=127.0.0.1:8082\n',
  '/etc/berth/registry.env': 'REGISTRY_HTTP_ADDR=127.0.0.1:5000\n',
  '/etc/berth/proxy.env': 'ACME_EMAIL=ops@example.com\n',
  '/etc/berth/agent-builder.env':
    'NODE_ROLE=builder\nCONTROL_PLANE_URL=http://127.0.0.1:8080\nLISTEN=127.0.0.1:7071\nAGENT_SECRET_FILE=/etc/berth/secrets/agent-builder/AGENT_SECRET\n',
  '/etc/berth/agent-deploy.env':
    'NODE_ROLE=deploy\nCONTROL_PLANE_URL=http://127.0.0.1:8080\nLISTEN=127.0.0.1:7070\nDATASET_NFS_BASE_PATH=/mnt/nas\nAGENT_SECRET_FILE=/etc/berth/secrets/agent-deploy/AGENT_SECRET\n',
};
export const NAS =
  '36 25 0:31 / /mnt/nas rw,relatime shared:1 - nfs4 nas:/export rw,hard,nosuid,nodev,vers=4.2\n';

/** Each of these replaces or adds an answer; a longer beginning of a command wins. */
export type Fault = {
  files?: Record<string, string | Error | undefined>;
  access?: Record<string, FileFacts | undefined>;
  folders?: Record<string, Folder | 'hangs'>;
  runs?: Record<string, Ran | null>;
  http?: Record<string, Answer | Error>;
  names?: Record<string, string[] | Error>;
  world?: Record<string, string[] | Error>;
  certificate?: Partial<SeenCertificate> | Error;
  nodeVersion?: string;
  clock?: number;
};

const RANDOM = /^berth-doctor-[0-9a-f]{8}\.(.*)$/;
const refused = (): Error =>
  Object.assign(new TypeError('fetch failed'), {
    cause: Object.assign(new Error('x'), { code: 'ECONNREFUSED' }),
  });
export { refused };

export function fakeMachine(fault: Fault = {}): System & { inputs: string[]; asked: string[] } {
  const files: Record<string, string | Error | undefined> = {
    ...ETC,
    '/etc/passwd': PASSWD,
    '/etc/os-release': 'ID=debian\nVERSION_ID="12"\n',
    '/etc/fstab': 'nas:/export /mnt/nas nfs4 rw,hard,_netdev 0 0\n',
    '/etc/berth/registry.yml':
      'storage:\n  filesystem:\n    rootdirectory: /var/lib/berth-registry\n',
    '/proc/self/mountinfo': `25 1 8:1 / / rw - ext4 /dev/sda1 rw\n${NAS}`,
    '/etc/berth/secrets/control-plane/AGENT_SECRET': `${SECRET}\n`,
    '/etc/berth/secrets/agent-builder/AGENT_SECRET': `${SECRET}\n`,
    '/etc/berth/secrets/agent-deploy/AGENT_SECRET': `${SECRET}\n`,
    ...fault.files,
  };
  const runs: Record<string, Ran | null> = {
    'systemctl show --property=LoadState --value': ran('loaded'),
    'systemctl show --property=FragmentPath --value': ran('/run/systemd/generator/mnt-nas.mount'),
    'systemctl show': unit(),
    'ss -Hltnp': ran(LISTENERS.join('\n')),
    'timedatectl show': ran('yes\n'),
    'docker version': ran('27.1.0\n'),
    'docker buildx version': ran('github.com/docker/buildx v0.16.2 abc\n'),
    'docker buildx build': ran(''),
    'docker info --format {{.DockerRootDir}}': ran('/var/lib/docker\n'),
    'docker info --format {{json .RegistryConfig}}': ran(
      '{"IndexConfigs":{},"InsecureRegistryCIDRs":["127.0.0.0/8"]}',
    ),
    'docker login': ran('Login Succeeded'),
    'traefik version': ran('Version:      3.7.13\nCodename:     x\n'),
    ...fault.runs,
  };
  const config = {
    registry_addr: '127.0.0.1:5000',
    registry_user: 'berth',
    registry_password: PASSWORD,
  };
  const http: Record<string, Answer | Error> = {
    'http://127.0.0.1:8080/healthz': answer({ status: 'ok' }),
    'http://127.0.0.1:8080/readyz': readyz(),
    'http://127.0.0.1:4180/readyz': answer({
      status: 'ready',
      reasons: [],
      control_plane: 'answers',
    }),
    'http://127.0.0.1:8082/readyz': answer({ status: 'ready', control_plane: 'answers' }),
    'http://127.0.0.1:7070/readyz': answer({ status: 'ready', reasons: [] }),
    'http://127.0.0.1:7071/readyz': answer({ status: 'ready', reasons: [] }),
    'http://127.0.0.1:8080/api/agent/config': answer(config),
    'http://127.0.0.1:5000/v2/': answer({}, { status: 401 }),
    ...fault.http,
  };
  const name = (name: string): string => name.replace(RANDOM, '*.$1');
  const inputs: string[] = [];
  const asked: string[] = [];
  return {
    inputs,
    asked,
    env: {},
    isRoot: true,
    nodeVersion: fault.nodeVersion ?? '24.22.1',
    now: () => NOW + (fault.clock ?? 0),
    async read(path) {
      const found = files[path];
      if (found instanceof Error) throw found;
      return found;
    },
    list: async (path) =>
      Object.keys(files).flatMap((file) =>
        files[file] !== undefined &&
        file.startsWith(`${path}/`) &&
        !file.slice(path.length + 1).includes('/')
          ? [file.slice(path.length + 1)]
          : [],
      ),
    async stat(path) {
      if (fault.access !== undefined && path in fault.access) return fault.access[path];
      if (path.startsWith('/etc/berth/secrets/')) {
        const uid = path.includes('/control-plane') ? 900 : 0;
        if (path in files)
          return files[path] === undefined ? undefined : { mode: 0o600, uid, gid: uid };
        return { mode: 0o700, uid, gid: uid };
      }
      return files[path] === undefined ? undefined : { mode: 0o640, uid: 0, gid: 900 };
    },
    folder: async (path) =>
      fault.folders?.[path] ??
      (path === '/mnt/nas' ? folder({ device: 31, marker: 'b0c1' }) : folder()),
    async run(argv, { stdin, env = {} }) {
      const line = argv.join(' ').replace(/ --config \S+/, '');
      asked.push(`${line} ${JSON.stringify(env)}`);
      if (stdin !== undefined) inputs.push(stdin);
      const key = Object.keys(runs)
        .filter((one) => line.startsWith(one))
        .sort((a, b) => b.length - a.length)[0];
      return key === undefined ? null : (runs[key] ?? null);
    },
    async get(url) {
      asked.push(url);
      const found = http[url];
      if (found === undefined || found instanceof Error) throw found ?? refused();
      return found;
    },
    async lookup(host) {
      const found = fault.names?.[name(host)] ?? ['203.0.113.7'];
      if (found instanceof Error) throw found;
      return found;
    },
    async worldLookup(host) {
      const found = fault.world?.[name(host)] ?? ['203.0.113.7'];
      if (found instanceof Error) throw found;
      return found;
    },
    addresses: () => ['127.0.0.1', '10.0.0.5'],
    withFile: (_name, _text, use) => use('/tmp/x'),
    async certificate() {
      if (fault.certificate instanceof Error) throw fault.certificate;
      return {
        subject: 'apps.example.com',
        names: ['apps.example.com'],
        validTo: NOW + 60 * 86_400_000,
        ...fault.certificate,
      };
    },
  };
}
