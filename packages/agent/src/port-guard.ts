/** Keeps the firewall rules of PROXY_IPS in force (port-rule.ts). */
import type { Logger } from '@berth/kit/log';
import type { AgentOptions } from './config.ts';
import { createPortRule, enginePorts, iptablesOf } from './port-rule.ts';

export type PortGuard = {
  /** Adds the rules if they are missing: a reload of the firewall removes them. */
  guard(): Promise<void>;
  /** Why the rules are not in force; null if they are, or if PROXY_IPS is not set. */
  problem(): string | null;
};

export async function createPortGuard(config: AgentOptions, log: Logger): Promise<PortGuard> {
  const { PROXY_IPS: proxies, PROJECT_NETWORK_POOL: pool } = config;
  let problem: string | null = null;
  if (proxies === undefined || pool === null || config.NODE_ROLE !== 'deploy') return { guard: async () => undefined, problem: () => null };
  const rule = createPortRule({ pool: pool.cidr, proxies, ports: await enginePorts(), run: iptablesOf(config.inherit) });
  return {
    problem: () => problem,
    async guard() {
      const found = process.getuid?.() === 0 ? await rule.ensure() : 'the agent does not run as root';
      if (found !== null && found !== problem)
        log.error({ problem: found }, 'adding the firewall rules of PROXY_IPS failed: every host can reach published ports');
      problem = found;
    },
  };
}
