/**
 * Requests to identity providers: a deadline for the whole answer, a limit on its size, and no
 * redirects.
 */

/**
 * Thrown if the provider gave no usable answer: it is unreachable or too slow, or it sent an error
 * or invalid data. The gateway answers 503.
 */
export class ProviderUnavailable extends Error {
  override name = 'ProviderUnavailable';
}

export const PROVIDER_TIMEOUT_MS = 5_000;
const MAX_ANSWER_BYTES = 512 * 1024;

export type Fetch = (url: string, init?: RequestInit) => Promise<Response>;

/** Creates a fetch that reads the whole body, so that callers do not wait for the network again. */
export function createProviderFetch(timeoutMs: number = PROVIDER_TIMEOUT_MS): Fetch {
  return async (url, init = {}) => {
    const timeout = AbortSignal.timeout(timeoutMs);
    const signal = init.signal ? AbortSignal.any([init.signal, timeout]) : timeout;
    try {
      const response = await fetch(url, { ...init, redirect: 'manual', signal });
      const body = await readBounded(response);
      const { status } = response;
      // The constructor refuses a body for a status without body (204, 304).
      return new Response(body.length === 0 ? null : body, {
        status: status < 200 ? 502 : status,
        headers: response.headers,
      });
    } catch (error) {
      throw new ProviderUnavailable(`${new URL(url).origin}: ${reasonOf(error)}`, { cause: error });
    }
  };
}

async function readBounded(response: Response): Promise<Buffer<ArrayBuffer>> {
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const part of response.body ?? []) {
    size += part.length;
    if (size > MAX_ANSWER_BYTES)
      throw new Error(`the answer is larger than ${MAX_ANSWER_BYTES} bytes`);
    parts.push(part);
  }
  return Buffer.concat(parts);
}

function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (error.name === 'TimeoutError') return 'no answer in time';
  return error.cause instanceof Error ? error.cause.message || error.cause.name : error.message;
}
