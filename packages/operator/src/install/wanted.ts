/**
 * Lists the folders, secrets and settings that each part needs. changes.ts compares them with those
 * of the machine.
 */
import { randomBytes } from 'node:crypto';
import { defined } from '@berth/kit/defined';
import type { AcmeChallenge } from '../lib/traefik-config.ts';
import { traefikConfig } from '../lib/traefik-config.ts';
import { Problem } from '../lib/command.ts';
import { type Access, ETC, type Owner, readPlain } from '../lib/etc-files.ts';
import { newSecret, type SecretCopy, type Wanted } from './changes.ts';
import { addressUrl, ENV_FILES, type Part, type Settings } from './settings.ts';

export type Users = { root: Owner; berth: Owner; gateway: Owner; proxy: Owner; registry: Owner };
/** Returns the text of a file that comes with Berth, by its path below deploy/. */
export type Shipped = (path: string) => string;

export type Extras = {
  users: Users;
  shipped: Shipped;
  acmeCaServer?: string | undefined;
  acmeChallenge?: AcmeChallenge | undefined;
  traefik?: string | undefined;
  registryUser?: string | undefined;
  registryPassword?: string | undefined;
  gatewaySecret?: string | undefined;
  joinToken?: string | undefined;
  nodeName?: string | undefined;
  proxyAddresses?: readonly string[] | undefined;
  /** The address from which this machine reaches the control plane. */
  ownAddress?: string | undefined;
  /** Returns a secret that the control plane generated on an older start, by file name. */
  madeByControlPlane: (file: 'jwt-secret' | 'secrets-key') => string | undefined;
  hasDatabase: boolean;
  /** True if the database can contain values that only its own SECRETS_KEY decrypts. */
  needsKey: boolean;
};

/** The folder of each process in /etc/berth/secrets, and the user that owns it. */
const SECRET_FOLDERS = {
  'control-plane': 'berth',
  gateway: 'gateway',
  registry: 'registry',
  'agent-builder': 'root',
  'agent-deploy': 'root',
} as const;
type Process = keyof typeof SECRET_FOLDERS;

/** Loopback ports where the agents serve /readyz. */
export const AGENT_PORTS = { builder: 7070, deploy: 7071 } as const;
export const REGISTRY_USER = 'berth';
export const SECRETS = `${ETC}/secrets`;
export const PACKAGE_DIR = '/var/lib/berth-packages';
const secretPath = (process: Process, name: string): string => `${SECRETS}/${process}/${name}`;
const agentOf = (role: 'builder' | 'deploy') => `agent-${role}` as const;

type Sheet = { settings: Settings; extras: Extras; wanted: Wanted[] };

export function wantedFor(settings: Settings, extras: Extras): Wanted[] {
  const sheet: Sheet = { settings, extras, wanted: [] };
  folders(sheet);
  const build: Record<Part, (sheet: Sheet) => void> = {
    'control-plane': controlPlane,
    gateway,
    registry,
    proxy,
    builder: (one) => agent(one, 'builder'),
    deploy: (one) => agent(one, 'deploy'),
  };
  for (const [part, add] of Object.entries(build)) if (settings.parts.has(part as Part)) add(sheet);
  return sheet.wanted;
}

function folders({ settings, extras: { users }, wanted }: Sheet): void {
  const entered = { mode: 0o750, uid: 0, gid: users.berth.gid };
  wanted.push(
    { kind: 'folder', path: ETC, access: entered },
    { kind: 'folder', path: SECRETS, access: entered },
  );
  for (const name of [...settings.parts].flatMap(processOf))
    wanted.push({
      kind: 'folder',
      path: `${SECRETS}/${name}`,
      access: { mode: 0o700, ...users[SECRET_FOLDERS[name]] },
    });
}

/** Returns the Berth process of a part. The proxy has no Berth process with secrets. */
function processOf(part: Part): Process[] {
  if (part === 'proxy') return [];
  return part === 'builder' || part === 'deploy' ? [agentOf(part)] : [part];
}

function envFileOf(process: Process): string {
  if (process === 'agent-builder') return ENV_FILES.builder;
  return process === 'agent-deploy' ? ENV_FILES.deploy : ENV_FILES[process];
}

