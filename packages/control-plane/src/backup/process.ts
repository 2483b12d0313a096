/**
 * Runs scheduled backups in a separate process: copying a database takes seconds and compression
 * uses one core, and both would block the control plane.
 */
import { fileURLToPath } from 'node:url';
import { dyingWithParent, exec } from '@berth/kit/exec';
import { LONGEST_BACKUP_MS, type ScheduledBackup } from '../domain/platform/backups.ts';

const CHILD = fileURLToPath(new URL('./backup-child.ts', import.meta.url));
/** Time for the process to remove half-written files before it is killed. */
const KILL_AFTER_MS = 10_000;

/** Returns null if another backup was running. Throws with the process's error message. */
export async function runScheduled(
  env: NodeJS.ProcessEnv,
  signal: AbortSignal,
): Promise<ScheduledBackup | null> {
  const argv = dyingWithParent([process.execPath, CHILD]);
  const { code, stdout, stderr, ended } = await exec(argv, {
    env,
    signal,
    timeoutMs: LONGEST_BACKUP_MS,
    killAfterMs: KILL_AFTER_MS,
  });
  if (code === 0) {
    const made = JSON.parse(stdout) as ScheduledBackup | { skipped: string };
    return 'skipped' in made ? null : made;
  }
  if (ended === 'timeout')
    throw new Error(
      `the backup took longer than ${LONGEST_BACKUP_MS / 3_600_000} h and was stopped`,
    );
  throw new Error(detailIn(stderr));
}

/** The last line is the JSON error object; after a crash of the process it is plain text. */
function detailIn(stderr: string): string {
  const last = stderr.trim().split('\n').at(-1) ?? '';
  try {
    return String((JSON.parse(last) as { detail: unknown }).detail);
  } catch {
    return stderr.trim().slice(-500) || 'the process of the backup ended without a word';
  }
}
