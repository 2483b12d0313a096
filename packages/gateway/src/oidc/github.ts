/**
 * Sign-in with GitHub: OAuth 2.0 (RFC 6749) with PKCE. GitHub has no OpenID Connect, so the
 * identity comes from its API. GITHUB_URL and GITHUB_API_URL select a GitHub Enterprise server.
 */
import { createHash } from 'node:crypto';
import { defined } from '@berth/kit/defined';
import { Refusal } from '../login/refusal.ts';
import { type Fetch, ProviderUnavailable } from './fetch.ts';
import type { Live } from '@berth/kit/live';
import type { Provider } from './provider.ts';

export type GithubOptions = {
  clientId: string;
  clientSecret: Live<string>;
  url: string;
  apiUrl: string;
  fetch: Fetch;
};

type Json = Record<string, unknown>;

export function createGithubProvider(options: GithubOptions): Provider {
  async function ask(url: string, init: RequestInit): Promise<unknown> {
    const response = await options.fetch(url, init);
    if (!response.ok)
      throw new ProviderUnavailable(`github: ${new URL(url).pathname}: HTTP ${response.status}`);
    try {
      return await response.json();
    } catch (error) {
      throw new ProviderUnavailable(`github: ${new URL(url).pathname}: the answer is not JSON`, {
        cause: error,
      });
    }
  }

  async function accessToken(code: string, redirectUri: string, verifier: string): Promise<string> {
    const { clientId } = options;
    // Parameters of RFC 6749 section 4.1.3 and RFC 7636 section 4.5.
    const body = new URLSearchParams({
      grant_type: 'authorization_code',
      client_id: clientId,
      client_secret: options.clientSecret(),
      code,
      redirect_uri: redirectUri,
      code_verifier: verifier,
    });
    const answer = objectOf(
      await ask(`${options.url}/login/oauth/access_token`, {
        method: 'POST',
        headers: { accept: 'application/json' },
        body,
      }),
    );
    // GitHub answers errors with status 200 too.
    const error = answer['error'];
    if (
      error === 'bad_verification_code' ||
      error === 'invalid_grant' ||
      error === 'incorrect_client_credentials_for_code'
    )
      throw new Refusal('code_refused', { detail: error });
    if (error === 'incorrect_client_credentials' || error === 'invalid_client')
      throw new Refusal('client_refused', { detail: `github: ${error}` });
    if (typeof error === 'string')
      throw new ProviderUnavailable(`github: ${error.replace(/[^\w.-]/g, '?').slice(0, 60)}`);
    const token = answer['access_token'];
    if (typeof token !== 'string' || token === '')
      throw new ProviderUnavailable('github: the answer contains no access token');
    return token;
  }

  return {
    id: 'github',
    label: 'GitHub',
    async authorizationUrl(secrets, redirectUri, fresh) {
      const url = new URL(`${options.url}/login/oauth/authorize`);
      url.search = new URLSearchParams({
        response_type: 'code',
        client_id: options.clientId,
        redirect_uri: redirectUri,
        scope: 'read:user user:email',
        state: secrets.state,
        code_challenge: createHash('sha256').update(secrets.verifier).digest('base64url'),
        code_challenge_method: 'S256',
        ...defined({ prompt: fresh ? 'select_account' : undefined }),
      }).toString();
      return url;
    },
    signOutUrl: () => Promise.resolve(null),
    // RFC 9207: github.com sends `iss` since April 2026, but Enterprise servers might not.
    issuer: () => Promise.resolve({ issuer: `${options.url}/login/oauth`, named: false }),
    async claims(callback, secrets) {
      const redirectUri = `${callback.origin}${callback.pathname}`;
      const token = await accessToken(
        callback.searchParams.get('code') ?? '',
        redirectUri,
        secrets.verifier,
      );
      const init = {
        headers: {
          accept: 'application/vnd.github+json',
          authorization: `Bearer ${token}`,
          'user-agent': 'berth-gateway',
          'x-github-api-version': '2022-11-28',
        },
      };
      const [user, emails] = await Promise.all([
        ask(`${options.apiUrl}/user`, init),
        ask(`${options.apiUrl}/user/emails?per_page=100`, init),
      ]);
      if (!Array.isArray(emails))
        throw new ProviderUnavailable('github: /user/emails is not a list');
      // Do not use the address of the public profile: people can enter any address there.
      const primary = emails.map(objectOf).find((e) => e['primary'] === true);
      const profile = objectOf(user);
      const text = (value: unknown): string | null =>
        typeof value === 'string' && value !== '' ? value : null;
      return {
        email: text(primary?.['email']),
        verified: primary?.['verified'] === true,
        name: text(profile['name']) ?? text(profile['login']),
        avatar_url: text(profile['avatar_url']),
      };
    },
  };
}

const objectOf = (value: unknown): Json =>
  typeof value === 'object' && value !== null ? (value as Json) : {};
