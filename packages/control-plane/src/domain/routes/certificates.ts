/** Judges the certificate that the reverse proxy serves for a host. Pure. */
import type { CertificateState } from '@berth/wire/certificate';

/** Result of a TLS handshake for a host at one https entry point. */
export type Handshake =
  | {
      kind: 'certificate';
      /** Common name or organization. */
      subject: string;
      issuer: string;
      notBefore: number;
      notAfter: number;
      /** Null if the certificate is valid for this host, else the names in it. */
      otherNames: string | null;
      /** Null if this machine trusts the certificate chain, else the error code of OpenSSL. */
      untrusted: string | null;
    }
  /** The proxy aborted the handshake. */
  | { kind: 'refused'; why: string }
  /** The proxy does not answer, so the certificate is unknown. */
  | { kind: 'no_answer' };

export type Judged = {
  state: CertificateState;
  issuer: string | null;
  not_after: number | null;
  problem: string | null;
};

/** Subject of the certificate that Traefik serves until it has one for the host. */
const TRAEFIKS_OWN = 'TRAEFIK DEFAULT CERT';
/** Error codes of OpenSSL that only concern the dates, which are checked separately. */
const ABOUT_DATES = ['CERT_HAS_EXPIRED', 'CERT_NOT_YET_VALID'];
const SEE = 'see docs/https.md';

const HOUR = 3_600_000;
const DAY = 24 * HOUR;
/**
 * Returns the remaining lifetime in ms below which the renewal is overdue: about half of the
 * remaining lifetime at which Traefik renews. A lifetime is often one second short of whole days.
 */
function lateAt(lifetime: number): number {
  if (lifetime >= 90 * DAY - HOUR) return 14 * DAY;
  if (lifetime >= 30 * DAY - HOUR) return 5 * DAY;
  if (lifetime >= 7 * DAY - HOUR) return DAY / 2;
  if (lifetime >= DAY - HOUR) return 3 * HOUR;
  return Math.min(HOUR / 6, lifetime / 6);
}

const day = (ms: number): string =>
  `${new Date(ms).toISOString().slice(0, 16).replace('T', ' ')} UTC`;

/**
 * Returns the state of the certificate; null if the handshake reveals nothing. `isNew`: the proxy
 * might still be obtaining the first certificate.
 */
export function judgeCertificate(
  host: string,
  seen: Handshake,
  isNew: boolean,
  now: number,
): Judged | null {
  if (seen.kind === 'no_answer') return null;
  const missing = (problem: string): Judged =>
    isNew
      ? { state: 'pending', issuer: null, not_after: null, problem: null }
      : { state: 'invalid', issuer: null, not_after: null, problem };
  if (seen.kind === 'refused')
    return missing(`the proxy refuses TLS connections for ${host} (${seen.why}): ${SEE}`);
  if (seen.subject === TRAEFIKS_OWN)
    return missing(
      `the proxy has no certificate for ${host}: the log of the proxy says why it got none ` +
        `(search it for ${host}); ${SEE}`,
    );

  const { issuer, notBefore, notAfter, otherNames, untrusted } = seen;
  const invalid = (problem: string): Judged => ({
    state: 'invalid',
    issuer,
    not_after: notAfter,
    problem: `${problem}; ${SEE}`,
  });
  if (now < notBefore)
    return invalid(
      `the certificate of ${host} is valid only from ${day(notBefore)}: check the clocks of ` +
        'this machine and of the proxy',
    );
  if (now >= notAfter)
    return invalid(
      `the certificate of ${host} expired on ${day(notAfter)} and was not renewed: the log of ` +
        'the proxy says why',
    );
  const pending: Judged = { state: 'pending', issuer, not_after: null, problem: null };
  // The proxy serves the default certificate of the operator until the authority issues the first
  // one.
  if (otherNames !== null)
    return isNew
      ? pending
      : invalid(
          `the proxy serves a certificate for ${otherNames}, not for ${host}: its log says why ` +
            'it has none',
        );
  if (untrusted !== null && !ABOUT_DATES.includes(untrusted))
    return isNew
      ? pending
      : invalid(
          `this machine does not trust the certificate of ${host} by ${issuer} (${untrusted}): ` +
            'for an authority of your own, set ' +
            'NODE_EXTRA_CA_CERTS on the control plane',
        );
  if (notAfter - now > lateAt(notAfter - notBefore))
    return { state: 'ok', issuer, not_after: notAfter, problem: null };
  return {
    state: 'expires_soon',
    issuer,
    not_after: notAfter,
    problem:
      `the certificate of ${host} ends on ${day(notAfter)} and was not renewed yet: the log of ` +
      `the proxy says why; ${SEE}`,
  };
}

const URGENCY: readonly CertificateState[] = ['invalid', 'expires_soon', 'pending', 'ok'];

/** Returns the most urgent state of several entry points; null if there are none. */
export const worstCertificate = (all: readonly Judged[]): Judged | null =>
  all.toSorted(
    (a, b) =>
      URGENCY.indexOf(a.state) - URGENCY.indexOf(b.state) ||
      (a.not_after ?? 0) - (b.not_after ?? 0),
  )[0] ?? null;
