/**
 * Manages firewall rules (iptables) for the published ports of projects and for the control plane.
 * Two paths lead to a published port:
 *
 *   from other machines   the engine rewrites the address,
 *                         then FORWARD ─ DOCKER-USER ─ BERTH-PUBLISHED
 *   from any container    to an address of the node itself: INPUT ─ BERTH-LOCAL,
 *                         then the engine's docker-proxy
 *
 * With PROXY_IPS, the rules let only the reverse proxy pass. Without PROXY_IPS, they block only
 * containers of projects and build steps, because no reverse proxy runs there. The agent's own
 * probe comes from the node itself, and neither chain blocks it.
 *
 *   BERTH-CONTROL   on both paths: blocks containers of projects from the control plane, and from
 *                   published ports of other nodes
 *   BERTH-BUILDS    the same for build steps, created by the agent of a builder
 */
import { readFile } from 'node:fs/promises';
import { defined } from '@berth/kit/defined';
import { exec } from '@berth/kit/exec';
import { messageOf } from '@berth/kit/message-of';

/** Runs one command of the iptables family to its end. */
export type RunIptables = (
  argv: readonly string[],
  stdin?: string,
) => Promise<{ code: number | null; stdout: string; stderr: string }>;

export type PortRule = {
  /** Adds the rules if they are missing. Returns the error, or null. */
  ensure(): Promise<string | null>;
};

export type Ports = { first: number; last: number };

/**
 * `here`: the address belongs to this node. A container can then reach the port at every address of
 * the node, including its gateway.
 */
export type ControlPlaneAddress = { ip: string; port: number; here: boolean };

const PUBLISHED = 'BERTH-PUBLISHED';
const LOCAL = 'BERTH-LOCAL';
const CONTROL = 'BERTH-CONTROL';
const BUILDS = 'BERTH-BUILDS';
const WAIT = ['-w', '5'];

/**
 * Returns the range from which the engine chooses host ports for containers that request none
 * (contract-only agents, older versions of Berth): the kernel’s range for outgoing connections.
 */
export async function enginePorts(path = '/proc/sys/net/ipv4/ip_local_port_range'): Promise<Ports> {
  const [first = 32_768, last = 60_999] = (await readFile(path, 'utf8'))
    .trim()
    .split(/\s+/)
    .map(Number);
  return { first, last };
}

export const iptablesOf =
  (inherit: NodeJS.ProcessEnv): RunIptables =>
  (argv, stdin) =>
    exec(argv, {
      env: { ...inherit, LC_ALL: 'C' },
      timeoutMs: 15_000,
      ...defined({ stdin }),
    });

export type Targets = {
  /** The ranges that contain published ports, on this node and on other nodes. */
  ports: readonly Ports[];
  controlPlane: readonly ControlPlaneAddress[];
  /** IPv4 addresses of other nodes with published ports. */
  neighbours: readonly string[];
};
export type PortRuleOptions = Targets & {
  /** Addresses of all project networks, in CIDR notation. */
  pool: string;
  /** IPv4 addresses or networks of the proxies; null if unknown. */
  proxies: readonly string[] | null;
  /**
   * The bridge of build steps if no other container uses it, else null. Used only if the proxies
   * are unknown.
   */
  builds: string | null;
  run: RunIptables;
};
export type BuildRuleOptions = Targets & { builds: string | null; run: RunIptables };

type Plan = { chains: Record<string, readonly string[]>; jumps: readonly (readonly string[])[] };

// Lets packets of existing connections pass.
const ESTABLISHED = '-m conntrack --ctstate RELATED,ESTABLISHED -j RETURN';

/** Returns rules for traffic that leaves a container. */
const forbidden = ({ ports, controlPlane, neighbours }: Targets): string[] => [
  // A client of the container can have a source port in this range: let the answers to it pass.
  ...(neighbours.length === 0 ? [] : [ESTABLISHED]),
  // The engine might have rewritten the address, so compare the address that the container called.
  ...controlPlane.flatMap(({ ip, port, here }) => [
    `-p tcp -m conntrack --ctorigdst ${ip} --ctorigdstport ${port} -j DROP`,
    ...(here ? [`-p tcp -m tcp --dport ${port} -m addrtype --dst-type LOCAL -j DROP`] : []),
  ]),
  ...neighbours.flatMap((ip) =>
    ports.map((range) => `-d ${ip} -p tcp -m tcp --dport ${range.first}:${range.last} -j DROP`),
  ),
];

