/**
 * Keeps the firewall rules in force (port-rule.ts). With PROXY_IPS the rules are required: without
 * them, /readyz is 503. Without PROXY_IPS they are best effort: they need root and the network of
 * the engine, and /readyz has a note where one is missing.
 */
import { lookup } from 'node:dns/promises';
import { readFile } from 'node:fs/promises';
import { isIPv4 } from 'node:net';
import { networkInterfaces } from 'node:os';
import type { Logger } from '@berth/kit/log';
import { messageOf } from '@berth/kit/message-of';
import type { OperatorNote } from '@berth/wire/system';
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
   * Adds the rules if they are missing, for example after a reload of the firewall. `now`: checks
   * also if the last check was a moment ago.
   */
  guard(now?: boolean): Promise<void>;
  /**
   * Sets the addresses of the nodes with published ports. The next guard blocks these addresses for
   * containers of this node. Null if the agent keeps no rules.
   */
  knows: ((neighbours: readonly string[]) => void) | null;
  /**
   * Returns why the rules of PROXY_IPS are not in force; null if they are, or if PROXY_IPS is not
   * set.
   */
  problem(): string | null;
  /** Returns warnings about published ports for the operator. */
  notes(): OperatorNote[];
};
/** The settings of the agent that the rules depend on. */
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
  /** Replaced by tests. */
  run?: Parameters<typeof createPortRule>[0]['run'];
  isRoot?: boolean;
  interfaces?: () => Promise<ReadonlySet<string>>;
  kernelPorts?: () => Promise<Ports>;
  clock?: () => number;
  engineMs?: number;
};

/**
 * On these ports of the control plane's address, a reverse proxy also serves all projects, so the
 * rules must not block them for containers.
 */
const SHARED_PORTS = [80, 443];
/** Minimum time in ms between two checks of the rules without PROXY_IPS. */
const PERIOD_MS = 10_000;
const ENGINE_MS = 5_000;

export async function createPortGuard(
  config: PortGuardSettings,
  deps: PortGuardDeps,
): Promise<PortGuard> {
  const guard = newGuard(config, deps, await (deps.kernelPorts ?? enginePorts)());
  const isOff =
    config.FIREWALL === 'off' || (guard.isDeploy && config.PROJECT_NETWORK_POOL === null);
  if (isOff)
    return {
      guard: async () => undefined,
      knows: null,
      problem: () => null,
      notes: () => [...guard.settingNotes],
    };
  return {
    problem: () => (config.PROXY_IPS === undefined ? null : guard.problem),
    knows: (addresses) => void (guard.neighbours = addresses.filter(isIPv4).toSorted()),
    notes: () => notesOf(guard),
    guard: (now = false) => keepRules(guard, now),
  };
}

/** State of one agent's guard. The first fields never change. */
type Guard = {
  config: PortGuardSettings;
  docker: PortGuardDeps['docker'];
  owner: string;
  log: Logger;
  run: NonNullable<PortGuardDeps['run']>;
  isRoot: boolean;
  interfaces: () => Promise<ReadonlySet<string>>;
  clock: () => number;
  engineMs: number;
  isDeploy: boolean;
  /** Port ranges of the engine and of the agent. Ports in them must be protected. */
  ports: readonly Ports[];
  /** Notes that depend only on the settings. */
  settingNotes: readonly OperatorNote[];

  /** Why the rules are not in force; null if they are. */
  problem: string | null;
  /** Bridge of build steps; null if containers use the bridge too. */
  builds: string | null;
  isShared: boolean;
  sharesNetwork: boolean;
  neighbours: readonly string[];
  lookedAt: number;
  /** The rule in force, with the targets from which it was built. */
  rule: { targets: string; rule: PortRule } | null;
  /** The last resolved addresses, which stay in use while the name cannot be resolved. */
  controlPlane: readonly ControlPlaneAddress[];
};

