/** Routes about the control plane itself: health, readiness, metrics, version, OpenAPI document. */
import type { SystemReadiness } from '@berth/wire/system';
import { BERTH_VERSION, OLDEST_AGENT } from '@berth/wire/version';
import {
  isLate,
  lastGood,
  nextBackupAt,
  RESTORED,
  type Restored,
} from '../../domain/platform/backups.ts';
import { type Define, SENT } from '../define.ts';
import type { StaticAnswer } from '../static-answer.ts';
import type { ApiDeps } from '../deps.ts';
import type { Holds } from '../long-poll.ts';
import type { Metrics } from '../metrics.ts';
import type { NodeNotes } from '../node-notes.ts';

const PING_MS = 2_000;
/**
 * Cache time of doubled nodes. /readyz is public, so the number of requests must not determine the
 * number of queries.
 */
const DOUBLED_CACHE_MS = 5_000;
const KEYS_CACHE_MS = 5_000;
const BACKUPS_CACHE_MS = 5_000;
/** As `3 h 20 min`. */
const ageOf = (ms: number): string => {
  const minutes = Math.max(0, Math.floor(ms / 60_000));
  return minutes < 120
    ? `${minutes} min`
    : minutes < 48 * 60
      ? `${Math.floor(minutes / 60)} h ${minutes % 60} min`
      : `${Math.floor(minutes / 1440)} days`;
};

const RESTORED_SHOWN_MS = 7 * 24 * 3_600_000;

/**
 * `required`: if this part fails, the control plane cannot serve and /readyz answers 503. Other
 * parts are retried by themselves.
 */
type Part = SystemReadiness['parts'][number];

type Deps = ApiDeps & {
  metrics: Metrics;
  holds: Holds;
  nodeNotes: readonly Pick<NodeNotes, 'notes'>[];
  openapi: StaticAnswer;
};

