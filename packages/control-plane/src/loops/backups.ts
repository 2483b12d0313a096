/** Makes a backup when one is due. If there are several control planes, only one makes it. */
import {
  isLate,
  lastGood,
  nextBackupAt,
  type BackupSettings,
  type BackupStore,
} from '../domain/platform/backups.ts';
import type { Logger } from '@berth/kit/log';

export type Deps = {
  backups: Pick<BackupStore, 'list'>;
  /** Null without BACKUP_TO. */
  backupSchedule: BackupSettings | null;
  log: Logger;
  now: () => number;
};

export const backups =
  ({ backupSchedule: settings, backups, now, log }: Deps) =>
  async (signal: AbortSignal): Promise<void> => {
    if (settings === null) return;
    const before = await backups.list();
    if (nextBackupAt(before, settings.intervalMs) > now()) return;
    try {
      const made = await settings.run(signal);
      if (made === null) return;
      const { name, target, bytes, deleted } = made;
      log.info({ backup: name, target, bytes, deleted: deleted.length }, 'backup written');
    } catch (error) {
      // Do not record a backup that a shutdown stopped: it begins again after the start.
      if (signal.aborted) return;
      const good = lastGood(before);
      const last = {
        last_good: good === null ? null : new Date(good.started_at).toISOString(),
        late: isLate(good, settings.intervalMs, now()),
      };
      log.error({ err: error, ...last }, 'backup failed; will retry');
    }
  };
