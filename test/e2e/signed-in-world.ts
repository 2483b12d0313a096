/**
 * Berth with logins, for one test file: real processes, a real proxy, a real OpenID provider.
 * Servers of the test stand in for the projects' containers, because these tests check who reaches
 * them and with which headers.
 */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findTraefik } from '@berth/testbed/config';
import { asAnApplicationReads } from '@berth/testbed/forged-headers';
import { startHandAgent } from '@berth/testbed/hand-agent';
import {
  type Account,
  type IdentityProvider,
  startIdentityProvider,
} from '@berth/testbed/identity-provider';
import { type Page, PlainBrowser } from '@berth/testbed/plain-browser';
import { type Platform, type ProxyKind, startPlatform } from '@berth/testbed/platform';
import { waitFor } from '@berth/testbed/wait';
import type { DeviceScope } from '@berth/wire/gateway';
import { WebSocket } from 'ws';
import { type Echo, type EchoApp, startEcho } from './echo.ts';

export type SignedInWorld = {
  berth: Platform;
  idp: IdentityProvider;
  /** Returns the id of the project with this name. */
  projectId(name: string): string;
  dir: string;
  stop(): Promise<void>;
};

/** An account whose name is not ASCII, unlike header values, and contains a percent sign. */
export const ADA: Account = {
  email: 'ada@example.org',
  password: 'Engine-of-Analysis-1843',
  name: 'Adá Łovelace 100%',
  picture: 'https://pictures.example.org/ada.png?size=1&of=2',
  emailVerified: true,
};
export const GRACE: Account = {
  email: 'grace@example.org',
  password: 'Nanosecond-of-Wire-1952',
  name: 'Grace Hopper',
  picture: null,
  emailVerified: true,
};

/** Two projects behind a login and one open to everybody. */
const PROJECTS = { alpha: true, beta: true, open: false } as const;

export const whyNoSignIn = (proxy: ProxyKind): string | undefined =>
  proxy !== 'built-in' && findTraefik() === undefined ? 'no Traefik: set TRAEFIK_BIN' : undefined;

