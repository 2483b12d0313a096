/**
 * Calls the Docker Engine API. Each call has a deadline, an abort signal and a maximum answer size,
 * so a hanging engine cannot hang the agent. engine-api.ts has the types of the calls.
 */
import type { ClientRequest, IncomingMessage } from 'node:http';
import { request as httpRequest } from 'node:http';
import type { Duplex } from 'node:stream';
import { defined } from '@berth/kit/defined';
import { redactor } from '@berth/kit/exec-output';
import { classify, REGISTRY_FAILURES, TaskFailure } from '../failures.ts';
import { DEFAULT_HOST, engineAddress } from './engine-address.ts';
import type { EngineApi } from './engine-api.ts';
import { EngineAgent } from './engine-socket.ts';
import type { RegistryCredentials } from './registry-credentials.ts';

/** A call, named as in the API's document: `GET /containers/{id}/json`. */
export type Call = Extract<keyof EngineApi, `${Method} /${string}`>;
type Method = 'GET' | 'POST' | 'DELETE';
type Part<K extends Call, P extends string> = EngineApi[K] extends Record<P, infer T> ? T : never;
export type Answer<K extends Call> = Part<K, 'answer'>;

export type CallOptions<K extends Call> = {
  /** Values for the names in braces of the path. */
  params?: Readonly<Record<string, string>>;
  /** Query parameters; an undefined value omits the parameter. */
  query?: { [N in keyof Part<K, 'query'>]?: string | number | boolean | undefined };
  body?: Part<K, 'body'>;
  /** Value of the header X-Registry-Auth. */
  registryAuth?: string;
  signal?: AbortSignal | undefined;
  /** Uses the newest API version of the engine, for fields that NEWEST does not have. */
  newestVersion?: boolean;
  /** Timeout in ms for the whole answer; 60 s by default. Null disables the timeout. */
  timeoutMs?: number | null;
};
export type StreamOptions<K extends Call> = CallOptions<K> & {
  /** Called once with the header X-Docker-Container-Path-Stat, before the first bytes. */
  onPathStat?: (stat: string) => void;
  onChunk: (chunk: Buffer) => void;
};

/**
 * Client of the engine. Its calls reject with the signal's reason, with EngineError if the engine
 * refuses, or with TaskFailure engine_unavailable or disk_full.
 */
export type EngineClient = {
  call<K extends Call>(call: K, options?: CallOptions<K>): Promise<Answer<K>>;
  /** Passes on the bytes of the answer as they arrive. */
  stream<K extends Call>(call: K, options: StreamOptions<K>): Promise<void>;
  /**
   * Returns the connection itself, which the engine gives up for raw bytes in both directions. The
   * caller must end it. The signal counts until then.
   */
  hijack<K extends Call>(call: K, options: CallOptions<K>): Promise<Duplex>;
};

/** The engine answered with a refusal. */
export class EngineError extends Error {
  override name = 'EngineError';
  readonly status: number;
  /** The text of the engine's error. */
  readonly reason: string;
  constructor(call: string, status: number, reason: string) {
    super(`${call}: ${reason}`);
    this.status = status;
    this.reason = reason;
  }
}

export type EngineClientOptions = {
  dockerHost?: string | undefined;
  /** The environment variables that all tools of the agent receive. */
  inherit: NodeJS.ProcessEnv;
  /** `configDir`: folder of the TLS certificates if DOCKER_CERT_PATH is not set. */
  credentials: Pick<RegistryCredentials, 'configDir' | 'secrets'>;
};

/** Maximum size of an answer that is parsed, in bytes. */
const MAX_ANSWER = 64 * 1024 * 1024;
const MAX_REASON = 16 * 1024;
const TIMEOUT_MS = 60_000;
/** The newest API version that the agent knows, from engine 25. Engine 20.10 speaks 1.41. */
const NEWEST = '1.44';
/** Maximum number of kept-alive connections. An ssh server refuses many new connections at once. */
const MAX_KEPT = 6;
const TOO_NEW = /client version \S+ is too new/i;

