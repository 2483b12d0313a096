/**
 * Settings of the control plane. docs/settings.md is generated from this table. Only this file
 * reads the environment.
 */
import { Resolver } from 'node:dns';
import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { dirname, join, resolve } from 'node:path';
import {
  absolutePath,
  atLeast,
  domainName,
  duration,
  emails,
  httpUrl,
  integer,
  LOG_SETTINGS,
  list,
  listen,
  networks,
  oneOf,
  type Parser,
  readSettings,
  type Setting,
  secrets,
  settingTexts,
  SettingsError,
  text,
  TRACE_SETTINGS,
  type Values,
} from '@berth/kit/config';
import { failPoints } from '@berth/kit/fail-point';
import type { Logger } from '@berth/kit/log';
import { createReloading, type Reloading } from '@berth/kit/reload';
import type { SettingInForce } from '@berth/wire/system';
import { CLIENT_HEADERS, ROLES } from '@berth/wire/vocabulary';
import { keepRule } from './backup/keep.ts';
import { isPlain } from './backup/plain-settings.ts';
import { starttlsProblem } from './notify/mail.ts';

const databaseUrl: Parser<string> = (t) => {
  if (!/^(sqlite:.+|postgres(ql)?:\/\/.+)$/.test(t))
    throw new Error('must be sqlite:<path> or postgres://…');
  return t;
};
const noneOr =
  <T>(parse: Parser<T>): Parser<T | null> =>
  (t) =>
    t === 'none' ? null : parse(t);
/** An error must not repeat the value: the URL can contain a password. */
const smtpUrl: Parser<string> = (t) => {
  const url = URL.parse(t);
  if (url === null || !['smtp:', 'smtps:'].includes(url.protocol) || url.hostname === '')
    throw new Error('must be an address like smtp://user:password@host:587');
  const problem = starttlsProblem(t);
  if (problem !== null) throw new Error(problem);
  return t;
};
const mailAddress: Parser<string> = (t) => {
  if (!/^([^<>@\p{Cc}]*<)?[^\s@<>,;]+@[^\s@<>,;]+>?$/u.test(t))
    throw new Error(`must be an e-mail address, not "${t}"`);
  return t;
};
const urls: Parser<string[]> = (t) => list(t).map(httpUrl);
const registryAddr: Parser<string> = (t) => {
  if (!/^[a-z0-9.-]+(:\d{1,5})?(\/[a-z0-9._/-]+)?$/i.test(t))
    throw new Error(`must be host, host:port or host:port/path without a scheme, not "${t}"`);
  return t.replace(/\/+$/, '');
};
/** An error must not repeat the value. */
const secretsKeys: Parser<Buffer[]> = (t) => {
  if (list(t).length === 0) throw new Error('must have at least one secret');
  const keys = list(t).map((entry) => ({ entry, key: Buffer.from(entry, 'base64') }));
  const wrong = keys.findIndex(
    ({ entry, key }) => key.length !== 32 || key.toString('base64') !== entry,
  );
  if (wrong !== -1)
    throw new Error(
      'each key must be exactly 32 bytes in base64 (openssl rand -base64 32); ' +
        `key ${wrong + 1} of ${keys.length} is not`,
    );
  return keys.map(({ key }) => key);
};
const backupTarget: Parser<string> = (t) => {
  if (
    !/^s3:\/\/[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](\/.*)?$/.test(t) &&
    (t.includes('://') || t.trim() === '')
  )
    throw new Error(`must be a folder or s3://bucket/prefix, not "${t}"`);
  return t;
};
const addresses: Parser<string[]> = (t) => {
  const wrong = list(t).filter((one) => isIP(one) === 0);
  if (wrong.length > 0) throw new Error(`not an IP address: ${wrong.join(', ')}`);
  return list(t);
};
/** Accepts only names and addresses, so that an entry that could match nothing is refused. */
const hosts: Parser<string[]> = (t) => {
  const bare = (one: string): string => one.replace(/^\[|\]$/g, '');
  const wrong = list(t).filter(
    (one) => isIP(bare(one)) === 0 && !/^[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9])?$/i.test(one),
  );
  if (wrong.length > 0)
    throw new Error(
      `must be names or addresses without scheme, port and wildcard, not "${wrong[0]}"`,
    );
  return list(t);
};
const nameServers: Parser<string[]> = (t) => {
  try {
    new Resolver().setServers(list(t));
  } catch {
    throw new Error(
      `must be addresses of name servers (192.0.2.1, 192.0.2.1:53, [2001:db8::1]:53), not "${t}"`,
    );
  }
  return list(t);
};
const ageRecipients: Parser<string[]> = (t) => {
  const recipients = list(t);
  // Refuse a private key: every process list and the log would contain it.
  if (recipients.some((one) => /^AGE-SECRET-KEY/i.test(one)))
    throw new Error('has an age identity (private key); give its recipient (age1…)');
  // The process that makes the backup does the full check: the age library would slow down each
  // start.
  const wrong = recipients.find((one) => !/^age1[a-z0-9]{50,}$/.test(one));
  if (wrong !== undefined) throw new Error(`"${wrong}" is no age recipient (age1…)`);
  return recipients;
};
const overcommit: Parser<number> = (t) => {
  const n = Number(t);
  if (t.trim() === '' || !(n >= 0.1 && n <= 100))
    throw new Error(`must be a number from 0.1 to 100, not "${t}"`);
  return n;
};

