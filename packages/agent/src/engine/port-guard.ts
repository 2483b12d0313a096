/**
 * Keeps the firewall rules in force (port-rule.ts). With PROXY_IPS they are a promise: /readyz is
 * 503 without them. Without PROXY_IPS they are an attempt: they need root and the network of the
 * engine, and where the agent lacks one, /readyz has a note.
 */
import { lookup } from 'node:dns/promises';
import { readFile } from 'node:fs/promises';
import { isIPv4 } from 'node:net';
import { networkInterfaces } from 'node:os';
import type { Logger } from '@berth/kit/log';
import { messageOf } from '@berth/kit/message-of';
import { LABELS, type NodeRole } from '@berth/wire/vocabulary';
import {
  type ControlPlaneAddress,
  createBuildRule,
  createPortRule,
  enginePorts,
  iptablesOf,
  type PortRule,
  type Ports,
} from './port-rule.ts';
import type { Range } from './networks.ts';
import type { DockerNetworks } from './docker-networks.ts';

export type PortGuard = {
  /**
   * Adds the rules if they are missing: a reload of the firewall removes them. `now`: also if it
   * looked a moment ago.
   */
  guard(now?: boolean): Promise<void>;
  /**
   * Takes over the addresses of the nodes with published ports. The next guard closes them for
   * containers of this node. Null: no rules.
   */
  knows: ((neighbours: readonly string[]) => void) | null;
  /** Why the rules of PROXY_IPS are not in force; null if they are, or if it is not set. */
  problem(): string | null;
  /** Facts about published ports that an operator should know. */
  notes(): string[];
};
/** The settings of the agent that decide about the rules. */
export type PortGuardSettings = {
  NODE_ROLE: NodeRole;
  CONTROL_PLANE_URL: string;
  FIREWALL: 'auto' | 'off';
  PROXY_IPS?: readonly string[] | undefined;
  PROJECT_NETWORK_POOL: { cidr: string; range: Range } | null;
  PUBLISH_IP?: string | undefined;
  PUBLISH_PORTS: Ports;
  inherit: NodeJS.ProcessEnv;
};
export type PortGuardDeps = {
  docker: Pick<DockerNetworks, 'list' | 'defaultNetwork'>;
  /** The agent’s id, which marks its networks. */
  owner: string;
  log: Logger;
  /** For tests. */
  run?: Parameters<typeof createPortRule>[0]['run'];
  isRoot?: boolean;
  interfaces?: () => Promise<ReadonlySet<string>>;
  kernelPorts?: () => Promise<Ports>;
  clock?: () => number;
  engineMs?: number;
};

/**
 * At these ports a reverse proxy serves all projects, at the same address: no rule may cut
 * containers off from them.
 */
const SHARED_PORTS = [80, 443];
/** Without PROXY_IPS, the agent checks the rules once in this time. */
const PERIOD_MS = 10_000;
const ENGINE_MS = 5_000;

