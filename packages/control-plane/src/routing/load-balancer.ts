/**
 * Builds the services of one project in the proxy's configuration.
 *
 * One server: only the load balancer of the contract, so that the configuration of a project with
 * one instance never changes by a byte.
 *
 * Two or more servers: the proxy itself finds a silent machine, without the control plane.
 * - Its health check asks each server every second and uses only the servers that pass.
 * - `berth_instances` gives up a connection after 500 ms: a machine without power sends no refusal.
 * - `berth-other-instance` then tries another server. It acts only if nothing of the request was
 *   sent, so that no server gets a request twice, whatever its method.
 *
 * A health path is a promise of the project: a server that fails it gets no requests, even if no
 * server is left. Without one, Berth takes any HTTP answer as alive, but the proxy's check has no
 * such mode. So the check asks `/`, and if no server passes, the proxy uses all of them:
 *
 *   router ──▶ {project}_alive ── a server passes ──▶ {project}: the servers that pass
 *                              └─ none passes ──────▶ {project}_all: all servers
 *
 * Project names have no underscore, so no project has one of these names.
 */
import { defined } from '@berth/kit/defined';

export type LoadBalancer = {
  servers: { url: string }[];
  /** `p2c`: of two random servers, the one with fewer open requests. */
  strategy?: 'p2c';
  sticky?: { cookie: { name: string; httpOnly: true; secure: true } };
  healthCheck?: HealthCheck;
  serversTransport?: string;
};
type HealthCheck = {
  path: string;
  interval: string;
  timeout: string;
  hostname: string;
  headers: Record<string, string>;
  followRedirects: false;
};
export type Service =
  | { loadBalancer: LoadBalancer; failover?: never }
  | { failover: { service: string; fallback: string }; loadBalancer?: never };
export type Retry = { attempts: number; initialInterval: string };
export type ServersTransport = {
  maxIdleConnsPerHost: number;
  forwardingTimeouts: { dialTimeout: string; idleConnTimeout: string };
};

/** Middleware that tries another server. All projects with two or more servers share it. */
export const OTHER_INSTANCE = 'berth-other-instance';
/**
 * Enough attempts to outlast the health check: six times 500 ms is longer than the check needs to
 * find a silent machine. Until then, the proxy can choose the silent server again.
 */
export const OTHER_INSTANCE_RETRY: Retry = { attempts: 6, initialInterval: '50ms' };
const TRANSPORT = 'berth_instances';
/**
 * The values beside `dialTimeout` are those of deploy/traefik/traefik.yml and of Traefik, because a
 * transport inherits none.
 */
const SERVERS_TRANSPORT: ServersTransport = {
  maxIdleConnsPerHost: 200,
  forwardingTimeouts: { dialTimeout: '500ms', idleConnTimeout: '50ms' },
};
/**
 * `dialTimeout` limits a new connection to a silent machine. `timeout` limits a check on a
 * connection that is open already, and a slow answer.
 */
const CHECK = { interval: '1s', timeout: '2s' } as const;
const STICKY_COOKIE = 'berth_instance';

/**
 * Returns whether Traefik can check the path. It takes `//x` for a host, and cannot decode `%zz`.
 */
const isUsable = (path: string | null): boolean =>
  path !== null && !path.startsWith('//') && !/%(?![\da-f]{2})/i.test(path);

export type Balanced = {
  /** The service that the project's routers use. */
  service: string;
  services: Record<string, Service>;
  /** Middlewares of each router to the service, after all others. */
  middlewares: string[];
  serversTransports: Record<string, ServersTransport>;
};

export function balance(project: {
  name: string;
  /** Host of the project, which the check uses as a visitor does. */
  host: string;
  urls: readonly string[];
  healthPath: string | null;
  sticky: boolean;
}): Balanced {
  const { name, host } = project;
  const healthPath = isUsable(project.healthPath) ? project.healthPath : null;
  const servers = project.urls.map((url) => ({ url }));
  if (servers.length < 2)
    return {
      service: name,
      services: { [name]: { loadBalancer: { servers } } },
      middlewares: [],
      serversTransports: {},
    };
  const several: LoadBalancer = {
    servers,
    serversTransport: TRANSPORT,
    ...defined({
      // Both load balancers of a project use one cookie.
      sticky: project.sticky
        ? { cookie: { name: STICKY_COOKIE, httpOnly: true as const, secure: true as const } }
        : undefined,
    }),
  };
  const healthCheck: HealthCheck = {
    path: healthPath ?? '/',
    ...CHECK,
    hostname: host,
    headers: {
      'User-Agent': 'berth-proxy',
      'X-Forwarded-Host': host,
      'X-Forwarded-Proto': 'https',
    },
    followRedirects: false,
  };
  const checked: Service = { loadBalancer: { ...several, healthCheck } };
  const shared = {
    middlewares: [OTHER_INSTANCE],
    serversTransports: { [TRANSPORT]: SERVERS_TRANSPORT },
  };
  if (healthPath !== null) return { service: name, services: { [name]: checked }, ...shared };
  const [alive, all] = [`${name}_alive`, `${name}_all`];
  return {
    service: alive,
    services: {
      [name]: checked,
      [alive]: { failover: { service: name, fallback: all } },
      // Without a check, `p2c` avoids the server whose requests stay open.
      [all]: { loadBalancer: { ...several, strategy: 'p2c' } },
    },
    ...shared,
  };
}
