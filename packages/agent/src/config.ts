/** Settings of the agent (INTERFACES.md "Settings"); docs/settings.md is held equal to this table. */
import { hostname } from 'node:os';
import {
  absolutePath,
  atLeast,
  duration,
  httpUrl,
  integer,
  list,
  listen,
  LOG_SETTINGS,
  oneOf,
  type Parser,
  readSettings,
  SettingsError,
  text,
  type Values,
} from '@berth/kit/config';
import { failPoints } from '@berth/kit/fail-point';
import { NODE_ROLES } from '@berth/wire/vocabulary';
import { type Range, rangeOf } from './networks.ts';

/** Ends up in the command by which git starts ssh, and there in a list of files. */
const plainPath: Parser<string> = (t) => {
  if (!/^[\w./@+-]+$/.test(t)) throw new Error(`must hold letters, digits and . / _ @ + - only, not "${t}"`);
  return absolutePath(t);
};
const ip: Parser<string> = (t) => {
  if (!/^[0-9A-Fa-f:.]+$/.test(t)) throw new Error(`must be an IP address, not "${t}"`);
  return t;
};
/** With several, the current one is the first; the agent sends that one only. */
const firstOf: Parser<string> = (t) => t.split(',')[0]?.trim() ?? '';

const bandwidth: Parser<string> = (t) => {
  if (!/^\d+(\.\d+)?[kmg]?$/i.test(t)) throw new Error(`must be a number, or one with k, m or g, not "${t}"`);
  return t;
};

const SIZES = { k: 1024, m: 1024 ** 2, g: 1024 ** 3 } as const;
/** As the engine takes it; less than 6 MiB it refuses. */
const memory: Parser<number> = (t) => {
  const [, number = '', unit] = /^(\d+)([kmg])?$/i.exec(t) ?? [];
  const bytes = Number(number) * (unit === undefined ? 1 : SIZES[unit.toLowerCase() as keyof typeof SIZES]);
  if (number === '' || bytes < 6 * SIZES.m) throw new Error(`must be a number of bytes, or one with k, m or g, of 6m or more, not "${t}"`);
  return bytes;
};
/** As CIDR; null for `none`. */
const networkPool: Parser<{ cidr: string; range: Range } | null> = (t) => {
  if (t === 'none') return null;
  const range = rangeOf(t);
  const bits = Number(t.split('/')[1]);
  if (range === null || bits < 8 || bits > 28)
    throw new Error(`must be an IPv4 network from /8 to /28 such as 10.217.0.0/16, or none, not "${t}"`);
  return { cidr: t, range };
};
const ipv4List: Parser<string[]> = (t) => {
  const wrong = list(t).filter((entry) => rangeOf(entry.includes('/') ? entry : `${entry}/32`) === null);
  if (wrong.length > 0) throw new Error(`must be IPv4 addresses or networks, separated by commas, not "${wrong.join(', ')}"`);
  return list(t);
};

