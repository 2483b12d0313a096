import { type Static, Type } from 'typebox';
import { literals, orNull, Time } from './vocabulary.ts';

/**
 * `pending`: the proxy is requesting the first certificate. `expires_soon`: the renewal is overdue.
 * `invalid`: browsers refuse the host.
 */
export const CERTIFICATE_STATES = ['pending', 'ok', 'expires_soon', 'invalid'] as const;
export type CertificateState = (typeof CERTIFICATE_STATES)[number];

/** The certificate that the reverse proxy serves for a host. */
export const Certificate = Type.Object({
  state: literals(CERTIFICATE_STATES),
  issuer: orNull(Type.String({ description: 'null: the proxy served none' })),
  not_after: orNull(Time),
  problem: orNull(Type.String({ description: 'what is wrong, and what to do' })),
  checked_at: Time,
});
export type Certificate = Static<typeof Certificate>;
