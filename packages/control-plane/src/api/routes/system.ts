/** How the control plane does: for load balancers, for Prometheus, for people. */
import { BERTH_VERSION, OLDEST_AGENT } from '@berth/wire/version';
import { type Define, SENT } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import type { Holds } from '../holds.ts';
import type { Metrics } from '../metrics.ts';
import type { NodeNotes } from '../node-notes.ts';

const PING_MS = 2_000;
const MOST_DOUBLED = 20;
/** /readyz is public: however often it is requested, it reads the nodes once in this time. */
const DOUBLED_KNOWN_MS = 5_000;

/** `required`: without it nothing can be served, and /readyz says 503. What fails otherwise is tried again by itself. */
type Part = { name: string; ok: boolean; required: boolean; detail: string };

type Deps = ApiDeps & { metrics: Metrics; holds: Holds; nodeNotes: readonly NodeNotes[]; openapi: object };

export function systemRoutes(route: Define, deps: Deps): void {
  const { stores, source, loops, settings, metrics, log, limits, now, nodeNotes } = deps;

  route('healthz', async () => ({ status: 'ok' }));

  route('readyz', async ({ reply }) => {
    const parts: Part[] = [await database(), routes(), ...jwtSecret(), ...loops().map(loopPart)];
    const ready = parts.every((p) => p.ok || !p.required);
    const status = !ready ? 'not_ready' : parts.every((p) => p.ok) ? 'ready' : 'degraded';
    const unrouted = source.problems().map((p) => `left out of routing: ${p}`);
    const notes = [...settings.notes, ...proxyNotes(), ...unrouted, ...(await doubled()), ...nodeNotes.flatMap((n) => n.notes())];
    void reply.code(ready ? 200 : 503).send({ status, parts, notes });
    return SENT;
  });

  let known = { until: Number.NEGATIVE_INFINITY, doubled: Promise.resolve<string[]>([]) };
  function doubled(): Promise<string[]> {
    if (performance.now() >= known.until) known = { until: performance.now() + DOUBLED_KNOWN_MS, doubled: readDoubled() };
    return known.doubled;
  }

  /** Without addresses: this page is public. The log names them. */
  const proxyNotes = (): string[] =>
    deps.aliases?.kept() === true
      ? [
          'the reverse proxy hands on request headers like X!Forwarded!User, which an application may take for X-Forwarded-User: run Traefik ' +
            '3.7.13 or newer with aliasHeadersStrategy: delete on both entry points',
        ]
      : [];

  /** Without addresses: this page is public. */
  async function readDoubled(): Promise<string[]> {
    try {
      const nodes = await stores.nodes.listDoubled();
      return nodes
        .filter((n) => n.doubled !== null && Math.abs(now() - n.doubled.last_seen_at) < limits.offlineMs)
        .slice(0, MOST_DOUBLED)
        .map((n) => `${n.role} node ${n.hostname}: another machine registers under this name and is refused`);
    } catch (error) {
      log.debug({ err: error }, 'doubled nodes cannot be read');
      return [];
    }
  }

  async function database(): Promise<Part> {
    const part = { name: 'database', required: true };
    const late = AbortSignal.timeout(PING_MS);
    try {
      await Promise.race([
        stores.ping(),
        new Promise((_, reject) =>
          late.addEventListener('abort', () => reject(new Error(`no answer within ${PING_MS} ms`)), { once: true }),
        ),
      ]);
      return { ...part, ok: true, detail: 'answers' };
    } catch (error) {
      // What exactly is for the log: this page is public.
      log.error({ err: error }, 'the database does not answer');
      return { ...part, ok: false, detail: 'does not answer; the log says why' };
    }
  }

  /** Only where it differs between control planes: most installations have one. */
  function jwtSecret(): Part[] {
    const problem = deps.secretProblem();
    return problem === null ? [] : [{ name: 'jwt secret', required: false, ok: false, detail: problem }];
  }

  function routes(): Part {
    const part = { name: 'routes', required: true };
    try {
      source.current();
      return { ...part, ok: true, detail: 'known' };
    } catch (error) {
      log.debug({ err: error }, 'the routes are not known');
      return { ...part, ok: false, detail: 'could not be read lately; the reverse proxy keeps what it has' };
    }
  }

  const loopPart = ({ name, description, lastError }: ReturnType<typeof loops>[number]): Part => ({
    name: `loop ${name}`,
    required: false,
    ok: lastError === null,
    detail: lastError === null ? description : `${description}: failed last time and is tried again; the log says why`,
  });

  route('metrics', async ({ reply }) => {
    const { type, text } = await metrics.render();
    void reply.type(type).send(text);
    return SENT;
  });

  route('version', async () => ({
    version: BERTH_VERSION,
    commit: settings.commit,
    node: process.versions.node,
    schema: stores.schema,
    oldest_agent: OLDEST_AGENT,
  }));

  route('openapi', async () => deps.openapi);
}