const weight: Parser<number> = (t) => {
  const n = Number(t);
  if (t.trim() === '' || !Number.isFinite(n) || n < 0)
    throw new Error(`must be a number of 0 or more, not "${t}"`);
  return n;
};

function keptHeaders(t: string): string[] {
  const names = list(t).map((name) => name.toLowerCase());
  const unknown = names.find(
    (name) => !CLIENT_HEADERS.some((known) => known.toLowerCase() === name),
  );
  if (unknown !== undefined)
    throw new Error(
      `“${unknown.slice(0, 100)}” is no header that the proxy removes: ` +
        CLIENT_HEADERS.join(', '),
    );
  return names;
}

export const SETTINGS = {
  LISTEN: { doc: 'Address and port of the API', default: '127.0.0.1:8080', parse: listen },
  DATABASE_URL: {
    doc: 'sqlite:<path>, relative to the working directory, or postgres://…',
    default: 'sqlite:data/berth.db',
    parse: databaseUrl,
  },
  BASE_DOMAIN: {
    doc: 'Projects are published at <domain_prefix>.<BASE_DOMAIN>',
    required: true,
    parse: domainName,
  },
  PUBLIC_URL: {
    doc: 'Public URL of Berth; its scheme and port also apply to the URLs of projects',
    shown: 'https://BASE_DOMAIN',
    parse: httpUrl,
  },
  BERTH_COMMIT: {
    doc: 'Git commit of this build, shown by GET /api/version; packages set it',
    parse: text,
  },
  CONTROL_PLANE_URL: {
    doc: 'Internal address of the control plane for agents and the proxy',
    shown: 'http://LISTEN',
    parse: httpUrl,
  },
  AGENT_SECRET: {
    doc:
      'Secrets that agents send; the current one first, then earlier ones, comma-separated. ' +
      'Unset: every agent is accepted (development only)',
    parse: secrets,
  },
  REQUIRE_NODE_SECRETS: {
    doc:
      'true: AGENT_SECRET works only for contract-only nodes that an admin admitted; all other ' +
      'nodes join with a token',
    default: 'false',
    parse: oneOf('true', 'false'),
  },
  GATEWAY_SECRET: {
    doc:
      'Secrets shared with the gateway; the current one first, then earlier ones, ' +
      'comma-separated',
    shown: 'none: requests of gateways are refused',
    parse: secrets,
  },
  JWT_SECRET: {
    doc:
      'Secrets that sign API tokens; the current one first, then earlier ones, comma-separated; ' +
      'all control planes need the same',
    shown:
      'created on the first start in the file jwt-secret, beside the SQLite file or, with ' +
      'PostgreSQL, in STATE_DIR',
    parse: secrets,
  },
  SECRETS_KEY: {
    doc:
      'Keys that encrypt the stored secrets, each 32 bytes in base64; the current one first, ' +
      'then earlier ones, comma-separated; all control planes need the same',
    shown:
      'created on the first start in the file secrets-key, beside the SQLite file or, with ' +
      'PostgreSQL, in STATE_DIR',
    parse: secretsKeys,
  },
  STATE_DIR: {
    doc:
      'Folder for generated secrets and scan state with PostgreSQL; with SQLite, the folder of ' +
      'the database is used',
    default: 'data',
    parse: text,
  },
  ADMIN_EMAILS: {
    doc:
      'E-mail addresses of admins, comma-separated; the first one gets the local account that ' +
      'the first start creates',
    shown: 'admin@BASE_DOMAIN gets the local account',
    parse: emails,
  },
  ADMIN_PASSWORD: {
    doc:
      'Password of the local account of the first start, at most 1024 characters and better 10 ' +
      'or more; later starts ignore it',
    shown: 'generated and written to a file of mode 0600, whose path is logged',
    parse: text,
  },
  TRUSTED_PROXIES: {
    doc:
      'Addresses and networks (CIDR) of proxies whose X-Forwarded-For is trusted, ' +
      'comma-separated. The names loopback, linklocal and uniquelocal are allowed; `none` ' +
      'trusts no proxy',
    default: 'loopback',
    parse: networks,
  },
  MAX_CONNECTIONS: {
    doc:
      'Open connections at most, and never more than the limit of open files allows; one client ' +
      'gets a quarter (docs/operating.md "Open connections")',
    default: '24000',
    parse: integer(100, 1_000_000),
  },
  DEFAULT_ROLE: {
    doc: 'Role of people who sign in without a user record',
    shown: 'none: they get 403',
    parse: oneOf(...ROLES),
  },
  REGISTRY_ADDR: {
    doc: 'Address of the image registry for agents: host, host:port or host:port/path',
    shown: 'none: builds are not possible',
    parse: registryAddr,
  },
  PACKAGE_DIR: {
    doc:
      'Folder with the packages of Berth (berth_VERSION_ARCH.deb), from which machines install ' +
      'it before they join; anyone may fetch them',
    shown: 'none: the command of a join token needs Berth on the machine',
    parse: absolutePath,
  },
  DASHBOARD_DIR: {
    doc:
      'Folder with the built dashboard (index.html and assets/), which is served at /; empty: no ' +
      'dashboard is served',
    shown: 'in a package or image: its own dashboard; otherwise none',
    parse: absolutePath,
  },
  REGISTRY_USER: { doc: 'User name for the registry', default: '', parse: text },
  REGISTRY_PASSWORD: { doc: 'Password for the registry', default: '', parse: text },
  DATASET_NFS_BASE_PATH: {
    doc: 'Path at which the shared storage is mounted, here and on every deploy node',
    shown: 'none: datasets are not possible',
    parse: absolutePath,
  },
  DATASET_STATE_DIR: {
    doc:
      'Folder for scan state, about 200 bytes per file; if it is lost, the next scan hashes all ' +
      'files again',
    shown: 'datasets, beside the database (data/datasets with PostgreSQL)',
    parse: text,
  },
  DATASET_SCAN_INTERVAL: {
    doc: 'Time between two scans of a dataset',
    default: '10m',
    parse: atLeast(1_000),
  },
  DATASET_SCAN_STALL: {
    doc: 'A scan without progress for this time fails, because the share hangs',
    default: '30s',
    parse: atLeast(1_000),
  },
  DATASET_SCAN_TIMEOUT: { doc: 'Time limit of one scan', default: '6h', parse: atLeast(1_000) },
  DATASET_SCAN_WORKERS: {
    doc: 'Number of threads that hash files',
    shown: 'one less than the number of cores',
    parse: integer(1, 256),
  },
  DATASET_SCANS_AT_ONCE: {
    doc: 'Number of datasets that are scanned at the same time',
    default: '1',
    parse: integer(1, 64),
  },
  DATASET_HISTORY_KEEP: {
    doc:
      'Number of versions kept per dataset, with their history; older versions are deleted ' +
      'unless a deployment or a node uses them',
    default: '100',
    parse: integer(1, 10_000),
  },
  KEEP_DEPLOYMENTS: {
    doc:
      'Number of newest deployments per project that keep log, events and tasks; running ones ' +
      'always keep them (docs/operating.md)',
    default: '100',
    parse: integer(1, 10_000),
  },
  KEEP_LOG_BYTES: {
    doc:
      'Size limit of all logs together, in bytes; logs of the oldest settled deployments of the ' +
      'largest projects are removed first',
    default: '1073741824',
    parse: integer(1_048_576),
  },
  KEEP_DEPLOYMENT_DAYS: {
    doc:
      'Days for which a finished deployment keeps log, events and tasks; older ones beyond ' +
      'KEEP_DEPLOYMENTS keep only their record',
    default: '90',
    parse: integer(1, 36_500),
  },
  KEEP_RELEASES: {
    doc:
      'Number of images that the registry and each node keep of each project: those of the last ' +
      'releases that ran (docs/clean-up.md)',
    default: '10',
    parse: integer(1, 1000),
  },
  CLEAN_INTERVAL: {
    doc: 'Time between two clean-ups of the registry; none: only on request (docs/clean-up.md)',
    default: '24h',
    parse: noneOr(atLeast(60_000)),
  },
  BACKUP_TO: {
    doc: 'Where scheduled backups go: a folder that exists, or s3://bucket/prefix (docs/backup.md)',
    shown: 'none: no scheduled backups',
    parse: backupTarget,
  },
  BACKUP_INTERVAL: {
    doc: 'Time between two scheduled backups',
    default: '1h',
    parse: atLeast(60_000),
  },
  BACKUP_KEEP: {
    doc:
      'Which scheduled backups stay: the newest one of each of the last hours, days and weeks; ' +
      'others are deleted',
    default: '24h 7d 4w',
    parse: keepRule,
  },
  BERTH_ETC: {
    doc:
      'Folder of the settings of this machine, which a backup contains without secrets ' +
      '(docs/backup.md)',
    default: '/etc/berth',
    parse: absolutePath,
  },
  BACKUP_RECIPIENT: {
    doc: 'age recipients (age1…) for which backups are encrypted, comma-separated',
    shown: 'none: backups are not encrypted',
    parse: ageRecipients,
  },
  UPGRADE_SNAPSHOT: {
    doc:
      'Snapshot before a new version migrates the database: required (the start fails without ' +
      'it), try or off (docs/upgrade.md)',
    default: 'required',
    parse: oneOf('required', 'try', 'off'),
  },
  PLACEMENT_WEIGHT_CACHED: {
    doc: 'Points that each cached dataset adds to the score of a node',
    default: '10',
    parse: weight,
  },
  PLACEMENT_WEIGHT_MISSING: {
    doc: 'Points that each byte to copy subtracts from the score',
    default: '0.000001',
    parse: weight,
  },
  PLACEMENT_WEIGHT_FREE: {
    doc: 'Points that each free byte adds to the score',
    default: '0.0000001',
    parse: weight,
  },
  MEMORY_OVERCOMMIT: {
    doc:
      'Part of the memory of a node that the memory limits of its containers may use together: ' +
      '1 is all of it, 1.5 allows half as much again (docs/placement.md)',
    default: '1',
    parse: overcommit,
  },
  AUTH_SERVICE_URL: {
    doc:
      'Internal URL of the forward-auth service; without it, projects that require a login are ' +
      'not published',
    parse: httpUrl,
  },
  ACME_RESOLVER: {
    doc: 'Name of the certificate resolver in the proxy',
    default: 'letsencrypt',
    parse: text,
  },
  PROXY_PROBE_URLS: {
    doc:
      'One URL per entry point of each proxy, comma-separated; used to confirm that a proxy ' +
      'serves a new route and, for https URLs, that it reaches the node',
    shown: 'none: a route counts as live SETTLE_TIME after the proxy fetched it',
    parse: urls,
  },
  CERTIFICATE_CHECK_INTERVAL: {
    doc:
      'Time between two checks of a certificate that is in order, for each published host, at ' +
      'the https addresses of PROXY_PROBE_URLS; none: no checks (docs/https.md)',
    default: '1h',
    parse: noneOr(atLeast(1_000)),
  },
  ALLOWED_GIT_HOSTS: {
    doc:
      'Hosts from which projects may be cloned, comma-separated; *.name allows all subdomains of ' +
      'name',
    shown: 'any',
    parse: list,
  },
  ALLOWED_NOTIFY_HOSTS: {
    doc:
      'Hosts that notifications may reach over http or at a private address, comma-separated, ' +
      'without wildcards (docs/notifications.md)',
    shown: 'none: only https at public addresses',
    parse: hosts,
  },
  SMTP_URL: {
    doc:
      'SMTP server for notifications by e-mail: smtp://user:password@host:587 (STARTTLS; ' +
      'required with a password, unless the host is loopback) or smtps://…:465 ' +
      '(docs/notifications.md)',
    shown: 'none: no e-mail',
    parse: smtpUrl,
  },
  SMTP_FROM: {
    doc: 'Sender of e-mails; required with SMTP_URL',
    shown: 'none',
    parse: mailAddress,
  },
  KEEP_CLIENT_HEADERS: {
    doc:
      'Headers of clients that projects get although the proxy removes them by default, ' +
      'comma-separated (docs/proxy.md)',
    shown: 'none',
    parse: keptHeaders,
  },
  RESERVED_PREFIXES: {
    doc:
      'Labels under BASE_DOMAIN that projects cannot use, and host names that cannot be custom ' +
      'domains, comma-separated; `traefik` and Berth’s own addresses are always reserved',
    shown: 'none',
    parse: list,
  },
  PUBLIC_IPS: {
    doc:
      'Addresses to which custom domains should point, comma-separated, IPv4 and IPv6 ' +
      '(docs/domains.md)',
    shown: 'the addresses of BASE_DOMAIN',
    parse: addresses,
  },
  DNS_SERVERS: {
    doc: 'Name servers that check custom domains, comma-separated, each an address or address:port',
    shown: 'those of the system',
    parse: nameServers,
  },
  DOMAIN_QUARANTINE: {
    doc:
      'Time for which a domain prefix or custom domain that a project gave up is kept for that ' +
      'project; 0s: it is free at once',
    default: '7d',
    parse: duration,
  },
  CLAIM_TIMEOUT: {
    doc: 'Time limit for a node to claim a task; then another node gets it',
    default: '60s',
    parse: atLeast(1_000),
  },
  LEASE_TTL: {
    doc: 'Lifetime of a task lease; an agent that does not renew it in time loses the task',
    default: '30s',
    parse: atLeast(1_000),
  },
  QUEUE_TIMEOUT: {
    doc: 'Time limit of a deployment for finding an eligible node',
    default: '30m',
    parse: atLeast(1_000),
  },
  BUILD_TIMEOUT: { doc: 'Time limit of a build', default: '45m', parse: atLeast(1_000) },
  DEPLOY_TIMEOUT: {
    doc:
      'Time limit of a deploy task, without its copies of datasets, stops of containers and ' +
      'start_seconds',
    default: '15m',
    parse: atLeast(1_000),
  },
  RETIRE_TIMEOUT: {
    doc: 'Time limit for the removal of an old container',
    default: '30m',
    parse: atLeast(1_000),
  },
  ROUTE_TIMEOUT: {
    doc: 'Time limit for the proxy to apply a new route',
    default: '2m',
    parse: atLeast(1_000),
  },
  PROBE_TIMEOUT: {
    doc:
      'Time limit for a new container to answer an HTTP request and to pass its HEALTHCHECK, for ' +
      'projects without start_seconds',
    default: '2m',
    parse: atLeast(1_000),
  },
  OFFLINE_AFTER: {
    doc: 'A node without a registration for this time is offline (contract: 2 minutes)',
    default: '2m',
    parse: atLeast(1_000),
  },
  FAILOVER_AFTER: {
    doc:
      'The instances of a node whose agent is silent for this time start on other nodes ' +
      '(docs/high-availability.md); `none`: only a person moves them',
    default: '30s',
    parse: noneOr(atLeast(1_000)),
  },
  SETTLE_TIME: {
    doc: 'Without PROXY_PROBE_URLS: time after the proxy’s fetch until its routes count as live',
    default: '3s',
    parse: duration,
  },
  BERTH_FAIL_POINTS: {
    doc:
      'Only for tests of Berth: points at which this process kills or stops itself ' +
      '(docs/fail-points.md)',
    shown: 'none',
    parse: failPoints,
  },
  ...LOG_SETTINGS,
  ...TRACE_SETTINGS,
} as const;

