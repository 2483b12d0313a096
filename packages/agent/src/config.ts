/** Settings of the agent. docs/settings.md is generated from this table. */
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
  secrets,
  SettingsError,
  text,
  TRACE_SETTINGS,
  type Values,
} from '@berth/kit/config';
import { failPoints } from '@berth/kit/fail-point';
import type { Logger } from '@berth/kit/log';
import { createReloading, type Reloading } from '@berth/kit/reload';
import {
  isLabelKey,
  isLabelValue,
  LABEL_KEY_RULE,
  LABEL_VALUE_RULE,
  type Labels,
  MAX_LABELS,
} from '@berth/wire/machine';
import { NODE_ROLES } from '@berth/wire/vocabulary';
import { type Range, rangeOf } from './engine/networks.ts';
import type { Ports } from './engine/port-rule.ts';

/**
 * Accepts only plain characters, because the path becomes part of git’s ssh command and of an
 * option that lists files.
 */
const plainPath: Parser<string> = (t) => {
  if (!/^[\w./@+-]+$/.test(t))
    throw new Error(`must hold letters, digits and . / _ @ + - only, not "${t}"`);
  return absolutePath(t);
};
const ip: Parser<string> = (t) => {
  if (!/^[0-9A-Fa-f:.]+$/.test(t)) throw new Error(`must be an IP address, not "${t}"`);
  return t;
};
const MIN_PORTS = 100;
/**
 * Requires a minimum number of ports: with fewer, a different project would soon use a released
 * port.
 */
const portRange: Parser<Ports> = (t) => {
  const [, first = 0, last = 0] = (/^(\d{1,5})-(\d{1,5})$/.exec(t) ?? []).map(Number);
  if (first < 1024 || last > 65_535 || last - first + 1 < MIN_PORTS)
    throw new Error(
      'must be a first and a last port between 1024 and 65535 such as 20000-29999, with at ' +
        `least ${MIN_PORTS} ports, not "${t}"`,
    );
  return { first, last };
};
const bandwidth: Parser<string> = (t) => {
  if (!/^\d+(\.\d+)?[kmg]?$/i.test(t))
    throw new Error(`must be a number, optionally with k, m or g, not "${t}"`);
  return t;
};

const SIZES = { k: 1024, m: 1024 ** 2, g: 1024 ** 3 } as const;
/** Requires at least 6 MiB, the minimum of the engine. */
const memory: Parser<number> = (t) => {
  const [, number = '', unit] = /^(\d+)([kmg])?$/i.exec(t) ?? [];
  const bytes =
    Number(number) * (unit === undefined ? 1 : SIZES[unit.toLowerCase() as keyof typeof SIZES]);
  if (number === '' || bytes < 6 * SIZES.m)
    throw new Error(
      `must be a number of bytes, optionally with k, m or g, and at least 6m, not "${t}"`,
    );
  return bytes;
};
/** Parses a CIDR; returns null for `none`. */
const networkPool: Parser<{ cidr: string; range: Range } | null> = (t) => {
  if (t === 'none') return null;
  const range = rangeOf(t);
  const bits = Number(t.split('/')[1]);
  if (range === null || bits < 8 || bits > 28)
    throw new Error(
      `must be an IPv4 network from /8 to /28 such as 10.217.0.0/16, or none, not "${t}"`,
    );
  return { cidr: t, range };
};
/** Parses the address of a server without a path. */
const origin: Parser<string> = (t) => {
  const url = new URL(httpUrl(t));
  if (url.pathname !== '/' || url.search !== '' || url.username !== '')
    throw new Error(
      `must be an http or https URL without a path and a user, such as http://registry:5000`,
    );
  return url.origin;
};
/** Parses a command into an argv; no shell reads it. */
const words: Parser<string[]> = (t) => {
  const all = t.split(/\s+/).filter((word) => word !== '');
  if (all.length === 0) throw new Error('must name a command');
  return all;
};
const labels: Parser<Labels> = (t) => {
  const pairs = list(t).map((entry): [string, string] => {
    const at = entry.indexOf('=');
    if (at === -1) throw new Error(`must be name=value, separated by commas, not "${entry}"`);
    return [entry.slice(0, at).trim(), entry.slice(at + 1).trim()];
  });
  for (const [key, value] of pairs) {
    if (!isLabelKey(key)) throw new Error(`the name of a label ${LABEL_KEY_RULE}, not "${key}"`);
    if (!isLabelValue(value))
      throw new Error(`the value of the label ${key} ${LABEL_VALUE_RULE}, not "${value}"`);
  }
  const repeated = pairs.find(([key], i) => pairs.findIndex(([other]) => other === key) < i);
  if (repeated !== undefined) throw new Error(`the label ${repeated[0]} must be named only once`);
  if (pairs.length > MAX_LABELS) throw new Error(`must have at most ${MAX_LABELS} labels`);
  return Object.fromEntries(pairs);
};
const ipv4List: Parser<string[]> = (t) => {
  const wrong = list(t).filter(
    (entry) => rangeOf(entry.includes('/') ? entry : `${entry}/32`) === null,
  );
  if (wrong.length > 0)
    throw new Error(
      `must be IPv4 addresses or networks, separated by commas, not "${wrong.join(', ')}"`,
    );
  return list(t);
};

