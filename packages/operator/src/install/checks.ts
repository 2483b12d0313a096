/** Checks this machine before `berth install` writes anything. Each finding says what to do. */
import { existsSync, readdirSync } from 'node:fs';
import { Resolver } from 'node:dns/promises';
import { exec } from '@berth/kit/exec';
import { messageOf } from '@berth/kit/message-of';
import { ETC, parseEnv, readText } from '../lib/etc-files.ts';
import { listenerOn, type OsRelease, osRelease, PROGRAM_ENV } from '../lib/machine.ts';
import { unitState } from '../lib/units.ts';
import { ENV_FILES, type Part, type Settings } from './settings.ts';

export type Findings = {
  /** If there are problems, the installation writes nothing. */
  problems: string[];
  warnings: string[];
};

const LEAST_DEBIAN = 12;
const LEAST_TRAEFIK = [3, 7, 13] as const;
const LEAST_ENGINE = [20, 10, 0] as const;
const CLOCK_MS = 30_000;
const ASK_MS = 10_000;

export async function check(settings: Settings, traefik: string | undefined): Promise<Findings> {
  const findings: Findings = { problems: [], warnings: [] };
  const { parts } = settings;
  checkSystem(osRelease(), findings);
  await checkPorts(parts, findings);
  if (parts.has('builder') || parts.has('deploy'))
    await checkEngine(parts.has('builder'), findings);
  if (parts.has('builder')) await needs('git', 'apt-get install git', findings);
  if (parts.has('deploy'))
    await recommends('rsync', 'copies of datasets need it: apt-get install rsync', findings);
  if (parts.has('registry') && !existsSync('/usr/bin/docker-registry'))
    findings.problems.push('the registry is missing: apt-get install docker-registry');
  if (parts.has('proxy')) {
    await checkTraefik(traefik, findings);
    await checkDns(settings.baseDomain, findings);
  }
  if (!parts.has('control-plane')) await checkControlPlane(settings.controlPlane, findings);
  return findings;
}

/** Checks a machine for compose: its ports must be free for the engine. Any Linux works. */
export async function checkCompose(baseDomain: string): Promise<Findings> {
  const findings: Findings = { problems: [], warnings: [] };
  const there = Object.values(ENV_FILES).filter((path) =>
    parseEnv(readText(path) ?? '').has('BASE_DOMAIN'),
  );
  if (there.length > 0)
    findings.problems.push(
      `the units of the package run Berth on this machine: ${there.join(', ')}. Use one of the two`,
    );
  for (const port of [80, 443, 5000, 8080]) {
    const user = listenerOn(port);
    // The engine itself listens on the ports of running containers.
    if (user !== undefined && !user.name.startsWith('docker-pr'))
      findings.problems.push(`port ${port} is in use by ${user.name}: stop it`);
  }
  await checkEngine(true, findings);
  await checkDns(baseDomain, findings);
  return findings;
}

/** Accepts Debian 12 or newer, and systems derived from it. */
export function checkSystem(
  { id, like, version, name }: OsRelease,
  { problems, warnings }: Findings,
): void {
  if (id === 'debian') {
    if (version !== '' && Number.parseInt(version, 10) < LEAST_DEBIAN)
      problems.push(`this is ${name}: Berth needs Debian ${LEAST_DEBIAN} or newer`);
  } else if (like.split(' ').includes('debian'))
    warnings.push(`this is ${name}: Berth is tested on Debian ${LEAST_DEBIAN} and newer`);
  else
    problems.push(
      `this is ${name}: the package of Berth works on Debian ${LEAST_DEBIAN} or newer. On ` +
        'other systems, use the image (docs/compose.md)',
    );
}

const SYSTEMD = 1;
/** For each part: its ports, and the Berth unit that can already listen there. */
const PORTS: Readonly<
  Record<Exclude<Part, 'builder' | 'deploy'>, readonly (readonly [port: number, unit: string])[]>
