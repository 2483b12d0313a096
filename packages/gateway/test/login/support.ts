/** A gateway over HTTP with real identity providers for one test file, and its log for searches. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createLogger, type Logger } from '@berth/kit/log';
import type { GithubStandIn } from '@berth/testbed/github-stand-in';
import type { IdentityProvider } from '@berth/testbed/identity-provider';
import { freePort } from '@berth/testbed/ports';
import { waitFor } from '@berth/testbed/wait';
import { createGateway, type Gateway } from '../../src/app.ts';
import { readConfig } from '../../src/config.ts';
import type { ProviderOverrides } from '../../src/oidc/providers.ts';
import { type ControlPlane, createControlPlane } from './control-plane.ts';

export type Site = {
  url: string;
  gateway: Gateway;
  cp: ControlPlane;
  /** All log lines so far. */
  log(): string;
  close(): Promise<void>;
};

function capturedLogger(): { log: Logger; text: () => string } {
  let text = '';
  const destination = {
    write: (line: string): void => {
      text += line;
    },
  };
  return {
    log: createLogger({ name: 'gateway', level: 'trace', format: 'json', destination }),
    text: () => text,
  };
}

/** Starts a gateway with `env` in addition to the required settings. */
export async function startSite(
  env: (url: string) => Record<string, string>,
  options: { providers?: ProviderOverrides; now?: () => number; cp?: ControlPlane } = {},
): Promise<Site> {
  const dir = await mkdtemp(join(tmpdir(), 'berth-gateway-'));
  const port = await freePort();
  const url = `http://berth.localhost:${port}`;
  const config = readConfig({
    LISTEN: `127.0.0.1:${port}`,
    CONTROL_PLANE_URL: 'http://127.0.0.1:9',
    GATEWAY_SECRET: 'gateway-secret-of-the-tests',
    BASE_DOMAIN: 'berth.localhost',
    PUBLIC_URL: url,
    SESSION_SECRET: 'a-session-secret-of-the-tests-0123456789',
    STATE_DIR: dir,
    LOG_FORMAT: 'json',
    ...env(url),
  });
  const cp = options.cp ?? createControlPlane();
  const { log, text } = capturedLogger();
  const gateway = await createGateway(config, {
    log,
    controlPlane: cp.client,
    ...(options.now === undefined ? {} : { now: options.now }),
    ...(options.providers === undefined ? {} : { providers: options.providers }),
  });
  await gateway.listen();
  await waitFor('the policy is known', () => gateway.deps.policy.view().loaded);
  return {
    url,
    gateway,
    cp,
    log: text,
    async close() {
      await gateway.close();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

/** Returns the settings for `github` as a provider. */
export const githubEnv = (github: GithubStandIn): Record<string, string> => ({
  GITHUB_CLIENT_ID: github.clientId,
  GITHUB_CLIENT_SECRET: github.clientSecret,
  GITHUB_URL: github.url,
  GITHUB_API_URL: github.apiUrl,
});

/**
 * Returns the settings for `idp` as the OpenID provider `name`, and registers the redirect URI of
 * the gateway at `url`.
 */
export function oidcEnv(idp: IdentityProvider, url: string, name = 'oidc'): Record<string, string> {
  idp.allowRedirect(`${url}/_oauth/callback/${name}`);
  return {
    OIDC_ISSUER: idp.issuer,
    OIDC_CLIENT_ID: idp.clientId,
    OIDC_CLIENT_SECRET: idp.clientSecret,
    OIDC_NAME: name,
  };
}

/** Returns the visible text of a page. */
export const textOf = (html: string): string =>
  html
    .replace(/<style>[^]*?<\/style>/, '')
    .replace(/<[^>]+>/g, ' ')
    .replace(/\s+/g, ' ')
    .trim();
export const titleOf = (html: string): string => /<h1>([^<]*)<\/h1>/.exec(html)?.[1] ?? '';