function newGuard(config: PortGuardSettings, deps: PortGuardDeps, engine: Ports): Guard {
  const isDeploy = config.NODE_ROLE === 'deploy';
  const own = config.PUBLISH_PORTS;
  return {
    config,
    docker: deps.docker,
    owner: deps.owner,
    log: deps.log,
    run: deps.run ?? iptablesOf(config.inherit),
    isRoot: deps.isRoot ?? process.getuid?.() === 0,
    interfaces: deps.interfaces ?? interfacesHere,
    clock: deps.clock ?? (() => performance.now()),
    engineMs: deps.engineMs ?? ENGINE_MS,
    isDeploy,
    ports: [engine, own],
    settingNotes: isDeploy ? [...openPorts(config), ...overlap(own, engine)] : [],
    problem: null,
    builds: null,
    isShared: false,
    sharesNetwork: false,
    neighbours: [],
    lookedAt: Number.NEGATIVE_INFINITY,
    rule: null,
    controlPlane: [],
  };
}

async function keepRules(guard: Guard, now: boolean): Promise<void> {
  const { config, log, clock } = guard;
  if (config.PROXY_IPS === undefined && !now && clock() - guard.lookedAt < PERIOD_MS) return;
  guard.lookedAt = clock();
  const problem = await addMissingRules(guard);
  if (problem !== null && problem !== guard.problem) {
    if (config.PROXY_IPS === undefined)
      log.warn(
        { problem },
        'no firewall rules between projects: their containers reach published ports',
      );
    else
      log.error(
        { problem },
        'adding the firewall rules of PROXY_IPS failed: every host can reach published ports',
      );
  }
  guard.problem = problem;
}

/** Adds missing rules. Returns why the rules are not in force, or null. */
async function addMissingRules(guard: Guard): Promise<string | null> {
  let obstacle: string | null;
  try {
    // An engine that hangs must not delay registrations.
    const stopping = AbortSignal.timeout(guard.engineMs);
    if (await hasNoNetworkYet(guard, stopping)) return null;
    obstacle = await obstacleOf(guard, stopping);
  } catch {
    // The engine does not answer: /readyz reports this already, and the rules stay the same.
    return guard.problem;
  }
  try {
    return obstacle ?? (await (await currentRule(guard)).ensure());
  } catch (error) {
    return messageOf(error);
  }
}

/** A deploy node without a project network has no port to protect. */
async function hasNoNetworkYet(guard: Guard, stopping: AbortSignal): Promise<boolean> {
  if (!guard.isDeploy || guard.config.PROXY_IPS !== undefined || guard.sharesNetwork) return false;
  return (await ownNetworks(guard, stopping)).length === 0;
}

const ownNetworks = async ({ docker, owner }: Guard, stopping: AbortSignal) =>
  (await docker.list(stopping)).filter(({ labels }) => labels[LABELS.network] === owner);

/**
 * Returns why the rules could not take effect, or null. Without root the rules cannot be set. In a
 * network namespace that is not the engine's, they would have no effect, or affect the wrong
 * machine.
 */
async function obstacleOf(guard: Guard, stopping: AbortSignal): Promise<string | null> {
  if (!guard.isRoot) return 'the agent does not run as root';
  if (guard.config.PROXY_IPS !== undefined) return null;
  const network = await guard.docker.defaultNetwork(stopping);
  guard.isShared = network?.isShared ?? false;
  guard.builds = guard.isShared ? null : (network?.bridge ?? null);
  if (guard.sharesNetwork) return null;
  const bridges = guard.isDeploy
    ? (await ownNetworks(guard, stopping)).map(({ id }) => `br-${id.slice(0, 12)}`)
    : [network?.bridge ?? ''];
  const here = await guard.interfaces();
  guard.sharesNetwork = bridges.some((bridge) => here.has(bridge));
  return guard.sharesNetwork ? null : NO_NETWORK;
}

