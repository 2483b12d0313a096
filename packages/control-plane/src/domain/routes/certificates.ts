/** Judges the certificate that the reverse proxy serves for a host. Pure. */
import type { CertificateState } from '@berth/wire/certificate';

/** The answer of one https entry point to a TLS handshake for a host. */
export type Handshake =
  | {
      kind: 'certificate';
      /** Common name or organization. */
      subject: string;
      issuer: string;
      notBefore: number;
      notAfter: number;
      /** Null if the certificate is for this host, else the names that it has. */
      otherNames: string | null;
      /** Null if this machine trusts the chain, else OpenSSL's code. */
      untrusted: string | null;
    }
  /** The proxy ended the handshake. */
  | { kind: 'refused'; why: string }
  /** The proxy does not answer: it says nothing about the certificate. */
  | { kind: 'no_answer' };

export type Judged = {
  state: CertificateState;
  issuer: string | null;
  not_after: number | null;
  problem: string | null;
};

/** Traefik answers with it until it has a certificate for the host. */
const TRAEFIKS_OWN = 'TRAEFIK DEFAULT CERT';
/** Codes of OpenSSL that only repeat what the dates say. */
const ABOUT_DATES = ['CERT_HAS_EXPIRED', 'CERT_NOT_YET_VALID'];
const SEE = 'see docs/https.md';

const HOUR = 3_600_000;
const DAY = 24 * HOUR;
/**
 * Remaining time at which a certificate should long have been renewed: about half of the time at
 * which Traefik renews one of this lifetime. The lifetime is often a second short of whole days.
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
 * `isNew`: the proxy might still be getting the first certificate. Null: the answer says nothing.
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
  // The operator's own default certificate, until the first one of the authority is there.
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

/** Returns the most urgent one of several entry points; null without any. */
export const worstCertificate = (all: readonly Judged[]): Judged | null =>
  all.toSorted(
    (a, b) =>
      URGENCY.indexOf(a.state) - URGENCY.indexOf(b.state) ||
      (a.not_after ?? 0) - (b.not_after ?? 0),
  )[0] ?? null;
