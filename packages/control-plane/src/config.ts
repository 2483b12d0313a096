/** Every setting of the control plane; docs/settings.md is held equal to it. The only reader of the environment. */
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
  secrets,
  SettingsError,
  text,
  type Values,
} from '@berth/kit/config';
import { failPoints } from '@berth/kit/fail-point';
import { ROLES } from '@berth/wire/vocabulary';

const databaseUrl: Parser<string> = (t) => {
  if (!/^(sqlite:.+|postgres(ql)?:\/\/.+)$/.test(t)) throw new Error('must be sqlite:<path> or postgres://…');
  return t;
};
const urls: Parser<string[]> = (t) => list(t).map(httpUrl);
const registryAddr: Parser<string> = (t) => {
  if (!/^[a-z0-9.-]+(:\d{1,5})?(\/[a-z0-9._/-]+)?$/i.test(t))
    throw new Error(`must be host, host:port or host:port/path without a scheme, not "${t}"`);
  return t.replace(/\/+$/, '');
};
const weight: Parser<number> = (t) => {
  const n = Number(t);
  if (t.trim() === '' || !Number.isFinite(n) || n < 0) throw new Error(`must be a number from 0, not "${t}"`);
  return n;
};

export const SETTINGS = {
  LISTEN: { doc: 'Address and port of the API', default: '127.0.0.1:8080', parse: listen },
  DATABASE_URL: { doc: 'sqlite:path (from the working directory) or postgres://…', default: 'sqlite:data/berth.db', parse: databaseUrl },
  BASE_DOMAIN: { doc: 'Projects are published at <domain_prefix>.<BASE_DOMAIN>', required: true, parse: domainName },
  PUBLIC_URL: {
    doc: 'How people reach Berth; scheme and port hold for the addresses of projects too',
    shown: 'https://BASE_DOMAIN',
    parse: httpUrl,
  },
  BERTH_COMMIT: { doc: 'Commit that this build was made of, for GET /api/version; packages set it', parse: text },
  CONTROL_PLANE_URL: { doc: 'Internal address of the control plane for agents and the proxy', shown: 'http://LISTEN', parse: httpUrl },
  AGENT_SECRET: {
    doc: 'Secret of all agents; the current one first, then earlier ones, comma-separated. Unset: every agent is accepted (development only)',
    parse: secrets,
  },
  REQUIRE_NODE_SECRETS: {
    doc: 'true: AGENT_SECRET is accepted only from contract-only nodes that an admin has admitted; all others join with a token',
    default: 'false',
    parse: oneOf('true', 'false'),
  },
  GATEWAY_SECRET: {
    doc: 'Secret between gateway and control plane; current first, then earlier ones',
    shown: 'none: no gateway is let in',
    parse: secrets,
  },
  JWT_SECRET: {
    doc: 'Signs API tokens; current first, then earlier ones',
    shown:
      'made on first start and kept in the file jwt-secret beside the SQLite file, in STATE_DIR with PostgreSQL; the same on each control plane',
    parse: secrets,
  },
  STATE_DIR: {
    doc: 'With PostgreSQL: folder of generated secrets and of what scans keep (with SQLite it is the folder of the database)',
    default: 'data',
    parse: text,
  },
  ADMIN_EMAILS: {
    doc: 'Who is admin, comma-separated; the first gets the local account of the first start',
    shown: 'admin@BASE_DOMAIN gets the local account',
    parse: emails,
  },
  ADMIN_PASSWORD: {
    doc: 'Password of that account, read on the first start only',
    shown: 'made and written to a file of mode 0600 whose path is logged',
    parse: text,
  },
  TRUSTED_PROXIES: {
    doc: 'Addresses and networks (CIDR) whose X-Forwarded-For says where a request comes from, comma-separated; also loopback, linklocal, uniquelocal; or none',
    default: 'loopback',
    parse: networks,
  },
  DEFAULT_ROLE: { doc: 'Role of people who signed in but are unknown here', shown: 'none: they get 403', parse: oneOf(...ROLES) },
  REGISTRY_ADDR: {
    doc: 'Image registry as agents reach it: host, host:port or host:port/path',
    shown: 'none: nothing can be built',
    parse: registryAddr,
  },
  REGISTRY_USER: { doc: 'User that agents log in with there', default: '', parse: text },
  REGISTRY_PASSWORD: { doc: 'Its password', default: '', parse: text },
  DATASET_NFS_BASE_PATH: {
    doc: 'Where the shared storage is mounted, here and on every deploy node',
    shown: 'none: there can be no datasets',
    parse: absolutePath,
  },
  DATASET_STATE_DIR: {
    doc: 'What scans keep from one to the next, some 200 bytes a file; lost, all is hashed again',
    shown: 'datasets, beside the database (data/datasets with PostgreSQL)',
    parse: text,
  },
  DATASET_SCAN_INTERVAL: { doc: 'How often each dataset is looked through for changes', default: '10m', parse: atLeast(1_000) },
  DATASET_SCAN_STALL: { doc: 'A scan that gets no further for so long means that the share hangs', default: '30s', parse: atLeast(1_000) },
  DATASET_SCAN_TIMEOUT: { doc: 'How long one scan may take', default: '6h', parse: atLeast(1_000) },
  DATASET_SCAN_WORKERS: { doc: 'Threads that hash files', shown: 'one less than the machine has cores', parse: integer(1, 256) },
  DATASET_SCANS_AT_ONCE: { doc: 'How many datasets are scanned at once', default: '1', parse: integer(1, 64) },
  DATASET_HISTORY_KEEP: {
    doc: 'Versions of a dataset that are kept with their history; older ones that nothing runs with and no node keeps are forgotten',
    default: '100',
    parse: integer(1, 10_000),
  },
  KEEP_DEPLOYMENTS: {
    doc: 'Newest deployments of each project that stay whole, with what runs: log, story and tasks (docs/operating.md)',
    default: '100',
    parse: integer(1, 10_000),
  },
  KEEP_LOG_BYTES: {
    doc: 'Bytes that all logs together take at most; logs of the oldest settled deployments of the largest projects go first',
    default: '1073741824',
    parse: integer(1_048_576),
  },
  KEEP_DEPLOYMENT_DAYS: {
    doc: 'Days after its end in which every deployment stays whole; of older ones beyond KEEP_DEPLOYMENTS only the record stays',
    default: '90',
    parse: integer(1, 36_500),
  },
  PLACEMENT_WEIGHT_CACHED: { doc: 'What each cached dataset adds to a node’s score', default: '10', parse: weight },
  PLACEMENT_WEIGHT_MISSING: { doc: 'What each byte that must be copied takes from it', default: '0.000001', parse: weight },
  PLACEMENT_WEIGHT_FREE: { doc: 'What each free byte adds to it', default: '0.0000001', parse: weight },
  AUTH_SERVICE_URL: {
    doc: 'Internal address of the forward-auth service; without it projects that require a login are not published',
    parse: httpUrl,
  },
  ACME_RESOLVER: { doc: 'Name of the proxy’s certificate resolver', default: 'letsencrypt', parse: text },
  PROXY_PROBE_URLS: {
    doc: 'One address for each entry point of each proxy, comma-separated; confirms route switches, and that the proxy reaches the node (https addresses)',
    shown: 'none: fetched plus SETTLE_TIME counts as live',
    parse: urls,
  },
  ALLOWED_GIT_HOSTS: { doc: 'Hosts that projects may be cloned from, comma-separated; *.name for all below it', shown: 'any', parse: list },
  RESERVED_PREFIXES: {
    doc: 'Labels under BASE_DOMAIN that no project may take, comma-separated; those of our own addresses always are',
    shown: 'none',
    parse: list,
  },
  CLAIM_TIMEOUT: { doc: 'A task must be claimed within this time, else another node gets it', default: '60s', parse: atLeast(1_000) },
  LEASE_TTL: { doc: 'A claimed task whose agent does not renew for so long is taken away', default: '30s', parse: atLeast(1_000) },
  QUEUE_TIMEOUT: { doc: 'How long a deployment waits for a node that could take it', default: '30m', parse: atLeast(1_000) },
  BUILD_TIMEOUT: { doc: 'How long a build may take', default: '45m', parse: atLeast(1_000) },
  DEPLOY_TIMEOUT: { doc: 'How long a deploy task may take', default: '15m', parse: atLeast(1_000) },
  RETIRE_TIMEOUT: { doc: 'How long the removal of an old container may take', default: '30m', parse: atLeast(1_000) },
  ROUTE_TIMEOUT: { doc: 'How long the proxy has to take over a new route', default: '2m', parse: atLeast(1_000) },
  PROBE_TIMEOUT: { doc: 'How long a new container has to answer HTTP', default: '60s', parse: atLeast(1_000) },
  OFFLINE_AFTER: { doc: 'A node that did not register for so long is offline (contract: 2 minutes)', default: '2m', parse: atLeast(1_000) },
  SETTLE_TIME: { doc: 'Without PROXY_PROBE_URLS: from the proxy’s fetch until its routes count as live', default: '3s', parse: duration },
  BERTH_FAIL_POINTS: {
    doc: 'For tests of Berth alone: where this process kills or stops itself (docs/fail-points.md)',
    shown: 'nowhere',
    parse: failPoints,
  },
  ...LOG_SETTINGS,
} as const;

