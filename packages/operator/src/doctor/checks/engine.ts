/** Checks the container engine of each agent, and buildx on builders. */
import { type Check, type Context, failedRun } from '../check.ts';
import { finding, ok, type Result } from '../result.ts';
import type { InstalledRole } from '../roles.ts';
import type { Ran } from '../system.ts';

const OLDEST_ENGINE = [20, 10] as const;
const OLDEST_BUILDX = [0, 10] as const;
const BUILDX_MS = 20_000;

const isOlder = (version: string, [major, minor]: readonly [number, number]): boolean => {
  const [, a, b] = /(\d+)\.(\d+)/.exec(version) ?? [];
  return a !== undefined && (Number(a) < major || (Number(a) === major && Number(b) < minor));
};

export const ENGINE: Check = {
  name: 'container engine',
  roles: ['agent'],
  async run(context) {
    const results = await Promise.all(
      context.instances.map(async (instance) => {
        const ran = await context.facts.docker(instance, [
          'version',
          '--format',
          '{{.Server.Version}}',
        ]);
        const why = failedRun('docker', ran);
        if (why !== null) return [engineFinding(instance, ran, why)];
        const version = ran?.stdout.trim() ?? '';
        if (isOlder(version, OLDEST_ENGINE))
          return [
            finding(
              `the container engine is ${version}; Berth needs ${OLDEST_ENGINE.join('.')} or newer`,
              'builds and containers can fail in unexpected ways',
              'upgrade the engine of this machine',
            ),
          ];
        const buildx =
          instance.settings.get('NODE_ROLE') === 'builder'
            ? await checkBuildx(context, instance)
            : [];
        return [ok(`engine ${version} answers`), ...buildx];
      }),
    );
    return results.flat();
  },
};

function engineFinding({ settings }: InstalledRole, ran: Ran | null, why: string): Result {
  const host = settings.get('DOCKER_HOST');
  const at = host === undefined ? '' : ` (DOCKER_HOST=${host})`;
  const consequence =
    'no build, deployment or restart works on this node; containers that run continue if the ' +
    'engine runs';
  if (ran === null)
    return finding(
      why,
      consequence,
      'install a container engine with its command: apt-get install docker.io (Debian)',
    );
  if (/permission denied/i.test(why))
    return finding(
      `this user may not use the container engine${at}`,
      'the agent has the same problem if it runs as this user',
      'run the doctor as root; for an agent of another user: usermod -aG docker USER, then ' +
        'restart the agent',
    );
  return finding(
    `the container engine does not answer${at}: ${why}`,
    consequence,
    'systemctl start docker; systemctl status docker; journalctl -u docker -n 50',
  );
}

async function checkBuildx({ facts }: Context, instance: InstalledRole): Promise<Result[]> {
  const consequence = 'every build on this builder fails';
  const version = await facts.docker(instance, ['buildx', 'version']);
  const missing = failedRun('docker buildx', version);
  if (missing !== null)
    return [
      finding(
        `buildx is missing: ${missing}`,
        consequence,
        'install it: apt-get install docker-buildx (Debian), or docker-buildx-plugin',
      ),
    ];
  const number = /v?(\d+\.\d+[^\s]*)/.exec((version?.stdout ?? '').replace(/^\S+/, ''))?.[1] ?? '';
  if (isOlder(number, OLDEST_BUILDX))
    return [
      finding(
        `buildx is ${number}; Berth needs ${OLDEST_BUILDX.join('.')} or newer`,
        consequence,
        'upgrade docker-buildx',
      ),
    ];
  // This build has no base image, so it needs no network, and it leaves no image behind.
  const built = await facts.docker(
    instance,
    ['buildx', 'build', '--progress=plain', '--output=type=cacheonly', '-'],
    {
      timeoutMs: BUILDX_MS,
      stdin: 'FROM scratch\nLABEL berth.doctor=1\n',
    },
  );
  const why = failedRun('docker buildx build', built);
  if (why === null) return [ok(`buildx ${number} builds`)];
  return [
    finding(
      `buildx ${number} cannot build: ${why}`,
      consequence,
      'look at docker buildx ls and docker buildx inspect',
    ),
  ];
}
