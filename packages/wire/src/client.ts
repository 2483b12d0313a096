/** Typed API client, derived from routes.ts. Agent and gateway use it. */
import { defined } from '@berth/kit/defined';
import { type ProblemDocument } from './errors.ts';
import {
  type AnswerOf,
  type BodyOf,
  type ParamsOf,
  type QueryOf,
  ROUTES,
  type RouteName,
} from './routes.ts';
import type { Route } from './route.ts';

/**
 * The server answered with an error. `code` is one of ERRORS, or `http_<status>` if the body was
 * not a problem document.
 */
export class ApiError extends Error {
  override name = 'ApiError';
  readonly status: number;
  readonly code: string;
  readonly problem: ProblemDocument | null;
  constructor(status: number, code: string, message: string, problem: ProblemDocument | null) {
    super(message);
    this.status = status;
    this.code = code;
    this.problem = problem;
  }
}

/**
 * The request got no usable answer: connection refused or reset, timeout, unreadable body. `cause`
 * is the original error.
 */
export class UnreachableError extends Error {
  override name = 'UnreachableError';
}

type Drop<T> = { [K in keyof T as T[K] extends undefined ? never : K]: T[K] };
export type CallInput<N extends RouteName> = Drop<{ params: ParamsOf<N>; body: BodyOf<N> }> & {
  query?: QueryOf<N>;
  headers?: Record<string, string>;
  signal?: AbortSignal;
  /**
   * Time limit of the whole call in ms; default 15,000. For a long poll it must be longer than
   * `wait`.
   */
  timeoutMs?: number;
};
/** `answer` is null on 304, which happens only if the request sent `If-None-Match`. */
export type CallResult<N extends RouteName> = {
  status: number;
  etag: string | null;
  headers?: Headers;
  answer: AnswerOf<N> | null;
};

export type Client = {
  call<N extends RouteName>(name: N, input: CallInput<N>): Promise<AnswerOf<N>>;
  /** Like `call`, but also returns the status and the ETag, which long polls need. */
  exchange<N extends RouteName>(name: N, input: CallInput<N>): Promise<CallResult<N>>;
};

export type ClientOptions = {
  baseUrl: string;
  /** Headers for every request (X-Agent-Secret, Authorization). */
  headers?: () => Record<string, string>;
  fetch?: typeof fetch;
};

type Scalars = Record<string, string | number | boolean | undefined>;

export function pathOf(route: Route, params: Scalars = {}, query: Scalars = {}): string {
  const path = route.path.replace(/:([a-z_]+)/g, (_, name: string) =>
    encodeURIComponent(String(params[name])),
  );
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query))
    if (value !== undefined) search.set(key, String(value));
  const text = search.toString();
  return text === '' ? path : `${path}?${text}`;
}

export function createClient(options: ClientOptions): Client {
  const base = options.baseUrl.replace(/\/+$/, '');
  const send = options.fetch ?? fetch;

  async function exchange<N extends RouteName>(
    name: N,
    input: CallInput<N>,
  ): Promise<CallResult<N>> {
    const route: Route = ROUTES[name];
    const parts = input as { params?: Scalars; query?: Scalars; body?: unknown };
    const timeout = AbortSignal.timeout(input.timeoutMs ?? 15_000);
    const signal = input.signal === undefined ? timeout : AbortSignal.any([input.signal, timeout]);
    const init: RequestInit = {
      method: route.method,
      headers: {
        accept: 'application/json',
        ...defined({ 'content-type': parts.body === undefined ? undefined : 'application/json' }),
        ...options.headers?.(),
        ...input.headers,
      },
      signal,
      ...defined({ body: parts.body === undefined ? undefined : JSON.stringify(parts.body) }),
    };
    let response: Response;
    let text: string;
    try {
      response = await send(base + pathOf(route, parts.params, parts.query), init);
      text = await response.text();
    } catch (error) {
      // An abort by the caller is not an error of the server: pass on the caller's reason.
      if (input.signal?.aborted) throw input.signal.reason;
      throw new UnreachableError(`${route.method} ${base}${route.path}: ${reasonOf(error)}`, {
        cause: error,
      });
    }
    const etag = response.headers.get('etag');
    if (response.status === 304)
      return { status: 304, etag, headers: response.headers, answer: null };
    if (!response.ok) throw errorOf(response.status, text);
    try {
      return {
        status: response.status,
        etag,
        headers: response.headers,
        answer: (text === '' ? undefined : JSON.parse(text)) as AnswerOf<N>,
      };
    } catch (error) {
      throw new UnreachableError(`${route.method} ${base}${route.path}: the answer is not JSON`, {
        cause: error,
      });
    }
  }

  return {
    exchange,
    async call(name, input) {
      const { answer } = await exchange(name, input);
      return answer as AnswerOf<typeof name>;
    },
  };
}

function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error ? error.cause.message || error.cause.name : error.message;
}

function errorOf(status: number, text: string): ApiError {
  try {
    const problem = JSON.parse(text) as ProblemDocument;
    if (typeof problem.code === 'string')
      return new ApiError(
        status,
        problem.code,
        problem.detail || problem.title || `HTTP ${status}`,
        problem,
      );
  } catch {
    // The body is not a problem document, for example because a proxy in between answered. Only the
    // status is usable.
  }
  return new ApiError(status, `http_${status}`, text.slice(0, 300) || `HTTP ${status}`, null);
}
