/** The interface of an identity provider, independent of its protocol. */
import type { Identity } from '@berth/wire/gateway';

/** Secrets of one login, stored in the sealed attempt cookie. */
export type Secrets = {
  /** RFC 6749 section 10.12: binds the answer to the browser. */
  state: string;
  /** OpenID Connect Core section 3.1.2.1: binds the ID token to this request. */
  nonce: string;
  /** RFC 7636 section 4.1: binds the code to this request. */
  verifier: string;
};

/** Claims of the provider. The checks of the callback convert them to an identity. */
export type Claimed = {
  email: string | null;
  verified: boolean;
  name: string | null;
  avatar_url: string | null;
  /**
   * Google's `hd`: the domain of the company that manages the account, or null. Absent for
   * providers without this claim.
   */
  hosted_domain?: string | null;
};

export type Provider = {
  /** Name in addresses and in X-Forwarded-User-Provider: `github`, `google` or OIDC_NAME. */
  id: Identity['provider'];
  /** Name for people. */
  label: string;
  /**
   * Returns the address to which the browser is redirected. With `fresh`, the provider lets the
   * person choose an account or sign in again, even if it has a session (OpenID Connect Core
   * section 3.1.2.1, `prompt`).
   * @throws ProviderUnavailable
   */
  authorizationUrl(secrets: Secrets, redirectUri: string, fresh: boolean): Promise<URL>;
  /**
   * Returns the address that ends the provider's own session (OpenID Connect RP-Initiated Logout
   * 1.0), or null if it is unknown.
   */
  signOutUrl(returnTo: string): Promise<URL | null>;
  /**
   * RFC 9207 section 2.4: the issuer that an answer can name. `named` is true if the answer must
   * name it.
   * @throws ProviderUnavailable
   */
  issuer(): Promise<{ issuer: string; named: boolean }>;
  /**
   * Redeems the code in `callback`, the address to which the browser returned.
   * @throws ProviderUnavailable, or Refusal `code_refused`, `identity_refused`, `provider_denied`,
   *   `client_refused`
   */
  claims(callback: URL, secrets: Secrets): Promise<Claimed>;
};
