/**
 * Asks the name servers where custom domains lead. Caches each answer for a few seconds, so that
 * clients cannot cause more queries.
 */
import { Resolver } from 'node:dns/promises';
import { createLimit } from '@berth/kit/limit';
import { type CheckDns, type Expected, judgeDns, type Resolved } from '../domain/routes/dns.ts';

/** Time limit in ms for all queries about one name, even if no name server answers. */
const LIMIT_MS = 4_000;
const TRY_MS = 1_500;
const TRIES = 2;
const KEPT_MS = 10_000;
/** Maximum number of names whose answers are cached. */
const MAX_NAMES = 2_000;
/** Maximum number of names that are resolved at the same time. */
const AT_ONCE = 40;
/** Maximum number of addresses of a name that are compared and shown. */
const MAX_ADDRESSES = 50;

export type DnsSettings = {
  baseDomain: string;
  /** PUBLIC_IPS; undefined: the addresses of BASE_DOMAIN. */
  publicIps: readonly string[] | undefined;
  /** DNS_SERVERS; undefined: the name servers of the system. */
  servers: readonly string[] | undefined;
  now: () => number;
};

type Answered = { resolved: Resolved; at: number };

/** Error codes which mean that the name has no such record. */
const NONE = ['ENOTFOUND', 'ENODATA'];

export function createDnsCheck({ baseDomain, publicIps, servers, now }: DnsSettings): CheckDns {
  const answers = new Map<string, { until: number; asked: Promise<Answered> }>();
  const limit = createLimit(AT_ONCE);

  function resolved(name: string): Promise<Answered> {
    const kept = answers.get(name);
    if (kept !== undefined && kept.until > performance.now()) return kept.asked;
    const asked = limit(async () => ({ resolved: await resolve(name, servers), at: now() }));
    // The map keeps the insertion order, so the first name is the oldest.
    answers.delete(name);
    answers.set(name, { until: performance.now() + KEPT_MS, asked });
    for (const oldest of answers.keys()) {
      if (answers.size <= MAX_NAMES) break;
      answers.delete(oldest);
    }
    return asked;
  }

  return async (domains) => {
    if (domains.length === 0) return new Map();
    // End this request in any case: its names might wait for their turn, or for the answers of
    // another request.
    const late = AbortSignal.timeout(LIMIT_MS + TRY_MS);
    const tooLate = new Promise<Answered>((resolve) =>
      late.addEventListener(
        'abort',
        () => resolve({ resolved: { kind: 'failed', why: 'ETIMEOUT' }, at: now() }),
        { once: true },
      ),
    );
    const ask = (name: string): Promise<Answered> => Promise.race([resolved(name), tooLate]);
    const expected = async (): Promise<Expected> =>
      publicIps === undefined
        ? { from: 'BASE_DOMAIN', resolved: (await ask(baseDomain)).resolved }
        : {
            from: 'PUBLIC_IPS',
            resolved: { kind: 'answer', addresses: [...publicIps], cname: null },
          };
    const here = expected();
    const verdicts = domains.map(async (domain) => {
      const { resolved: seen, at } = await ask(domain);
      return [domain, { ...judgeDns(domain, seen, await here), checked_at: at }] as const;
    });
    return new Map(await Promise.all(verdicts));
  };
}

/** Resolves a name. Never rejects. */
async function resolve(name: string, servers: readonly string[] | undefined): Promise<Resolved> {
  let resolver: Resolver;
  try {
    resolver = new Resolver({ timeout: TRY_MS, tries: TRIES });
    if (servers !== undefined) resolver.setServers(servers);
  } catch (error) {
    return { kind: 'failed', why: codeOf(error) };
  }
  // Cancel late queries: they reject with ECANCELLED, so the answer never takes longer.
  const late = setTimeout(() => resolver.cancel(), LIMIT_MS);
  try {
    const [v4, v6, alias] = await Promise.allSettled([
      resolver.resolve4(name),
      resolver.resolve6(name),
      resolver.resolveCname(name),
    ]);
    const failed = [v4, v6].find(
      (one) => one.status === 'rejected' && !NONE.includes(codeOf(one.reason)),
    );
    // Fail on a partial answer: it could hide addresses that lead elsewhere.
    if (failed?.status === 'rejected') return { kind: 'failed', why: codeOf(failed.reason) };
    const addresses = [v4, v6].flatMap((one) => (one.status === 'fulfilled' ? one.value : []));
    return {
      kind: 'answer',
      addresses: [...new Set(addresses)].slice(0, MAX_ADDRESSES),
      cname: alias.status === 'fulfilled' ? (alias.value[0] ?? null) : null,
    };
  } finally {
    clearTimeout(late);
  }
}

const codeOf = (error: unknown): string =>
  error instanceof Error && 'code' in error ? String(error.code) : 'unexpected error';
