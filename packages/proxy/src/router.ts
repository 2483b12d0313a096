/**
 * Compiles configurations to a route table. The function is pure, and a table never changes. A
 * router with an invalid rule, service or middleware is skipped and reported, because a proxy must
 * never let a request through without a middleware that should stop it.
 */
import { messageOf } from '@berth/kit/message-of';
import type { Configuration, MiddlewareSpec, Parts, RouterSpec } from './configuration.ts';
import { type Matches, parseRule, type Target } from './rule.ts';

/** Provider names of Traefik, as written after the `@` of a reference. */
export type Provider = 'http' | 'file';
export type Configurations = Partial<Record<Provider, Configuration>>;

/** The entry point of this proxy. */
const ENTRY_POINT = 'websecure';

/** `noop` answers 418 without a backend, like Traefik's `noop@internal`. */
export type Service = { kind: 'noop' } | { kind: 'servers'; name: string; servers: readonly URL[] };
export type Route = { name: string; service: Service; middlewares: readonly MiddlewareSpec[] };
export type Table = {
  /** Returns the matching route with the highest priority. */
  find(target: Target): Route | null;
  size: number;
  /** Origins of all backends (`http://10.0.0.1:32768`). */
  origins: ReadonlySet<string>;
  /** Skipped routers, with reasons. */
  problems: readonly string[];
};

export const EMPTY_TABLE: Table = { find: () => null, size: 0, origins: new Set(), problems: [] };

type Row = {
  route: Route;
  matches: Matches;
  /** Priorities of the parent, if any, and of the router. */
  order: readonly number[];
};

export function compile(configurations: Configurations): Table {
  const problems: string[] = [];
  const rows: Row[] = [];
  for (const provider of ['http', 'file'] as const) {
    for (const [name, spec] of configurations[provider]?.routers ?? []) {
      const full = `${name}@${provider}`;
      try {
        if ('problem' in spec) throw new Error(spec.problem);
        rows.push(...rowsOf(full, spec, provider, configurations));
      } catch (error) {
        problems.push(`router ${full}: ${messageOf(error)}`);
      }
    }
  }
  rows.sort((a, b) => byOrder(a.order, b.order) || (a.route.name < b.route.name ? -1 : 1));
  const origins = new Set(
    rows.flatMap(({ route }) =>
      route.service.kind === 'servers' ? route.service.servers.map((url) => url.origin) : [],
    ),
  );
  return {
    find: (target) => rows.find((row) => row.matches(target))?.route ?? null,
    size: rows.length,
    origins,
    problems,
  };
}

/**
 * Returns one row, or one row per parent of the router. A parent itself has no row, because the
 * rows of its children include it.
 */
function rowsOf(
  name: string,
  spec: RouterSpec,
  provider: Provider,
  configurations: Configurations,
): Row[] {
  if (spec.parentRefs.length === 0) {
    if (spec.service === null || !isHere(spec)) return [];
    return [
      {
        route: routeOf(name, [spec], provider, configurations),
        matches: parseRule(spec.rule),
        order: [priorityOf(spec)],
      },
    ];
  }
  return spec.parentRefs.flatMap((reference) => {
    const parent = lookUp('router', reference, provider, (c) => c.routers, configurations);
    if (parent.parentRefs.length > 0)
      throw new Error(`its parent ${reference} has a parent, which this proxy does not support`);
    if (!isHere(parent)) return [];
    const [outer, inner] = [parseRule(parent.rule), parseRule(spec.rule)];
    const matches: Matches = (target) => outer(target) && inner(target);
    return [
      {
        route: routeOf(name, [parent, spec], provider, configurations),
        matches,
        order: [priorityOf(parent), priorityOf(spec)],
      },
    ];
  });
}

const isHere = (spec: RouterSpec): boolean =>
  spec.entryPoints === null || spec.entryPoints.includes(ENTRY_POINT);
/**
 * Like Traefik, uses the length of the rule as default priority, because longer rules are usually
 * more specific.
 */
const priorityOf = (spec: RouterSpec): number => spec.priority || spec.rule.length;
/** Sorts the highest priority first. */
const byOrder = ([a = 0, a2 = 0]: readonly number[], [b = 0, b2 = 0]: readonly number[]): number =>
  b - a || b2 - a2;

/** `specs` lists the parent, if any, and the router that has the service. */
function routeOf(
  name: string,
  specs: readonly RouterSpec[],
  provider: Provider,
  configurations: Configurations,
): Route {
  const service = specs.at(-1)?.service ?? null;
  if (service === null) throw new Error('has no service');
  return {
    name,
    service: serviceOf(service, provider, configurations),
    middlewares: specs
      .flatMap((spec) => spec.middlewares)
      .map((reference) =>
        lookUp('middleware', reference, provider, (c) => c.middlewares, configurations),
      ),
  };
}

function serviceOf(reference: string, provider: Provider, configurations: Configurations): Service {
  if (reference === 'noop@internal') return { kind: 'noop' };
  const find = (name: string) =>
    lookUp('service', name, provider, (c) => c.services, configurations);
  const spec = find(reference);
  const used = 'first' in spec ? find(spec.first) : spec;
  if ('first' in used) throw new Error(`service ${reference} is a failover of a failover`);
  return { kind: 'servers', name: reference, servers: used.servers };
}

/**
 * Resolves a reference: `name` is a part of the same provider, `name@provider` a part of that
 * provider.
 */
function lookUp<T extends object>(
  what: string,
  reference: string,
  defaultProvider: Provider,
  of: (c: Configuration) => Parts<T>,
  configurations: Configurations,
): T {
  const at = reference.lastIndexOf('@');
  const name = at === -1 ? reference : reference.slice(0, at);
  const provider = at === -1 ? defaultProvider : reference.slice(at + 1);
  const configuration =
    provider === 'http' || provider === 'file' ? configurations[provider] : undefined;
  const part = configuration === undefined ? undefined : of(configuration).get(name);
  if (part === undefined) throw new Error(`${what} ${reference} does not exist`);
  if ('problem' in part) throw new Error(`${what} ${reference} ${part.problem}`);
  return part;
}