type Settings = Values<typeof SETTINGS>;
export type Config = Omit<Settings, 'PUBLIC_URL' | 'CONTROL_PLANE_URL' | 'LOG_FORMAT'> & {
  PUBLIC_URL: string;
  CONTROL_PLANE_URL: string;
  LOG_FORMAT: 'json' | 'pretty';
  /** Where programs are found: our own PATH. */
  searchPath: string;
};

/** Throws SettingsError, which names every wrong variable. */
export function readConfig(env: NodeJS.ProcessEnv = process.env): Config {
  const s = readSettings(SETTINGS, env);
  if (s.REQUIRE_NODE_SECRETS === 'true' && s.AGENT_SECRET === undefined)
    throw new SettingsError(['REQUIRE_NODE_SECRETS: needs AGENT_SECRET; without that every agent is accepted']);
  const { host, port } = s.LISTEN;
  // Whoever listens everywhere is reached here by the loopback address.
  const reachable = host === '0.0.0.0' || host === '::' ? '127.0.0.1' : host.includes(':') ? `[${host}]` : host;
  return {
    ...s,
    PUBLIC_URL: s.PUBLIC_URL ?? `https://${s.BASE_DOMAIN}`,
    CONTROL_PLANE_URL: s.CONTROL_PLANE_URL ?? `http://${reachable}:${port}`,
    LOG_FORMAT: s.LOG_FORMAT ?? (process.stdout.isTTY ? 'pretty' : 'json'),
    searchPath: env['PATH'] ?? '/usr/local/bin:/usr/bin:/bin',
  };
}
