/**
 * A real OpenID provider (npm `oidc-provider`, which is certified) on loopback. It has its own
 * accounts and a login form that a person, Chromium or PlainBrowser can fill in. It can be down,
 * slow, answer garbage, rotate its keys and forge its answers. For development and tests only: it
 * shows its accounts' passwords.
 */
import {
  createPrivateKey,
  generateKeyPairSync,
  type JsonWebKey,
  randomBytes,
  randomUUID,
  sign,
} from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import Provider, {
  type Account as OidcAccount,
  type ClientMetadata,
  type Configuration,
} from 'oidc-provider';
import { defined } from '@berth/kit/defined';
import { createOidcMemory } from './oidc-memory.ts';
import type { Page, PlainBrowser } from './plain-browser.ts';

export type Account = {
  email: string;
  password: string;
  name: string;
  picture: string | null;
  emailVerified: boolean;
  /** Google's claim `hd`. */
  hostedDomain?: string;
};

/**
 * `down`: the connection is reset; `slow`: no answer; `garbage`: 200 with a body that is not JSON;
 * a number: that status.
 */
export type Fault = 'down' | 'slow' | 'garbage' | number;
export type TokenAnswer = Record<string, unknown>;

export type IdentityProvider = {
  readonly issuer: string;
  readonly clientId: string;
  readonly clientSecret: string;
  /** A test can change the accounts. The first has a verified address, the second has not. */
  readonly accounts: Account[];
  /** Adds a redirect URI to the client. */
  allowRedirect(uri: string): void;
  /** Fills in the login form `page`. Returns the page after all redirects. */
  signIn(browser: PlainBrowser, page: Page, account: Account): Promise<Page>;
  /**
   * Injects a fault into requests whose path begins with `path` (default: all), until the next
   * call; null ends the fault.
   */
  fault(fault: Fault | null, path?: string): void;
  /** Replaces the signing keys; the old ones stop working at once. */
  rotateKeys(): void;
  /** Returns a token with these claims, signed with the current key. */
  sign(claims: Record<string, unknown>): string;
  /**
   * Changes the answers of an endpoint (default: the token endpoint) before they are sent; null
   * ends the change.
   */
  tamper(
    change: ((answer: TokenAnswer) => TokenAnswer | Promise<TokenAnswer>) | null,
    path?: TamperedPath,
  ): void;
  /** Number of requests whose path begins with `path`. */
  requests(path: string): number;
  stop(): Promise<void>;
};

export type IdentityProviderOptions = {
  /** Port to listen on (default: a free one). */
  port?: number;
  redirectUris?: readonly string[];
  accounts?: readonly Account[];
  /**
   * Whether the ID token has e-mail and profile too, besides the userinfo endpoint (OpenID Connect
   * Core section 5.4).
   */
  claimsInIdToken?: boolean;
  clientAuth?: 'client_secret_basic' | 'client_secret_post';
};

const ACCOUNTS: readonly Account[] = [
  {
    email: 'ada@example.test',
    password: 'ada-password',
    name: 'Ada Lovelace',
    picture: 'https://pictures.example.test/ada.png',
    emailVerified: true,
  },
  {
    email: 'eve@example.test',
    password: 'eve-password',
    name: 'Eve Unverified',
    picture: null,
    emailVerified: false,
  },
];

type TamperedPath = '/token' | '/me' | '/.well-known/openid-configuration';

/** Settings of one provider, and the faults that a test injects into it. */
type State = {
  readonly options: IdentityProviderOptions;
  readonly port: number;
  readonly issuer: string;
  readonly clientSecret: string;
  readonly cookieKeys: string[];
  readonly redirectUris: string[];
  readonly accounts: Account[];
  readonly memory: ReturnType<typeof createOidcMemory>;
  /** Number of requests for each path. */
  readonly counts: Map<string, number>;
  /** Answers that the fault `slow` holds back. */
  readonly held: Set<ServerResponse>;
  jwks: NonNullable<Configuration['jwks']>;
  fault: { kind: Fault; path: string } | null;
  change: ((answer: TokenAnswer) => TokenAnswer | Promise<TokenAnswer>) | null;
  changedPath: TamperedPath;
};

type Built = { provider: Provider; handler: ReturnType<Provider['callback']> };
type Running = State & Built;

const CLIENT_ID = 'berth';

