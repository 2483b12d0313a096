/**
 * The checks before a person is signed in, in this order: the answer belongs to a login of this
 * browser, it comes from the expected provider, the identity is valid, and the person can sign in.
 * Each check names its RFC section.
 */
import { allowedBy } from '../allowed.ts';
import type { Attempt } from '../login/attempts.ts';
import { assertPolicyLoaded, type Context } from '../login/context.ts';
import { Refusal } from '../login/refusal.ts';
import { parameter } from '../login/request.ts';
import type { Identity } from '@berth/wire/gateway';
import { identityOf } from './identity.ts';
import { ProviderUnavailable } from './fetch.ts';
import type { Claimed, Provider } from './provider.ts';

/** The state of the checks, which fill in the fields that are null at first. */
export type CallbackState = {
  readonly context: Context;
  /** The address to which the browser returned. */
  readonly url: URL;
  readonly query: unknown;
  readonly providerId: string;
  readonly cookieHeader: string | undefined;
  provider: Provider | null;
  attempt: Attempt | null;
  claimed: Claimed | null;
  identity: Identity | null;
};
type Check = (s: CallbackState) => void | Promise<void>;

/**
 * Returns a value that an earlier check filled in. The order of the list guarantees that the check
 * ran.
 */
export function required<T>(value: T | null): T {
  if (value === null) throw new Error('a check ran before a check that it depends on');
  return value;
}

function policyIsLoaded({ context }: CallbackState): void {
  assertPolicyLoaded(context, null);
}

/** RFC 9700 section 4.4.2.2: each provider has its own redirect URI. */
function providerIsSetUp(s: CallbackState): void {
  s.provider = s.context.providers.get(s.providerId) ?? null;
  if (s.provider === null) throw new Refusal('provider_unknown');
}

/**
 * RFC 6749 section 4.1.2: the answer contains the state of the request; section 3.1: exactly once.
 */
function stateIsThere({ query }: CallbackState): void {
  if (parameter(query, 'state') === undefined) throw new Refusal('state_missing');
}

/** RFC 6749 section 10.12: the state belongs to an open login of this browser. */
function stateIsOfThisBrowser(s: CallbackState): void {
  s.attempt = s.context.attempts.find(s.cookieHeader, parameter(s.query, 'state') ?? '');
  if (s.attempt === null) throw new Refusal('state_unknown');
}

/** RFC 9700 section 4.4.2 (mix-up attacks): the expected provider answers. */
function providerIsTheOneAsked(s: CallbackState): void {
  const expected = required(s.attempt).provider;
  if (expected !== s.providerId)
    throw new Refusal('provider_mismatch', {
      detail: `expected ${expected}, but ${s.providerId} answered`,
    });
}

/**
 * RFC 9207 section 2.4: a named issuer must be the expected one, and a provider that announces
 * `iss` must send it.
 */
async function issuerIsTheOneAsked(s: CallbackState): Promise<void> {
  const issuers = s.url.searchParams.getAll('iss');
  const expected = await required(s.provider).issuer();
  if (issuers.length === 0 && !expected.named) return;
  if (issuers.length !== 1 || issuers[0] !== expected.issuer) throw new Refusal('issuer_mismatch');
}

/**
 * RFC 6749 section 4.1.2.1 and OpenID Connect Core section 3.1.2.6: the provider did not answer
 * with an error.
 */
function providerSentNoError({ query, providerId }: CallbackState): void {
  if (typeof query !== 'object' || query === null || !Object.hasOwn(query, 'error')) return;
  const error = parameter(query, 'error') ?? '';
  if (error === 'server_error' || error === 'temporarily_unavailable')
    throw new ProviderUnavailable(`${providerId}: it answered ${error}`);
  if (error === 'invalid_scope')
    throw new Refusal('scope_refused', { detail: `${providerId}: it answered invalid_scope` });
  throw new Refusal('provider_denied', {
    detail: /^[\w.-]{1,60}$/.test(error) ? error : 'an error code that RFC 6749 does not define',
  });
}

/** RFC 6749 section 4.1.2: the answer contains a code. */
function codeIsThere({ query }: CallbackState): void {
  if (parameter(query, 'code') === undefined) throw new Refusal('code_missing');
}

/**
 * Redeems the code (RFC 6749 section 4.1.3 with RFC 7636 section 4.5) and checks the content of the
 * ID token (OpenID Connect Core section 3.1.3.7).
 */
async function codeGivesIdentity(s: CallbackState): Promise<void> {
  s.claimed = await required(s.provider).claims(s.url, required(s.attempt));
}

/**
 * Berth identifies people by e-mail address (OpenID Connect Core section 5.7), so the address must
 * exist and fit into a header.
 */
function emailIsUsable(s: CallbackState): void {
  s.identity = identityOf(required(s.claimed), s.providerId);
  if (s.identity === null) throw new Refusal('email_missing');
}

/**
 * OpenID Connect Core section 5.1, `email_verified`: an unverified address proves no identity,
 * because anybody can enter another person's address.
 */
function emailIsVerified({ claimed }: CallbackState): void {
  if (!required(claimed).verified) throw new Refusal('email_unverified');
}

/** ALLOWED_EMAILS lists addresses and `@domains` (docs/interfaces.md "Settings"). */
function emailIsAllowed({ identity, context }: CallbackState): void {
  if (!allowedBy(context.config.ALLOWED_EMAILS)(required(identity).email))
    throw new Refusal('email_not_allowed');
}

/** Domains of Google's own mail service. No company manages their accounts. */
const GOOGLES_OWN = new Set(['gmail.com', 'googlemail.com']);

/**
 * At Google, `email_verified` can be outdated: a private account keeps a company's address after
 * the person leaves the company. The claim `hd` names the company that manages the account now. The
 * check applies to people whom ALLOWED_EMAILS lists only by domain.
 */
function domainManagesAccount({ claimed, identity, context }: CallbackState): void {
  const { hosted_domain: managedBy } = required(claimed);
  const { ALLOWED_EMAILS: allowed } = context.config;
  const { email } = required(identity);
  const domain = email.slice(email.lastIndexOf('@') + 1);
  if (
    managedBy === undefined ||
    allowed === undefined ||
    allowed.includes(email) ||
    GOOGLES_OWN.has(domain)
  )
    return;
  if (managedBy?.toLowerCase() !== domain)
    throw new Refusal('email_not_allowed', {
      detail:
        `ALLOWED_EMAILS lists the domain ${domain}, but that domain does not manage this account ` +
        '(hd)',
    });
}

/** A disabled user gets no new session (docs/interfaces.md "Revocation and outages"). */
function userIsEnabled({ identity, context }: CallbackState): void {
  if (context.policy.view().isDisabled(required(identity).email))
    throw new Refusal('user_disabled');
}

/**
 * Refuses a person who was deleted a moment ago. A session that starts now would count as older
 * than the deletion, so the browser would be redirected here endlessly.
 */
function userIsNotJustDeleted({ identity, context }: CallbackState): void {
  if (context.policy.view().isDeleted(required(identity).email, context.now()))
    throw new Refusal('user_deleted');
}

export const CALLBACK_CHECKS: readonly Check[] = [
  policyIsLoaded,
  providerIsSetUp,
  stateIsThere,
  stateIsOfThisBrowser,
  providerIsTheOneAsked,
  issuerIsTheOneAsked,
  providerSentNoError,
  codeIsThere,
  codeGivesIdentity,
  emailIsUsable,
  emailIsVerified,
  emailIsAllowed,
  domainManagesAccount,
  userIsEnabled,
  userIsNotJustDeleted,
];
