/** Parses the arguments of `berth install`. */
import { parseArgs } from 'node:util';
import { WrongUsage } from '@berth/kit/wrong-usage';
import { ETC } from '../lib/etc-files.ts';

export const USAGE = `Usage: berth install control-plane|gateway|registry|proxy|agent|all [--compose] [--start] [--dry-run] [--yes] [options]

Writes the settings of this machine's roles to ${ETC}, with generated secrets, and starts their units.
It asks for what is missing. Run it again at any time: it keeps secrets and what you changed by hand.

  --compose                with all: everything in containers, by docker compose (docs/compose.md)
  --start                  enables and starts the units, and waits until they are ready
  --dry-run                prints each change and makes none
  --yes                    does not ask before it writes

  --base-domain NAME       projects are published at <prefix>.NAME
  --admin EMAIL            e-mail address of the first admin
  --internal-address IP    this machine's address for your other machines. Set it before a second machine joins:
                           the control plane listens there, and the registry gets its public https host
  --package FILE           the .deb of this version, for the machines that join (default: made from the installed files)

  --control-plane URL      internal address of the control plane, on other machines (http://10.0.0.1:8080)
  --gateway URL            internal address of the gateway, where it runs on another machine
  --registry HOST[:PORT]   a registry of your own, with --registry-user and --registry-password-file
  --gateway-secret-file FILE|-   the GATEWAY_SECRET of the control plane, on another machine with the gateway

  --acme-email EMAIL       the certificate authority writes to this address
  --acme-ca-server URL     directory of the certificate authority (default: Let's Encrypt)
  --acme-challenge NAME    tls-alpn-01 (default), http-01 or dns-01
  --traefik FILE           the program (default: traefik on PATH)

  --role builder|deploy    what an agent does; twice for both
  --join-token-file FILE|- the join token of this machine; - reads standard input, or asks
  --name NAME              name of the node (default: the host name)
  --proxy-address IP       only this address reaches the ports of containers; twice for several`;

export const TARGETS = ['control-plane', 'gateway', 'registry', 'proxy', 'agent', 'all'] as const;
export type Target = (typeof TARGETS)[number];
export const AGENT_ROLES = ['builder', 'deploy'] as const;
export type AgentRole = (typeof AGENT_ROLES)[number];

export type Options = ReturnType<typeof parseOptions>;

export function parseOptions(args: string[]) {
  const { positionals, values } = parseArgs({
    args,
    allowPositionals: true,
    options: {
      start: { type: 'boolean', default: false },
      compose: { type: 'boolean', default: false },
      'dry-run': { type: 'boolean', default: false },
      yes: { type: 'boolean', default: false },
      'base-domain': { type: 'string' },
      admin: { type: 'string' },
      'internal-address': { type: 'string' },
      package: { type: 'string' },
      'control-plane': { type: 'string' },
      gateway: { type: 'string' },
      registry: { type: 'string' },
      'registry-user': { type: 'string' },
      'registry-password-file': { type: 'string' },
      'gateway-secret-file': { type: 'string' },
      'acme-email': { type: 'string' },
      'acme-ca-server': { type: 'string' },
      'acme-challenge': { type: 'string' },
      traefik: { type: 'string' },
      role: { type: 'string', multiple: true },
      'join-token-file': { type: 'string' },
      name: { type: 'string' },
      'proxy-address': { type: 'string', multiple: true },
    },
  });
  const [target, ...more] = positionals;
  if (!isOneOf(TARGETS, target) || more.length > 0)
    throw new WrongUsage(`name one of ${TARGETS.join(', ')}`);
  const roles = (values.role ?? []).map((role) => {
    if (!isOneOf(AGENT_ROLES, role))
      throw new WrongUsage(`--role must be builder or deploy, not "${role}"`);
    return role;
  });
  if (values.role !== undefined && target !== 'agent')
    throw new WrongUsage('--role is for berth install agent');
  if (values.compose && target !== 'all')
    throw new WrongUsage('--compose installs everything on one host: berth install all --compose');
  return {
    target,
    values,
    roles: new Set<AgentRole>(target === 'all' && roles.length === 0 ? AGENT_ROLES : roles),
  };
}

const isOneOf = <const T extends string>(list: readonly T[], text: string | undefined): text is T =>
  list.some((one) => one === text);
