/**
 * Requests the certificate of each published host from the https addresses of PROXY_PROBE_URLS, by
 * TLS handshakes without a request. The rate of handshakes is limited, whatever the number of
 * hosts: one run checks the HOSTS_PER_RUN hosts that have been due the longest.
 */
import { checkServerIdentity, connect, type PeerCertificate } from 'node:tls';
import type { Logger } from '@berth/kit/log';
import type {
  CertificateWatch,
  HostCertificate,
  WatchedHost,
} from '../domain/routes/configuration.ts';
import {
  type Handshake,
  type Judged,
  judgeCertificate,
  worstCertificate,
} from '../domain/routes/certificates.ts';

/** Maximum number of hosts that one run checks at each address. The loop runs once a second. */
export const HOSTS_PER_RUN = 5;
const HANDSHAKE_MS = 5_000;
/**
 * Time for the first certificate of a host; after it, a missing certificate is a problem. With
 * short intervals it is FIRST_INTERVALS intervals.
 */
const FIRST_CERTIFICATE_MS = 3 * 60_000;
const FIRST_INTERVALS = 5;
/**
 * Time in ms until the next check of a host whose certificate is not valid; never longer than the
 * interval.
 */
const AGAIN_MS = {
  pending: 3_000,
  invalid: 60_000,
  expires_soon: 600_000,
  no_answer: 10_000,
} as const;

type Watched = Required<WatchedHost> & {
  since: number;
  dueAt: number;
  last: HostCertificate | null;
  hadGood: boolean;
};

export type CertificateWatchSettings = {
  probeUrls: readonly string[];
  /** Time in ms between two checks of a valid certificate. */
  intervalMs: number;
  now: () => number;
  monotonic: () => number;
  log: Pick<Logger, 'warn' | 'info'>;
  handshake?: (url: string, host: string, signal: AbortSignal) => Promise<Handshake>;
};

export function createCertificateWatch(settings: CertificateWatchSettings): CertificateWatch {
  const { intervalMs, now, monotonic, log, handshake = shakeHands } = settings;
  const urls = settings.probeUrls.filter((url) => url.startsWith('https:'));
  const grace = Math.min(FIRST_CERTIFICATE_MS, FIRST_INTERVALS * intervalMs);
  const watched = new Map<string, Watched>();
  let ofProjects = new Map<string, Watched>();

  /** Updates the list of watched hosts, and forgets hosts that no longer exist. */
  function follow(hosts: readonly WatchedHost[]): void {
    const named = new Map(hosts.map((one) => [one.host, one]));
    for (const host of watched.keys()) if (!named.has(host)) watched.delete(host);
    ofProjects = new Map();
    for (const { host, project_id, custom = false } of named.values()) {
      const one = watched.get(host) ?? {
        host,
        project_id,
        custom,
        since: now(),
        dueAt: monotonic(),
        last: null,
        hadGood: false,
      };
      one.project_id = project_id;
      watched.set(host, one);
      if (project_id !== null && !custom) ofProjects.set(project_id, one);
    }
  }

  async function ask(one: Watched, signal: AbortSignal): Promise<void> {
    const answers = await Promise.all(urls.map((url) => handshake(url, one.host, signal)));
    if (signal.aborted) return;
    const at = now();
    const judged = worstCertificate(
      answers.flatMap(
        (answer) => judgeCertificate(one.host, answer, at - one.since < grace, at) ?? [],
      ),
    );
    one.dueAt = monotonic() + Math.min(intervalMs, pauseAfter(judged));
    if (judged === null) return;
    // The log omits problems of a domain that never had a valid certificate, so it also omits their
    // end.
    const wasNamed = isProblem(one.last) && concernsOperator(one);
    one.hadGood ||= judged.state === 'ok' || judged.state === 'expires_soon';
    if (judged.problem !== null && judged.problem !== one.last?.problem && concernsOperator(one))
      log.warn({ host: one.host, problem: judged.problem }, 'a host has no good certificate');
    if (judged.state === 'ok' && wasNamed)
      log.info({ host: one.host, issuer: judged.issuer }, 'a host has a good certificate again');
    one.last = { ...judged, checked_at: at };
  }
  const pauseAfter = (judged: Judged | null): number =>
    judged?.state === 'ok' ? intervalMs : AGAIN_MS[judged?.state ?? 'no_answer'];

  return {
    async check(hosts, signal) {
      follow(hosts);
      const due = [...watched.values()]
        .filter((one) => one.dueAt <= monotonic())
        .toSorted((a, b) => a.dueAt - b.dueAt);
      await Promise.all(due.slice(0, HOSTS_PER_RUN).map((one) => ask(one, signal)));
    },
    ofProject: (id) => ofProjects.get(id)?.last ?? null,
    ofHost: (host) => watched.get(host)?.last ?? null,
    problems: () =>
      [...watched.values()].flatMap((one) =>
        isProblem(one.last) && concernsOperator(one)
          ? [{ host: one.host, problem: one.last.problem }]
          : [],
      ),
    projectsWithProblem: () =>
      [...ofProjects].flatMap(([id, { last }]) => (isProblem(last) ? [id] : [])),
    watched: () =>
      [...watched.values()].map((one) => ({
        host: one.host,
        project_id: one.project_id,
        last: concernsOperator(one) ? one.last : null,
      })),
    firstExpiry: () =>
      [...watched.values()].reduce<number | null>(
        (first, { last }) => lower(first, last?.not_after ?? null),
        null,
      ),
  };
}

