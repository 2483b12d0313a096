/**
 * An address of Berth with the credentials for it. A request carries a valid token:
 *
 *   stored token ── still valid ──▶ use it
 *        │ expires within a minute, or the API answers 401
 *        ▼ under the lock, because another process might renew it at the same time
 *   refresh token ── accepted ──▶ use the new token
 *        │ refused: used before, or lost by a killed process
 *        ▼
 *   device token ── accepted ──▶ open a new session
 *        │ refused
 *        ▼
 *   "sign in again", exit 4
 */
import { API_TOKEN_PREFIX } from '@berth/wire/token';
import type { LoginAnswer } from '@berth/wire/access';
import { ApiError, type Client, createClient } from '@berth/wire/client';
import { DEVICE_TOKEN_PREFIX } from '@berth/wire/gateway';
import type { Io } from '../io.ts';
import { asFetch, type Fetch, type HttpAnswer, type HttpRequest, open } from '../http.ts';
import { signInNeeded } from '../problem.ts';
import { renewal } from './renewals.ts';
import { type Tokens, tokensOf, tokenStore } from './tokens.ts';

/** Time in ms before expiry at which a token is renewed. */
const EARLY_MS = 60_000;

export type Session = {
  url: string;
  client: Client;
  /** Sends an authorized request, for event streams. */
  send: Fetch;
  /** Returns whether the next request will renew the token first. */
  mustRenew(): boolean;
};

/** `token` returns a valid token. `refusedToken`: the token that the API has just refused. */
type Source = { token(refusedToken: string | null): Promise<string>; mustRenew(): boolean };

export function openSession(io: Io, url: string, given: string | undefined): Session {
  const source = given === undefined ? storedSource(io, url) : givenSource(url, given);
  async function send(address: string, request: HttpRequest): Promise<HttpAnswer> {
    const token = await source.token(null);
    const answer = await open(address, withToken(request, token));
    // Do not renew after an HTML page: it is from a proxy, which knows no Berth tokens.
    if (answer.status !== 401 || !/json/.test(answer.header('content-type') ?? '')) return answer;
    answer.message.resume();
    return open(address, withToken(request, await source.token(token)));
  }
  return {
    url,
    send,
    mustRenew: source.mustRenew,
    client: createClient({ baseUrl: url, fetch: asFetch(send) }),
  };
}

const withToken = (request: HttpRequest, token: string): HttpRequest => ({
  ...request,
  headers: { ...request.headers, authorization: `Bearer ${token}` },
});

export const anonymous = (url: string): Client =>
  createClient({ baseUrl: url, fetch: asFetch(open) });

/** Opens a session with a device token. Only this route accepts a device token. */
export const exchange = (url: string, deviceToken: string): Promise<LoginAnswer> =>
  anonymous(url).call('exchange', { headers: { authorization: `Bearer ${deviceToken}` } });

/** Uses a token from CI. A device token is exchanged once per run. */
function givenSource(url: string, given: string): Source {
  if (given.startsWith(API_TOKEN_PREFIX) || !given.startsWith(DEVICE_TOKEN_PREFIX)) {
    const token = async (refused: string | null): Promise<string> => {
      if (refused === given)
        throw signInNeeded(
          `${url} refused the token of BERTH_TOKEN: it is wrong, expired or revoked`,
          'create another one: berth token create',
        );
      return given;
    };
    return { token, mustRenew: () => false };
  }
  let opened: Promise<LoginAnswer> | undefined;
  const token = async (refused: string | null): Promise<string> => {
    if (refused !== null) opened = undefined;
    opened ??= exchange(url, given);
    try {
      return (await opened).token;
    } catch (error) {
      if (!isRefusal(error)) throw error;
      throw signInNeeded(
        `${url} refused the device token of BERTH_TOKEN: ${error.message}`,
        'create another one: berth token create',
      );
    }
  };
  return { token, mustRenew: () => false };
}

function storedSource(io: Io, url: string): Source {
  const store = tokenStore(io.config, url);
  const usable = (tokens: Tokens | null, refusedToken: string | null): tokens is Tokens =>
    tokens !== null && tokens.token !== refusedToken && tokens.expires_at - EARLY_MS > io.now();
  const present = (): Tokens => {
    const tokens = store.read();
    if (tokens === null)
      throw signInNeeded(`you are not signed in to ${url}`, `berth login ${url}`);
    return tokens;
  };

  async function renew(tokens: Tokens): Promise<Tokens> {
    try {
      const answer = await anonymous(url).call('refresh', {
        body: { refresh_token: tokens.refresh_token },
      });
      return tokensOf(url, answer, io.now(), tokens.device_token);
    } catch (error) {
      if (!isRefusal(error)) throw error;
      if (tokens.device_token === null) throw ended(error, tokens);
    }
    try {
      return tokensOf(url, await exchange(url, tokens.device_token), io.now(), tokens.device_token);
    } catch (error) {
      throw isRefusal(error) ? ended(error, tokens) : error;
    }
  }
  const ended = (error: Error, tokens: Tokens): Error =>
    signInNeeded(
      `your session at ${url} has ended: ${error.message}`,
      // A password session has no device token, so the person must sign in again.
      tokens.device_token === null
        ? `berth login ${url} --email ${tokens.email}`
        : `berth login ${url}`,
    );

  let currentTokens: Tokens | null = null;
  const token = async (refusedToken: string | null): Promise<string> => {
    if (usable(currentTokens, refusedToken)) return currentTokens.token;
    currentTokens = present();
    if (usable(currentTokens, refusedToken)) return currentTokens.token;
    currentTokens = await renewal(
      store.locked(async () => {
        const again = present();
        if (usable(again, refusedToken)) return again;
        const renewed = await renew(again);
        store.write(renewed);
        return renewed;
      }),
    );
    return currentTokens.token;
  };
  return { token, mustRenew: () => !usable(present(), null) };
}

const isRefusal = (error: unknown): error is ApiError =>
  error instanceof ApiError &&
  error.problem !== null &&
  (error.status === 401 || error.status === 403);