> = {
  'control-plane': [[8080, 'berth-control-plane.service']],
  gateway: [[4180, 'berth-gateway.service']],
  registry: [[5000, 'berth-registry.service']],
  proxy: [
    [80, 'berth-proxy.service'],
    [443, 'berth-proxy.service'],
    [8082, 'berth-relay.service'],
  ],
};
/** Debian's registry package starts this unit immediately, without a password. */
export const DEBIAN_REGISTRY = 'docker-registry.service';
const DEBIAN_REGISTRY_DATA = '/var/lib/docker-registry';

async function checkPorts(parts: ReadonlySet<Part>, { problems }: Findings): Promise<void> {
  for (const [part, ports] of Object.entries(PORTS)) {
    if (!parts.has(part as Part)) continue;
    for (const [port, unit] of ports) {
      const user = listenerOn(port);
      if (user === undefined || user.unit === unit) continue;
      // While the gateway is stopped, systemd itself holds the gateway's port.
      if (
        user.pid === SYSTEMD &&
        (await unitState(unit.replace('.service', '.socket'))) === 'active'
      )
        continue;
      if (user.unit === DEBIAN_REGISTRY && isEmpty(DEBIAN_REGISTRY_DATA)) continue;
      const who = `${user.name}${user.pid === undefined ? '' : ` (process ${user.pid}${user.unit === undefined ? '' : `, ${user.unit}`})`}`;
      const stop =
        user.unit === undefined ? 'stop it' : `stop it: systemctl disable --now ${user.unit}`;
      problems.push(`port ${port}, which the ${part} needs, is in use by ${who}: ${stop}`);
    }
  }
}

const isEmpty = (folder: string): boolean =>
  !existsSync(folder) || readdirSync(folder).length === 0;

const run = (argv: readonly string[], env: NodeJS.ProcessEnv = PROGRAM_ENV) =>
  exec(argv, { env, timeoutMs: 20_000 }).catch(() => undefined);

async function has(program: string): Promise<boolean> {
  return (await run(['which', program]))?.code === 0;
}

async function needs(program: string, advice: string, { problems }: Findings): Promise<void> {
  if (!(await has(program))) problems.push(`${program} is missing: ${advice}`);
}

async function recommends(program: string, advice: string, { warnings }: Findings): Promise<void> {
  if (!(await has(program))) warnings.push(`${program} is missing; ${advice}`);
}

async function checkEngine(isBuilder: boolean, { problems }: Findings): Promise<void> {
  if (!(await has('docker'))) {
    problems.push('the container engine is missing: apt-get install docker.io');
    return;
  }
  const engine = await run(['docker', 'version', '--format', '{{.Server.Version}}']);
  if (engine?.code !== 0) {
    problems.push(
      'the container engine does not answer: systemctl enable --now docker; then: docker version',
    );
    return;
  }
  if (!isAtLeast(engine.stdout, LEAST_ENGINE))
    problems.push(
      `the container engine is ${engine.stdout.trim()}: Berth needs ${LEAST_ENGINE.join('.')} or ` +
        'newer',
    );
  if (!isBuilder) return;
  const plugins = parseEnv(readText(ENV_FILES.builder) ?? '').get('DOCKER_PLUGINS_DIR');
  const inFolder = plugins !== undefined && existsSync(`${plugins}/docker-buildx`);
  if (!inFolder && (await run(['docker', 'buildx', 'version']))?.code !== 0)
    problems.push(
      'buildx, with which a builder makes images, is missing: apt-get install docker-buildx ' +
        '(Debian 13), or put the program of github.com/docker/buildx/releases at ' +
        '/usr/local/lib/docker/cli-plugins/docker-buildx with mode 0755 (Debian 12)',
    );
}

async function checkTraefik(given: string | undefined, { problems }: Findings): Promise<void> {
  const program =
    given ?? parseEnv(readText(ENV_FILES.proxy) ?? '').get('TRAEFIK_BIN') ?? 'traefik';
  const answer = await run([program, 'version']);
  const version = /^Version:\s*v?(\d+\.\d+\.\d+)/m.exec(answer?.stdout ?? '')?.[1];
  if (version === undefined)
    problems.push(
      `Traefik is missing (${program}): put the program of ` +
        `github.com/traefik/traefik/releases, ${LEAST_TRAEFIK.join('.')} or newer, ` +
        'at /usr/local/bin/traefik with mode 0755, or name it with --traefik FILE',
    );
  else if (!isAtLeast(version, LEAST_TRAEFIK))
    problems.push(
      `${program} is Traefik ${version}: Berth needs ${LEAST_TRAEFIK.join('.')} or newer, ` +
        'which removes forged identity headers',
    );
}