export async function createPortGuard(
  config: PortGuardSettings,
  deps: PortGuardDeps,
): Promise<PortGuard> {
  const {
    docker,
    owner,
    log,
    run = iptablesOf(config.inherit),
    isRoot = process.getuid?.() === 0,
  } = deps;
  const {
    interfaces = interfacesHere,
    kernelPorts = enginePorts,
    clock = () => performance.now(),
    engineMs = ENGINE_MS,
  } = deps;
  const {
    NODE_ROLE: role,
    PROXY_IPS: proxies,
    PROJECT_NETWORK_POOL: pool,
    PUBLISH_PORTS: own,
  } = config;
  const isDeploy = role === 'deploy';
  const engine = await kernelPorts();
  const ports = [engine, own];
  const common = isDeploy ? [...openPorts(config), ...overlap(own, engine)] : [];
  const none: PortGuard = {
    guard: async () => undefined,
    knows: null,
    problem: () => null,
    notes: () => common,
  };
  if (config.FIREWALL === 'off' || (isDeploy && pool === null)) return none;

  let problem: string | null = null;
  /** Bridge of build steps, if nothing else uses it. */
  let builds: string | null = null;
  let isShared = false;
  let sharesNetwork = false;
  let neighbours: readonly string[] = [];
  let lookedAt = Number.NEGATIVE_INFINITY;
  let rule: { of: string; rule: PortRule } | null = null;
  /** The last known ones stay while the name cannot be resolved. */
  let controlPlane: readonly ControlPlaneAddress[] = [];

  async function present(): Promise<PortRule> {
    controlPlane = await controlPlaneAddresses(config.CONTROL_PLANE_URL).catch(() => controlPlane);
    const here = addressesHere();
    const targets = {
      ports,
      controlPlane,
      neighbours: neighbours.filter((ip) => !here.has(ip)),
      builds,
      run,
    };
    const of = JSON.stringify([controlPlane, targets.neighbours, builds]);
    if (rule?.of !== of) {
      const made = isDeploy
        ? createPortRule({ ...targets, pool: pool?.cidr ?? '', proxies: proxies ?? null })
        : createBuildRule(targets);
      rule = { of, rule: made };
    }
    return rule.rule;
  }

  /**
   * Without root or the engine's network, the rules would have no effect, or one on another
   * machine's network.
   */
  async function whyNot(stopping: AbortSignal): Promise<string | null> {
    if (!isRoot) return 'the agent does not run as root';
    if (proxies !== undefined) return null;
    const found = await docker.defaultNetwork(stopping);
    isShared = found?.isShared ?? false;
    builds = isShared ? null : (found?.bridge ?? null);
    if (sharesNetwork) return null;
    const bridges = isDeploy
      ? (await docker.list(stopping))
          .filter(({ labels }) => labels[LABELS.network] === owner)
          .map(({ id }) => `br-${id.slice(0, 12)}`)
      : [found?.bridge ?? ''];
    const here = await interfaces();
    sharesNetwork = bridges.some((bridge) => here.has(bridge));
    return sharesNetwork ? null : NO_NETWORK;
  }
  /** A deploy node without a project network has no port to protect. */
  const hasNoNetworkYet = async (stopping: AbortSignal): Promise<boolean> =>
    isDeploy &&
    proxies === undefined &&
    !sharesNetwork &&
    !(await docker.list(stopping)).some(({ labels }) => labels[LABELS.network] === owner);

  async function look(): Promise<string | null> {
    let why: string | null;
    try {
      // An engine that hangs must not delay registrations.
      const stopping = AbortSignal.timeout(engineMs);
      if (await hasNoNetworkYet(stopping)) return null;
      why = await whyNot(stopping);
    } catch {
      // The engine does not answer, which /readyz says anyway, and which changes no rule.
      return problem;
    }
    try {
      return why ?? (await (await present()).ensure());
    } catch (error) {
      return messageOf(error);
    }
  }

  return {
    problem: () => (proxies === undefined ? null : problem),
    knows: (addresses) => void (neighbours = addresses.filter(isIPv4).toSorted()),
    notes() {
      const found = [...common];
      if (proxies !== undefined) return found;
      const who = isDeploy ? 'containers of projects and build steps' : 'build steps';
      const reach = 'reach the published ports of projects and the control plane';
      if (problem !== null)
        found.push(`${who} ${reach}, because ${problem} (PROXY_IPS is not set)`);
      else if (isShared)
        found.push(
          `build steps ${reach}, because other containers use the engine’s default network too ` +
            '(PROXY_IPS is not set)',
        );
      return found;
    },
    async guard(now = false) {
      if (proxies === undefined && !now && clock() - lookedAt < PERIOD_MS) return;
      lookedAt = clock();
      const found = await look();
      if (found !== null && found !== problem) {
        if (proxies === undefined)
          log.warn(
            { problem: found },
            'no firewall rules between projects: their containers reach published ports',
          );
        else
          log.error(
            { problem: found },
            'adding the firewall rules of PROXY_IPS failed: every host can reach published ports',
          );
      }
      problem = found;
    },
  };
}

const NO_NETWORK = 'the agent does not run in the network of its engine';

function openPorts({ PROXY_IPS, PUBLISH_IP }: PortGuardSettings): string[] {
  if (PROXY_IPS !== undefined || PUBLISH_IP !== undefined) return [];
  return [
    'PROXY_IPS and PUBLISH_IP are not set: every machine that reaches this node reaches the ' +
      'ports of its projects, past their login',
  ];
}

function overlap(own: Ports, kernel: Ports): string[] {
  if (own.last < kernel.first || own.first > kernel.last) return [];
  return [
    `PUBLISH_PORTS (${own.first}-${own.last}) and net.ipv4.ip_local_port_range ` +
      `(${kernel.first}-${kernel.last}) overlap: a connection may take the port of a container ` +
      'that restarts; change one of them',
  ];
}

const addressesHere = (): Set<string> =>
  new Set(
    Object.values(networkInterfaces()).flatMap((all) => (all ?? []).map(({ address }) => address)),
  );

/** Names of the network interfaces that this process sees, also of those that are down. */
async function interfacesHere(): Promise<ReadonlySet<string>> {
  const text = await readFile('/proc/self/net/dev', 'utf8');
  return new Set(text.split('\n').flatMap((line) => /^\s*([^:\s]+):/.exec(line)?.[1] ?? []));
}

/**
 * Returns the IPv4 addresses of CONTROL_PLANE_URL that a container can reach. Rejects if its name
 * cannot be resolved.
 */
export async function controlPlaneAddresses(url: string): Promise<ControlPlaneAddress[]> {
  const { hostname, port: given, protocol } = new URL(url);
  const port = given === '' ? (protocol === 'https:' ? 443 : 80) : Number(given);
  if (SHARED_PORTS.includes(port) || hostname.startsWith('[')) return [];
  const own = addressesHere();
  const found = [
    ...new Set((await lookup(hostname, { all: true, family: 4 })).map(({ address }) => address)),
  ].sort();
  return found.map((ip) => ({ ip, port, here: own.has(ip) || ip.startsWith('127.') }));
}