function secretFile({ extras }: Sheet, process: Process, name: string): SecretCopy {
  return {
    path: secretPath(process, name),
    access: { mode: 0o600, ...extras.users[SECRET_FOLDERS[process]] },
    env: envFileOf(process),
    name,
  };
}

/** Adds a secret that several processes of this machine read. */
function shared(
  sheet: Sheet,
  name: string,
  processes: readonly Process[],
  more: { value?: string | undefined; make?: () => string } = {},
): void {
  sheet.wanted.push({
    kind: 'secret',
    files: processes.map((process) => secretFile(sheet, process, name)),
    ...more,
  });
}

/** Adds an environment file. `fixed`: settings that flags do not change in this file. */
function env(
  { wanted, extras, settings }: Sheet,
  path: string,
  values: Record<string, string>,
  fixed: readonly string[] = [],
): void {
  // A flag of this run replaces the existing value; a default does not.
  const isGiven = (name: string): boolean =>
    !fixed.includes(name) && BY_FLAG[name]?.some((flag) => settings.flags.has(flag)) === true;
  // systemd reads the file as root. The other Berth processes are in the group berth, so that group
  // must not read it.
  const access: Access = { mode: 0o600, ...extras.users.root };
  wanted.push({
    kind: 'env',
    path,
    access,
    values,
    given: new Set(Object.keys(values).filter(isGiven)),
  });
}

/** The flags that decide each setting. */
const BY_FLAG: Record<string, readonly string[]> = {
  BASE_DOMAIN: ['base-domain'],
  ADMIN_EMAILS: ['admin'],
  LISTEN: ['internal-address'],
  CONTROL_PLANE_URL: ['internal-address', 'control-plane'],
  TRUSTED_PROXIES: ['internal-address'],
  REGISTRY_ADDR: ['internal-address', 'registry'],
  REGISTRY_USER: ['registry-user'],
  REGISTRY_URL: ['internal-address'],
  AUTH_SERVICE_URL: ['gateway'],
  TRAEFIK_BIN: ['traefik'],
  NODE_NAME: ['name'],
  PROXY_IPS: ['proxy-address'],
  JOIN_TOKEN_FILE: ['join-token-file'],
};

/**
 * Returns the registry address for nodes. Only this machine reaches a registry on loopback; other
 * machines need the https host.
 */
export function registryAddress({ registry: own, internalAddress, baseDomain }: Settings): string {
  return own ?? (internalAddress === undefined ? '127.0.0.1:5000' : `registry.${baseDomain}`);
}

const proxiesOf = ({ internalAddress }: Settings): Record<string, string> =>
  internalAddress === undefined ? {} : { TRUSTED_PROXIES: `loopback,${internalAddress}` };

/**
 * Returns the address where the control plane listens for other machines. Without an internal
 * address, the control plane uses its default.
 */
const ownAddressOf = ({ internalAddress }: Settings): Record<string, string> =>
  internalAddress === undefined
    ? {}
    : {
        LISTEN: `${hostOf(internalAddress)}:8080`,
        CONTROL_PLANE_URL: addressUrl(internalAddress, 8080),
      };