export function isAtLeast(text: string, least: readonly number[]): boolean {
  const versionParts = (/(\d+)\.(\d+)(?:\.(\d+))?/.exec(text)?.slice(1) ?? []).map((part) =>
    Number(part ?? 0),
  );
  for (const [i, wanted] of least.entries()) {
    if ((versionParts[i] ?? 0) !== wanted) return (versionParts[i] ?? 0) > wanted;
  }
  return true;
}

/**
 * Checks DNS. All findings are warnings: DNS can be set up later, and a machine behind NAT has
 * another public address.
 */
async function checkDns(baseDomain: string, { warnings }: Findings): Promise<void> {
  const resolver = new Resolver({ timeout: 3_000, tries: 1 });
  const leads = async (name: string): Promise<boolean> => {
    const answers = await Promise.allSettled([resolver.resolve4(name), resolver.resolve6(name)]);
    return answers.some((one) => one.status === 'fulfilled' && one.value.length > 0);
  };
  const [base, wildcard] = await Promise.all([
    leads(baseDomain),
    leads(`berth-check.${baseDomain}`),
  ]);
  const missing = [...(base ? [] : [baseDomain]), ...(wildcard ? [] : [`*.${baseDomain}`])];
  if (missing.length > 0)
    warnings.push(
      `no DNS for ${missing.join(' and ')}: create A (and AAAA) records that lead to the public ` +
        'address of this machine. Until then, nobody reaches a project and no certificate can be ' +
        'issued',
    );
}

/**
 * Checks that the control plane answers, and compares the clocks, because the secrets and deadlines
 * of a node depend on them.
 */
export async function checkControlPlane(url: string, { problems }: Findings): Promise<void> {
  const before = Date.now();
  let date: string | null;
  try {
    const answer = await fetch(`${url}/healthz`, { signal: AbortSignal.timeout(ASK_MS) });
    if (!answer.ok) throw new Error(`it answered ${answer.status}`);
    date = answer.headers.get('date');
  } catch (error) {
    const cause =
      error instanceof Error && error.cause instanceof Error
        ? error.cause.message
        : messageOf(error);
    problems.push(
      `the control plane does not answer at ${url}: ${cause}. Check the address and the ` +
        'firewall. On its machine, it must listen on an address that this one reaches: berth ' +
        'install control-plane --internal-address ADDRESS --start',
    );
    return;
  }
  // The header `Date` has a resolution of 1 s.
  const difference = date === null ? 0 : Date.parse(date) - (before + Date.now()) / 2;
  if (Math.abs(difference) > CLOCK_MS)
    problems.push(
      `the clock of this machine is ${Math.round(Math.abs(difference) / 1000)} s ` +
        `${difference > 0 ? 'behind' : 'ahead of'} the control plane's: ` +
        'timedatectl set-ntp true (apt-get install systemd-timesyncd)',
    );
}

/** Returns whether Debian's own registry would take the port at the next boot. */
export const hasDebianRegistry = (): boolean =>
  existsSync(`/etc/systemd/system/multi-user.target.wants/${DEBIAN_REGISTRY}`);

export const needsJoinToken = (settings: Settings): boolean =>
  !settings.parts.has('control-plane') &&
  (['builder', 'deploy'] as const).some(
    (role) =>
      settings.parts.has(role) &&
      readText(`${ETC}/secrets/agent-${role}/JOIN_TOKEN`) === undefined &&
      !hasNodeSecret(role),
  );

const hasNodeSecret = (role: string): boolean =>
  existsSync(`/var/lib/berth-agent-${role}/${role}/node-secret`);
