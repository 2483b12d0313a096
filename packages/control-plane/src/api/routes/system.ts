/** Routes about the control plane itself: health, readiness, metrics, version, OpenAPI document. */
import { berthTomlSchema } from '@berth/wire/berth-toml';
import type { SystemReadiness } from '@berth/wire/system';
import { BERTH_VERSION, OLDEST_AGENT } from '@berth/wire/version';
import {
  type BackupRecord,
  type BackupStore,
  nextBackupAt,
} from '../../domain/platform/backups.ts';
import { type Call, type Define, SENT } from '../define.ts';
import type { Metrics } from '../metrics.ts';
import { createReadinessNotes, type Deps as NoteDeps } from '../readiness-notes.ts';
import { createReadinessParts, type Deps as PartDeps } from '../readiness-parts.ts';
import type { ApiSettings } from '../settings.ts';
import type { StaticAnswer } from '../static-answer.ts';
import { time, timeOrNull } from '../views.ts';

export type Deps = PartDeps &
  NoteDeps & {
    backups: Pick<BackupStore, 'list'>;
    /** The name of the newest migration. */
    schema: string;
    meters: Pick<Metrics, 'render'>;
    openapi: StaticAnswer;
    settings: Pick<ApiSettings, 'commit' | 'inForce' | 'publicUrl'>;
    /** BACKUP_INTERVAL; null without BACKUP_TO. */
    backupIntervalMs: number | null;
  };

/**
 * Reads the readiness, also for the dashboard (`system`), because the shipped proxy files hide
 * /readyz from the internet.
 */
type ReadReadiness = () => Promise<SystemReadiness>;

export function systemRoutes(route: Define, deps: Deps): void {
  const read = createReadReadiness(deps);
  route('healthz', async () => ({ status: 'ok' }));
  route('readyz', (call) => readyz(read, call));
  route('metrics', (call) => metrics(deps, call));
  route('version', async () => version(deps));
  route('system', () => system(deps, read));
  route('berthTomlSchema', async () =>
    berthTomlSchema(`${deps.settings.publicUrl}/api/schemas/berth-toml.json`),
  );
  route('openapi', (call) => openapi(deps, call));
}

function createReadReadiness(deps: Deps): ReadReadiness {
  const readParts = createReadinessParts(deps);
  const readNotes = createReadinessNotes(deps);
  return async () => {
    const parts = await readParts();
    const warnings = await readNotes();
    const notes = warnings.map(({ text }) => text);
    return { status: statusOf(parts), parts, notes, warnings };
  };
}

function statusOf(parts: SystemReadiness['parts']): SystemReadiness['status'] {
  if (parts.some((part) => part.required && !part.ok)) return 'not_ready';
  return parts.every((part) => part.ok) ? 'ready' : 'degraded';
}

async function readyz(read: ReadReadiness, { reply }: Call<'readyz'>): Promise<typeof SENT> {
  const readiness = await read();
  void reply.code(readiness.status === 'not_ready' ? 503 : 200).send(readiness);
  return SENT;
}

async function metrics({ meters }: Deps, { reply }: Call<'metrics'>): Promise<typeof SENT> {
  const { type, text } = await meters.render();
  void reply.type(type).send(text);
  return SENT;
}

const version = ({ settings, schema }: Deps) => ({
  version: BERTH_VERSION,
  commit: settings.commit,
  node: process.versions.node,
  schema,
  oldest_agent: OLDEST_AGENT,
});

async function system({ backups, backupIntervalMs, settings, now }: Deps, read: ReadReadiness) {
  const rows = await backups.list();
  const next =
    backupIntervalMs === null ? null : Math.max(now(), nextBackupAt(rows, backupIntervalMs));
  return {
    readiness: await read(),
    settings: settings.inForce,
    backups: {
      interval_seconds: backupIntervalMs === null ? null : backupIntervalMs / 1000,
      next_at: timeOrNull(next),
      items: rows.map(backupView),
    },
  };
}

const backupView = ({ started_at, finished_at, ...backup }: BackupRecord) => ({
  id: backup.id,
  name: backup.name,
  target: backup.target,
  scheduled: backup.scheduled,
  bytes: backup.bytes,
  error: backup.error,
  started_at: time(started_at),
  finished_at: timeOrNull(finished_at),
});

async function openapi(deps: Deps, { request, reply }: Call<'openapi'>): Promise<typeof SENT> {
  deps.openapi.send(request, reply);
  return SENT;
}