type Settings = Values<typeof SETTINGS>;
export type Config = Omit<Settings, 'PUBLIC_URL' | 'CONTROL_PLANE_URL' | 'LOG_FORMAT'> & {
  PUBLIC_URL: string;
  CONTROL_PLANE_URL: string;
  LOG_FORMAT: 'json' | 'pretty';
  /** PATH of this process, to find programs. */
  searchPath: string;
  /** Environment of the process that makes scheduled backups. */
  backupEnv: NodeJS.ProcessEnv;
  /** Settings by name, for GET /api/system. */
  inForce: SettingInForce[];
};

/** Returns the folder of the SQLite file, or STATE_DIR with PostgreSQL. */
export function dataFolder(config: Pick<Config, 'DATABASE_URL' | 'STATE_DIR'>): string {
  const path = config.DATABASE_URL.startsWith('sqlite:')
    ? config.DATABASE_URL.slice('sqlite:'.length)
    : '';
  return path === '' || path === ':memory:' ? config.STATE_DIR : dirname(path);
}

/** File names of generated secrets in `dataFolder`. */
export const GENERATED = { JWT_SECRET: 'jwt-secret', SECRETS_KEY: 'secrets-key' } as const;

export type ReloadedSettings = Reloading<typeof SETTINGS>;
/**
 * On SIGHUP, reads the files of settings and of generated secrets again. Call it before
 * `readConfig`.
 */
