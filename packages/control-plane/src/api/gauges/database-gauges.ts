/** Gauges of the database, its backups and the keys of projects. */
import { type BackupStore, isFailing, lastGood } from '../../domain/platform/backups.ts';
import type { MetricsStore } from '../../domain/platform/metrics-store.ts';
import type { Vault } from '../../domain/secrets/vault.ts';
import { type GaugeRow, ONE_OR_ZERO, READ_MS, within } from './gauge-row.ts';

export type Deps = {
  backups: Pick<BackupStore, 'list'>;
  metrics: Pick<MetricsStore, 'size'>;
  /** Runs a trivial query. */
  ping(): Promise<void>;
  vault: Pick<Vault, 'keys'>;
  /** BACKUP_INTERVAL; null without BACKUP_TO. */
  backupIntervalMs: number | null;
};

export const databaseGauges = ({
  backups,
  metrics,
  ping,
  vault,
  backupIntervalMs,
}: Deps): GaugeRow[] => [
  {
    name: 'berth_database_ok',
    help:
      '1 if the database answered a query of this scrape within 2 s, else 0; then other ' +
      'metrics are missing',
    labels: [],
    read: async () => [{ labels: {}, value: await within(READ_MS, ping()).then(...ONE_OR_ZERO) }],
  },
  {
    name: 'berth_backup_failing',
    help: '1 if the last backup that ended has failed, scheduled or by a person, else 0',
    labels: [],
    read: async () => [{ labels: {}, value: isFailing(await backups.list()) ? 1 : 0 }],
  },
  {
    name: 'berth_backup_last_success_timestamp_seconds',
    help: 'Start of the last backup that succeeded, scheduled or by a person; 0 if there is none',
    labels: [],
    read: async () => [
      { labels: {}, value: (lastGood(await backups.list())?.started_at ?? 0) / 1000 },
    ],
  },
  {
    name: 'berth_backup_interval_seconds',
    help: 'BACKUP_INTERVAL; 0 if no backups are scheduled',
    labels: [],
    read: () => [{ labels: {}, value: (backupIntervalMs ?? 0) / 1000 }],
  },
  {
    name: 'berth_database_bytes',
    help: 'Size of the database on disk in bytes',
    labels: [],
    read: async () => [{ labels: {}, value: (await metrics.size()).bytes }],
  },
  {
    name: 'berth_database_free_bytes',
    help:
      'Unused part of berth_database_bytes, to be reused or returned to the file system; 0 ' +
      'with PostgreSQL, which does not report it',
    labels: [],
    read: async () => [{ labels: {}, value: (await metrics.size()).free }],
  },
  {
    name: 'berth_project_keys',
    help:
      'Keys that encrypt the secrets of projects, by the key that wraps them: `current` or ' +
      '`earlier` (of SECRETS_KEY), `missing` (SECRETS_KEY does not open them)',
    labels: ['wrapped_by'],
    async read() {
      const { all, earlier, locked } = await vault.keys();
      const counts = { current: all - earlier - locked, earlier, missing: locked };
      return Object.entries(counts).map(([wrapped_by, value]) => ({
        labels: { wrapped_by },
        value,
      }));
    },
  },
];
