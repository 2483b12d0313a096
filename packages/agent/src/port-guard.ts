/** Keeps the firewall rules of PROXY_IPS in force (port-rule.ts). */
import { lookup } from 'node:dns/promises';
import { networkInterfaces } from 'node:os';
import type { Logger } from '@berth/kit/log';
import type { AgentOptions } from './config.ts';
import { type ControlPlaneAddress, createPortRule, enginePorts, iptablesOf, type PortRule } from './port-rule.ts';

export type PortGuard = {
  /** Adds the rules if they are missing: a reload of the firewall removes them. */
  guard(): Promise<void>;
  /** Why the rules are not in force; null if they are, or if PROXY_IPS is not set. */
  problem(): string | null;
};

/** At these ports a reverse proxy serves all projects, at the same address: no rule may cut containers off from them. */
const SHARED_PORTS = [80, 443];

export async function createPortGuard(config: AgentOptions, log: Logger): Promise<PortGuard> {
  const { PROXY_IPS: proxies, PROJECT_NETWORK_POOL: pool } = config;
  let problem: string | null = null;
  if (proxies === undefined || pool === null || config.NODE_ROLE !== 'deploy') return { guard: async () => undefined, problem: () => null };
  const [ports, run] = [await enginePorts(), iptablesOf(config.inherit)];
  let rule: { of: string; rule: PortRule } | null = null;
  /** The addresses of the control plane may change. When its name cannot be resolved, the rules stay as they are. */
  async function present(): Promise<PortRule> {
    const controlPlane = await controlPlaneAddresses(config.CONTROL_PLANE_URL).catch(() => null);
    if (controlPlane === null && rule !== null) return rule.rule;
    const of = JSON.stringify(controlPlane);
    if (rule?.of !== of)
      rule = { of, rule: createPortRule({ pool: pool?.cidr ?? '', proxies: proxies ?? [], ports, controlPlane: controlPlane ?? [], run }) };
    return rule.rule;
  }
  return {
    problem: () => problem,
    async guard() {
      const found = process.getuid?.() === 0 ? await (await present()).ensure() : 'the agent does not run as root';
      if (found !== null && found !== problem)
        log.error({ problem: found }, 'adding the firewall rules of PROXY_IPS failed: every host can reach published ports');
      problem = found;
    },
  };
}

/** Returns the IPv4 addresses of CONTROL_PLANE_URL that a container can reach. Rejects if its name cannot be resolved. */
export async function controlPlaneAddresses(url: string): Promise<ControlPlaneAddress[]> {
  const { hostname, port: given, protocol } = new URL(url);
  const port = given === '' ? (protocol === 'https:' ? 443 : 80) : Number(given);
  if (SHARED_PORTS.includes(port) || hostname.startsWith('[')) return [];
  const own = new Set(Object.values(networkInterfaces()).flatMap((all) => (all ?? []).map(({ address }) => address)));
  const found = [...new Set((await lookup(hostname, { all: true, family: 4 })).map(({ address }) => address))].sort();
  return found.map((ip) => ({ ip, port, here: own.has(ip) || ip.startsWith('127.') }));
}