export async function startSignedInWorld(options: {
  proxy: ProxyKind;
  adminEmails?: string[];
  gatewayEnv?: Record<string, string>;
  env?: Record<string, string>;
  twoGateways?: boolean;
  /** Root folder of another version of Berth (release.ts). */
  release?: string;
}): Promise<SignedInWorld> {
  const dir = await mkdtemp(join(tmpdir(), 'berth-sign-in-'));
  const stops: (() => Promise<unknown>)[] = [() => rm(dir, { recursive: true, force: true })];
  const stop = async (): Promise<void> => {
    for (const end of stops.splice(0).toReversed()) await end();
  };
  try {
    const apps: Record<string, EchoApp> = {};
    for (const name of Object.keys(PROJECTS)) {
      const app = await startEcho(name);
      apps[name] = app;
      stops.push(() => app.stop());
    }
    // The proxy leads `/` to it. A test of the dashboard itself names the real one.
    const page = join(dir, 'dashboard');
    await mkdir(join(page, 'assets'), { recursive: true });
    await writeFile(join(page, 'index.html'), '<!doctype html><title>the dashboard</title>');
    const idp = await startIdentityProvider({ accounts: [ADA, GRACE] });
    stops.push(() => idp.stop());
    const berth = await startPlatform({
      dir,
      registry: { address: '127.0.0.1:5000', user: '', password: '' },
      proxy: options.proxy,
      agents: [],
      ...(options.release === undefined ? {} : { release: options.release }),
      gateway: {
        two: options.twoGateways === true,
        env: (publicUrl) => {
          idp.allowRedirect(`${publicUrl}/_oauth/callback/oidc`);
          return {
            OIDC_ISSUER: idp.issuer,
            OIDC_CLIENT_ID: idp.clientId,
            OIDC_CLIENT_SECRET: idp.clientSecret,
            LOG_LEVEL: 'debug',
            ...options.gatewayEnv,
          };
        },
      },
      ...(options.adminEmails === undefined ? {} : { adminEmails: options.adminEmails }),
      env: { LOG_LEVEL: 'debug', DASHBOARD_DIR: page, ...options.env },
    });
    stops.push(() => berth.stop());
    const ports = Object.fromEntries(Object.entries(apps).map(([name, app]) => [name, app.port]));
    const agent = await startHandAgent({ url: berth.url, secret: berth.agentSecret, ports });
    stops.push(() => agent.stop());
    const ids: Record<string, string> = {};
    for (const [name, auth_required] of Object.entries(PROJECTS)) {
      const project = await berth.createProject({
        name,
        git_url: 'https://git.example.org/app.git',
        domain_prefix: name,
        auth_required,
      });
      ids[name] = project.id;
      const done = await berth.settled(await berth.deploy(project), 30_000);
      if (done.status !== 'running')
        throw new Error(`${name}: ${done.status} ${JSON.stringify(done.error)}`);
    }
    return { berth, idp, dir, stop, projectId: (name) => ids[name] ?? '' };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** Returns the request headers that the application received. */
export const echoOf = (page: Page): Echo =>
  JSON.parse(
    /<script type="application\/json" id="echo">([^]*?)<\/script>/.exec(page.body)?.[1] ??
      page.body,
  ) as Echo;
/** Returns every value under this name, whatever its spelling. */
export const headersOf = (echo: Echo, name: string): string[] =>
  echo.headers.flatMap(([key, value]) => (asAnApplicationReads(key) === name ? [value] : []));

/** Signs in as this account at `address` and returns the page to which the login leads. */
export async function signIn(
  browser: PlainBrowser,
  world: SignedInWorld,
  address: string,
  account = ADA,
): Promise<Page> {
  const form = await browser.open(address);
  return world.idp.signIn(browser, form, account);
}

/** Returns the first message of a WebSocket, or the status of its refusal. */
export function overWebSocket(
  berth: Platform,
  prefix: string,
  headers: Record<string, string> = {},
): Promise<Echo | number> {
  const { host, port, secure } = berth.entry;
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(`${secure ? 'wss' : 'ws'}://${host}:${port}/live`, {
      headers: { host: `${prefix}.${berth.baseDomain}:${port}`, ...headers },
      rejectUnauthorized: false,
      handshakeTimeout: 5_000,
    });
    socket.on('message', (data: Buffer) => {
      resolve(JSON.parse(data.toString()) as Echo);
      socket.close();
    });
    socket.on('unexpected-response', (request, response) => {
      resolve(response.statusCode ?? 0);
      request.destroy();
    });
    socket.on('error', reject);
  });
}

/**
 * Runs the device flow: a command line starts it, the person in `browser` confirms it. Default
 * `scope`: `projects`, as in the contract.
 */
export async function deviceToken(
  browser: PlainBrowser,
  { berth }: SignedInWorld,
  scope?: DeviceScope,
): Promise<{ access_token: string; expires_in: number; device_code: string; user_code: string }> {
  const curl = new PlainBrowser();
  const post = async (path: string, body?: string): Promise<Record<string, string | number>> => {
    const headers = {
      accept: '*/*',
      'user-agent': 'berth-test/1',
      'content-type': 'application/json',
    };
    const page = await curl.open(`${berth.publicUrl}${path}`, {
      method: 'POST',
      headers,
      ...(body === undefined ? {} : { body }),
    });
    return JSON.parse(page.body) as Record<string, string | number>;
  };
  const { device_code, user_code, verification_uri_complete, interval } = await post(
    '/_oauth/device/code',
    scope === undefined ? undefined : JSON.stringify({ scope }),
  );
  const body = JSON.stringify({ device_code });
  const early = await post('/_oauth/device/token', body);
  if (early['error'] !== 'authorization_pending')
    throw new Error(`before the confirmation: ${JSON.stringify(early)}`);
  const asked = await browser.open(String(verification_uri_complete));
  const agreed = await browser.submit(asked, {}, 'Connect');
  if (agreed.status !== 200)
    throw new Error(`the confirmation failed: ${agreed.status} ${agreed.body}`);
  const answer = await waitFor(
    'the token is issued',
    async () => {
      const polled = await post('/_oauth/device/token', body);
      return 'access_token' in polled && polled;
    },
    { deadlineMs: 30_000, intervalMs: Number(interval) * 1000 + 200 },
  );
  return {
    access_token: String(answer['access_token']),
    expires_in: Number(answer['expires_in']),
    device_code: String(device_code),
    user_code: String(user_code),
  };
}