export function systemRoutes(route: Define, deps: Deps): void {
  const { stores, source, loops, settings, metrics, log, limits, now, nodeNotes, vault } = deps;

  route('healthz', async () => ({ status: 'ok' }));

  route('readyz', async ({ reply }) => {
    const readiness = await readinessNow();
    void reply.code(readiness.status === 'not_ready' ? 503 : 200).send(readiness);
    return SENT;
  });

  /**
   * The dashboard gets it too (`system`), because the shipped proxy files keep /readyz from the
   * internet.
   */
  async function readinessNow(): Promise<SystemReadiness> {
    const parts: Part[] = [
      await database(),
      routes(),
      ...jwtSecret(),
      await secrets(),
      ...(await backups()),
      ...loops().map(loopPart),
    ];
    const ready = parts.every((p) => p.ok || !p.required);
    const status = !ready ? 'not_ready' : parts.every((p) => p.ok) ? 'ready' : 'degraded';
    const notes = [
      ...settings.notes,
      ...proxyNotes(),
      ...certificateNotes(),
      ...unrouted(),
      ...(await doubled()),
      ...(await restored()),
      ...nodeNotes.flatMap((n) => n.notes()),
    ];
    return { status, parts, notes };
  }

  let cache = { until: Number.NEGATIVE_INFINITY, doubled: Promise.resolve<string[]>([]) };
  function doubled(): Promise<string[]> {
    if (performance.now() >= cache.until)
      cache = { until: performance.now() + DOUBLED_CACHE_MS, doubled: readDoubled() };
    return cache.doubled;
  }

  /** The row is written before the control plane starts, so one read is enough. */
  let restoredRow: Restored | 'never' | null = null;
  async function restored(): Promise<string[]> {
    try {
      restoredRow ??= JSON.parse((await stores.meta.get(RESTORED)) ?? '"never"') as
        | Restored
        | 'never';
    } catch (error) {
      log.error({ err: error }, 'could not read when the database was restored');
    }
    if (restoredRow === null || restoredRow === 'never') return [];
    const { restored_at, backup_at } = restoredRow;
    if (now() - Date.parse(restored_at) > RESTORED_SHOWN_MS) return [];
    return [
      `restored on ${restored_at} from the backup of ${backup_at}: Berth does not know what ` +
        'was deployed after that',
    ];
  }

  /** Without addresses, because /readyz is public. The log has them. */
  const proxyNotes = (): string[] =>
    deps.aliases?.kept() === true
      ? [
          'the reverse proxy forwards request headers like X!Forwarded!User, which an ' +
            'application may read as X-Forwarded-User: run Traefik ' +
            '3.7.13 or newer with aliasHeadersStrategy: delete on both entry points',
        ]
      : [];

  /** Without names, because /readyz is public. */
  function certificateNotes(): string[] {
    const count = deps.certificates?.problems().length ?? 0;
    return count === 0
      ? []
      : [
          `${count === 1 ? '1 host has' : `${count} hosts have`} no good certificate: berth ` +
            'status names them',
        ];
  }

  function unrouted(): string[] {
    const count = source.problems().length;
    return count === 0
      ? []
      : [
          `${count === 1 ? '1 route is' : `${count} routes are`} not published: the log has ` +
            'the projects and the reasons',
        ];
  }

  /** Without names, because /readyz is public. */
  async function readDoubled(): Promise<string[]> {
    try {
      const nodes = await stores.nodes.listDoubled();
      const { length } = nodes.filter(
        (n) => n.doubled !== null && Math.abs(now() - n.doubled.last_seen_at) < limits.offlineMs,
      );
      if (length === 0) return [];
      return [
        `${length === 1 ? '1 node name' : `${length} node names`}: a second machine tries to ` +
          'register and is refused: berth status names them',
      ];
    } catch (error) {
      log.debug({ err: error }, 'could not read doubled nodes');
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
          late.addEventListener(
            'abort',
            () => reject(new Error(`no answer within ${PING_MS} ms`)),
            { once: true },
          ),
        ),
      ]);
      return { ...part, ok: true, detail: 'answers' };
    } catch (error) {
      // Only the log has the error, because /readyz is public.
      log.error({ err: error }, 'database check failed');
      return { ...part, ok: false, detail: 'does not answer; the log has the error' };
    }
  }

  /** Shown only if the control planes have different secrets. */
  function jwtSecret(): Part[] {
    const problem = deps.secretProblem();
    return problem === null
      ? []
      : [{ name: 'jwt secret', required: false, ok: false, detail: problem }];
  }

  let backupCache = { until: Number.NEGATIVE_INFINITY, part: Promise.resolve<Part[]>([]) };
  function backups(): Promise<Part[]> {
    if (performance.now() >= backupCache.until)
      backupCache = { until: performance.now() + BACKUPS_CACHE_MS, part: readBackups() };
    return backupCache.part;
  }

  /** Without names and addresses, because /readyz is public. */
  async function readBackups(): Promise<Part[]> {
    const part = { name: 'backups', required: false };
    try {
      const all = await stores.backups.list();
      const good = lastGood(all);
      const interval = deps.backupIntervalMs;
      if (interval === null && good === null) return [];
      const age =
        good === null
          ? 'there is no backup yet'
          : `the last backup is ${ageOf(now() - good.started_at)} old`;
      // After a first start, the first backup takes a moment.
      const isFirst = good === null && all.every((b) => b.error === null);
      const ok = interval === null || isFirst || !isLate(good, interval, now());
      return [{ ...part, ok, detail: ok ? age : `${age}; the log has the error (backup failed)` }];
    } catch (error) {
      log.error({ err: error }, 'could not read the record of backups');
      return [{ ...part, ok: false, detail: 'the record was not read; the log has the error' }];
    }
  }

  let keyCache = { until: Number.NEGATIVE_INFINITY, part: Promise.resolve<Part | null>(null) };
  async function secrets(): Promise<Part> {
    if (performance.now() >= keyCache.until)
      keyCache = { until: performance.now() + KEYS_CACHE_MS, part: readKeys() };
    return (
      (await keyCache.part) ?? {
        name: 'secrets',
        required: false,
        ok: false,
        detail: 'keys not read; the log has the error',
      }
    );
  }

  async function readKeys(): Promise<Part | null> {
    try {
      const { all, earlier, locked } = await vault.keys();
      const detail =
        locked > 0
          ? `SECRETS_KEY does not open the keys of ${locked} of ${all} projects: another control ` +
            'plane has another SECRETS_KEY'
          : `${earlier} of ${all} project keys are wrapped by an earlier SECRETS_KEY`;
      return { name: 'secrets', required: false, ok: locked === 0, detail };
    } catch (error) {
      log.error({ err: error }, 'could not read the project keys');
      return null;
    }
  }

  function routes(): Part {
    const part = { name: 'routes', required: true };
    try {
      source.current();
      return { ...part, ok: true, detail: 'known' };
    } catch (error) {
      log.debug({ err: error }, 'routes are unknown');
      return {
        ...part,
        ok: false,
        detail: 'not read recently; the reverse proxy keeps its last configuration',
      };
    }
  }

  const loopPart = ({ name, description, lastError }: ReturnType<typeof loops>[number]): Part => ({
    name: `loop ${name}`,
    required: false,
    ok: lastError === null,
    detail:
      lastError === null
        ? description
        : `${description}: the last run failed and will be retried; the log has the error`,
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

  route('system', async () => {
    const rows = await stores.backups.list();
    const time = (ms: number | null): string | null =>
      ms === null ? null : new Date(ms).toISOString();
    const interval = deps.backupIntervalMs;
    const next = interval === null ? null : Math.max(now(), nextBackupAt(rows, interval));
    return {
      readiness: await readinessNow(),
      settings: settings.inForce,
      backups: {
        interval_seconds: interval === null ? null : interval / 1000,
        next_at: time(next),
        items: rows.map(
          ({ id, name, target, scheduled, bytes, error, started_at, finished_at }) => ({
            ...{ id, name, target, scheduled, bytes, error },
            started_at: new Date(started_at).toISOString(),
            finished_at: time(finished_at),
          }),
        ),
      },
    };
  });

  route('openapi', async ({ request, reply }) => {
    deps.openapi.send(request, reply);
    return SENT;
  });
}
