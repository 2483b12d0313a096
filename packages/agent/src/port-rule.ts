/**
 * Firewall rules (iptables) that let only the reverse proxy reach the published ports of projects, and keep containers of projects
 * away from the control plane. Off unless PROXY_IPS is set. Two paths lead to a published port:
 *
 *   from other machines   the engine rewrites the address, then FORWARD ─ DOCKER-USER ─ BERTH-PUBLISHED
 *   from any container    to an address of the node itself: INPUT ─ BERTH-LOCAL, then the engine's docker-proxy
 *
 * The agent's own probe comes from the node itself, and neither chain stops it. BERTH-CONTROL is on both paths.
 */
import { readFile } from 'node:fs/promises';
import { exec } from '@berth/kit/exec';

/** Runs one command of the iptables family to its end. */
export type RunIptables = (argv: readonly string[], stdin?: string) => Promise<{ code: number | null; stdout: string; stderr: string }>;

export type PortRule = {
  /** Adds the rules if they are missing. Returns the error, or null. */
  ensure(): Promise<string | null>;
};

export type Ports = { first: number; last: number };

/** `here`: the address belongs to this node. Then a container reaches the port at every address of the node, as its gateway too. */
export type ControlPlaneAddress = { ip: string; port: number; here: boolean };

const PUBLISHED = 'BERTH-PUBLISHED';
const LOCAL = 'BERTH-LOCAL';
const CONTROL = 'BERTH-CONTROL';
const WAIT = ['-w', '5'];

/** The range from which the engine chooses host ports: the kernel’s range for outgoing connections. */
export async function enginePorts(path = '/proc/sys/net/ipv4/ip_local_port_range'): Promise<Ports> {
  const [first = 32_768, last = 60_999] = (await readFile(path, 'utf8')).trim().split(/\s+/).map(Number);
  return { first, last };
}

export const iptablesOf =
  (inherit: NodeJS.ProcessEnv): RunIptables =>
  (argv, stdin) =>
    exec(argv, { env: { ...inherit, LC_ALL: 'C' }, timeoutMs: 15_000, ...(stdin === undefined ? {} : { stdin }) });

export type PortRuleOptions = {
  /** Addresses of all project networks, as CIDR. */
  pool: string;
  /** IPv4 addresses or networks. */
  proxies: readonly string[];
  /** The range that holds the published ports. */
  ports: Ports;
  /** Containers of projects cannot open connections to these. */
  controlPlane: readonly ControlPlaneAddress[];
  run: RunIptables;
};

export function createPortRule({ pool, proxies, ports, controlPlane, run }: PortRuleOptions): PortRule {
  // Packets of existing connections pass.
  const established = '-m conntrack --ctstate RELATED,ESTABLISHED -j RETURN';
  const allowed = proxies.map((proxy) => `-s ${proxy} -j RETURN`);
  const chains: Record<string, readonly string[]> = {
    // Traffic inside one project passes; the engine itself blocks traffic between projects.
    [PUBLISHED]: [established, `-s ${pool} -m conntrack ! --ctstate DNAT -j RETURN`, ...allowed, '-j DROP'],
    // The engine names its bridges docker0 and br-{id}.
    [LOCAL]: [established, ...allowed, '-i docker0 -j DROP', '-i br-+ -j DROP'],
    // The engine may have rewritten the address, so the rule compares the one that the container called.
    [CONTROL]: controlPlane.flatMap(({ ip, port, here }) => [
      `-p tcp -m conntrack --ctorigdst ${ip} --ctorigdstport ${port} -j DROP`,
      ...(here ? [`-p tcp -m tcp --dport ${port} -m addrtype --dst-type LOCAL -j DROP`] : []),
    ]),
  };
  const jumps = [
    ['DOCKER-USER', '-d', pool, '-j', PUBLISHED],
    ['INPUT', '-p', 'tcp', '--dport', `${ports.first}:${ports.last}`, '-j', LOCAL],
    ['DOCKER-USER', '-s', pool, '-j', CONTROL],
    ['INPUT', '-s', pool, '-j', CONTROL],
  ];
  /** The rules as iptables prints them, which differs from the input. */
  let shown: string | null = null;
  const show = async (): Promise<string> =>
    (await Promise.all([PUBLISHED, LOCAL, CONTROL].map((chain) => run(['iptables', ...WAIT, '-S', chain]))))
      .map(({ stdout }) => stdout)
      .join('');
  const isThere = async (jump: readonly string[]): Promise<boolean> => (await run(['iptables', ...WAIT, '-C', ...jump])).code === 0;

  async function apply(): Promise<string | null> {
    // iptables-restore applies all chains at once, so no chain is ever incomplete.
    const heads = Object.keys(chains).map((chain) => `:${chain} - [0:0]\n`);
    const rules = Object.entries(chains).flatMap(([chain, list]) => list.map((rule) => `-A ${chain} ${rule}\n`));
    const restored = await run(['iptables-restore', ...WAIT, '--noflush'], `*filter\n${heads.join('')}${rules.join('')}COMMIT\n`);
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
    shown !== null && (await Promise.all(jumps.map(isThere))).every(Boolean) && (await show()) === shown;

  return {
    async ensure() {
      try {
        return (await inForce()) ? null : await apply();
      } catch (error) {
        return error instanceof Error ? error.message : String(error);
      }
    },
  };
}
