/**
 * Stores the last good configuration in memory and on disk, for a reverse proxy that starts while
 * the control plane is unreachable. The file's modification time is the time at which the control
 * plane last confirmed the configuration, so its age survives a restart of the relay.
 */
import { createHash } from 'node:crypto';
import { EventEmitter, once } from 'node:events';
import { mkdir, readFile, stat, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '@berth/kit/log';
import { removeTemporary, writeFileWhole } from '@berth/kit/write-file';

export type Configuration = {
  bytes: Buffer;
  etag: string;
  /** Time in ms since 1970 at which the control plane last confirmed the configuration. */
  at: number;
};
export type ConfigStore = {
  current(): Configuration | null;
  /** Stores the configuration that the control plane answered. */
  put(bytes: Buffer): Promise<void>;
  /** Records that the control plane reported no change. */
  confirm(): Promise<void>;
  /** Resolves at the next change of the configuration, after `ms`, or when the signal aborts. */
  changed(ms: number, signal: AbortSignal): Promise<void>;
};

const FILE = 'traefik-config.json';

export async function openConfigStore(
  stateDir: string,
  log: Logger,
  now: () => number = Date.now,
): Promise<ConfigStore> {
  await mkdir(stateDir, { recursive: true, mode: 0o700 });
  await removeTemporary(stateDir);
  const path = join(stateDir, FILE);
  let current = await read(path, log);
  const changes = new EventEmitter().setMaxListeners(0);

  /**
   * Logs a failed write. A full disk must not delay a new route, so the configuration is served
   * from memory.
   */
  const onDisk = (work: Promise<void>): Promise<void> =>
    work.catch((err: unknown) =>
      log.error({ err, path }, 'saving the configuration failed; serving it from memory'),
    );

  return {
    current: () => current,
    async put(bytes) {
      const changed = current === null || !current.bytes.equals(bytes);
      current = { bytes, etag: etagOf(bytes), at: now() };
      if (!changed) return onDisk(touch(path, current.at));
      changes.emit('changed');
      await onDisk(writeFileWhole(path, bytes));
    },
    async confirm() {
      if (current === null) return;
      current = { ...current, at: now() };
      await onDisk(touch(path, current.at));
    },
    async changed(ms, signal) {
      const end = AbortSignal.any([signal, AbortSignal.timeout(Math.max(1, Math.ceil(ms)))]);
      await once(changes, 'changed', { signal: end }).catch((error: unknown) => {
        if (!end.aborted) throw error;
      });
    },
  };
}

const etagOf = (bytes: Buffer): string =>
  `"${createHash('sha256').update(bytes).digest('base64url')}"`;

/**
 * True if the bytes are a configuration of the control plane: a JSON object with routers. Every
 * configuration has at least the router of the marker. Any other document would drop or freeze all
 * routes.
 */
export function isConfiguration(bytes: Buffer): boolean {
  try {
    const document: unknown = JSON.parse(bytes.toString('utf8'));
    const http =
      typeof document === 'object' && document !== null && 'http' in document
        ? document.http
        : null;
    const routers =
      typeof http === 'object' && http !== null && 'routers' in http ? http.routers : null;
    return typeof routers === 'object' && routers !== null && Object.keys(routers).length > 0;
  } catch (error) {
    if (error instanceof SyntaxError) return false;
    throw error;
  }
}

async function read(path: string, log: Logger): Promise<Configuration | null> {
  try {
    const [bytes, { mtimeMs }] = await Promise.all([readFile(path), stat(path)]);
    if (isConfiguration(bytes)) return { bytes, etag: etagOf(bytes), at: mtimeMs };
    log.error({ path }, 'the saved configuration is not valid; starting without one');
    return null;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  }
}

const touch = (path: string, at: number): Promise<void> => utimes(path, at / 1000, at / 1000);
