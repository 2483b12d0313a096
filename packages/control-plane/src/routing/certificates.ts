/**
 * Asks the https addresses of PROXY_PROBE_URLS for the certificate of each published host, by TLS
 * handshakes without a request. It shakes hands at a bounded rate, whatever the number of hosts:
 * one run asks for the HOSTS_PER_RUN hosts that are due the longest.
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

/** Hosts that one run asks for, at each address. The loop runs once a second. */
export const HOSTS_PER_RUN = 5;
const HANDSHAKE_MS = 5_000;
/**
 * Time for the first certificate of a host: then its absence is a problem. With short intervals:
 * this many of them.
 */
const FIRST_CERTIFICATE_MS = 3 * 60_000;
const FIRST_INTERVALS = 5;
/**
 * Time until the next check of a host whose certificate is not in order. Never longer than the
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
  /** Time between two checks of a certificate in order. */
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

  /** Hosts that are gone need no memory. */
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
    // The log names no problem of a domain that never had a good certificate, so it does not name
    // its end either.
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

/** A custom domain without a certificate might not lead here yet. */
const concernsOperator = ({ custom, hadGood }: Watched): boolean => !custom || hadGood;
const isProblem = (last: HostCertificate | null): last is HostCertificate & { problem: string } =>
  last !== null && last.problem !== null;
const lower = (a: number | null, b: number | null): number | null => {
  if (a === null) return b;
  return b === null ? a : Math.min(a, b);
};

/** Never rejects. Sends no request: the proxy sees a connection that ends after the handshake. */
function shakeHands(base: string, host: string, signal: AbortSignal): Promise<Handshake> {
  const url = new URL(base);
  return new Promise((resolve) => {
    const socket = connect({
      host: url.hostname.replace(/^\[|\]$/g, ''),
      port: url.port === '' ? 443 : Number(url.port),
      servername: host,
      // The handshake shall succeed with any certificate: this check judges it.
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
    // A proxy that restarts resets connections. Only a TLS alert is its answer.
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
