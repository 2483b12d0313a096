/**
 * Sends requests with the login to the registry's HTTP API. Plain http exposes the password, so it
 * is used only on this machine, or if the operator configured it in the engine.
 */
import type { AgentConfig } from '@berth/wire/task';
import type { IsInsecure } from '../engine/insecure-registries.ts';
import { TaskFailure } from '../failures.ts';
import { tokenUrl } from './token-url.ts';

export type RegistryRequestDeps = {
  settings: () => AgentConfig | null;
  isInsecure: IsInsecure;
  /** REGISTRY_URL; if undefined, the address in the settings is used. */
  url: string | undefined;
  /** Timeout of an answer in ms. */
  answerMs?: number;
};
type Request = (method: string, path: string, signal: AbortSignal) => Promise<Response>;
export type RegistryRequests = {
  /** Sends a request. Rejects if the registry does not answer. */
  request: Request;
  /**
   * Sends a request. Throws TaskFailure `registry_unreachable` without an answer, and a TaskFailure
   * for 401, 403 and 5xx.
   */
  ask: Request;
};

/** Media types of multi-platform images. */
export const INDEXES = [
  'application/vnd.oci.image.index.v1+json',
  'application/vnd.docker.distribution.manifest.list.v2+json',
];
const MANIFESTS = [
  ...INDEXES,
  'application/vnd.oci.image.manifest.v1+json',
  'application/vnd.docker.distribution.manifest.v2+json',
].join(', ');
/** Matches loopback addresses, for which the engine uses plain http too. */
const LOOPBACK = /^(127\.[\d.]+|localhost|\[::1\])(:\d+)?$/;
const ANSWER_MS = 30_000;

/** Caches the registry's origin, which is determined once per host. */
type Origins = RegistryRequestDeps & { last: { host: string; origin: string } | null };

export function createRegistryRequests(deps: RegistryRequestDeps): RegistryRequests {
  const origins: Origins = { ...deps, last: null };
  return {
    request: (method, path, signal) => request(origins, method, path, signal),
    ask: (method, path, signal) => ask(origins, method, path, signal),
  };
}

async function originOf(origins: Origins, host: string, signal: AbortSignal): Promise<string> {
  if (origins.last?.host === host) return origins.last.origin;
  const isPlain = LOOPBACK.test(host) || (await origins.isInsecure(host, signal));
  const origin = `${isPlain ? 'http' : 'https'}://${host}`;
  origins.last = { host, origin };
  return origin;
}

async function request(
  origins: Origins,
  method: string,
  path: string,
  signal: AbortSignal,
): Promise<Response> {
  const { settings, url: ownUrl, answerMs = ANSWER_MS } = origins;
  const config = settings();
  if (config === null || config.registry_addr === '') throw new TaskFailure('registry_missing', '');
  const host = config.registry_addr.split('/')[0] ?? '';
  const origin = ownUrl ?? (await originOf(origins, host, signal));
  const basic = basicOf(config);
  const limited = (): AbortSignal => AbortSignal.any([signal, AbortSignal.timeout(answerMs)]);
  const send = (headers: Record<string, string>): Promise<Response> =>
    fetch(`${origin}/v2/${path}`, {
      method,
      redirect: 'manual',
      headers: { accept: MANIFESTS, ...headers },
      signal: limited(),
    });
  const answer = await send(basic);
  const challenge = answer.headers.get('www-authenticate') ?? '';
  if (answer.status !== 401 || !/^bearer /i.test(challenge)) return answer;
  await answer.body?.cancel();
  const repository = path.replace(/\/(manifests|blobs)\/.*$/, '');
  const token = await fetch(tokenUrl(challenge, repository, origin, 'pull,push,delete'), {
    headers: basic,
    signal: limited(),
  });
  const answered = (await token.json()) as { token?: string; access_token?: string };
  return send({ authorization: `Bearer ${answered.token ?? answered.access_token ?? ''}` });
}

function basicOf({ registry_user, registry_password }: AgentConfig): Record<string, string> {
  if (registry_user === '') return {};
  const login = Buffer.from(`${registry_user}:${registry_password}`).toString('base64');
  return { authorization: `Basic ${login}` };
}

async function ask(
  origins: Origins,
  method: string,
  path: string,
  signal: AbortSignal,
): Promise<Response> {
  const answer = await request(origins, method, path, signal).catch((error: unknown) => {
    signal.throwIfAborted();
    if (error instanceof TaskFailure) throw error;
    throw new TaskFailure('registry_unreachable', String((error as Error).cause ?? error), {
      cause: error,
    });
  });
  const code = failureCodeOf(answer.status);
  if (code !== null) throw new TaskFailure(code, `${method} ${path}: status ${answer.status}`);
  return answer;
}

function failureCodeOf(status: number) {
  if (status === 401 || status === 403) return 'registry_refused' as const;
  if (status === 500 || status === 507) return 'registry_failed' as const;
  return status >= 500 ? ('registry_unreachable' as const) : null;
}