export const AGENT_SETTINGS = {
  NODE_ROLE: {
    doc: 'What this node does: builder or deploy',
    required: true,
    parse: oneOf(...NODE_ROLES),
  },
  CONTROL_PLANE_URL: {
    doc: 'Internal address of the control plane, not the public domain, e.g. http://10.0.0.1:8080',
    required: true,
    parse: httpUrl,
  },
  AGENT_SECRET: {
    doc:
      'Secret shared with the control plane, sent until the node has its own; of several, ' +
      'separated by commas, the first is sent, and the next one if it is refused',
    shown: 'none is sent',
    parse: secrets,
  },
  JOIN_TOKEN: {
    doc:
      'Token with which this machine joins once; tried before AGENT_SECRET and not needed after ' +
      'the first registration',
    shown: 'none',
    parse: (t: string) => t.trim(),
  },
  HOST_IP: {
    doc: 'Address at which the reverse proxy reaches the containers of this node',
    shown: 'the local address of a connection to CONTROL_PLANE_URL',
    parse: text,
  },
  PUBLISH_IP: {
    doc: 'Address on which the ports of containers are published',
    shown: 'all addresses',
    parse: ip,
  },
  PUBLISH_PORTS: {
    doc:
      'First and last host port for containers, at least 100 ports; the proxy must reach them. ' +
      'Outside of `ip_local_port_range`, from which the kernel and the engine take ports',
    default: '20000-29999',
    parse: portRange,
  },
  PROJECT_NETWORK_POOL: {
    doc:
      'Addresses for the project networks, a /28 for each; none: all containers use the engine’s ' +
      'default network',
    default: '10.217.0.0/16',
    parse: networkPool,
  },
  PROXY_IPS: {
    doc:
      'IPv4 addresses or networks of the reverse proxy; only they can reach published ports, and ' +
      'containers cannot reach the control plane (iptables; the agent must run as root)',
    shown: 'none: every host that reaches the node reaches the ports',
    parse: ipv4List,
  },
  FIREWALL: {
    doc:
      'auto: firewall rules keep containers of projects and build steps away from published ' +
      'ports of other projects and from the control plane, where the agent is root in the ' +
      'network of its engine; off: no rules',
    default: 'auto',
    parse: oneOf('auto', 'off'),
  },
  DEFAULT_MEMORY: {
    doc: 'Memory limit for containers of projects without one: bytes, or with k, m or g',
    shown: 'none',
    parse: memory,
  },
  NODE_NAME: {
    doc: 'Name under which the node registers; the same name and role register as the same node',
    shown: 'the host name',
    parse: text,
  },
  NODE_LABELS: {
    doc:
      'Labels of this node that projects can require, as name=value, comma-separated: ' +
      'zone=a,disk=nvme; labels that an admin sets win (docs/placement.md)',
    shown: 'none',
    parse: labels,
  },
  ALLOW_EXEC: {
    doc:
      'true: people with the right to do so may run commands in the containers of this node ' +
      '(`berth exec`) and reach their ports (`berth tunnel`), if their project allows it too ' +
      '(docs/console.md)',
    default: 'false',
    parse: oneOf('true', 'false'),
  },
  DOCKER_HOST: {
    doc: 'Address of the container engine, in the format of the docker command',
    shown: 'unix:///var/run/docker.sock',
    parse: text,
  },
  DOCKER_PLUGINS_DIR: {
    doc: 'Additional folder with plugins of the docker command (buildx)',
    shown: 'none',
    parse: absolutePath,
  },
  STATE_DIR: {
    doc: 'Folder for workspaces and credentials; each role has its own subfolder (mode 0700)',
    default: '/var/lib/berth-agent',
    parse: plainPath,
  },
  SECRETS_DIR: {
    doc:
      'Folder on tmpfs for the keys of running builds and the file secrets of containers; the ' +
      'engine must see it at the same path',
    default: '/run/berth-agent',
    parse: plainPath,
  },
  SVC_ROOT: { doc: 'Folder for the copies of datasets', default: '/svc/data', parse: absolutePath },
  DATASET_NFS_BASE_PATH: {
    doc: 'Mount point of the shared dataset storage',
    shown: 'none: no datasets on this node',
    parse: absolutePath,
  },
  CACHE_HIGH: {
    doc:
      'High watermark in percent of MAX_STORAGE: above it build cache, images and cached ' +
      'datasets are evicted (docs/clean-up.md)',
    default: '90',
    parse: integer(1, 100),
  },
  CACHE_LOW: {
    doc: 'Low watermark in percent of MAX_STORAGE: evictions stop below it',
    default: '80',
    parse: integer(1, 100),
  },
  KEEP_VERSIONS: {
    doc:
      'Number of unmounted versions of each dataset that are kept; older ones are evicted after ' +
      'a copy',
    default: '3',
    parse: integer(1, 1000),
  },
  COPY_TIMEOUT: {
    doc: 'Longest time for one copy of a dataset',
    default: '6h',
    parse: atLeast(1_000),
  },
  COPY_STALL: {
    doc: 'Longest time without progress in a copy; after it the copy fails',
    default: '60s',
    parse: atLeast(1_000),
  },
  COPIES_AT_ONCE: { doc: 'Dataset copies that run at once', default: '2', parse: integer(1, 100) },
  COPY_BANDWIDTH: {
    doc:
      'Highest bandwidth of one copy, in the format of rsync’s --bwlimit: KiB per second, or ' +
      'with k, m or g',
    shown: 'no limit',
    parse: bandwidth,
  },
  MAX_STORAGE: {
    doc: 'Bytes that datasets, images and build cache may use together on this node',
    shown: 'the size of SVC_ROOT’s file system',
    parse: integer(0),
  },
  LISTEN: {
    doc:
      'Address for /healthz, /readyz and /metrics, e.g. 127.0.0.1:7070; the pages need no login, ' +
      'so keep it private',
    shown: 'none',
    parse: listen,
  },
  MAX_BUILDS: { doc: 'Builds that run at once', default: '2', parse: integer(1, 1000) },
  KEEP_RELEASES: {
    doc:
      'Number of newest images of each project that are kept on this node, at most that of the ' +
      'control plane; images in use are always kept',
    shown: 'KEEP_RELEASES of the control plane',
    parse: integer(1, 1000),
  },
  REGISTRY_CONFIG: {
    doc:
      'Configuration file of the image registry on this machine: this agent cleans the registry ' +
      '(docs/clean-up.md)',
    shown: 'none: this agent does not clean the registry',
    parse: absolutePath,
  },
  REGISTRY_CONTAINER: {
    doc: 'Container of the registry, with REGISTRY_CONFIG at the same path inside',
    shown: 'none: the registry is a program on this machine',
    parse: text,
  },
  REGISTRY_RESTART: {
    doc:
      'Command that restarts the registry, in words separated by spaces; not used with ' +
      'REGISTRY_CONTAINER',
    default: 'systemctl restart berth-registry.service',
    parse: words,
  },
  REGISTRY_URL: {
    doc:
      'Address at which this agent reaches the registry (to clean it, and to ask for images), ' +
      'where REGISTRY_ADDR leads elsewhere: in a container, for example http://registry:5000',
    shown: 'REGISTRY_ADDR',
    parse: origin,
  },
  CLONE_TIMEOUT: { doc: 'Longest time for a clone', default: '5m', parse: duration },
  GIT_STALL_TIMEOUT: {
    doc: 'Longest stall of a git server; over http a stall is less than 1,000 bytes per second',
    default: '30s',
    parse: duration,
  },
  KEYS_DIR: {
    doc: 'Deprecated: folder on tmpfs for the keys of running builds; use SECRETS_DIR',
    shown: 'SECRETS_DIR',
    parse: plainPath,
  },
  SSH_KEY_HOSTS: {
    doc:
      'Git hosts to which a builder may offer its own ssh keys and ssh agent if the project has ' +
      'no deploy key, comma-separated; *.name for all subdomains',
    shown: 'none',
    parse: list,
  },
  BUILD_FRONTENDS: {
    doc:
      'Dockerfile frontends (# syntax=) allowed besides docker/dockerfile: image names or full ' +
      'references, comma-separated',
    shown: 'none',
    parse: list,
  },
  BUILD_BASE_IMAGES: {
    doc:
      'Repositories of Berth’s registry that the Dockerfiles of all projects may use, ' +
      'comma-separated; registry.example.com/base/* for all below; otherwise a build uses only ' +
      'the repository of its own project',
    shown: 'none',
    parse: list,
  },
  BUILD_TIMEOUT: { doc: 'Longest time for a build and push', default: '30m', parse: duration },
  PULL_TIMEOUT: { doc: 'Longest time to pull an image', default: '10m', parse: duration },
  PIDS_LIMIT: {
    doc: 'Processes and threads that one container may have',
    default: '4096',
    parse: integer(16),
  },
  LOG_MAX_SIZE: {
    doc: 'Size at which the engine rotates a container’s log file',
    default: '10m',
    parse: text,
  },
  LOG_MAX_FILES: {
    doc: 'Number of rotated log files that are kept for a container',
    default: '3',
    parse: integer(1, 100),
  },
  BERTH_FAIL_POINTS: {
    doc:
      'For tests of Berth only: the points at which this process kills or stops itself ' +
      '(docs/fail-points.md)',
    shown: 'nowhere',
    parse: failPoints,
  },
  ...LOG_SETTINGS,
  ...TRACE_SETTINGS,
} as const;

