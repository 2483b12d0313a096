/**
 * Sends and receives the chunks of a move: one end sends numbered chunks to the control plane, and
 * the other end takes them (wire/volume.ts).
 */
import { defined } from '@berth/kit/defined';
import { ApiError, UnreachableError } from '@berth/wire/client';
import {
  CHUNK_ANSWERS,
  CHUNK_HEADERS,
  CHUNK_HOLD_SECONDS,
  type ChunkAnswer,
} from '@berth/wire/volume';
import type { ProblemDocument } from '@berth/wire/errors';

export type TakenChunk = { stream: string; number: number; last: boolean; bytes: Buffer };
type Of = { taskId: string; lease: string; signal: AbortSignal };
export type ChunkClient = {
  send(of: Of, chunk: TakenChunk): Promise<ChunkAnswer>;
  /**
   * Takes the next chunk; null if there is none yet. `wait: 0` only confirms the chunks before
   * `number`.
   */
  take(
    of: Of,
    at: { stream: string | null; number: number; wait?: number },
  ): Promise<TakenChunk | null>;
};

/** Timeout in ms: the long poll, plus 100 s for a chunk on a slow line. */
const TIMEOUT_MS = (CHUNK_HOLD_SECONDS + 100) * 1000;

export function createChunkClient(
  baseUrl: string,
  headers: () => Record<string, string>,
): ChunkClient {
  async function ask(
    { taskId, lease, signal }: Of,
    query: Record<string, string>,
    init: { method: string; body?: Uint8Array<ArrayBuffer> },
  ): Promise<{ response: Response; bytes: Buffer }> {
    const url =
      `${baseUrl.replace(/\/+$/, '')}/api/agent/tasks/${encodeURIComponent(taskId)}/chunks?` +
      new URLSearchParams(query).toString();
    let response: Response;
    let bytes: Buffer;
    try {
      response = await fetch(url, {
        ...init,
        headers: {
          ...headers(),
          'x-lease-token': lease,
          ...defined({
            'content-type': init.body === undefined ? undefined : 'application/octet-stream',
          }),
        },
        signal: AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]),
      });
      bytes = Buffer.from(await response.arrayBuffer());
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      throw new UnreachableError(`${init.method} ${url}: ${String(error)}`, { cause: error });
    }
    if (response.ok) return { response, bytes };
    throw problemOf(response.status, bytes.toString());
  }

  return {
    async send(of, { stream, number, last, bytes }) {
      const query = {
        stream,
        number: String(number),
        ...defined({ last: last ? 'true' : undefined }),
      };
      const answer = await ask(of, query, { method: 'POST', body: new Uint8Array(bytes) });
      const next = (JSON.parse(answer.bytes.toString()) as { next?: ChunkAnswer }).next;
      if (next === undefined || !CHUNK_ANSWERS.includes(next))
        throw new UnreachableError(`unknown answer to a chunk: ${String(next)}`);
      return next;
    },
    async take(of, { stream, number, wait = CHUNK_HOLD_SECONDS }) {
      const query = {
        ...defined({ stream: stream ?? undefined }),
        number: String(number),
        hold: String(wait),
      };
      const { response, bytes } = await ask(of, query, { method: 'GET' });
      if (response.status === 204) return null;
      const header = (name: string): string => response.headers.get(name) ?? '';
      return {
        stream: header(CHUNK_HEADERS.stream),
        number: Number(header(CHUNK_HEADERS.number)),
        last: header(CHUNK_HEADERS.last) === 'true',
        bytes,
      };
    },
  };
}

function problemOf(status: number, text: string): ApiError {
  try {
    const problem = JSON.parse(text) as ProblemDocument;
    return new ApiError(status, problem.code, problem.detail || problem.title, problem);
  } catch {
    return new ApiError(status, `http_${status}`, text.slice(0, 300) || `HTTP ${status}`, null);
  }
}
