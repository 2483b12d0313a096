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

type Row = { route: Route; matches: Matches /** A child is tried where its parent stands. */; order: readonly number[] };

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
        problems.push(`router ${full}: ${error instanceof Error ? error.message : String(error)}`);
      }
    }
  }
  rows.sort((a, b) => byOrder(a.order, b.order) || (a.route.name < b.route.name ? -1 : 1));
  const origins = new Set(
    rows.flatMap(({ route }) => (route.service.kind === 'servers' ? route.service.servers.map((url) => url.origin) : [])),
  );
  return { find: (target) => rows.find((row) => row.matches(target))?.route ?? null, size: rows.length, origins, problems };
}

/** One row, or one for each of its parents. A parent has none: its children's rows contain it. */
function rowsOf(name: string, spec: RouterSpec, provider: Provider, configurations: Configurations): Row[] {
  if (spec.parentRefs.length === 0) {
    if (spec.service === null || !isHere(spec)) return [];
    return [{ route: routeOf(name, [spec], provider, configurations), matches: parseRule(spec.rule), order: [priorityOf(spec)] }];
  }
  return spec.parentRefs.flatMap((reference) => {
    const parent = lookUp('router', reference, provider, (c) => c.routers, configurations);
    if (parent.parentRefs.length > 0) throw new Error(`its parent ${reference} has a parent, which this proxy does not know`);
    if (!isHere(parent)) return [];
    const [outer, inner] = [parseRule(parent.rule), parseRule(spec.rule)];
    const matches: Matches = (target) => outer(target) && inner(target);
    return [{ route: routeOf(name, [parent, spec], provider, configurations), matches, order: [priorityOf(parent), priorityOf(spec)] }];
  });
}

const isHere = (spec: RouterSpec): boolean => spec.entryPoints === null || spec.entryPoints.includes(ENTRY_POINT);
/** Traefik's rule of thumb: the longer rule is the more particular one. */
const priorityOf = (spec: RouterSpec): number => spec.priority || spec.rule.length;
/** The highest first. */
const byOrder = ([a = 0, a2 = 0]: readonly number[], [b = 0, b2 = 0]: readonly number[]): number => b - a || b2 - a2;

/** `specs`: from the parent to the router whose service it is. */
function routeOf(name: string, specs: readonly RouterSpec[], provider: Provider, configurations: Configurations): Route {
  const service = specs.at(-1)?.service ?? null;
  if (service === null) throw new Error('has no service');
  return {
    name,
    service: serviceOf(service, provider, configurations),
    middlewares: specs
      .flatMap((spec) => spec.middlewares)
      .map((reference) => lookUp('middleware', reference, provider, (c) => c.middlewares, configurations)),
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
