/**
 * Checks the certificate of BASE_DOMAIN at the reverse proxy of this machine, and the certificate
 * problems of projects that the control plane knows.
 */
import { type Check, type Context, logOf, restartOf, whyUnreached } from '../check.ts';
import { finding, notChecked, ok, type Result } from '../result.ts';
import type { InstalledRole } from '../roles.ts';

const DAY_MS = 86_400_000;
/** An ACME client renews a 90-day certificate 30 days before it expires. */
const SOON_MS = 14 * DAY_MS;
const HTTPS_PORT = 443;

export const CERTIFICATES: Check = {
  name: 'certificates',
  roles: ['proxy', 'control-plane'],
  async run(context) {
    const proxy = context.instances.find(({ role }) => role === 'proxy');
    const parts = await Promise.all([
      proxy === undefined ? [] : atProxy(context, proxy),
      proxy?.how === 'package' ? storeOf(context, proxy) : [],
      fromControlPlane(context),
    ]);
    return parts.flat();
  },
};

async function atProxy({ system, all }: Context, proxy: InstalledRole): Promise<Result[]> {
  const setting = (name: string): string | undefined =>
    all
      .map(({ settings }) => settings.get(name))
      .find((value) => value !== undefined && value !== '');
  const domain = setting('BASE_DOMAIN')?.toLowerCase();
  if (domain === undefined)
    return [notChecked('the certificate: this machine has no setting BASE_DOMAIN')];
  if (setting('PUBLIC_URL')?.startsWith('http://') === true)
    return [ok('PUBLIC_URL is plain http: no certificate is needed')];
  const consequence = 'browsers and git refuse the connection';
  const log = `${logOf(proxy)}, and search for acme`;
  try {
    const { subject, names, validTo } = await system.certificate('127.0.0.1', HTTPS_PORT, domain);
    const msUntilExpiry = validTo - system.now();
    if (/TRAEFIK DEFAULT CERT/i.test(subject))
      return [
        finding(
          `Traefik has no certificate for ${domain}: it answers with its own default certificate`,
          consequence,
          `read why: ${log}; look at DNS and at port 80 or 443 from outside`,
        ),
      ];
    if (
      !names.some(
        (name) =>
          name === domain ||
          (name.startsWith('*.') && domain.slice(domain.indexOf('.')) === name.slice(1)),
      )
    )
      return [
        finding(
          `the certificate at port ${HTTPS_PORT} is for ${names.join(', ') || subject}, not ` +
            `for ${domain}`,
          consequence,
          log,
        ),
      ];
    if (msUntilExpiry <= 0)
      return [
        finding(
          `the certificate of ${domain} expired ${Math.ceil(-msUntilExpiry / DAY_MS)} days ago`,
          consequence,
          `the renewal fails: ${log}`,
        ),
      ];
    if (msUntilExpiry < SOON_MS)
      return [
        finding(
          `the certificate of ${domain} expires in ${Math.floor(msUntilExpiry / DAY_MS)} days, and it ` +
            'was not renewed',
          `then ${consequence}`,
          `the renewal fails: ${log}`,
        ),
      ];
    return [
      ok(`the certificate of ${domain} is valid for ${Math.floor(msUntilExpiry / DAY_MS)} days`),
    ];
  } catch (error) {
    return [
      notChecked(
        `the certificate of ${domain}: port ${HTTPS_PORT} of this machine ${whyUnreached(error)}`,
      ),
    ];
  }
}

const STORE = '/var/lib/berth-proxy/acme.json';

/** Checks the mode of Traefik's certificate store: Traefik ignores a store that others can read. */
async function storeOf({ system }: Context, proxy: InstalledRole): Promise<Result[]> {
  const access = await system.stat(STORE).catch(() => undefined);
  if (access === undefined || (access.mode & 0o077) === 0) return [];
  const mode = access.mode.toString(8).padStart(4, '0');
  return [
    finding(
      `${STORE} has mode ${mode}`,
      'Traefik serves none of its certificates, so browsers refuse the connection',
      `chmod 0600 ${STORE} && ${restartOf(proxy)}`,
    ),
  ];
}

/** Reads the notes of /readyz about certificates. */
async function fromControlPlane({ instances, facts }: Context): Promise<Result[]> {
  const results = await Promise.all(
    instances
      .filter(({ role }) => role === 'control-plane')
      .map(async (instance) => {
        const reached = await facts.readiness(instance);
        if ('problem' in reached) return [];
        return (reached.value.warnings ?? [])
          .filter(({ kind }) => kind === 'certificates')
          .map(({ text }) =>
            finding(
              text,
              'browsers refuse the connection to these hosts',
              'look at DNS and ports 80 and 443 from outside, and at the log of Traefik',
            ),
          );
      }),
  );
  return results.flat();
}
