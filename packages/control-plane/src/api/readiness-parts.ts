/**
 * The parts of the control plane that /readyz checks. The answer is public, so it contains neither
 * names nor addresses nor errors; the log has them.
 */
import type { Logger } from '@berth/kit/log';
import type { SystemReadiness } from '@berth/wire/system';
import { type BackupStore, isLate, lastGood } from '../domain/platform/backups.ts';
import type { ConfigSource } from '../domain/routes/configuration.ts';
import type { Vault } from '../domain/secrets/vault.ts';
import { keptFor } from './kept-for.ts';
import type { LoopStatus } from './settings.ts';

/**
 * `required`: the control plane cannot serve without this part, so /readyz answers 503 if it fails.
 * Other parts retry by themselves.
 */
export type Part = SystemReadiness['parts'][number];

export type Deps = {
  backups: Pick<BackupStore, 'list'>;
  source: Pick<ConfigSource, 'current'>;
  vault: Pick<Vault, 'keys'>;
  /** Runs a trivial query. */
  ping(): Promise<void>;
  loops: () => readonly LoopStatus[];
  /**
   * Returns a message if another control plane signs with a JWT secret that this one does not have,
   * else null.
   */
  secretProblem: () => string | null;
  /** BACKUP_INTERVAL; null without BACKUP_TO. */
  backupIntervalMs: number | null;
  now: () => number;
  log: Logger;
};

const PING_MS = 2_000;
const KEYS_KEPT_MS = 5_000;
const BACKUPS_KEPT_MS = 5_000;

export function createReadinessParts(deps: Deps): () => Promise<Part[]> {
  const secrets = keptFor(KEYS_KEPT_MS, () => secretsPart(deps));
  const backups = keptFor(BACKUPS_KEPT_MS, () => backupParts(deps));
  return async () => [
    await databasePart(deps),
    routesPart(deps),
    ...jwtSecretParts(deps),
    await secrets(),
    ...(await backups()),
    ...deps.loops().map(loopPart),
  ];
}

async function databasePart({ ping, log }: Deps): Promise<Part> {
  const part = { name: 'database', required: true };
  try {
    await Promise.race([ping(), rejectAfter(PING_MS)]);
    return { ...part, ok: true, detail: 'answers' };
  } catch (error) {
    log.error({ err: error }, 'database check failed');
    return { ...part, ok: false, detail: 'does not answer; the log has the error' };
  }
}

function rejectAfter(ms: number): Promise<never> {
  const late = AbortSignal.timeout(ms);
  return new Promise((_, reject) =>
    late.addEventListener('abort', () => reject(new Error(`no answer within ${ms} ms`)), {
      once: true,
    }),
  );
}

function routesPart({ source, log }: Deps): Part {
  const part = { name: 'routes', required: true };
  try {
    source.current();
    return { ...part, ok: true, detail: 'known' };
  } catch (error) {
    log.debug({ err: error }, 'routes are unknown');
    const detail = 'not read recently; the reverse proxy keeps its last configuration';
    return { ...part, ok: false, detail };
  }
}

/** Returns no part unless the control planes have different secrets. */
function jwtSecretParts({ secretProblem }: Deps): Part[] {
  const problem = secretProblem();
  return problem === null
    ? []
    : [{ name: 'jwt secret', required: false, ok: false, detail: problem }];
}

async function secretsPart({ vault, log }: Deps): Promise<Part> {
  const part = { name: 'secrets', required: false };
  try {
    const { all, earlier, locked } = await vault.keys();
    const detail =
      locked > 0
        ? `SECRETS_KEY does not open the keys of ${locked} of ${all} projects: another control ` +
          'plane has another SECRETS_KEY'
        : `${earlier} of ${all} project keys are wrapped by an earlier SECRETS_KEY`;
    return { ...part, ok: locked === 0, detail };
  } catch (error) {
    log.error({ err: error }, 'could not read the project keys');
    return { ...part, ok: false, detail: 'keys not read; the log has the error' };
  }
}

/** Returns no part if backups are off and none was made. */
async function backupParts({ backups, backupIntervalMs, now, log }: Deps): Promise<Part[]> {
  const part = { name: 'backups', required: false };
  try {
    const all = await backups.list();
    const good = lastGood(all);
    if (backupIntervalMs === null && good === null) return [];
    const age =
      good === null
        ? 'there is no backup yet'
        : `the last backup is ${ageText(now() - good.started_at)} old`;
    // After the first start, the first backup takes some time.
    const isFirst = good === null && all.every((backup) => backup.error === null);
    const ok = backupIntervalMs === null || isFirst || !isLate(good, backupIntervalMs, now());
    return [{ ...part, ok, detail: ok ? age : `${age}; the log has the error (backup failed)` }];
  } catch (error) {
    log.error({ err: error }, 'could not read the record of backups');
    return [{ ...part, ok: false, detail: 'the record was not read; the log has the error' }];
  }
}

/** Formats an age such as `3 h 20 min`. */
function ageText(ms: number): string {
  const minutes = Math.max(0, Math.floor(ms / 60_000));
  if (minutes < 120) return `${minutes} min`;
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${Math.floor(minutes / 1440)} days`;
}

const loopPart = ({ name, description, lastError }: LoopStatus): Part => ({
  name: `loop ${name}`,
  required: false,
  ok: lastError === null,
  detail:
    lastError === null
      ? description
      : `${description}: the last run failed and will be retried; the log has the error`,
});