export async function startIdentityProvider(
  options: IdentityProviderOptions = {},
): Promise<IdentityProvider> {
  let running: Running | null = null;
  const server = createServer((request, response) => {
    if (running === null) return void request.socket.destroy();
    handle(running, request, response);
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(options.port ?? 0, '127.0.0.1', resolve);
  });
  const own = newProvider(options, (server.address() as AddressInfo).port);
  running = own;
  return {
    issuer: own.issuer,
    clientId: CLIENT_ID,
    clientSecret: own.clientSecret,
    accounts: own.accounts,
    allowRedirect(uri) {
      if (own.redirectUris.includes(uri)) return;
      own.redirectUris.push(uri);
      rebuild(own);
    },
    signIn: (browser, page, account) =>
      browser.submit(page, { email: account.email, password: account.password }, 'Sign in'),
    fault(kind, path = '') {
      own.fault = kind === null ? null : { kind, path };
      for (const response of own.held) response.destroy();
      own.held.clear();
    },
    rotateKeys() {
      own.jwks = newKeys();
      rebuild(own);
    },
    sign: (claims) => signedToken(own.jwks, claims),
    tamper(wanted, path = '/token') {
      own.changedPath = path;
      own.change = wanted;
    },
    requests: (path) =>
      [...own.counts].reduce(
        (sum, [asked, count]) => sum + (asked.startsWith(path) ? count : 0),
        0,
      ),
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function newProvider(options: IdentityProviderOptions, port: number): Running {
  const state: State = {
    options,
    port,
    issuer: `http://127.0.0.1:${port}`,
    clientSecret: randomBytes(24).toString('base64url'),
    cookieKeys: [randomBytes(24).toString('base64url')],
    redirectUris: [...(options.redirectUris ?? [])],
    accounts: (options.accounts ?? ACCOUNTS).map((account) => ({ ...account })),
    memory: createOidcMemory(),
    counts: new Map<string, number>(),
    held: new Set<ServerResponse>(),
    jwks: newKeys(),
    fault: null,
    change: null,
    changedPath: '/token',
  };
  return Object.assign(state, build(state));
}

/**
 * Builds a provider. Its clients and keys are fixed from then on; codes and sessions stay in
 * `memory`.
 */
function build(state: State): Built {
  const provider = new Provider(state.issuer, configurationOf(state));
  provider.use(async (ctx, next) => {
    await next();
    if (ctx.path === state.changedPath && state.change !== null && ctx.status === 200)
      ctx.body = await state.change(ctx.body as TokenAnswer);
  });
  return { provider, handler: provider.callback() };
}

const rebuild = (running: Running): void => void Object.assign(running, build(running));

function clientOf({ options, clientSecret, redirectUris }: State): ClientMetadata {
  return {
    client_id: CLIENT_ID,
    client_secret: clientSecret,
    redirect_uris: redirectUris.length === 0 ? ['http://127.0.0.1/nowhere'] : redirectUris,
    post_logout_redirect_uris: redirectUris.map((uri) => new URL('/_oauth/signed-out', uri).href),
    token_endpoint_auth_method: options.clientAuth ?? 'client_secret_basic',
    response_types: ['code'],
    grant_types: ['authorization_code'],
  };
}

function configurationOf(state: State): Configuration {
  const { options, port, jwks, memory, cookieKeys } = state;
  return {
    adapter: memory,
    clients: [clientOf(state)],
    jwks,
    scopes: ['openid', 'email', 'profile'],
    claims: {
      openid: ['sub'],
      email: ['email', 'email_verified'],
      profile: ['name', 'picture', 'hd'],
    },
    conformIdTokenClaims: options.claimsInIdToken !== true,
    pkce: { required: () => true },
    features: { devInteractions: { enabled: false } },
    interactions: { url: (_ctx, interaction) => `/interaction/${interaction.uid}` },
    // Cookies ignore ports: several providers on one address must not share theirs.
    cookies: {
      keys: cookieKeys,
      names: {
        session: `idp_session_${port}`,
        interaction: `idp_interaction_${port}`,
        resume: `idp_resume_${port}`,
      },
    },
    ttl: {
      Session: 3600,
      Grant: 3600,
      Interaction: 600,
      AccessToken: 300,
      AuthorizationCode: 60,
      IdToken: 300,
    },
    findAccount: (_ctx, sub) => accountOf(state, sub),
    // The gateway asks without parameters whether the provider answers; by default that prints a
    // notice.
    renderError(ctx, out) {
      ctx.type = 'text/plain';
      ctx.body = `${out.error}: ${out.error_description ?? ''}\n`;
    },
    loadExistingGrant,
  };
}

function accountOf({ accounts }: State, sub: string): OidcAccount | undefined {
  const account = accounts.find((a) => a.email === sub);
  if (account === undefined) return undefined;
  const { email, name, picture, emailVerified, hostedDomain } = account;
  const claims = {
    sub,
    email,
    email_verified: emailVerified,
    name,
    ...defined({ picture: picture ?? undefined, hd: hostedDomain }),
  };
  return { accountId: sub, claims: () => claims };
}

/** Grants every scope without a consent page: the client belongs to the operator. */
const loadExistingGrant: NonNullable<Configuration['loadExistingGrant']> = async (ctx) => {
  const { client, session, provider } = ctx.oidc;
  if (client === undefined || session?.accountId === undefined) return undefined;
  const grantId = session.grantIdFor(client.clientId);
  const earlierGrant = grantId === undefined ? undefined : await provider.Grant.find(grantId);
  if (earlierGrant !== undefined) return earlierGrant;
  const grant = new provider.Grant({
    clientId: client.clientId,
    accountId: session.accountId,
  });
  grant.addOIDCScope('openid email profile');
  await grant.save();
  return grant;
};

function handle(running: Running, request: IncomingMessage, response: ServerResponse): void {
  const { counts, fault } = running;
  const { pathname } = new URL(request.url ?? '/', 'http://idp.invalid');
  counts.set(pathname, (counts.get(pathname) ?? 0) + 1);
  if (fault !== null && pathname.startsWith(fault.path))
    return misbehave(running, fault.kind, request, response);
  const done = pathname.startsWith('/interaction/')
    ? interact(running, request, response)
    : running.handler(request, response);
  Promise.resolve(done).catch((error: unknown) => response.writeHead(500).end(String(error)));
}

function misbehave(
  { held }: State,
  kind: Fault,
  request: IncomingMessage,
  response: ServerResponse,
): void {
  request.resume();
  if (kind === 'down') return void request.socket.destroy();
  if (kind === 'slow') return void held.add(response);
  if (kind === 'garbage')
    return void response
      .writeHead(200, { 'content-type': 'application/json' })
      .end('{"issuer": 7, <html>\u0000');
  response.writeHead(kind, { 'content-type': 'text/html' }).end(`<h1>${kind}</h1>`);
}

/** Shows the login form and handles its submission. */
async function interact(
  { provider, accounts }: Running,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const { uid } = await provider.interactionDetails(request, response);
  const respond = (status: number, wrong: string): void =>
    void response
      .writeHead(status, {
        'content-type': 'text/html; charset=utf-8',
        'cache-control': 'no-store',
      })
      .end(loginForm(accounts, uid, wrong));
  if (request.method !== 'POST') return respond(200, '');
  const typed = new URLSearchParams(await bodyOf(request));
  if (typed.has('cancel'))
    return provider.interactionFinished(request, response, {
      error: 'access_denied',
      error_description: 'cancelled',
    });
  const account = accounts.find(
    (a) => a.email === typed.get('email')?.trim() && a.password === typed.get('password'),
  );
  if (account === undefined) return respond(401, 'E-mail or password is wrong.');
  await provider.interactionFinished(request, response, { login: { accountId: account.email } });
}

function loginForm(accounts: readonly Account[], uid: string, wrong: string): string {
  const hints = accounts
    .map((a) => `<li><code>${a.email}</code> / <code>${a.password}</code></li>`)
    .join('');
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Example identity provider</title>
<style>:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:24em;margin:10vh auto;padding:0 1em}h1{font-size:1.4em}label,input,button{display:block;width:100%;box-sizing:border-box;margin:.3em 0;font:inherit}input,button{padding:.5em}</style></head>
<body><h1>Example identity provider</h1><p>For development only. Accounts:</p><ul>${hints}</ul><p role="alert">${wrong}</p>
<form method="post" action="/interaction/${uid}"><label for="email">E-mail</label><input id="email" name="email" type="text" autocomplete="username" autofocus>
<label for="password">Password</label><input id="password" name="password" type="password" autocomplete="current-password">
<button type="submit">Sign in</button><button type="submit" name="cancel" value="1">Cancel</button></form></body></html>
`;
}

/** Returns a JWT (RFC 7519) with these claims, signed with the current key. */
function signedToken({ keys: [key] }: State['jwks'], claims: Record<string, unknown>): string {
  const part = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url');
  const input = `${part({ alg: 'RS256', kid: key?.kid })}.${part(claims)}`;
  const privateKey = createPrivateKey({ key: key as JsonWebKey, format: 'jwk' });
  return `${input}.${sign('sha256', Buffer.from(input), privateKey).toString('base64url')}`;
}

function newKeys(): NonNullable<Configuration['jwks']> {
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const jwk = privateKey.export({ format: 'jwk' });
  return { keys: [{ ...jwk, kty: 'RSA', kid: randomUUID(), use: 'sig', alg: 'RS256' }] };
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  let text = '';
  for await (const chunk of request) {
    text += String(chunk);
    if (text.length > 10_000) throw new Error('too much');
  }
  return text;
}
