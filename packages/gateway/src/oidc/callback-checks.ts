/**
 * What must hold before anybody is signed in, in this order: first that the answer belongs to a login of this browser, then that the
 * provider asked is the one that answers, then what it says, then whether that person may come in. Each check names its section.
 */
import { allowedBy } from '../allowed.ts';
import type { Attempt } from '../login/attempts.ts';
import { assertPolicyKnown, type Context } from '../login/context.ts';
import { Refusal } from '../login/refusal.ts';
import { parameter } from '../login/request.ts';
import type { Identity } from '@berth/wire/gateway';
import { identityOf } from './identity.ts';
import { ProviderUnavailable } from './fetch.ts';
import type { Claimed, Provider } from './provider.ts';

/** Filled by the checks as they pass. */
export type CallbackState = {
  readonly context: Context;
  /** As the browser came back to it. */
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

/** What an earlier check left; that it did is the order of the list. */
export function held<T>(value: T | null): T {
  if (value === null) throw new Error('a check ran before the one it builds on');
  return value;
}

function policyIsKnown({ context }: CallbackState): void {
  assertPolicyKnown(context, null);
}

/** RFC 9700 section 4.4.2.2: each provider has a redirect URI of its own. */
function providerIsSetUp(s: CallbackState): void {
  s.provider = s.context.providers.get(s.providerId) ?? null;
  if (s.provider === null) throw new Refusal('provider_unknown');
}

/** RFC 6749 section 4.1.2: the answer carries the state that the request had; section 3.1: once. */
function stateIsThere({ query }: CallbackState): void {
  if (parameter(query, 'state') === undefined) throw new Refusal('state_missing');
}

/** RFC 6749 section 10.12: of a login that this very browser began and that was not answered yet. */
function stateIsOfThisBrowser(s: CallbackState): void {
  s.attempt = s.context.attempts.find(s.cookieHeader, parameter(s.query, 'state') ?? '');
  if (s.attempt === null) throw new Refusal('state_unknown');
}

/** RFC 9700 section 4.4.2: mix-up; the provider that was asked is the one that answers. */
function providerIsTheOneAsked(s: CallbackState): void {
  const asked = held(s.attempt).provider;
  if (asked !== s.providerId) throw new Refusal('provider_mismatch', { detail: `asked ${asked}, answered at ${s.providerId}` });
}

/** RFC 9207 section 2.4: an issuer that is named must be the right one, and must be named by those who say that they name it. */
async function issuerIsTheOneAsked(s: CallbackState): Promise<void> {
  const given = s.url.searchParams.getAll('iss');
  const expected = await held(s.provider).issuer();
  if (given.length === 0 && !expected.named) return;
  if (given.length !== 1 || given[0] !== expected.issuer) throw new Refusal('issuer_mismatch');
}

/** RFC 6749 section 4.1.2.1 and OpenID Connect Core section 3.1.2.6: the provider's own error answer. */
function providerSaidYes({ query, providerId }: CallbackState): void {
  if (typeof query !== 'object' || query === null || !Object.hasOwn(query, 'error')) return;
  const error = parameter(query, 'error') ?? '';
  if (error === 'server_error' || error === 'temporarily_unavailable') throw new ProviderUnavailable(`${providerId}: it said ${error}`);
  if (error === 'invalid_scope') throw new Refusal('scope_refused', { detail: `${providerId}: it said invalid_scope` });
  throw new Refusal('provider_denied', { detail: /^[\w.-]{1,60}$/.test(error) ? error : 'an error that is none of RFC 6749' });
}

/** RFC 6749 section 4.1.2 */
function codeIsThere({ query }: CallbackState): void {
  if (parameter(query, 'code') === undefined) throw new Refusal('code_missing');
}

/** RFC 6749 section 4.1.3 with RFC 7636 section 4.5; OpenID Connect Core section 3.1.3.7 for what the ID token must hold. */
async function codeBuysIdentity(s: CallbackState): Promise<void> {
  s.claimed = await held(s.provider).claims(s.url, held(s.attempt));
}

/** OpenID Connect Core section 5.7: an address is who somebody is to us, so there must be one that can stand in a header. */
function emailIsUsable(s: CallbackState): void {
  s.identity = identityOf(held(s.claimed), s.providerId);
  if (s.identity === null) throw new Refusal('email_missing');
}

/** OpenID Connect Core section 5.1, `email_verified`: anybody can write anybody's address into an unverified one. */
function emailIsVerified({ claimed }: CallbackState): void {
  if (!held(claimed).verified) throw new Refusal('email_unverified');
}

/** INTERFACES: ALLOWED_EMAILS, addresses and `@domains`. */
function emailIsAllowed({ identity, context }: CallbackState): void {
  if (!allowedBy(context.config.ALLOWED_EMAILS)(held(identity).email)) throw new Refusal('email_not_allowed');
}

/** Of these Google itself is the provider, and no company manages an account. */
const GOOGLES_OWN = new Set(['gmail.com', 'googlemail.com']);

/**
 * Google: `email_verified` was true once, and an account of one's own keeps the address of a company that one has left. `hd` says who
 * manages the account now. For those whom ALLOWED_EMAILS names by their domain alone.
 */
function domainManagesAccount({ claimed, identity, context }: CallbackState): void {
  const { hosted_domain: managedBy } = held(claimed);
  const { ALLOWED_EMAILS: allowed } = context.config;
  const { email } = held(identity);
  const domain = email.slice(email.lastIndexOf('@') + 1);
  if (managedBy === undefined || allowed === undefined || allowed.includes(email) || GOOGLES_OWN.has(domain)) return;
  if (managedBy?.toLowerCase() !== domain)
    throw new Refusal('email_not_allowed', {
      detail: `ALLOWED_EMAILS names the domain ${domain}, and it does not manage this account (hd)`,
    });
}

/** INTERFACES: a disabled user gets no new session. */
function userIsEnabled({ identity, context }: CallbackState): void {
  if (context.policy.view().isDisabled(held(identity).email)) throw new Refusal('user_disabled');
}

/** A session that begins now would count as one from before the deletion, and the browser would be sent here again without an end. */
function userIsNotJustDeleted({ identity, context }: CallbackState): void {
  if (context.policy.view().isDeleted(held(identity).email, context.now())) throw new Refusal('user_deleted');
}

export const CALLBACK_CHECKS: readonly Check[] = [
  policyIsKnown,
  providerIsSetUp,
  stateIsThere,
  stateIsOfThisBrowser,
  providerIsTheOneAsked,
  issuerIsTheOneAsked,
  providerSaidYes,
  codeIsThere,
  codeBuysIdentity,
  emailIsUsable,
  emailIsVerified,
  emailIsAllowed,
  domainManagesAccount,
  userIsEnabled,
  userIsNotJustDeleted,
];
