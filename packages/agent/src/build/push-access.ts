/**
 * Asks the registry's API whether a push is allowed (OCI distribution, "Pushing a blob in chunks"):
 * starts a test upload and cancels it. Docker retries a refused layer for most of a minute, and
 * buildx does not report the reason. Without this check, a build that cannot be pushed would fail
 * only at its time limit.
 */
import { defined } from '@berth/kit/defined';
import type { AgentConfig } from '@berth/wire/task';
import { pause } from '../stopped.ts';
import { tokenUrl } from '../registry/token-url.ts';
import type { IsInsecure } from '../engine/insecure-registries.ts';

/** Returns the registry’s refusal; null if the push is allowed, or if this is unknown. */
export type PushAccess = (repository: string, signal: AbortSignal) => Promise<string | null>;
type Login = Pick<AgentConfig, 'registry_user' | 'registry_password'>;

const ANSWER_TIMEOUT_MS = 5_000;
/** Pause in ms before the first check: most pushes end earlier. */
const FIRST_CHECK_MS = 3_000;
const NEXT_CHECK_MS = 30_000;

/**
 * Checks repeatedly during a push. Resolves with the refusal after two refused checks in a row.
 * Rejects with the signal’s reason.
 */
export async function untilRefused(
  ask: () => Promise<string | null>,
  signal: AbortSignal,
  firstMs = FIRST_CHECK_MS,
): Promise<string> {
  for (let waitMs = firstMs; ; waitMs = NEXT_CHECK_MS) {
    await pause(waitMs, signal);
    if ((await ask()) === null) continue;
    // Check again after one refusal: a busy token server can cause it, and the retry that docker
    // makes can succeed.
    await pause(firstMs, signal);
    const refusal = await ask();
    if (refusal !== null) return refusal;
  }
}

export function createPushAccess(login: () => Login | null, isInsecure: IsInsecure): PushAccess {
  return async (repository, signal) => {
    const slash = repository.indexOf('/');
    const host = repository.slice(0, slash);
    // Without a dot or a port, the first part is not a host, and the image is on Docker Hub.
    if (slash === -1 || !/[.:]|^localhost$/.test(host)) return null;
    for (const scheme of ['https', 'http']) {
      try {
        // Plain http exposes the password, so use it only if the operator configured it in the
        // engine.
        if (scheme === 'http' && !(await isInsecure(host, signal))) return null;
        return await tryUpload(`${scheme}://${host}`, repository.slice(slash + 1), login(), signal);
      } catch {
        signal.throwIfAborted();
        // Ignore an unsupported scheme, a certificate that only the engine trusts, or a missing
        // answer. Docker reports these errors itself.
      }
    }
    return null;
  };
}

async function tryUpload(
  origin: string,
  name: string,
  login: Login | null,
  signal: AbortSignal,
): Promise<string | null> {
  const basic =
    login === null || login.registry_user === '' ? {} : { authorization: basicOf(login) };
  let auth: Record<string, string> = basic;
  /** Send the login only to the registry; a token server gets its own headers. */
  const loginFor = (url: string): Record<string, string> =>
    new URL(url).origin === origin ? auth : {};
  type Content = { body?: string; headers?: Record<string, string> };
  const send = (method: string, url: string, { body, headers }: Content = {}): Promise<Response> =>
    fetch(url, {
      method,
      redirect: 'manual',
      signal: AbortSignal.any([signal, AbortSignal.timeout(ANSWER_TIMEOUT_MS)]),
      ...defined({ body }),
      headers: { ...loginFor(url), ...headers },
    });
  const begin = `${origin}/v2/${name}/blobs/uploads/`;
  let answer = await send('POST', begin);
  const challenge = /^bearer /i.test(answer.headers.get('www-authenticate') ?? '')
    ? answer.headers.get('www-authenticate')
    : null;
  if (answer.status === 401 && challenge !== null) {
    await answer.body?.cancel();
    const tokenRequest = tokenUrl(challenge, name, origin);
    const token = await send('GET', tokenRequest, { headers: basic });
    if (isRefusal(token)) return refusalText(token);
    const answered = (await token.json()) as { token?: string; access_token?: string };
    auth = { authorization: `Bearer ${answered.token ?? answered.access_token ?? ''}` };
    answer = await send('POST', begin);
  }
  if (isRefusal(answer)) return refusalText(answer);
  await answer.body?.cancel();
  const location = answer.headers.get('location');
  if (answer.status !== 202 || location === null) return null;
  const upload = new URL(location, origin).href;
  // Some registries let everyone start an upload, and refuse only its content.
  const content = { 'content-type': 'application/octet-stream', 'content-range': '0-0' };
  const patched = await send('PATCH', upload, { body: '.', headers: content });
  if (isRefusal(patched)) return refusalText(patched);
  await patched.body?.cancel();
  const next = new URL(patched.headers.get('location') ?? upload, origin).href;
  // An upload that cannot be cancelled expires at the registry.
  await send('DELETE', next).then(
    (r) => r.body?.cancel(),
    () => undefined,
  );
  return null;
}

const isRefusal = ({ status }: Response): boolean => status === 401 || status === 403;
const basicOf = (login: Login): string =>
  `Basic ${Buffer.from(`${login.registry_user}:${login.registry_password}`).toString('base64')}`;

async function refusalText(answer: Response): Promise<string> {
  const text = await answer.text();
  let detail = text.slice(0, 300).trim();
  try {
    const [first] =
      (JSON.parse(text) as { errors?: { code?: string; message?: string }[] }).errors ?? [];
    if (first !== undefined) detail = `${first.code ?? ''} ${first.message ?? ''}`.trim();
  } catch {
    // Show an answer in plain text unchanged.
  }
  return (
    'the registry refused an upload with status ' +
    `${answer.status}${detail === '' ? '' : ` (${detail})`}`
  );
}