type Channel = {
  host: string;
  secrets: () => readonly string[];
  /** Null if DOCKER_HOST is not usable; `problem` has the reason. */
  agents: { kept: EngineAgent; fresh: EngineAgent } | null;
  problem: string;
  /**
   * API version of the engine. Null before the first answer, and after the engine might have been
   * replaced.
   */
  version: string | null;
};
type Exchange = {
  call: string;
  /** Uses a separate connection, because the call lasts long or must not be repeated. */
  isAlone: boolean;
  method: string;
  path: string;
  body: string | null;
  headers: Record<string, string>;
  signal: AbortSignal | undefined;
  timeoutMs: number | null;
};

export function createEngineClient(options: EngineClientOptions): EngineClient {
  const channel = openChannel(options);
  return {
    async call(call, callOptions = {}) {
      return (await withVersion(channel, callOptions, (version) =>
        exchange(channel, exchangeOf(call, callOptions, version, false), readAnswer),
      )) as Answer<typeof call>;
    },
    stream: (call, streamOptions) =>
      withVersion(channel, streamOptions, (version) =>
        exchange(channel, exchangeOf(call, streamOptions, version, true), (response) =>
          readStream(response, streamOptions),
        ),
      ),
    hijack: (call, callOptions) =>
      withVersion(channel, callOptions, (version) =>
        hijack(channel, exchangeOf(call, callOptions, version, true)),
      ),
  };
}

function openChannel({ dockerHost, inherit, credentials }: EngineClientOptions): Channel {
  const channel: Channel = {
    host: dockerHost ?? DEFAULT_HOST,
    secrets: credentials.secrets,
    agents: null,
    problem: '',
    version: null,
  };
  try {
    const address = engineAddress(dockerHost, inherit, credentials.configDir);
    const env = { ...inherit, LC_ALL: 'C' };
    channel.agents = {
      kept: new EngineAgent(address, env, { keepAlive: true, maxSockets: MAX_KEPT }),
      fresh: new EngineAgent(address, env, { keepAlive: false }),
    };
  } catch (error) {
    channel.problem = (error as Error).message;
  }
  return channel;
}

/**
 * Sends the request with the engine's API version. Asks for the version again if an older engine
 * has replaced the engine.
 */
async function withVersion<T>(
  channel: Channel,
  { signal, timeoutMs }: Pick<CallOptions<Call>, 'signal' | 'timeoutMs'>,
  run: (version: string) => Promise<T>,
): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    channel.version ??= await askVersion(channel, signal, timeoutMs ?? TIMEOUT_MS);
    try {
      return await run(channel.version);
    } catch (error) {
      const isTooNew = error instanceof EngineError && TOO_NEW.test(error.reason);
      if (isTooNew || error instanceof TaskFailure) channel.version = null;
      if (!isTooNew || attempt > 1) throw error;
    }
  }
}

async function askVersion(
  channel: Channel,
  signal: AbortSignal | undefined,
  timeoutMs: number,
): Promise<string> {
  const ping: Exchange = {
    call: 'GET /_ping',
    isAlone: false,
    method: 'GET',
    path: '/_ping',
    body: null,
    headers: {},
    signal,
    timeoutMs: Math.min(timeoutMs, TIMEOUT_MS),
  };
  const spoken = await exchange(channel, ping, async (response) => {
    await readBytes(response, ping.call, MAX_REASON);
    return response.headers['api-version'];
  });
  return typeof spoken === 'string' && isOlder(spoken, NEWEST) ? spoken : NEWEST;
}

/** Compares API versions such as 1.41. */
function isOlder(version: string, than: string): boolean {
  const [[major = 0, minor = 0], [otherMajor = 0, otherMinor = 0]] = [version, than].map((text) =>
    text.split('.').map(Number),
  ) as [number[], number[]];
  return major < otherMajor || (major === otherMajor && minor < otherMinor);
}

