/**
 * Composition root: creates every part of the gateway and passes in its dependencies. Tests use
 * this function too.
 */
import type { AddressInfo } from 'node:net';
import { defined } from '@berth/kit/defined';
import { limitConnections } from '@berth/kit/connections';
import { live } from '@berth/kit/live';
import type { Logger } from '@berth/kit/log';
import type { Replace } from '@berth/kit/reload';
import { openTracing } from '@berth/kit/tracing';
import { type Client, createClient } from '@berth/wire/client';
import type { FastifyInstance } from 'fastify';
import manifest from '../package.json' with { type: 'json' };
import { allowedBy } from './allowed.ts';
import { createAssertions } from './assertion.ts';
import { createCodes } from './codes.ts';
import type { Config, SETTINGS } from './config.ts';
import type { GatewayDeps, Secrets } from './deps.ts';
import { keysOf } from './keys.ts';
import { type Listening, listenOn } from './listening.ts';
import { installLogin } from './login/install.ts';
import { createPresence } from './presence.ts';
import { createMetrics, type Metrics } from './metrics.ts';
import { followPolicy, type Peers } from './policy.ts';
import type { ProviderOverrides } from './oidc/providers.ts';
import { openPolicyFile } from './policy-file.ts';
import { createRedirects } from './redirect.ts';
import { createSealer } from './sealer.ts';
import { buildServer } from './server.ts';
import { createSessions } from './session.ts';
import { siteAt } from './site.ts';
import { traceRequests } from './traces.ts';
import { createVerify } from './verify.ts';

export type Gateway = {
  /** HTTP server. Tests inject requests into it. */
  server: FastifyInstance;
  deps: GatewayDeps;
  metrics: Metrics;
  listen(): Promise<AddressInfo>;
  /** `replace` changes secrets while the gateway runs. Call `replaced` after each reload. */
  reload: { replace: Replace<typeof SETTINGS>; replaced(): Promise<void> };
  close(): Promise<void>;
};

export type Overrides = {
  log: Logger;
  controlPlane?: Client;
  now?: () => number;
  /** Descriptor of a listening socket that systemd keeps open across restarts. */
  inherited?: number | undefined;
  /** The other workers of this gateway. */
  peers?: Peers;
  /** Renders the metrics of all workers together. */
  renderMetrics?: Metrics['render'];
  processMetrics?: boolean;
  /** Address of Google and time limit of providers; tests replace both. */
  providers?: ProviderOverrides;
};

export async function createGateway(config: Config, overrides: Overrides): Promise<Gateway> {
  const { log, now = Date.now } = overrides;
  const secrets = live(secretsOf(config));
  const change = (some: Partial<Secrets>): void => secrets.replace({ ...secrets.read(), ...some });
  const controlPlane =
    overrides.controlPlane ??
    createClient({
      baseUrl: config.CONTROL_PLANE_URL,
      headers: () => ({ 'x-gateway-secret': secrets.read().gateway[0] ?? '' }),
    });
  const keys = keysOf(() => secrets.read().session);
  const sealer = createSealer(keys, now);
  const file = await openPolicyFile(config.STATE_DIR, log);
  const policy = await followPolicy({
    controlPlane,
    file,
    log,
    now,
    allowed: allowedBy(config.ALLOWED_EMAILS),
    ...defined({ peers: overrides.peers }),
  });
  const platform = {
    baseDomain: config.BASE_DOMAIN,
    authHost: new URL(config.PUBLIC_URL).hostname,
  };
  const deps: GatewayDeps = {
    config,
    secrets: secrets.read,
    controlPlane,
    policy,
    sessions: createSessions(keys, now),
    codes: createCodes(sealer, controlPlane, now),
    redirects: createRedirects(
      config.PUBLIC_URL,
      config.BASE_DOMAIN,
      (host) => siteAt(host, policy.view(), platform)?.claim,
    ),
    sealer,
    keys,
    now,
    log,
  };
  const verify = createVerify({
    ...deps,
    assertions: createAssertions(keys, config.PUBLIC_URL, now),
  });
  const metrics = createMetrics(verify, policy, overrides.processMetrics ?? false);
  const server = buildServer({
    deps,
    policy,
    verify,
    metrics: overrides.renderMetrics ?? metrics.render,
    connections(http) {
      const connections = limitConnections(http, {
        max: config.MAX_CONNECTIONS,
        trusted: config.TRUSTED_PROXIES,
        log,
      });
      metrics.watch(connections);
      return connections;
    },
  });
  server.addHook('onResponse', async (request, reply) => {
    metrics.answered(
      request.routeOptions.url ?? 'none',
      reply.statusCode,
      reply.elapsedTime / 1000,
    );
  });
  const tracing = await openTracing(
    config,
    { name: 'berth-gateway', version: manifest.version },
    log,
  );
  if (tracing !== null) traceRequests(server, tracing);
  const presence = createPresence(deps);
  let listening: Listening | undefined;
  await installLogin(server, deps, {
    overrides: overrides.providers,
    loginSeen: metrics.login,
    refused: metrics.refused,
  });

  return {
    server,
    deps,
    metrics,
    reload: {
      replace: {
        GATEWAY_SECRET: (gateway) => change({ gateway }),
        SESSION_SECRET: (session) => change({ session }),
        OIDC_CLIENT_SECRET: (oidc) => change({ oidc }),
        GITHUB_CLIENT_SECRET: (github) => change({ github }),
        GOOGLE_CLIENT_SECRET: (google) => change({ google }),
      },
      replaced: () => presence.report(),
    },
    async listen() {
      listening = await listenOn(server, config.LISTEN, overrides.inherited, log);
      presence.start();
      return server.server.address() as AddressInfo;
    },
    async close() {
      await Promise.all([server.close(), listening?.close()]);
      await presence.stop();
      await policy.close();
      await tracing?.close();
    },
  };
}

const secretsOf = (config: Config): Secrets => ({
  gateway: config.GATEWAY_SECRET,
  session: config.SESSION_SECRET,
  oidc: config.OIDC_CLIENT_SECRET,
  github: config.GITHUB_CLIENT_SECRET,
  google: config.GOOGLE_CLIENT_SECRET,
});