function controlPlane(sheet: Sheet): void {
  const { settings, extras } = sheet;
  const { parts, baseDomain, admins } = settings;
  const agents = (['builder', 'deploy'] as const).filter((role) => parts.has(role)).map(agentOf);
  const hasGateway = parts.has('gateway');
  const hasRegistry = parts.has('registry') || settings.registry !== undefined;
  const made = (file: 'jwt-secret' | 'secrets-key', otherwise: () => string) => () =>
    extras.madeByControlPlane(file) ?? otherwise();
  shared(sheet, 'AGENT_SECRET', ['control-plane', ...agents]);
  shared(sheet, 'GATEWAY_SECRET', hasGateway ? ['control-plane', 'gateway'] : ['control-plane']);
  shared(sheet, 'JWT_SECRET', ['control-plane'], { make: made('jwt-secret', newSecret) });
  shared(sheet, 'SECRETS_KEY', ['control-plane'], {
    make: made('secrets-key', () => newKey(extras)),
  });
  // Only an empty database needs the initial password.
  const hasPassword =
    !extras.hasDatabase || readPlain(secretPath('control-plane', 'ADMIN_PASSWORD')) !== undefined;
  if (hasPassword)
    shared(sheet, 'ADMIN_PASSWORD', ['control-plane'], {
      make: () => randomBytes(12).toString('base64url'),
    });
  if (hasRegistry)
    shared(sheet, 'REGISTRY_PASSWORD', ['control-plane'], { value: extras.registryPassword });
  const secrets = ['AGENT_SECRET', 'GATEWAY_SECRET', 'JWT_SECRET', 'SECRETS_KEY']
    .concat(hasPassword ? ['ADMIN_PASSWORD'] : [])
    .concat(hasRegistry ? ['REGISTRY_PASSWORD'] : []);
  env(sheet, ENV_FILES['control-plane'], {
    BASE_DOMAIN: baseDomain,
    ADMIN_EMAILS: admins,
    ...ownAddressOf(settings),
    ...proxiesOf(settings),
    ...defined({
      AUTH_SERVICE_URL: hasGateway || settings.flags.has('gateway') ? settings.gateway : undefined,
      PROXY_PROBE_URLS: parts.has('proxy') ? 'http://127.0.0.1,https://127.0.0.1' : undefined,
      REGISTRY_ADDR: hasRegistry ? registryAddress(settings) : undefined,
      REGISTRY_USER: hasRegistry ? (extras.registryUser ?? REGISTRY_USER) : undefined,
    }),
    PACKAGE_DIR,
    ...Object.fromEntries(
      secrets.map((name) => [`${name}_FILE`, secretPath('control-plane', name)]),
    ),
  });
  sheet.wanted.push({
    kind: 'folder',
    path: PACKAGE_DIR,
    access: { mode: 0o755, ...extras.users.root },
  });
}

function newKey({ needsKey }: Extras): string {
  if (needsKey)
    throw new Problem(
      'the database exists, and SECRETS_KEY is nowhere: put the key into ' +
        `${secretPath('control-plane', 'SECRETS_KEY')}. If it is lost: docs/disasters.md ` +
        '"The key is gone"',
    );
  return randomBytes(32).toString('base64');
}

const hostOf = (address: string): string => (address.includes(':') ? `[${address}]` : address);

function gateway(sheet: Sheet): void {
  const { settings, extras } = sheet;
  if (!settings.parts.has('control-plane'))
    shared(sheet, 'GATEWAY_SECRET', ['gateway'], { value: extras.gatewaySecret });
  shared(sheet, 'SESSION_SECRET', ['gateway']);
  env(sheet, ENV_FILES.gateway, {
    CONTROL_PLANE_URL: settings.controlPlane,
    BASE_DOMAIN: settings.baseDomain,
    ADMIN_EMAILS: settings.admins,
    ...proxiesOf(settings),
    GATEWAY_SECRET_FILE: secretPath('gateway', 'GATEWAY_SECRET'),
    SESSION_SECRET_FILE: secretPath('gateway', 'SESSION_SECRET'),
  });
}

function registry(sheet: Sheet): void {
  const { extras, settings } = sheet;
  const { users } = extras;
  // The control plane has the registry's password as a setting and gives it to the agents.
  const holder: Process = settings.parts.has('control-plane') ? 'control-plane' : 'registry';
  if (holder === 'registry') shared(sheet, 'REGISTRY_PASSWORD', ['registry']);
  sheet.wanted.push(
    {
      kind: 'htpasswd',
      path: `${SECRETS}/registry/htpasswd`,
      access: { mode: 0o600, ...users.registry },
      user: REGISTRY_USER,
      password: secretPath(holder, 'REGISTRY_PASSWORD'),
    },
    shippedFile(sheet, `${ETC}/registry.yml`, 'registry/registry.yml'),
  );
  env(sheet, ENV_FILES.registry, {});
}

const shippedFile = ({ extras }: Sheet, path: string, from: string): Wanted => ({
  kind: 'shipped',
  path,
  access: { mode: 0o644, ...extras.users.root },
  from,
  text: extras.shipped(from),
});