function exchangeOf<K extends Call>(
  call: K,
  {
    params,
    query,
    body,
    registryAuth,
    signal,
    newestVersion = false,
    timeoutMs = TIMEOUT_MS,
  }: CallOptions<K>,
  version: string,
  isStream: boolean,
): Exchange {
  const [method = '', template = ''] = call.split(' ');
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {}))
    if (value !== undefined) search.set(name, `${value as string | number | boolean}`);
  return {
    call,
    isAlone: isStream || method !== 'GET',
    method,
    path: `${newestVersion ? '' : `/v${version}`}${fillIn(template, params ?? {})}?${search.toString()}`,
    body: body === undefined ? null : JSON.stringify(body),
    headers: defined({
      'content-type': body === undefined ? undefined : 'application/json',
      'x-registry-auth': registryAuth,
    }),
    signal,
    timeoutMs,
  };
}

/**
 * Rejects a value with `..`: the engine decodes and cleans a path, so the request would reach a
 * different API call. No container or image has such a name.
 */
function fillIn(template: string, params: Readonly<Record<string, string>>): string {
  return template.replaceAll(/\{(\w+)\}/g, (_, name: string) => {
    const value = params[name] ?? '';
    if (value.split('/').some((part) => part === '' || part === '.' || part === '..'))
      throw new EngineError(template, 400, `invalid reference format: ${JSON.stringify(value)}`);
    return encodeURIComponent(value);
  });
}

/** Sends one request and reads its answer. Resolves when `read` has resolved. */
async function exchange<T>(
  channel: Channel,
  message: Exchange,
  read: (response: IncomingMessage, call: string) => Promise<T>,
): Promise<T> {
  const { signal, timeoutMs, call } = message;
  signal?.throwIfAborted();
  const ending = new AbortController();
  const onAbort = (): void => ending.abort();
  signal?.addEventListener('abort', onAbort, { once: true });
  let isLate = false;
  const deadline =
    timeoutMs === null
      ? undefined
      : setTimeout(() => {
          isLate = true;
          ending.abort();
        }, timeoutMs);
  try {
    const response = await send(channel, message, ending.signal);
    try {
      if (!isSuccess(response)) throw await refusal(response, message);
      return await read(response, call);
    } finally {
      if (!response.complete) response.destroy();
    }
  } catch (error) {
    signal?.throwIfAborted();
    if (isLate)
      throw unavailable(`the engine did not answer ${call} within ${secondsOf(timeoutMs)}`);
    throw failureOf(channel, call, error);
  } finally {
    clearTimeout(deadline);
    signal?.removeEventListener('abort', onAbort);
  }
}
const secondsOf = (ms: number | null): string => `${Math.round((ms ?? 0) / 1000)} s`;
/** 304 means that the container is already started or stopped. */
const isSuccess = ({ statusCode = 0 }: IncomingMessage): boolean =>
  (statusCode >= 200 && statusCode < 300) || statusCode === 304;

/**
 * Sends the request. A short GET reuses a connection, and is repeated once if the engine has closed
 * that connection. Every other call must not be repeated, so each uses a new connection.
 */
async function send(
  channel: Channel,
  message: Exchange,
  signal: AbortSignal,
): Promise<IncomingMessage> {
  if (channel.agents === null) throw unavailable(channel.problem);
  const { kept, fresh } = channel.agents;
  if (message.isAlone) return sendOnce(fresh, message, signal);
  try {
    return await sendOnce(kept, message, signal);
  } catch (error) {
    if (signal.aborted || !(error instanceof ClosedBefore)) throw error;
    return sendOnce(fresh, message, signal);
  }
}

/** A reused connection ended without an answer. */
class ClosedBefore extends Error {}

function sendOnce(
  agent: EngineAgent,
  message: Exchange,
  signal: AbortSignal,
): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const request = requestOf(agent, message, {}, signal);
    request.on('response', resolve);
    request.on('error', (error) =>
      reject(request.reusedSocket ? new ClosedBefore(error.message, { cause: error }) : error),
    );
    request.end(message.body ?? undefined);
  });
}

const requestOf = (
  agent: EngineAgent,
  { method, path, body, headers }: Exchange,
  more: Record<string, string>,
  signal?: AbortSignal,
): ClientRequest =>
  httpRequest({
    agent,
    method,
    path,
    ...defined({ signal }),
    headers: {
      ...headers,
      ...more,
      host: 'docker',
      'user-agent': 'berth-agent',
      ...defined({
        'content-length': method === 'GET' ? undefined : Buffer.byteLength(body ?? ''),
      }),
    },
  });