/** Creates the rules of a deploy node. */
export function createPortRule(options: PortRuleOptions): PortRule {
  const { pool, proxies, builds, ports } = options;
  const allowed = (proxies ?? []).map((proxy) => `-s ${proxy} -j RETURN`);
  const steps = builds === null ? [] : [`-i ${builds} -j DROP`];
  return createRule(options.run, {
    chains: {
      [PUBLISHED]: [
        ESTABLISHED,
        // Traffic inside one project passes here; the engine itself blocks traffic between
        // projects.
        `-s ${pool} -m conntrack ! --ctstate DNAT -j RETURN`,
        ...(proxies === null ? [`-s ${pool} -j DROP`, ...steps] : [...allowed, '-j DROP']),
      ],
      [LOCAL]: [
        ESTABLISHED,
        // The engine names its bridges docker0 and br-{id}.
        ...(proxies === null
          ? [`-s ${pool} -j DROP`, ...steps]
          : [...allowed, '-i docker0 -j DROP', '-i br-+ -j DROP']),
      ],
      [CONTROL]: forbidden(options),
    },
    jumps: [
      ['DOCKER-USER', '-d', pool, '-j', PUBLISHED],
      ...ports.map(({ first, last }) => [
        'INPUT',
        '-p',
        'tcp',
        '--dport',
        `${first}:${last}`,
        '-j',
        LOCAL,
      ]),
      ['DOCKER-USER', '-s', pool, '-j', CONTROL],
      ['INPUT', '-s', pool, '-j', CONTROL],
    ],
  });
}

/**
 * Creates the rules of a builder. Does nothing if build steps share their bridge with containers.
 */
export function createBuildRule({ builds, run, ...targets }: BuildRuleOptions): PortRule {
  return createRule(run, {
    chains: { [BUILDS]: builds === null ? [] : forbidden(targets) },
    jumps:
      builds === null
        ? []
        : ['DOCKER-USER', 'INPUT'].map((chain) => [chain, '-i', builds, '-j', BUILDS]),
  });
}

function createRule(run: RunIptables, { chains, jumps }: Plan): PortRule {
  /** The rules as iptables prints them, which differs from the input format. */
  let shown: string | null = null;
  const show = async (): Promise<string> =>
    (await Promise.all(Object.keys(chains).map((chain) => run(['iptables', ...WAIT, '-S', chain]))))
      .map(({ stdout }) => stdout)
      .join('');
  const isThere = async (jump: readonly string[]): Promise<boolean> =>
    (await run(['iptables', ...WAIT, '-C', ...jump])).code === 0;

  async function apply(): Promise<string | null> {
    // iptables-restore applies all chains at once, so a chain is never incomplete.
    const heads = Object.keys(chains).map((chain) => `:${chain} - [0:0]\n`);
    const rules = Object.entries(chains).flatMap(([chain, list]) =>
      list.map((rule) => `-A ${chain} ${rule}\n`),
    );
    const restored = await run(
      ['iptables-restore', ...WAIT, '--noflush'],
      `*filter\n${heads.join('')}${rules.join('')}COMMIT\n`,
    );
    if (restored.code !== 0) return restored.stderr.trim();
    for (const jump of jumps) {
      if (await isThere(jump)) continue;
      const [chain = '', ...rule] = jump;
      const added = await run(['iptables', ...WAIT, '-I', chain, '1', ...rule]);
      if (added.code !== 0) return added.stderr.trim();
    }
    shown = await show();
    return null;
  }
  const inForce = async (): Promise<boolean> =>
    shown !== null &&
    (await Promise.all(jumps.map(isThere))).every(Boolean) &&
    (await show()) === shown;

  return {
    async ensure() {
      try {
        return (await inForce()) ? null : await apply();
      } catch (error) {
        return messageOf(error);
      }
    },
  };
}
