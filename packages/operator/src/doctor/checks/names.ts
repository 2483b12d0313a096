/** Checks that BASE_DOMAIN and every name below it resolve to this machine. */
import { randomBytes } from 'node:crypto';
import { isIP } from 'node:net';
import type { Check, Context } from '../check.ts';
import { finding, note, notChecked, ok, type Result } from '../result.ts';

export const NAMES: Check = {
  name: 'DNS',
  roles: ['control-plane', 'proxy'],
  async run(context) {
    const setting = (name: string): string | undefined =>
      context.all
        .map(({ settings }) => settings.get(name))
        .find((value) => value !== undefined && value !== '');
    const domain = setting('BASE_DOMAIN')?.toLowerCase();
    if (domain === undefined) return [notChecked('DNS: this machine has no setting BASE_DOMAIN')];
    if (domain === 'localhost' || domain.endsWith('.localhost'))
      return [ok(`${domain} is a name of this machine only`)];
    const wanted = (setting('PUBLIC_IPS') ?? '')
      .split(',')
      .flatMap((one) => (isIP(one.trim()) === 0 ? [] : [one.trim()]));
    // Use a random label: only a wildcard record answers it.
    const random = `berth-doctor-${randomBytes(4).toString('hex')}.${domain}`;
    return (
      await Promise.all([
        checkName(context, domain, domain, wanted),
        checkName(context, random, domain, wanted),
      ])
    ).flat();
  },
};

const listed = (addresses: readonly string[]): string => addresses.toSorted().join(', ');
const same = (a: readonly string[], b: readonly string[]): boolean => listed(a) === listed(b);

async function checkName(
  { system, all }: Context,
  name: string,
  domain: string,
  publicIps: readonly string[],
): Promise<Result[]> {
  const shown = name === domain ? domain : `*.${domain}`;
  const [here, world] = await Promise.allSettled([
    system.lookup(name),
    system.worldLookup(name, domain),
  ]);
  const seenHere = here.status === 'fulfilled' ? here.value : [];
  const seenByWorld = world.status === 'fulfilled' ? world.value : null;
  const addresses = seenByWorld ?? seenHere;
  const record = `create a record at your DNS provider: ${shown} A ${publicIps[0] ?? 'ADDRESS OF THE PROXY'}`;
  if (addresses.length === 0)
    return [
      finding(
        `the name ${shown} leads nowhere` +
          (here.status === 'rejected' && seenByWorld === null ? ` (${codeOf(here.reason)})` : ''),
        name === domain
          ? 'nobody reaches Berth by its name'
          : 'projects have no address, and no certificates are issued for them',
        record,
      ),
    ];
  const results: Result[] = [];
  const targets = publicIps.length > 0 ? publicIps : system.addresses();
  const wrong = addresses.filter((one) => !targets.includes(one));
  const hasProxy = all.some(({ role }) => role === 'proxy');
  if (wrong.length === 0) results.push(ok(`${shown} leads to ${listed(addresses)}`));
  else if (publicIps.length > 0)
    results.push(
      finding(
        `${shown} leads to ${listed(wrong)}; PUBLIC_IPS has ${listed(publicIps)}`,
        'requests arrive at another machine, and certificates are not issued',
        `${record}, or correct PUBLIC_IPS`,
      ),
    );
  else
    results.push(
      notChecked(
        `whether ${listed(addresses)} is the right target of ${shown}: ` +
          (hasProxy
            ? 'this machine has another address (it may be behind NAT or a load balancer)'
            : 'the reverse proxy is on another machine') +
          '; set PUBLIC_IPS to let the doctor compare',
      ),
    );
  if (seenByWorld === null)
    results.push(
      notChecked(
        `what other networks see for ${shown}: the name servers of ${domain} cannot be asked ` +
          'from here',
      ),
    );
  else if (!same(seenByWorld, seenHere))
    results.push(
      note(
        'split horizon: this machine sees ' +
          `${seenHere.length === 0 ? 'no address' : listed(seenHere)} for ${shown}, the world ` +
          `sees ${listed(seenByWorld)}. This is right only if you set up DNS or /etc/hosts so`,
      ),
    );
  return results;
}

const codeOf = (error: unknown): string => (error as NodeJS.ErrnoException).code ?? String(error);
