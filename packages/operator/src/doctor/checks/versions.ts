/**
 * Checks the versions that Berth needs: Node.js, Traefik, the system, and agents that are not newer
 * than their control plane.
 */
import { dirname } from 'node:path';
import { defined } from '@berth/kit/defined';
import { BERTH_VERSION, isOlderVersion, nodeWarning } from '@berth/wire/version';
import { parseEnv } from '../../lib/etc-files.ts';
import { type Check, type Context, failedRun } from '../check.ts';
import { finding, notChecked, ok, type Result } from '../result.ts';
import { ROLES } from '../roles.ts';

const OLDEST_TRAEFIK = '3.7.13';
const OLDEST_DEBIAN = 12;
const RUN_MS = 10_000;

export const VERSIONS: Check = {
  name: 'versions',
  roles: ROLES,
  async run(context) {
    const parts = [node(context), system(context), traefik(context), agents(context)];
    return (await Promise.all(parts)).flat();
  },
};

async function node({ system }: Context): Promise<Result[]> {
  const warning = nodeWarning(system.nodeVersion);
  if (warning === null) return [ok(`Berth ${BERTH_VERSION}, Node.js ${system.nodeVersion}`)];
  return [
    finding(
      warning,
      'known security holes of Node.js are open in every process',
      'install the newest package or image of Berth: it brings its own Node.js',
    ),
  ];
}

async function system({ system }: Context): Promise<Result[]> {
  const text = await system.read('/etc/os-release').catch(() => undefined);
  const release = parseEnv(text ?? '');
  if (release.get('ID') !== 'debian') return [];
  const version = Number(release.get('VERSION_ID') ?? Number.NaN);
  // Debian testing and unstable have no version number.
  if (Number.isNaN(version) || version >= OLDEST_DEBIAN) return [];
  return [
    finding(
      `this machine runs Debian ${version}; Berth is tested on ${OLDEST_DEBIAN} and newer`,
      'packages and programs that Berth needs may be too old',
      'upgrade Debian, one version at a time',
    ),
  ];
}

async function traefik({ instances, system }: Context): Promise<Result[]> {
  const proxies = instances.filter(({ role }) => role === 'proxy');
  return Promise.all(
    proxies.map(async ({ how, name, file, settings }) => {
      const isComposed = how === 'compose' && file !== null;
      const argv = isComposed
        ? ['docker', 'compose', 'exec', '-T', name, 'traefik', 'version']
        : [settings.get('TRAEFIK_BIN') ?? 'traefik', 'version'];
      const ran = await system.run(argv, {
        timeoutMs: RUN_MS,
        ...defined({ cwd: isComposed ? dirname(file) : undefined }),
      });
      const why = failedRun('traefik', ran);
      if (why !== null) return notChecked(`the version of Traefik: ${why}`);
      const version = /^\s*Version:\s*v?(\S+)/m.exec(ran?.stdout ?? '')?.[1] ?? '';
      if (version === '')
        return notChecked('the version of Traefik: `traefik version` prints none');
      if (!isOlderVersion(version, OLDEST_TRAEFIK)) return ok(`Traefik ${version}`);
      return finding(
        `Traefik is ${version}; Berth needs ${OLDEST_TRAEFIK} or newer`,
        'Traefik forwards headers such as X!Forwarded!User, which an application may read as ' +
          'the signed-in user',
        `install Traefik ${OLDEST_TRAEFIK} or newer, and keep aliasHeadersStrategy: delete on ` +
          'both entry points',
      );
    }),
  );
}

/** Compares the versions of all agents, as the control plane reports them. */
async function agents({ instances, facts }: Context): Promise<Result[]> {
  const results = instances
    .filter(({ role }) => role === 'control-plane')
    .map(async (instance) => {
      const reached = await facts.readiness(instance);
      if ('problem' in reached)
        return notChecked('the versions of the agents: the control plane does not answer');
      const { warnings } = reached.value;
      if (warnings === null)
        return notChecked('the versions of the agents: the control plane is of an earlier version');
      const older = warnings.find(({ kind }) => kind === 'older_agents');
      if (older === undefined) return ok('no agent is older than the control plane');
      return finding(
        older.text,
        'these agents work, without what is new',
        'on each of these machines: install the package of this version',
      );
    });
  return Promise.all(results);
}
