/**
 * A stand-in for GitHub: its OAuth endpoints and the two calls of its API that a login makes. As at
 * GitHub, OAuth uses PKCE, a code works once, and errors have status 200.
 */
import { createHash, randomBytes } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export type GithubAccount = {
  login: string;
  name: string | null;
  avatar_url: string;
  emails: { email: string; primary: boolean; verified: boolean; visibility: string | null }[];
};
/**
 * `garbage`: 200 with a body that is not JSON; a number: that status; `down`: the connection is
 * reset.
 */
export type GithubFault = 'down' | 'garbage' | number;

export type GithubStandIn = {
  /** Value for GITHUB_URL; `apiUrl` is the value for GITHUB_API_URL. */
  readonly url: string;
  readonly apiUrl: string;
  readonly clientId: string;
  readonly clientSecret: string;
  /** Whether answers name the issuer (RFC 9207), like github.com. An Enterprise server need not. */
  namesIssuer: boolean;
  /**
   * The signed-in account. `authorize` redirects at once, as GitHub does for an app that was
   * allowed before.
   */
  account: GithubAccount;
  /** Injects a fault into requests whose path begins with `path`, until the next call. */
  fault(fault: GithubFault | null, path?: string): void;
  stop(): Promise<void>;
};

const OCTAVIA: GithubAccount = {
  login: 'octavia',
  name: 'Octavia Butler',
  avatar_url: 'https://avatars.example.test/u/1',
  emails: [
    { email: 'octavia-private@example.test', primary: false, verified: true, visibility: null },
    { email: 'Octavia@Example.test', primary: true, verified: true, visibility: 'private' },
  ],
};

export async function startGithubStandIn(): Promise<GithubStandIn> {
  const clientId = 'Iv1.berth';
  const clientSecret = randomBytes(20).toString('hex');
  const codes = new Map<string, { challenge: string; redirectUri: string }>();
  const tokens = new Set<string>();
  let fault: { kind: GithubFault; path: string } | null = null;

  const server = createServer((request, response) => {
    const url = new URL(request.url ?? '/', 'http://github.invalid');
    if (fault !== null && url.pathname.startsWith(fault.path))
      return misbehave(fault.kind, request, response);
    if (url.pathname === '/login/oauth/authorize') return authorize(url.searchParams, response);
    if (url.pathname === '/login/oauth/access_token' && request.method === 'POST')
      return void token(request, response).catch((error: unknown) =>
        response.writeHead(500).end(String(error)),
      );
    if (url.pathname === '/api/user')
      return api(request, response, () => ({
        ...standIn.account,
        emails: undefined,
        email: 'anybody@example.test',
      }));
    if (url.pathname === '/api/user/emails')
      return api(request, response, () => standIn.account.emails);
    response.writeHead(404).end();
  });

  function authorize(query: URLSearchParams, response: ServerResponse): void {
    const redirectUri = query.get('redirect_uri') ?? '';
    const back = new URL(redirectUri);
    back.searchParams.set('state', query.get('state') ?? '');
    if (standIn.namesIssuer) back.searchParams.set('iss', `${standIn.url}/login/oauth`);
    if (query.get('client_id') !== clientId || query.get('code_challenge_method') !== 'S256')
      back.searchParams.set('error', 'application_suspended');
    else {
      const code = randomBytes(10).toString('hex');
      codes.set(code, { challenge: query.get('code_challenge') ?? '', redirectUri });
      back.searchParams.set('code', code);
    }
    response.writeHead(302, { location: back.href }).end();
  }

  async function token(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let text = '';
    for await (const chunk of request) text += String(chunk);
    const form = new URLSearchParams(text);
    if (form.get('client_id') !== clientId || form.get('client_secret') !== clientSecret)
      return json(response, 200, { error: 'incorrect_client_credentials' });
    const grant = codes.get(form.get('code') ?? '');
    codes.delete(form.get('code') ?? '');
    const verifier = createHash('sha256')
      .update(form.get('code_verifier') ?? '')
      .digest('base64url');
    if (grant === undefined || grant.challenge !== verifier)
      return json(response, 200, { error: 'bad_verification_code' });
    if (grant.redirectUri !== form.get('redirect_uri'))
      return json(response, 200, { error: 'redirect_uri_mismatch' });
    const access_token = `gho_${randomBytes(18).toString('hex')}`;
    tokens.add(access_token);
    json(response, 200, { access_token, token_type: 'bearer', scope: 'read:user,user:email' });
  }

  function api(request: IncomingMessage, response: ServerResponse, answer: () => unknown): void {
    const bearerToken = /^Bearer (.+)$/.exec(request.headers.authorization ?? '')?.[1] ?? '';
    // GitHub refuses requests without a User-Agent.
    if (request.headers['user-agent'] === undefined)
      return json(response, 403, { message: 'Request forbidden by administrative rules.' });
    if (!tokens.has(bearerToken)) return json(response, 401, { message: 'Bad credentials' });
    json(response, 200, answer());
  }

  function misbehave(kind: GithubFault, request: IncomingMessage, response: ServerResponse): void {
    request.resume();
    if (kind === 'down') return void request.socket.destroy();
    if (kind === 'garbage')
      return void response.writeHead(200, { 'content-type': 'text/html' }).end('<h1>Unicorn!</h1>');
    json(response, kind, { message: 'Server Error' });
  }
  const json = (response: ServerResponse, status: number, body: unknown): void =>
    void response
      .writeHead(status, { 'content-type': 'application/json; charset=utf-8' })
      .end(JSON.stringify(body));

  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(0, '127.0.0.1', resolve);
  });
  const { port } = server.address() as AddressInfo;
  const url = `http://127.0.0.1:${port}`;
  const standIn: GithubStandIn = {
    url,
    apiUrl: `${url}/api`,
    clientId,
    clientSecret,
    namesIssuer: true,
    account: structuredClone(OCTAVIA),
    fault(kind, path = '') {
      fault = kind === null ? null : { kind, path };
    },
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
  return standIn;
}