async function hijack(channel: Channel, message: Exchange): Promise<Duplex> {
  if (channel.agents === null) throw unavailable(channel.problem);
  const { fresh } = channel.agents;
  const ending = AbortSignal.any([
    ...(message.signal === undefined ? [] : [message.signal]),
    AbortSignal.timeout(message.timeoutMs ?? TIMEOUT_MS),
  ]);
  try {
    return await new Promise<Duplex>((resolve, reject) => {
      const request = requestOf(fresh, message, {
        connection: 'Upgrade',
        upgrade: 'tcp',
      });
      const onAbort = (): void => void request.destroy(new Error('the engine did not answer'));
      ending.addEventListener('abort', onAbort, { once: true });
      const settled = (): void => ending.removeEventListener('abort', onAbort);
      request.on('upgrade', (_, socket, head) => {
        settled();
        if (head.length > 0) socket.unshift(head);
        resolve(socket);
      });
      request.on('response', (response) => {
        settled();
        refusal(response, message).then(reject, reject);
      });
      request.on('error', (error) => {
        settled();
        reject(error);
      });
      request.end(message.body ?? undefined);
    });
  } catch (error) {
    message.signal?.throwIfAborted();
    throw failureOf(channel, message.call, error);
  }
}

async function readAnswer(response: IncomingMessage, call: string): Promise<unknown> {
  const bytes = await readBytes(response, call, MAX_ANSWER);
  if (bytes.length === 0) return undefined;
  const text = bytes.toString('utf8');
  try {
    return JSON.parse(text) as unknown;
  } catch {
    throw unavailable(`the engine’s answer to ${call} is not JSON: ${text.slice(0, 300)}`);
  }
}

async function readBytes(response: IncomingMessage, call: string, most: number): Promise<Buffer> {
  const parts: Buffer[] = [];
  let size = 0;
  for await (const part of response as AsyncIterable<Buffer>) {
    size += part.length;
    if (size > most)
      throw new TaskFailure('task_failed', `the engine’s answer to ${call} exceeds ${most} bytes`);
    parts.push(part);
  }
  return Buffer.concat(parts);
}

async function readStream<K extends Call>(
  response: IncomingMessage,
  { onPathStat, onChunk }: StreamOptions<K>,
): Promise<void> {
  const stat = response.headers['x-docker-container-path-stat'];
  if (typeof stat === 'string') onPathStat?.(stat);
  for await (const part of response as AsyncIterable<Buffer>) onChunk(part);
}

/** Reads `{"message": …}`. A proxy in front of the engine can answer with any other text. */
async function refusal(response: IncomingMessage, { call }: Exchange): Promise<EngineError> {
  const status = response.statusCode ?? 0;
  const text = (await readBytes(response, call, MAX_ANSWER)).toString('utf8').slice(0, MAX_REASON);
  return new EngineError(call, status, messageIn(text) ?? `status ${status} ${text.slice(0, 300)}`);
}
function messageIn(text: string): string | null {
  try {
    const { message } = JSON.parse(text) as { message?: unknown };
    return typeof message === 'string' ? message : null;
  } catch {
    return null;
  }
}

const unavailable = (detail: string, cause?: unknown): TaskFailure =>
  new TaskFailure('engine_unavailable', detail, { cause });

/** Redacts the error, and separates an unreachable engine from one that refuses the call. */
function failureOf({ host, secrets }: Channel, call: string, error: unknown): unknown {
  if (error instanceof TaskFailure) return error;
  const hide = redactor(secrets());
  if (error instanceof EngineError) {
    const reason = hide(error.reason);
    const code = classify(REGISTRY_FAILURES, reason, 'task_failed');
    if (code === 'engine_unavailable' || code === 'disk_full') return new TaskFailure(code, reason);
    return new EngineError(call, error.status, reason);
  }
  const { code, message } = error as NodeJS.ErrnoException;
  return unavailable(
    `cannot connect to the Docker daemon at ${host} (${call}): ${hide(message || code || '')}`,
    error,
  );
}