export type AgentOptions = Values<typeof AGENT_SETTINGS> & {
  /** Name under which the node registers. */
  nodeName: string;
  /** The only environment variables that the agent's tools receive. */
  inherit: NodeJS.ProcessEnv;
  logFormat: 'json' | 'pretty';
};

/**
 * Variables for tools: search path, proxies and trusted certificates. `SSH_AUTH_SOCK` is used only
 * for the hosts of SSH_KEY_HOSTS.
 */
const INHERITED = [
  'PATH',
  'SSL_CERT_FILE',
  'SSL_CERT_DIR',
  // Debian's git does not read SSL_CERT_FILE.
  'GIT_SSL_CAINFO',
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

/** Reads the settings files again at SIGHUP. Call this before `readConfig`. */
export const reloading = (
  logger: () => Logger,
  env: NodeJS.ProcessEnv = process.env,
): Reloading<typeof AGENT_SETTINGS> => createReloading(AGENT_SETTINGS, env, logger);

/** Reads all settings. Throws SettingsError that lists every problem. */
export function readConfig(env: NodeJS.ProcessEnv = process.env): AgentOptions {
  const values = readSettings(AGENT_SETTINGS, env);
  if (values.CACHE_LOW > values.CACHE_HIGH)
    throw new SettingsError([
      `CACHE_LOW: must not exceed CACHE_HIGH, which is ${values.CACHE_HIGH}`,
    ]);
  if (values.PROXY_IPS !== undefined && values.FIREWALL === 'off')
    throw new SettingsError(['FIREWALL: must be auto if PROXY_IPS is set']);
  if (values.PROXY_IPS !== undefined && values.PROJECT_NETWORK_POOL === null)
    throw new SettingsError([
      'PROXY_IPS: needs project networks, but PROJECT_NETWORK_POOL is none; set ' +
        'PROJECT_NETWORK_POOL',
    ]);
  if (values.PROXY_IPS !== undefined && values.PUBLISH_IP?.includes(':') === true)
    throw new SettingsError([
      'PUBLISH_IP: must be an IPv4 address if PROXY_IPS is set, because the firewall rules ' +
        'cover IPv4 only',
    ]);
  return {
    ...values,
    nodeName: values.NODE_NAME ?? hostname(),
    inherit: Object.fromEntries(
      INHERITED.flatMap((name) => (env[name] === undefined ? [] : [[name, env[name]]])),
    ),
    logFormat: values.LOG_FORMAT ?? (process.stdout.isTTY ? 'pretty' : 'json'),
  };
}
