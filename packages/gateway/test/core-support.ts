/**
 * A complete gateway in this process with a small simulated control plane, for the tests of
 * /verify.
 */
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { Agent, type IncomingHttpHeaders, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLogger } from '@berth/kit/log';
import { ApiError, type Client, UnreachableError } from '@berth/wire/client';
import { FIRST_CLAIM, type Identity, type Policy } from '@berth/wire/gateway';
import { createGateway, type Gateway } from '../src/app.ts';
import { readConfig } from '../src/config.ts';
import type { Session } from '../src/deps.ts';

export const BASE = 'berth.localhost';
export const SECRET = 'a secret of more than thirty-two characters';
export const ANNA: Identity = {
  email: 'anna@example.com',
  name: 'Anna Ångström',
  avatar_url: 'https://pics.example/anna.png',
  provider: 'oidc',
};
export const ENV = {
  CONTROL_PLANE_URL: 'http://127.0.0.1:9',
  GATEWAY_SECRET: 'between gateway and control plane',
  BASE_DOMAIN: BASE,
  SESSION_SECRET: SECRET,
  ADMIN_EMAILS: 'boss@example.com',
  LISTEN: '127.0.0.1:0',
};

export const policyOf = (more: Partial<Policy> = {}): Policy => ({
  projects: [
    {
      id: 'p1',
      name: 'one',
      hosts: [`one.${BASE}`],
      host_claims: [{ host: `one.${BASE}`, claim: FIRST_CLAIM }],
    },
    {
      id: 'p2',
      name: 'two',
      hosts: [`two.${BASE}`, `second.${BASE}`],
      host_claims: [{ host: `two.${BASE}`, claim: FIRST_CLAIM }],
    },
  ],
  disabled_users: [],
  revoked_sessions: [],
  device_tokens: [],
  ...more,
});

export const sessionOf = (
  identity: Identity = ANNA,
  id: string = randomBytes(9).toString('base64url'),
): Session => ({
  id,
  identity,
  begun_at: Math.floor(Date.now() / 1000) * 1000,
  expires_at: Math.floor(Date.now() / 1000) * 1000 + 3_600_000,
});

export type FakeControlPlane = Client & {
  publish(policy: Policy): void;
  away(is: boolean): void;
  calls: { name: string; body: unknown }[];
};

export function fakeControlPlane(first: Policy | null = policyOf()): FakeControlPlane {
  let policy = first;
  let number = 1;
  let away = false;
  let bell = Promise.withResolvers<void>();
  const used = new Set<string>();
  const calls: FakeControlPlane['calls'] = [];
  const ring = (): void => {
    bell.resolve();
    bell = Promise.withResolvers<void>();
  };
  const unreachable = (): never => {
    throw new UnreachableError('the control plane is away');
  };

  async function heldPolicy(
    etag: string | undefined,
    signal: AbortSignal | undefined,
  ): Promise<unknown> {
    const gone = new Promise<void>((resolve) =>
      signal?.addEventListener('abort', () => resolve(), { once: true }),
    );
    while (etag === `"${number}"` && !away && signal?.aborted !== true)
      await Promise.race([bell.promise, gone]);
    if (away || policy === null || signal?.aborted === true) unreachable();
    return { status: 200, etag: `"${number}"`, answer: structuredClone(policy) };
  }
  const fake = {
    calls,
    publish(next: Policy) {
      policy = next;
      number++;
      ring();
    },
    away(is: boolean) {
      away = is;
      ring();
    },
    async exchange(
      name: string,
      input: { headers?: Record<string, string>; signal?: AbortSignal; body?: unknown },
    ) {
      if (away) unreachable();
      // A report in the background, which no test here expects.
      if (name === 'gatewaySeen') return { status: 204, etag: null, answer: undefined };
      if (name === 'gatewayPolicy')
        return heldPolicy(input.headers?.['if-none-match'], input.signal);
      calls.push({ name, body: input.body });
      if (name === 'redeemCode') {
        const { id } = input.body as { id: string };
        if (used.has(id)) throw new ApiError(409, 'code_used', 'used', null);
        used.add(id);
      }
      return { status: 204, etag: null, answer: undefined };
    },
    async call(name: string, input: { body?: unknown }) {
      return ((await fake.exchange(name, input)) as { answer: unknown }).answer;
    },
  };
  return fake as unknown as FakeControlPlane;
}

export type Reply = { status: number; headers: IncomingHttpHeaders; body: string };
export type Running = {
  gateway: Gateway;
  controlPlane: FakeControlPlane;
  stateDir: string;
  /** Sends any request to the gateway itself. */
  get(path: string, headers?: Record<string, string | string[]>, method?: string): Promise<Reply>;
  /** Sends the proxy's request for project p1 at its host; omits headers that are `undefined`. */
  verify(headers?: Record<string, string | string[] | undefined>, path?: string): Promise<Reply>;
  cookie(session: Session, audience?: Parameters<Gateway['deps']['sessions']['seal']>[1]): string;
  stop(): Promise<void>;
};

export async function startGateway(
  options: {
    env?: Record<string, string>;
    controlPlane?: FakeControlPlane;
    now?: () => number;
    stateDir?: string;
  } = {},
): Promise<Running> {
  const stateDir = options.stateDir ?? (await mkdtemp(join(tmpdir(), 'berth-gateway-')));
  const controlPlane = options.controlPlane ?? fakeControlPlane();
  const config = readConfig({ ...ENV, STATE_DIR: stateDir, ...options.env });
  const gateway = await createGateway(config, {
    log: silentLogger(),
    controlPlane,
    ...(options.now === undefined ? {} : { now: options.now }),
  });
  const { port } = await gateway.listen();
  const agent = new Agent({ keepAlive: true, maxSockets: 8 });

  const get: Running['get'] = (path, headers = {}, method = 'GET') =>
    new Promise((resolve, reject) => {
      const sent = request(
        { host: '127.0.0.1', port, path, method, agent, headers, maxHeaderSize: 1024 * 1024 },
        (response) => {
          let body = '';
          response.setEncoding('utf8');
          response.on('data', (chunk: string) => (body += chunk));
          response.on('end', () =>
            resolve({ status: response.statusCode ?? 0, headers: response.headers, body }),
          );
        },
      );
      sent.on('error', reject);
      sent.end();
    });
  return {
    gateway,
    controlPlane,
    stateDir,
    get,
    verify(headers = {}, path = '/verify?project=p1') {
      const all: Record<string, string | string[] | undefined> = {
        'X-Forwarded-Method': 'GET',
        'X-Forwarded-Proto': 'https',
        'X-Forwarded-Host': `one.${BASE}`,
        'X-Forwarded-Uri': '/page?x=1',
        'X-Forwarded-For': '127.0.0.1',
        ...headers,
      };
      return get(
        path,
        Object.fromEntries(
          Object.entries(all).filter(
            (pair): pair is [string, string | string[]] => pair[1] !== undefined,
          ),
        ),
      );
    },
    cookie: (session, audience = 'project:p1') =>
      `svc_fwd_session=${gateway.deps.sessions.seal(session, audience)}`,
    async stop() {
      agent.destroy();
      await gateway.close();
      if (options.stateDir === undefined) await rm(stateDir, { recursive: true, force: true });
    },
  };
}

export const BROWSER = {
  Accept: 'text/html,application/xhtml+xml,*/*;q=0.8',
  'Sec-Fetch-Mode': 'navigate',
  'Sec-Fetch-Dest': 'document',
};