export function reloading(
  logger: () => Logger,
  env: NodeJS.ProcessEnv = process.env,
): ReloadedSettings {
  const generated = Object.entries(GENERATED).flatMap(([name, file]) => {
    const isGiven = (env[name] ?? '') !== '' || (env[`${name}_FILE`] ?? '') !== '';
    const DATABASE_URL = env['DATABASE_URL'] || SETTINGS.DATABASE_URL.default;
    const STATE_DIR = env['STATE_DIR'] || SETTINGS.STATE_DIR.default;
    if (isGiven || DATABASE_URL === 'sqlite::memory:') return [];
    return [[`${name}_FILE`, resolve(join(dataFolder({ DATABASE_URL, STATE_DIR }), file))]];
  });
  return createReloading(
    SETTINGS,
    { ...env, ...(Object.fromEntries(generated) as NodeJS.ProcessEnv) },
    logger,
  );
}

/**
 * Environment variables of other programs that a backup needs: storage credentials, certificates.
 */
const PASSED_ON =
  /^(AWS_.*|PATH|HOME|TMPDIR|TZ|NODE_EXTRA_CA_CERTS|SSL_CERT_FILE|PGSSL.*|HTTPS?_PROXY|NO_PROXY)$/;

/** Settings in the systemd unit of the package. */
const OF_THE_UNIT = { STATE_DIR: '/var/lib/berth', DATABASE_URL: 'sqlite:/var/lib/berth/berth.db' };
const ASSIGNMENT = /^([A-Za-z_]\w*)=(.*)$/;

