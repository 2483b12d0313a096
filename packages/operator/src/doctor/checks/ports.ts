/**
 * Checks which program listens on each port that Berth needs. A machine cannot check whether its
 * ports are reachable from outside.
 */
import { type Check, type Context, failedRun, listenOf, restartOf } from '../check.ts';
import { finding, notChecked, ok, type Result } from '../result.ts';
import type { InstalledRole, MachineRole } from '../roles.ts';

/** `users`: programs that can listen on the port; with compose, docker-proxy or the engine. */
type Port = { port: number; what: string; users: readonly string[]; instance: InstalledRole };

const BERTH = ['node', 'berth', 'MainThread', 'docker-proxy', 'dockerd', 'rootlesskit'];
const USERS: Record<MachineRole, readonly string[]> = {
  'control-plane': BERTH,
  gateway: BERTH,
  relay: BERTH,
  agent: BERTH,
  registry: ['registry', 'docker-registry', 'docker-registr', ...BERTH],
  proxy: ['traefik', ...BERTH],
};
const SS_MS = 10_000;
/** No part of Berth must use this port (docs/contract.md). */
const FORBIDDEN = 8081;

export const PORTS: Check = {
  name: 'ports',
  roles: ['control-plane', 'gateway', 'registry', 'proxy', 'relay', 'agent'],
  async run(context) {
    const wanted = context.instances.filter(({ how }) => how !== 'compose').flatMap(portsOf);
    const ran = await context.system.run(['ss', '-Hltnp'], { timeoutMs: SS_MS });
    const why = failedRun('ss', ran);
    if (why !== null) return [notChecked(`who listens on ports: ${why}`), ...outside(context)];
    const listeners = listenersIn(ran?.stdout ?? '');
    const results = wanted.flatMap((one): Result[] => judge(one, listeners.get(one.port)));
    const relay = context.instances.find((one) => listenOf(one)?.port === FORBIDDEN);
    if (relay !== undefined)
      results.push(
        finding(
          `${relay.name} listens on port ${FORBIDDEN}`,
          'this port stays free by the contract: other tools of the reverse proxy use it',
          `set LISTEN=127.0.0.1:8082 in ${relay.file ?? 'its environment'}, point Traefik’s ` +
            `HTTP provider there, then ${restartOf(relay)}`,
        ),
      );
    return [...results, ...outside(context)];
  },
};

function portsOf(instance: InstalledRole): Port[] {
  const users = USERS[instance.role];
  if (instance.role === 'proxy')
    return [80, 443].map((port) => ({
      port,
      what: `the reverse proxy (${port === 80 ? 'http' : 'https'})`,
      users,
      instance,
    }));
  if (instance.role === 'registry') {
    const port = Number(
      /:(\d+)$/.exec(instance.settings.get('REGISTRY_HTTP_ADDR') ?? ':5000')?.[1],
    );
    return [{ port, what: 'the registry', users, instance }];
  }
  const listen = listenOf(instance);
  return listen === null ? [] : [{ port: listen.port, what: instance.name, users, instance }];
}

/** Returns the program on each port; its name is empty if this user cannot see it. */
export function listenersIn(ss: string): Map<number, { name: string; pid: string }> {
  const programByPort = new Map<number, { name: string; pid: string }>();
  for (const line of ss.split('\n')) {
    const port = Number(/^\S+\s+\S+\s+\S+\s+\S*:(\d+)\s/.exec(line)?.[1]);
    const [, name = '', pid = ''] = /users:\(\("([^"]*)",pid=(\d+)/.exec(line) ?? [];
    if (!Number.isNaN(port) && (programByPort.get(port)?.name ?? '') === '')
      programByPort.set(port, { name, pid });
  }
  return programByPort;
}

function judge(
  { port, what, users, instance }: Port,
  listener: { name: string; pid: string } | undefined,
): Result[] {
  const consequence =
    instance.role === 'proxy' ? 'no project can be reached' : `${instance.name} cannot be reached`;
  if (listener === undefined)
    return [
      finding(`nothing listens on port ${port} for ${what}`, consequence, restartOf(instance)),
    ];
  if (listener.name === '')
    return [notChecked(`which program listens on port ${port} for ${what}: only root sees it`)];
  if (users.includes(listener.name)) return [ok(`${listener.name} listens on port ${port}`)];
  return [
    finding(
      `port ${port} for ${what} is in use by ${listener.name} (process ${listener.pid})`,
      consequence,
      `stop that program (systemctl status ${listener.pid}), or move it to another port; then ` +
        restartOf(instance),
    ),
  ];
}

/**
 * Names a command to run on another machine: routers and firewalls treat a connection from this
 * machine to its own public address differently.
 */
function outside({ instances, all }: Context): Result[] {
  if (!instances.some(({ role }) => role === 'proxy')) return [];
  const domain =
    all.map(({ settings }) => settings.get('BASE_DOMAIN')).find((value) => value !== undefined) ??
    'BASE_DOMAIN';
  return [
    notChecked(
      'ports 80 and 443 from outside: cannot be checked from here; on a machine elsewhere, ' +
        `run: curl -sSI http://${domain} https://${domain}`,
    ),
  ];
}
