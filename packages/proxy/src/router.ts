/**
 * From configurations to a route table. Pure: the same configurations give the same table, and a table never changes.
 * A router that cannot be honoured in full (its rule, its service, any of its middlewares) is left out and reported:
 * letting a request through without the middleware that should have stopped it is the one thing a proxy must not do.
 */
import type { Configuration, MiddlewareSpec, Parts, RouterSpec } from './configuration.ts';
import { type Matches, parseRule, type Target } from './rule.ts';

/** Who said it: Traefik's names for its providers, as they stand after the `@` of a reference. */
export type Provider = 'http' | 'file';
export type Configurations = Partial<Record<Provider, Configuration>>;

/** The entry point this proxy stands for. */
const ENTRY_POINT = 'websecure';

/** `noop`: answers 418 without a backend, as Traefik's `noop@internal`. */
export type Service = { kind: 'noop' } | { kind: 'servers'; name: string; servers: readonly URL[] };
export type Route = { name: string; service: Service; middlewares: readonly MiddlewareSpec[] };
export type Table = {
  /** The route with the highest priority that matches. */
  find(target: Target): Route | null;
  size: number;
  /** Origins (`http://10.0.0.1:32768`) that any route leads to. */
  origins: ReadonlySet<string>;
  /** What was left out, and why. */
  problems: readonly string[];
};

export const EMPTY_TABLE: Table = { find: () => null, size: 0, origins: new Set(), problems: [] };

export function compile(configurations: Configurations): Table {
  const problems: string[] = [];
  const rows: { route: Route; matches: Matches; priority: number }[] = [];
  for (const provider of ['http', 'file'] as const) {
    for (const [name, spec] of configurations[provider]?.routers ?? []) {
      const full = `${name}@${provider}`;
      try {
        if ('problem' in spec) throw new Error(spec.problem);
        if (spec.entryPoints !== null && !spec.entryPoints.includes(ENTRY_POINT)) continue;
        // Traefik's rule of thumb: the longer rule is the more particular one.
        rows.push({
          route: routeOf(full, spec, provider, configurations),
          matches: parseRule(spec.rule),
          priority: spec.priority || spec.rule.length,
        });
      } catch (error) {
        problems.push(`router ${full}: ${error instanceof Error ? error.message : String(error)}`);
      }
    }
  }
  rows.sort((a, b) => b.priority - a.priority || (a.route.name < b.route.name ? -1 : 1));
  const origins = new Set(
    rows.flatMap(({ route }) => (route.service.kind === 'servers' ? route.service.servers.map((url) => url.origin) : [])),
  );
  return { find: (target) => rows.find((row) => row.matches(target))?.route ?? null, size: rows.length, origins, problems };
}

function routeOf(name: string, spec: RouterSpec, provider: Provider, configurations: Configurations): Route {
  return {
    name,
    service: serviceOf(spec.service, provider, configurations),
    middlewares: spec.middlewares.map((reference) => lookUp('middleware', reference, provider, (c) => c.middlewares, configurations)),
  };
}

function serviceOf(reference: string, provider: Provider, configurations: Configurations): Service {
  if (reference === 'noop@internal') return { kind: 'noop' };
  const { servers } = lookUp('service', reference, provider, (c) => c.services, configurations);
  return { kind: 'servers', name: reference, servers };
}

/** `name` is of the same provider, `name@provider` of that one. */
function lookUp<T extends object>(
  what: string,
  reference: string,
  own: Provider,
  of: (c: Configuration) => Parts<T>,
  configurations: Configurations,
): T {
  const at = reference.lastIndexOf('@');
  const name = at === -1 ? reference : reference.slice(0, at);
  const provider = at === -1 ? own : reference.slice(at + 1);
  const configuration = provider === 'http' || provider === 'file' ? configurations[provider] : undefined;
  const part = configuration === undefined ? undefined : of(configuration).get(name);
  if (part === undefined) throw new Error(`${what} ${reference} is not there`);
  if ('problem' in part) throw new Error(`${what} ${reference} ${part.problem}`);
  return part;
}