/** Returns the rule for the current addresses; builds a new rule only if they changed. */
async function currentRule(guard: Guard): Promise<PortRule> {
  const { config, builds, run } = guard;
  guard.controlPlane = await controlPlaneAddresses(config.CONTROL_PLANE_URL).catch(
    () => guard.controlPlane,
  );
  const { controlPlane } = guard;
  const here = addressesHere();
  const neighbours = guard.neighbours.filter((ip) => !here.has(ip));
  const targets = JSON.stringify([controlPlane, neighbours, builds]);
  if (guard.rule?.targets === targets) return guard.rule.rule;
  const options = { ports: guard.ports, controlPlane, neighbours, builds, run };
  const rule = guard.isDeploy
    ? createPortRule({
        ...options,
        pool: config.PROJECT_NETWORK_POOL?.cidr ?? '',
        proxies: config.PROXY_IPS ?? null,
      })
    : createBuildRule(options);
  guard.rule = { targets, rule };
  return rule;
}

function notesOf({ config, settingNotes, isDeploy, isShared, problem }: Guard): OperatorNote[] {
  if (config.PROXY_IPS !== undefined) return [...settingNotes];
  const who = isDeploy ? 'containers of projects and build steps' : 'build steps';
  const reach = 'reach the published ports of projects and the control plane';
  if (problem !== null)
    return [...settingNotes, missing(`${who} ${reach}, because ${problem} (PROXY_IPS is not set)`)];
  if (!isShared) return [...settingNotes];
  return [
    ...settingNotes,
    missing(
      `build steps ${reach}, because other containers use the engine’s default network too ` +
        '(PROXY_IPS is not set)',
    ),
  ];
}

const missing = (text: string): OperatorNote => ({ kind: 'setting_missing', text });

const NO_NETWORK = 'the agent does not run in the network of its engine';

function openPorts({ PROXY_IPS, PUBLISH_IP }: PortGuardSettings): OperatorNote[] {
  if (PROXY_IPS !== undefined || PUBLISH_IP !== undefined) return [];
  return [
    missing(
      'PROXY_IPS and PUBLISH_IP are not set: every machine that reaches this node reaches the ' +
        'ports of its projects, past their login',
    ),
  ];
}

function overlap(own: Ports, kernel: Ports): OperatorNote[] {
  if (own.last < kernel.first || own.first > kernel.last) return [];
  const text =
    `PUBLISH_PORTS (${own.first}-${own.last}) and net.ipv4.ip_local_port_range ` +
    `(${kernel.first}-${kernel.last}) overlap: a connection may take the port of a container ` +
    'that restarts; change one of them';
  return [{ kind: 'other', text }];
}

const addressesHere = (): Set<string> =>
  new Set(
    Object.values(networkInterfaces()).flatMap((all) => (all ?? []).map(({ address }) => address)),
  );

/** Returns the names of the network interfaces that this process sees, up or down. */
async function interfacesHere(): Promise<ReadonlySet<string>> {
  const text = await readFile('/proc/self/net/dev', 'utf8');
  return new Set(text.split('\n').flatMap((line) => /^\s*([^:\s]+):/.exec(line)?.[1] ?? []));
}

/**
 * Returns the IPv4 addresses of CONTROL_PLANE_URL that a container can reach. Rejects if its name
 * cannot be resolved.
 */
export async function controlPlaneAddresses(url: string): Promise<ControlPlaneAddress[]> {
  const { hostname, port: explicitPort, protocol } = new URL(url);
  const defaultPort = protocol === 'https:' ? 443 : 80;
  const port = explicitPort === '' ? defaultPort : Number(explicitPort);
  if (SHARED_PORTS.includes(port) || hostname.startsWith('[')) return [];
  const own = addressesHere();
  const resolved = await lookup(hostname, { all: true, family: 4 });
  const addresses = [...new Set(resolved.map(({ address }) => address))].sort();
  return addresses.map((ip) => ({ ip, port, here: own.has(ip) || ip.startsWith('127.') }));
}
