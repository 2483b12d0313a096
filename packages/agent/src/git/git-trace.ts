/**
 * Reads git's HTTP trace (GIT_TRACE_CURL) to find whether the last answer was a redirect, and its
 * target.
 */
import { open } from 'node:fs/promises';

export type Redirect = { method: string; path: string; location: string };

/** Number of bytes read from the end of the trace, which contains the last request. */
const MAX_BYTES = 256 * 1024;

/**
 * Returns the redirect of the last answer; null if it is not a redirect, or if there was no
 * request.
 */
export async function lastRedirect(path: string): Promise<Redirect | null> {
  const file = await open(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return null;
    throw error;
  });
  if (file === null) return null;
  try {
    const { size } = await file.stat();
    const buffer = Buffer.alloc(Math.min(size, MAX_BYTES));
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