/**
 * Returns whether the operator must know a problem: a custom domain without any certificate so far
 * might not lead here yet.
 */
const concernsOperator = ({ custom, hadGood }: Watched): boolean => !custom || hadGood;
const isProblem = (last: HostCertificate | null): last is HostCertificate & { problem: string } =>
  last !== null && last.problem !== null;
const lower = (a: number | null, b: number | null): number | null => {
  if (a === null) return b;
  return b === null ? a : Math.min(a, b);
};

/**
 * Makes a TLS handshake. Never rejects. Sends no request, so the proxy sees a connection that ends
 * after the handshake.
 */
function shakeHands(base: string, host: string, signal: AbortSignal): Promise<Handshake> {
  const url = new URL(base);
  return new Promise((resolve) => {
    const socket = connect({
      host: url.hostname.replace(/^\[|\]$/g, ''),
      port: url.port === '' ? 443 : Number(url.port),
      servername: host,
      // Let the handshake succeed with any certificate: this check evaluates it.
      rejectUnauthorized: false,
      checkServerIdentity: () => undefined,
    });
    let connected = false;
    const end = (answer: Handshake): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', stop);
      socket.destroy();
      resolve(answer);
    };
    const stop = (): void => end({ kind: 'no_answer' });
    const timer = setTimeout(stop, HANDSHAKE_MS);
    signal.addEventListener('abort', stop, { once: true });
    socket.once('connect', () => (connected = true));
    // Only a TLS alert is an answer of the proxy. A proxy that restarts resets connections.
    socket.on('error', (error: NodeJS.ErrnoException) =>
      end(
        connected && error.code?.startsWith('ERR_SSL') === true
          ? { kind: 'refused', why: error.code }
          : { kind: 'no_answer' },
      ),
    );
    socket.once('close', stop);
    socket.once('secureConnect', () =>
      end(
        read(
          socket.getPeerCertificate(),
          host,
          socket.authorized ? null : String(socket.authorizationError),
        ),
      ),
    );
  });
}

function read(certificate: PeerCertificate, host: string, untrusted: string | null): Handshake {
  const { subject, issuer, valid_from, valid_to, subjectaltname } = certificate;
  const name = ({ CN, O }: Partial<PeerCertificate['subject']> = {}): string =>
    [CN ?? O ?? 'unknown'].flat().join(' ');
  const isForHost = checkServerIdentity(host, certificate) === undefined;
  return {
    kind: 'certificate',
    subject: name(subject),
    issuer:
      issuer?.O !== undefined && issuer.O !== issuer.CN
        ? `${[issuer.O].flat().join(' ')} ${name(issuer)}`
        : name(issuer),
    notBefore: Date.parse(valid_from),
    notAfter: Date.parse(valid_to),
    otherNames: isForHost
      ? null
      : (subjectaltname?.replaceAll('DNS:', '').slice(0, 200) ?? name(subject)),
    untrusted,
  };
}