export const AGENT_SETTINGS = {
  NODE_ROLE: { doc: 'What this node does: builder or deploy', required: true, parse: oneOf(...NODE_ROLES) },
  CONTROL_PLANE_URL: {
    doc: 'Internal address of the control plane, not the public domain, e.g. http://10.0.0.1:8080',
    required: true,
    parse: httpUrl,
  },
  AGENT_SECRET: {
    doc: 'The secret shared with the control plane, sent until the node has its own; with several, separated by commas, the first is sent',
    shown: 'none is sent',
    parse: firstOf,
  },
  JOIN_TOKEN: {
    doc: 'Token by which this machine joins, once; sent before AGENT_SECRET and not needed after the first register',
    shown: 'none',
    parse: (t: string) => t.trim(),
  },
  HOST_IP: {
    doc: 'Address at which the reverse proxy reaches containers of this node',
    shown: 'the local address of a connection to CONTROL_PLANE_URL',
    parse: text,
  },
  PUBLISH_IP: { doc: 'Address that containers’ ports are bound to', shown: 'all, as -p 0:port does', parse: ip },
  PROJECT_NETWORK_POOL: {
    doc: 'Addresses for the networks of projects, a /28 for each; none: all containers stand on the engine’s default network',
    default: '10.217.0.0/16',
    parse: networkPool,
  },
  PROXY_IPS: {
    doc: 'IPv4 addresses or networks of the reverse proxy; only they reach published ports of projects (iptables; the agent must be root)',
    shown: 'none: whoever reaches the node reaches the ports',
    parse: ipv4List,
  },
  DEFAULT_MEMORY: { doc: 'Memory limit of containers of projects that set none: bytes, or with k, m or g', shown: 'none', parse: memory },
  NODE_NAME: { doc: 'Name the node registers under; the same name and role get the same node', shown: 'the host name', parse: text },
  DOCKER_HOST: { doc: 'Container engine, as the docker command line takes it', shown: 'unix:///var/run/docker.sock', parse: text },
  DOCKER_PLUGINS_DIR: { doc: 'Folder with docker command line plugins (buildx) beside the usual ones', shown: 'none', parse: absolutePath },
  STATE_DIR: {
    doc: 'Where the agent keeps workspaces and the engine’s credentials, in a folder for each role (mode 0700)',
    default: '/var/lib/berth-agent',
    parse: plainPath,
  },
  SVC_ROOT: { doc: 'Where copies of datasets are kept', default: '/svc/data', parse: absolutePath },
  DATASET_NFS_BASE_PATH: {
    doc: 'Where the shared dataset storage is mounted',
    shown: 'none: no datasets on this node',
    parse: absolutePath,
  },
  CACHE_HIGH: {
    doc: 'Percent of MAX_STORAGE beyond which cached datasets are evicted, least recently used first',
    default: '90',
    parse: integer(1, 100),
  },
  CACHE_LOW: { doc: 'Percent of MAX_STORAGE down to which they are evicted then', default: '80', parse: integer(1, 100) },
  KEEP_VERSIONS: {
    doc: 'Newest versions of each dataset that are kept although nothing mounts them; older ones are evicted after a copy',
    default: '3',
    parse: integer(1, 1000),
  },
  COPY_TIMEOUT: { doc: 'Longest time for one copy of a dataset', default: '6h', parse: atLeast(1_000) },
  COPY_STALL: { doc: 'How long a copy may stand still until it is given up', default: '60s', parse: atLeast(1_000) },
  COPIES_AT_ONCE: { doc: 'Copies of datasets at once', default: '2', parse: integer(1, 100) },
  COPY_BANDWIDTH: {
    doc: 'Most that one copy may take, as rsync’s --bwlimit: KiB a second, or with k, m or g',
    shown: 'no limit',
    parse: bandwidth,
  },
  MAX_STORAGE: { doc: 'Bytes that datasets may take on this node', shown: 'the size of SVC_ROOT’s file system', parse: integer(0) },
  LISTEN: {
    doc: 'Address for /healthz, /readyz and /metrics, e.g. 127.0.0.1:7070; no page asks for a login, so an address that is not loopback shows them to all who reach it',
    shown: 'none',
    parse: listen,
  },
  MAX_BUILDS: { doc: 'Builds at once', default: '2', parse: integer(1, 1000) },
  KEEP_RELEASES: {
    doc: 'Newest images of each project that are kept on this node; those in use are kept always',
    default: '3',
    parse: integer(1, 1000),
  },
  CLONE_TIMEOUT: { doc: 'Longest time for a clone', default: '5m', parse: duration },
  GIT_STALL_TIMEOUT: { doc: 'How long a git server may send (nearly) nothing', default: '30s', parse: duration },
  SSH_KEY_HOSTS: {
    doc: 'Git hosts to which a builder may offer its own ssh keys and ssh agent, comma-separated; *.name for all below it',
    shown: 'none',
    parse: list,
  },
  BUILD_FRONTENDS: {
    doc: 'Dockerfile frontends (# syntax=) that a builder allows beside docker/dockerfile: image names or whole references, comma-separated',
    shown: 'none',
    parse: list,
  },
  BUILD_TIMEOUT: { doc: 'Longest time for a build and push', default: '30m', parse: duration },
  PULL_TIMEOUT: { doc: 'Longest time to pull an image', default: '10m', parse: duration },
  PIDS_LIMIT: { doc: 'Processes and threads a container may have', default: '4096', parse: integer(16) },
  LOG_MAX_SIZE: { doc: 'Size at which the engine rotates a container’s log file', default: '10m', parse: text },
  LOG_MAX_FILES: { doc: 'How many rotated log files of a container are kept', default: '3', parse: integer(1, 100) },
  BERTH_FAIL_POINTS: {
    doc: 'For tests of Berth alone: where this process kills or stops itself (docs/fail-points.md)',
    shown: 'nowhere',
    parse: failPoints,
  },
  ...LOG_SETTINGS,
} as const;

export type AgentConfig = Values<typeof AGENT_SETTINGS> & {
  /** Name to register under. */
  nodeName: string;
  /** What the tools get of our own environment, and nothing else. */
  inherit: NodeJS.ProcessEnv;
  logFormat: 'json' | 'pretty';
};

/** Where programs are found, how they get out, whom they trust. `SSH_AUTH_SOCK` is for the hosts of SSH_KEY_HOSTS. */
const INHERITED = [
  'PATH',
  'SSL_CERT_FILE',
  'SSL_CERT_DIR',
  'HTTP_PROXY',
  'HTTPS_PROXY',
  'NO_PROXY',
  'http_proxy',
  'https_proxy',
  'no_proxy',
  'SSH_AUTH_SOCK',
  'DOCKER_CERT_PATH',
  'DOCKER_TLS_VERIFY',
];

/** Throws SettingsError with every problem. */
export function readConfig(env: NodeJS.ProcessEnv = process.env): AgentConfig {
  const values = readSettings(AGENT_SETTINGS, env);
  if (values.CACHE_LOW > values.CACHE_HIGH)
    throw new SettingsError([`CACHE_LOW: must not be more than CACHE_HIGH, which is ${values.CACHE_HIGH}`]);
  if (values.PROXY_IPS !== undefined && values.PROJECT_NETWORK_POOL === null)
    throw new SettingsError(['PROXY_IPS: needs networks of projects; PROJECT_NETWORK_POOL is none']);
  if (values.PROXY_IPS !== undefined && values.PUBLISH_IP?.includes(':') === true)
    throw new SettingsError(['PUBLISH_IP: must be an IPv4 address where PROXY_IPS is set; the rule covers IPv4 only']);
  return {
    ...values,
    nodeName: values.NODE_NAME ?? hostname(),
    inherit: Object.fromEntries(INHERITED.flatMap((name) => (env[name] === undefined ? [] : [[name, env[name]]]))),
    logFormat: values.LOG_FORMAT ?? (process.stdout.isTTY ? 'pretty' : 'json'),
  };
}
