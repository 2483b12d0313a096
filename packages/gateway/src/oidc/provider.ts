/** What a login needs of an identity provider, whichever protocol it speaks. */
import type { Identity } from '@berth/wire/gateway';

/** What one login sends out and must get back; kept in the attempt cookie, sealed. */
export type Secrets = {
  /** RFC 6749 section 10.12: binds the answer to the browser that asked. */
  state: string;
  /** OpenID Connect Core section 3.1.2.1: binds the ID token to this request. */
  nonce: string;
  /** RFC 7636 section 4.1: binds the code to this request. */
  verifier: string;
};

/** As the provider says it; the checks of the callback make an identity of it. */
export type Claimed = {
  email: string | null;
  verified: boolean;
  name: string | null;
  avatar_url: string | null;
  /** Google's `hd`: the company that manages the account; null: none does. Absent where the provider has no such claim. */
  hosted_domain?: string | null;
};

export type Provider = {
  /** In addresses and in X-Forwarded-User-Provider: `github`, `google` or OIDC_NAME. */
  id: Identity['provider'];
  /** For people. */
  label: string;
  /**
   * Where the browser is sent. `fresh`: the provider asks who signs in, also where it knows somebody (OpenID Connect Core section 3.1.2.1, `prompt`).
   * @throws ProviderUnavailable
   */
  authorizationUrl(secrets: Secrets, redirectUri: string, fresh: boolean): Promise<URL>;
  /** Where the provider ends its own session (OpenID Connect RP-Initiated Logout 1.0); null: it does not say, or is away. */
  signOutUrl(returnTo: string): Promise<URL | null>;
  /**
   * RFC 9207 section 2.4: the issuer that an answer may name, and whether it has to.
   * @throws ProviderUnavailable
   */
  issuer(): Promise<{ issuer: string; named: boolean }>;
  /**
   * Spends the code of `callback` (the address that the browser came back to).
   * @throws ProviderUnavailable, or Refusal `code_refused`, `identity_refused`, `provider_denied`, `client_refused`
   */
  claims(callback: URL, secrets: Secrets): Promise<Claimed>;
};
