/**
 * The last good configuration, in memory and on disk: what a reverse proxy that starts while the control plane is away gets.
 * The file's time of change is when the control plane last said that it still holds, so the age survives a restart of ours.
 */
import { createHash } from 'node:crypto';
import { EventEmitter, once } from 'node:events';
import { mkdir, open, readFile, rename, stat, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '@berth/kit/log';

export type Configuration = { bytes: Buffer; etag: string /** When the control plane last said so. */; at: number };
export type Kept = {
  current(): Configuration | null;
  /** The control plane's answer: what it holds now. */
  put(bytes: Buffer): Promise<void>;
  /** The control plane says that nothing has changed. */
  confirm(): Promise<void>;
  /** Resolves at the next other configuration, when the time is over or at the signal. */
  changed(ms: number, signal: AbortSignal): Promise<void>;
};

const FILE = 'traefik-config.json';

export async function openKept(stateDir: string, log: Logger, now: () => number = Date.now): Promise<Kept> {
  await mkdir(stateDir, { recursive: true, mode: 0o700 });
  const path = join(stateDir, FILE);
  let current = await read(path, log);
  const bell = new EventEmitter().setMaxListeners(0);

  /** A full disk must not keep a new route from the proxy: it is served from memory, and the log says what is missing. */
  const onDisk = (work: Promise<void>): Promise<void> =>
    work.catch((err: unknown) => log.error({ err, path }, 'the configuration could not be kept on disk; it is served from memory'));

  return {
    current: () => current,
    async put(bytes) {
      const moved = current === null || !current.bytes.equals(bytes);
      current = { bytes, etag: etagOf(bytes), at: now() };
      if (!moved) return onDisk(touch(path, current.at));
      bell.emit('changed');
      await onDisk(write(path, bytes));
    },
    async confirm() {
      if (current === null) return;
      current = { ...current, at: now() };
      await onDisk(touch(path, current.at));
    },
    async changed(ms, signal) {
      const end = AbortSignal.any([signal, AbortSignal.timeout(Math.max(1, Math.ceil(ms)))]);
      await once(bell, 'changed', { signal: end }).catch((error: unknown) => {
        if (!end.aborted) throw error;
      });
    },
  };
}

const etagOf = (bytes: Buffer): string => `"${createHash('sha256').update(bytes).digest('base64url')}"`;

/** As the control plane answers it: a JSON object with routers (its marker stands in every one). Anything else would drop or freeze all routes. */
export function isConfiguration(bytes: Buffer): boolean {
  try {
    const document: unknown = JSON.parse(bytes.toString('utf8'));
    const http = typeof document === 'object' && document !== null && 'http' in document ? document.http : null;
    const routers = typeof http === 'object' && http !== null && 'routers' in http ? http.routers : null;
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
    log.error({ path }, 'the kept configuration cannot be read; starting without one');
    return null;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  }
}

/** Temporary file, sync, rename: after a power cut the old one is there or the new one, whole. */
async function write(path: string, bytes: Buffer): Promise<void> {
  const file = await open(`${path}.new`, 'w', 0o600);
  try {
    await file.writeFile(bytes);
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(`${path}.new`, path);
}

const touch = (path: string, at: number): Promise<void> => utimes(path, at / 1000, at / 1000);