/** Names of the files in deploy/traefik/dynamic. */
const DYNAMIC = ['middlewares.yml', 'auth-host.yml', 'dashboard.yml', 'registry.yml'];

function proxy(sheet: Sheet): void {
  const { settings, extras, wanted } = sheet;
  const readable = (mode: number): Access => ({ mode, ...extras.users.root });
  const folder = `${ETC}/traefik`;
  for (const path of [folder, `${folder}/dynamic`])
    wanted.push({ kind: 'folder', path, access: readable(0o755) });
  for (const name of DYNAMIC)
    wanted.push(shippedFile(sheet, `${folder}/dynamic/${name}`, `traefik/dynamic/${name}`));
  wanted.push({
    kind: 'edited',
    path: `${folder}/traefik.yml`,
    access: readable(0o644),
    edit: (text) =>
      traefikConfig(
        text ?? extras.shipped('traefik/traefik.yml'),
        defined({
          acmeEmail: settings.acmeEmail,
          acmeCaServer: extras.acmeCaServer,
          acmeChallenge: extras.acmeChallenge,
          // Set these two only on the first run, because operators can change them afterwards. The
          // relay serves the routes even while the control plane is down.
          routesFrom: text === undefined ? RELAY_URL : undefined,
          dynamicDir: text === undefined ? `${folder}/dynamic` : undefined,
        }),
      ),
  });
  const hasPublicRegistry =
    settings.parts.has('registry') && settings.internalAddress !== undefined;
  env(sheet, ENV_FILES.proxy, {
    BASE_DOMAIN: settings.baseDomain,
    AUTH_SERVICE_URL: settings.gateway,
    CONTROL_PLANE_URL: settings.controlPlane,
    ...defined({
      REGISTRY_URL: hasPublicRegistry ? 'http://127.0.0.1:5000' : undefined,
      TRAEFIK_BIN: extras.traefik,
    }),
  });
  env(
    sheet,
    ENV_FILES.relay,
    { CONTROL_PLANE_URL: settings.controlPlane, LISTEN: '127.0.0.1:8082' },
    ['LISTEN'],
  );
}

export const RELAY_URL = 'http://127.0.0.1:8082';

/** Returns the address at which the proxy reaches the containers of this machine. */
function addressOfContainers({ settings, extras }: Sheet): string | undefined {
  // Only the proxy must reach the containers. If the proxy runs on this machine, loopback is
  // enough, even after a second machine joined.
  if (settings.parts.has('proxy')) return '127.0.0.1';
  return settings.parts.has('control-plane') ? settings.internalAddress : extras.ownAddress;
}

function agent(sheet: Sheet, role: 'builder' | 'deploy'): void {
  const { settings, extras } = sheet;
  const process = agentOf(role);
  const isLocal = settings.parts.has('control-plane');
  if (!isLocal) shared(sheet, 'JOIN_TOKEN', [process], { value: extras.joinToken });
  const secret = isLocal ? 'AGENT_SECRET' : 'JOIN_TOKEN';
  const address = addressOfContainers(sheet);
  const proxies = extras.proxyAddresses ?? [];
  // Only one agent of a machine cleans up its registry.
  const cleans =
    settings.parts.has('registry') && (role === 'builder' || !settings.parts.has('builder'));
  const forContainers = defined({
    HOST_IP: address,
    PUBLISH_IP: address,
    DEFAULT_MEMORY: '1g',
    PROXY_IPS: proxies.length > 0 ? proxies.join(',') : undefined,
  });
  const more: Record<string, string> = role === 'deploy' ? forContainers : {};
  env(
    sheet,
    ENV_FILES[role],
    {
      NODE_ROLE: role,
      CONTROL_PLANE_URL: settings.controlPlane,
      [`${secret}_FILE`]: secretPath(process, secret),
      LISTEN: `127.0.0.1:${AGENT_PORTS[role]}`,
      ...defined({
        NODE_NAME: extras.nodeName,
        REGISTRY_CONFIG: cleans ? `${ETC}/registry.yml` : undefined,
      }),
      ...more,
    },
    ['LISTEN'],
  );
}
