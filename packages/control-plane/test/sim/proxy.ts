/**
 * A reverse proxy: fetches the configuration repeatedly, applies it as a whole, and answers its
 * marker. After a restart it has none. A node's firewall may block it.
 */
import type { History } from '@berth/testbed/history';
import type { DynamicConfig } from '../../src/routing/traefik.ts';
import type { ControlPlane } from './front.ts';
import type { Life, World } from './world.ts';

export type Proxy = {
  name: string;
  life(): Life;
  start(): void;
  kill(): void;
  /** Whether the marker of the configuration with this hash answers. */
  answers(hash: string): boolean;
  routes(): Record<string, string>;
  /** Addresses of nodes whose firewall blocks this proxy. */
  shutOut: Set<string>;
};

export function createProxy(
  world: World,
  history: History,
  controlPlane: ControlPlane,
  name: string,
  idOf: (project: string) => string,
): Proxy {
  let life: Life = { name, alive: false };
  let serves: { hash: string; routes: Record<string, string> } = { hash: '', routes: {} };
  /** Whether a project has several servers. */
  let hasServers = false;

  function swap(
    hash: string,
    routes: Record<string, string>,
    {
      pages = [],
      servers = {},
      asked,
    }: { pages?: string[]; servers?: Record<string, string[]>; asked?: number } = {},
  ): void {
    serves = { hash, routes };
    hasServers = Object.keys(servers).length > 0;
    const when = asked === undefined ? {} : { asked };
    history.record({
      type: 'routed',
      proxy: name,
      routes,
      ...(hasServers ? { servers } : {}),
      ...(pages.length === 0 ? {} : { pages }),
      ...when,
    });
  }

  async function live(mine: Life): Promise<void> {
    let wake = (): void => {};
    controlPlane.on('routes', () => wake());
    for (;;) {
      try {
        const asked = world.now();
        const config = await controlPlane.ask(mine, (api) => {
          const now = api.config();
          api.source.served(now.hash);
          return now;
        });
        if (config.hash === serves.hash) {
          if (hasServers) history.record({ type: 'polled', proxy: name, asked });
        } else {
          await world.sleep(world.random.int(5, 300), mine);
          const { services } = (
            JSON.parse(config.bytes) as { http: Partial<DynamicConfig['http']> }
          ).http;
          // Only names of projects have no underscore.
          const named = Object.entries(services ?? {}).filter(
            ([project]) => !project.includes('_'),
          );
          const all = named.map(([project, s]) => ({
            id: idOf(project),
            addresses: (s.loadBalancer?.servers ?? []).map(({ url }) =>
              url.slice('http://'.length),
            ),
          }));
          const routes = all.flatMap(({ id, addresses: [first] }) =>
            first === undefined ? [] : [[id, first] as const],
          );
          const servers = all.flatMap(({ id, addresses }) =>
            addresses.length > 1 ? [[id, addresses] as const] : [],
          );
          // The service of a stopped project has no servers.
          const pages = all.flatMap(({ id, addresses }) => (addresses.length === 0 ? [id] : []));
          swap(config.hash, Object.fromEntries(routes), {
            pages,
            servers: Object.fromEntries(servers),
            asked,
          });
        }
      } catch (error) {
        // After any error it keeps its configuration.
        if (!(error instanceof Error)) throw error;
      }
      await new Promise<void>((resolve) => {
        let woken = false;
        const go = (): void => {
          if (woken) return;
          woken = true;
          resolve();
        };
        wake = () => world.after(world.random.int(20, 100), mine, go);
        world.after(world.random.int(1_000, 4_000), mine, go);
      });
    }
  }

  return {
    name,
    life: () => life,
    start() {
      if (life.alive) return;
      life = { name, alive: true };
      live(life).catch((error: unknown) =>
        history.record({ type: 'internal_error', message: `${name}: ${String(error)}` }),
      );
    },
    kill() {
      life.alive = false;
      swap('', {});
    },
    answers: (hash) => life.alive && serves.hash === hash,
    routes: () => serves.routes,
    shutOut: new Set(),
  };
}
