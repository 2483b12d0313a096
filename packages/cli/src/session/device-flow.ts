/** Signs in by the device flow (RFC 8628): the person confirms in a browser on any machine. */
import { hostname } from 'node:os';
import { ApiError } from '@berth/wire/client';
import { ROUTES } from '@berth/wire/routes';
import { BERTH_VERSION } from '@berth/wire/version';
import { open, readText } from '../http.ts';
import type { Io } from '../io.ts';
import { CliError, EXIT, isPage, refused, signInNeeded } from '../problem.ts';

const DEVICE_GRANT = 'urn:ietf:params:oauth:grant-type:device_code';
/** After the answer `slow_down`, the pause grows by 5 s (RFC 8628 section 3.5). */
const SLOWER_MS = 5_000;
const REQUEST_MS = 15_000;
const CLIENT_ID = 'berth-cli';
/** The consent page shows the user agent, so that a person sees which machine asks. */
const userAgent = (): string => `berth/${BERTH_VERSION} on ${hostname().replaceAll(/[^ -~]/g, '')}`;

type Endpoints = { code: string; token: string };
export type Asked = {
  deviceCode: string;
  userCode: string;
  address: string;
  completeAddress: string;
  expiresInMs: number;
  intervalMs: number;
};

/** Discovers the endpoints (RFC 8414). Returns null if the address has no gateway. */
export async function findEndpoints(url: string): Promise<Endpoints | null> {
  const answer = await open(`${url}/.well-known/oauth-authorization-server`, {
    signal: AbortSignal.timeout(REQUEST_MS),
  });
  const text = await readText(answer.message);
  if (answer.status >= 500 || isPage(text))
    throw new ApiError(answer.status, `http_${answer.status}`, text, null);
  if (answer.status !== 200) {
    await assertBerth(url);
    return null;
  }
  const discovery = parse(text);
  const code = discovery['device_authorization_endpoint'];
  const token = discovery['token_endpoint'];
  if (typeof code !== 'string' || typeof token !== 'string') return null;
  // Refuse another issuer (RFC 8414 section 3.3): a foreign document must not send the person or
  // the token to another site.
  for (const endpoint of [code, token])
    if (!URL.canParse(endpoint) || new URL(endpoint).origin !== url)
      throw refused(
        'wrong_issuer',
        `${url} names the sign-in address ${endpoint}, which is another origin`,
        'sign in at the address that PUBLIC_URL names',
      );
  return { code, token };
}

/**
 * Throws unless the address answers like a control plane, which sends a problem document for a
 * request without a token.
 */
async function assertBerth(url: string): Promise<void> {
  const answer = await open(`${url}${ROUTES.version.path}`, {
    signal: AbortSignal.timeout(REQUEST_MS),
  });
  const text = await readText(answer.message);
  if (typeof parse(text)['code'] !== 'string')
    throw new ApiError(answer.status, `http_${answer.status}`, text.slice(0, 300), null);
}

export async function askForCode(endpoints: Endpoints): Promise<Asked> {
  const answer = await form(endpoints.code, { client_id: CLIENT_ID, scope: 'projects api' });
  if (answer.status !== 200) throw oauthFailure(answer);
  const {
    device_code,
    user_code,
    verification_uri,
    verification_uri_complete,
    expires_in,
    interval,
  } = answer.body;
  if (
    typeof device_code !== 'string' ||
    typeof user_code !== 'string' ||
    typeof verification_uri !== 'string'
  )
    throw refused('bad_answer', `${endpoints.code} did not answer as RFC 8628 says`);
  return {
    deviceCode: device_code,
    userCode: user_code,
    address: verification_uri,
    completeAddress:
      typeof verification_uri_complete === 'string' ? verification_uri_complete : verification_uri,
    expiresInMs: Number(expires_in ?? 600) * 1000,
    intervalMs: Number(interval ?? 5) * 1000,
  };
}

/** Polls until the person confirms or refuses. Returns the device token. */
export async function waitForToken(io: Io, endpoints: Endpoints, asked: Asked): Promise<string> {
  const until = io.monotonic() + asked.expiresInMs;
  let pause = asked.intervalMs;
  while (io.monotonic() < until) {
    await io.sleep(pause, io.interrupted).catch(() => undefined);
    if (io.interrupted.aborted)
      throw new CliError(
        EXIT.interrupted,
        'interrupted',
        'you pressed Ctrl-C; you are not signed in',
      );
    const answer = await form(endpoints.token, {
      grant_type: DEVICE_GRANT,
      device_code: asked.deviceCode,
      client_id: CLIENT_ID,
    }).catch((error: unknown) => {
      if (error instanceof CliError) throw error;
      // Retry after a failed connection, with a longer pause (section 3.5).
      pause += SLOWER_MS;
      return null;
    });
    if (answer === null) continue;
    const token = answer.body['access_token'];
    if (answer.status === 200 && typeof token === 'string') return token;
    const { error } = answer.body;
    if (error === 'slow_down') pause += SLOWER_MS;
    else if (error === 'access_denied') throw signInNeeded('the request was denied in the browser');
    else if (error === 'expired_token') break;
    else if (error !== 'authorization_pending' && answer.status < 500 && answer.status !== 429)
      throw oauthFailure(answer);
  }
  throw signInNeeded(
    `nobody confirmed the code within ${Math.round(asked.expiresInMs / 60_000)} minutes`,
  );
}

type FormAnswer = { status: number; body: Record<string, unknown> };

async function form(address: string, fields: Record<string, string>): Promise<FormAnswer> {
  const headers = {
    'content-type': 'application/x-www-form-urlencoded',
    accept: 'application/json',
    'user-agent': userAgent(),
  };
  const body = new URLSearchParams(fields).toString();
  const { status, message } = await open(address, {
    method: 'POST',
    headers,
    body,
    signal: AbortSignal.timeout(REQUEST_MS),
  });
  return { status, body: parse(await readText(message)) };
}

function parse(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    // The answer is a page from a proxy. The caller notices the missing fields.
    return {};
  }
}

function oauthFailure({ status, body }: FormAnswer): CliError {
  const [code, description] = [body['error'], body['error_description']].map((field) =>
    typeof field === 'string' ? field : undefined,
  );
  const said = description ?? code ?? `HTTP ${status}`;
  return status >= 500
    ? new CliError(
        EXIT.unreachable,
        'gateway_unreachable',
        `the gateway cannot sign you in at the moment: ${said}`,
      )
    : refused(code ?? 'sign_in_failed', `the gateway refused the sign-in: ${said}`);
}
