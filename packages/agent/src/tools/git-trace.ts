/** What git's HTTP trace (GIT_TRACE_CURL) says of the last request: whether the server answered it with a redirect, and where to. */
import { open } from 'node:fs/promises';

export type Redirect = { method: string; path: string; location: string };

/** Of a longer trace the end is read: the last request is there. */
const MOST = 256 * 1024;

/** Null where the last answer is no redirect, or no request was made. */
export async function lastRedirect(path: string): Promise<Redirect | null> {
  const file = await open(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return null;
    throw error;
  });
  if (file === null) return null;
  try {
    const { size } = await file.stat();
    const buffer = Buffer.alloc(Math.min(size, MOST));
    await file.read(buffer, 0, buffer.length, size - buffer.length);
    return parseTrace(buffer.toString('utf8'));
  } finally {
    await file.close();
  }
}

function parseTrace(text: string): Redirect | null {
  let request = { method: '', path: '' };
  let status = 0;
  let location: string | null = null;
  for (const line of text.split('\n')) {
    const [, method, path] = /=> Send header: (GET|POST) (\S+) HTTP\//.exec(line) ?? [];
    if (method !== undefined && path !== undefined) {
      request = { method, path };
      status = 0;
      location = null;
    }
    const seen = /<= Recv header: HTTP\/[\d.]+ (\d{3})/.exec(line)?.[1];
    if (seen !== undefined) {
      status = Number(seen);
      location = null;
    }
    location = /<= Recv header: location:\s*(.*?)\s*$/i.exec(line)?.[1] ?? location;
  }
  return status >= 300 && status < 400 && location !== null ? { ...request, location } : null;
}