/**
 * For commands on a machine with the package: adds the unit's settings to `env` if `env` names no
 * database and /etc/berth has them. Values already in `env` take precedence. Returns the settings
 * file, or null if only `env` is used. Throws SettingsError.
 */
export function useSettingsOfUnit(env: NodeJS.ProcessEnv = process.env): string | null {
  const has = (name: string): boolean => (env[name] ?? '') !== '';
  if (has('DATABASE_URL') || has('DATABASE_URL_FILE')) return null;
  const path = join(env['BERTH_ETC'] || SETTINGS.BERTH_ETC.default, 'control-plane.env');
  let lines: string[];
  try {
    lines = readFileSync(path, 'utf8').split('\n');
  } catch (error) {
    if (['ENOENT', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? '')) return null;
    throw new SettingsError([
      `${path} cannot be read: run the command as root, or set DATABASE_URL ` +
        `(${(error as Error).message})`,
    ]);
  }
  const assignments: Record<string, string> = { ...OF_THE_UNIT };
  for (const line of lines) {
    const [, name = '', value = ''] = ASSIGNMENT.exec(line.trim()) ?? [];
    if (!PASSED_ON.test(name) && !Object.hasOwn(SETTINGS, name.replace(/_FILE$/, ''))) continue;
    if (name === 'DATABASE_URL_FILE') delete assignments['DATABASE_URL'];
    assignments[name] = unquoted(value);
  }
  // A setting counts as given by NAME or NAME_FILE, because these exclude each other.
  const isGiven = (name: string): boolean =>
    has(name) || has(`${name}_FILE`) || has(name.replace(/_FILE$/, ''));
  const added = Object.entries(assignments).filter(([name]) => !isGiven(name));
  for (const [name, value] of added) env[name] = value;
  return path;
}

