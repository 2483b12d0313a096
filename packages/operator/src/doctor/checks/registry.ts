/** Checks that this node reaches the image registry, trusts it and can log in. */
import { type Check, type Context, controlPlaneOf, failedRun, whyUnreached } from '../check.ts';
import { finding, notChecked, ok, type Result } from '../result.ts';
import { type InstalledRole, pathHere, settingOf } from '../roles.ts';

type Config = { registry_addr?: string; registry_user?: string; registry_password?: string };
const HTTP_MS = 5_000;
const LOGIN_MS = 20_000;

export const REGISTRY: Check = {
  name: 'registry',
  roles: ['agent'],
  async run(context) {
    return (await Promise.all(context.instances.map((one) => checkAgent(context, one)))).flat();
  },
};

async function checkAgent(context: Context, instance: InstalledRole): Promise<Result[]> {
  const url = await controlPlaneOf(context, instance);
  if (url === null)
    return [notChecked(`${instance.name}: the registry: CONTROL_PLANE_URL is not set`)];
  const secret = await secretOf(context, instance);
  if (secret === undefined)
    return [
      notChecked(
        `${instance.name}: the registry: no secret of this node can be ` +
          `read${context.system.isRoot ? '' : '; run as root'}`,
      ),
    ];
  let config: Config;
  try {
    const answer = await context.system.get(`${url}/api/agent/config`, {
      timeoutMs: HTTP_MS,
      headers: { 'x-agent-secret': secret },
    });
    if (answer.status === 401)
      return [
        finding(
          `${instance.name}: the control plane refuses the secret of this node (401)`,
          'the node gets no work, and its routes do not follow when a port changes',
          'berth node reset-secret NODE, then restart the agent; without AGENT_SECRET it also ' +
            'needs: berth node join-token',
        ),
      ];
    if (answer.status !== 200)
      return [
        notChecked(`${instance.name}: the registry: the control plane answered ${answer.status}`),
      ];
    config = JSON.parse(answer.text) as Config;
  } catch (error) {
    return [
      notChecked(
        `${instance.name}: the registry: the control plane at ${url} ${whyUnreached(error)}`,
      ),
    ];
  }
  const { registry_addr: address = '' } = config;
  if (address === '')
    return [
      finding(
        'the control plane has no registry',
        'every build fails',
        'set REGISTRY_ADDR of the control plane and restart it',
      ),
    ];
  return checkRegistry(context, instance, { ...config, address: address.split('/')[0] ?? '' });
}

async function checkRegistry(
  context: Context,
  instance: InstalledRole,
  {
    address,
    registry_user: user = '',
    registry_password: password = '',
  }: Config & { address: string },
): Promise<Result[]> {
  const consequence =
    instance.settings.get('NODE_ROLE') === 'builder'
      ? 'every build fails at its push'
      : 'this node cannot pull new versions';
  const host = address.replace(/:\d+$/, '');
  if (
    isLoopback(host) &&
    !context.all.some(({ role }) => role === 'registry' || role === 'control-plane')
  )
    return [
      finding(
        `REGISTRY_ADDR is ${address}: on this machine, that address leads to this machine and ` +
          'not to the registry',
        consequence,
        'set REGISTRY_ADDR of the control plane to the https address of the registry ' +
          '(docs/several-machines.md)',
      ),
    ];
  const [secure, plain] = await Promise.all([
    reach(context, `https://${address}/v2/`),
    reach(context, `http://${address}/v2/`),
  ]);
  if (secure === null && plain === null)
    return [
      finding(
        `the registry ${address} does not answer from this machine`,
        consequence,
        `curl -v https://${address}/v2/ ; look at the registry’s process and its firewall`,
      ),
    ];
  const results: Result[] = [];
  if (secure === null) {
    const info = await context.facts.docker(instance, [
      'info',
      '--format',
      '{{json .RegistryConfig}}',
    ]);
    const why = failedRun('docker', info);
    if (why !== null) results.push(notChecked(`insecure-registries: ${why}`));
    else if (!isInsecure(info?.stdout ?? '', address, host))
      return [
        finding(
          `the registry ${address} speaks plain http, and this engine does not list it in ` +
            'insecure-registries',
          consequence,
          `add {"insecure-registries": ["${address}"]} to /etc/docker/daemon.json, then: ` +
            'systemctl reload docker',
        ),
      ];
  }
  if (user === '') return [...results, ok(`the registry ${address} answers; it needs no login`)];
  const login = await context.facts.docker(
    instance,
    ['login', '--username', user, '--password-stdin', address],
    {
      stdin: password,
      secrets: [password],
      timeoutMs: LOGIN_MS,
      auth: true,
    },
  );
  const why = failedRun('docker login', login);
  if (why === null) return [...results, ok(`the login at the registry ${address} works`)];
  return [
    ...results,
    finding(
      `the login at the registry ${address} as ${user} fails: ${why.replaceAll(password, '***')}`,
      consequence,
      'compare REGISTRY_USER and REGISTRY_PASSWORD of the control plane with the registry’s ' +
        'own (htpasswd)',
    ),
  ];
}

const reach = ({ system }: Context, url: string): Promise<number | null> =>
  system.get(url, { timeoutMs: HTTP_MS }).then(
    ({ status }) => status,
    (error: unknown) => (isUntrusted(error) ? 0 : null),
  );

/**
 * Returns whether Node.js does not trust the TLS certificate of the registry. The engine might
 * trust it: the login shows that.
 */
const isUntrusted = (error: unknown): boolean => {
  const code = ((error as Error).cause as NodeJS.ErrnoException | undefined)?.code ?? '';
  return /CERT|SELF_SIGNED|UNABLE_TO_(GET|VERIFY)/.test(code);
};

const isLoopback = (host: string): boolean =>
  host === 'localhost' || host === '::1' || host === '[::1]' || host.startsWith('127.');

function isInsecure(json: string, address: string, host: string): boolean {
  // Every engine trusts 127.0.0.0/8 by default.
  if (isLoopback(host)) return true;
  const config = JSON.parse(json) as {
    IndexConfigs?: Record<string, { Secure?: boolean }>;
    InsecureRegistryCIDRs?: string[] | null;
  };
  return (
    config.IndexConfigs?.[address]?.Secure === false ||
    (config.InsecureRegistryCIDRs ?? []).some((net) => contains(net, host))
  );
}

function contains(network: string, host: string): boolean {
  const [base = '', bits = '32'] = network.split('/');
  const number = (ip: string): number | null => {
    const parts = ip.split('.').map(Number);
    return parts.length === 4 && parts.every((n) => n >= 0 && n <= 255)
      ? parts.reduce((sum, n) => sum * 256 + n, 0)
      : null;
  };
  const [a, b] = [number(base), number(host)];
  const size = 2 ** (32 - Number(bits));
  return a !== null && b !== null && Math.floor(a / size) === Math.floor(b / size);
}

/** Returns the node's own secret, or AGENT_SECRET if the node has no secret of its own yet. */
async function secretOf({ system }: Context, instance: InstalledRole): Promise<string | undefined> {
  const { settings, how, name } = instance;
  const standard =
    how === 'package' && name.startsWith('agent-')
      ? `/var/lib/berth-${name}`
      : '/var/lib/berth-agent';
  const folder = pathHere(instance, settings.get('STATE_DIR') ?? standard);
  const own =
    folder === null
      ? undefined
      : await system
          .read(`${folder}/${settings.get('NODE_ROLE') ?? ''}/node-secret`)
          .catch(() => undefined);
  return own?.trim() || (await settingOf(system, instance, 'AGENT_SECRET'))?.split(',')[0]?.trim();
}