/** Removes the quotes of a one-line value as systemd does. */
function unquoted(value: string): string {
  const quote = value[0];
  if ((quote !== '"' && quote !== "'") || value.length < 2 || !value.endsWith(quote)) return value;
  const inner = value.slice(1, -1);
  return quote === "'" ? inner : inner.replaceAll(/\\(["\\$`])/g, '$1');
}

export type BackupConfig = ReturnType<typeof readBackupConfig>;

/** Reads the settings that backup, restore, export and import need. Throws SettingsError. */
export function readBackupConfig(env: NodeJS.ProcessEnv = process.env) {
  const {
    DATABASE_URL,
    STATE_DIR,
    SECRETS_KEY,
    BACKUP_TO,
    BACKUP_KEEP,
    BACKUP_RECIPIENT,
    BERTH_ETC,
    UPGRADE_SNAPSHOT,
  } = SETTINGS;
  const used = {
    DATABASE_URL,
    STATE_DIR,
    SECRETS_KEY,
    BACKUP_TO,
    BACKUP_KEEP,
    BACKUP_RECIPIENT,
    BERTH_ETC,
    UPGRADE_SNAPSHOT,
  };
  const settings = readSettings(used, env);
  const all = settingTexts(Object.keys(SETTINGS), env);
  // Leave out DATABASE_URL: after a restore the database is in another place.
  const entries = Object.entries(all).filter(([name]) => name !== 'DATABASE_URL');
  return {
    ...settings,
    /** Values of the settings that are set, as text, for the backup. */
    plain: Object.fromEntries(entries.filter((entry) => isPlain(...entry))),
    secret: Object.fromEntries(entries.filter((entry) => !isPlain(...entry))),
    searchPath: env['PATH'] ?? '/usr/local/bin:/usr/bin:/bin',
    /** Endpoint of an object storage other than AWS. */
    s3Endpoint: env['AWS_ENDPOINT_URL_S3'] ?? env['AWS_ENDPOINT_URL'] ?? null,
  };
}

/** Reads the settings that locate the data. Throws SettingsError. */
export const readDataPlace = (env: NodeJS.ProcessEnv = process.env) =>
  readSettings({ DATABASE_URL: SETTINGS.DATABASE_URL, STATE_DIR: SETTINGS.STATE_DIR }, env);

/** Reads only DATABASE_URL, for commands on the database. Throws SettingsError. */
export const readDatabaseUrl = (env: NodeJS.ProcessEnv = process.env): string =>
  readSettings({ DATABASE_URL: SETTINGS.DATABASE_URL }, env).DATABASE_URL;

/**
 * Reads the settings from the environment. Throws SettingsError, which names every wrong variable.
 */
export function readConfig(env: NodeJS.ProcessEnv = process.env): Config {
  const s = readSettings(SETTINGS, env);
  if ((s.SMTP_URL === undefined) !== (s.SMTP_FROM === undefined))
    throw new SettingsError([
      s.SMTP_URL === undefined
        ? 'SMTP_URL: SMTP_FROM requires it'
        : 'SMTP_FROM: SMTP_URL requires it',
    ]);
  if (s.REQUIRE_NODE_SECRETS === 'true' && s.AGENT_SECRET === undefined)
    throw new SettingsError([
      'REQUIRE_NODE_SECRETS: requires AGENT_SECRET; without AGENT_SECRET every agent is accepted',
    ]);
  const { host, port } = s.LISTEN;
  return {
    ...s,
    PUBLIC_URL: s.PUBLIC_URL ?? `https://${s.BASE_DOMAIN}`,
    CONTROL_PLANE_URL: s.CONTROL_PLANE_URL ?? `http://${reachableHost(host)}:${port}`,
    LOG_FORMAT: s.LOG_FORMAT ?? (process.stdout.isTTY ? 'pretty' : 'json'),
    searchPath: env['PATH'] ?? '/usr/local/bin:/usr/bin:/bin',
    backupEnv: Object.fromEntries(
      Object.entries(env).filter(
        ([name]) => PASSED_ON.test(name) || Object.hasOwn(SETTINGS, name.replace(/_FILE$/, '')),
      ),
    ),
    inForce: settingsInForce(env),
  };
}

/** Leaves out values that can be secrets, by the same rule as backups without keys. */
function settingsInForce(env: NodeJS.ProcessEnv): SettingInForce[] {
  const texts = settingTexts(Object.keys(SETTINGS), env);
  return Object.entries<Setting<unknown>>(SETTINGS)
    .map(([name, { doc, default: standard }]): SettingInForce => {
      const value = texts[name];
      if (value === undefined) return { name, value: standard ?? null, source: 'default', doc };
      return isPlain(name, value)
        ? { name, value, source: 'set', doc }
        : { name, value: null, source: 'hidden', doc };
    })
    .toSorted((a, b) => (a.name < b.name ? -1 : 1));
}

/** Returns the loopback address for a server that listens on all addresses. */
function reachableHost(host: string): string {
  if (host === '0.0.0.0' || host === '::') return '127.0.0.1';
  return host.includes(':') ? `[${host}]` : host;
}
