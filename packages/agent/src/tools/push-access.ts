/**
 * Whether the registry lets us push, asked over its own API (OCI distribution, "Pushing a blob in chunks") and then undone.
 * Docker tries a layer that is refused for most of a minute, and buildx does not hand on why: without this a build that can
 * never be pushed ends by its time-out.
 */
import type { AgentConfig } from '@berth/wire/task';
import { pause } from '../stopped.ts';
import type { IsInsecure } from './insecure.ts';

/** What it said when it refused; null: it does not, or it cannot be told from here. */
export type PushAccess = (repository: string, signal: AbortSignal) => Promise<string | null>;
type Login = Pick<AgentConfig, 'registry_user' | 'registry_password'>;

const ANSWER_MS = 5_000;
/** Most pushes are over by then. */
const FIRST_MS = 3_000;
const AGAIN_MS = 30_000;

/** While a push is under way: resolves when it was refused twice in a row, with what was said. Rejects with the signal's reason. */
export async function untilRefused(ask: () => Promise<string | null>, signal: AbortSignal, firstMs = FIRST_MS): Promise<string> {
  for (let waitMs = firstMs; ; waitMs = AGAIN_MS) {
    await pause(waitMs, signal);
    if ((await ask()) === null) continue;
    // Once may be a registry that is busy with its tokens: docker's own next try may succeed.
    await pause(firstMs, signal);
    const said = await ask();
    if (said !== null) return said;
  }
}

export function createPushAccess(login: () => Login | null, isInsecure: IsInsecure): PushAccess {
  return async (repository, signal) => {
    const slash = repository.indexOf('/');
    const host = repository.slice(0, slash);
    // Without a dot or a port it is no address but a name on Docker Hub.
    if (slash === -1 || !/[.:]|^localhost$/.test(host)) return null;
    for (const scheme of ['https', 'http']) {
      try {
        // Over plain http everybody on the way reads the password: only where the operator told the engine to use it.
        if (scheme === 'http' && !(await isInsecure(host, signal))) return null;
        return await ask(`${scheme}://${host}`, repository.slice(slash + 1), login(), signal);
      } catch {
        signal.throwIfAborted();
        // Not spoken there, a certificate that only the engine trusts, no answer: docker's own words will have to do.
      }
    }
    return null;
  };
}

async function ask(origin: string, name: string, login: Login | null, signal: AbortSignal): Promise<string | null> {
  const basic = login === null || login.registry_user === '' ? {} : { authorization: basicOf(login) };
  let auth: Record<string, string> = basic;
  type Content = { body?: string; headers?: Record<string, string> };
  const send = (method: string, url: string, { body, headers }: Content = {}): Promise<Response> =>
    fetch(url, {
      method,
      redirect: 'manual',
      signal: AbortSignal.any([signal, AbortSignal.timeout(ANSWER_MS)]),
      ...(body === undefined ? {} : { body }),
      // Our login is for the registry alone; a token server is named with `headers` of its own.
      headers: { ...(new URL(url).origin === origin ? auth : {}), ...headers },
    });
  const begin = `${origin}/v2/${name}/blobs/uploads/`;
  let answer = await send('POST', begin);
  const bearer = /^bearer /i.test(answer.headers.get('www-authenticate') ?? '') ? answer.headers.get('www-authenticate') : null;
  if (answer.status === 401 && bearer !== null) {
    await answer.body?.cancel();
    const realm = tokenUrl(bearer, name, origin);
    const token = await send('GET', realm, { headers: basic });
    if (isRefusal(token)) return said(token);
    const given = (await token.json()) as { token?: string; access_token?: string };
    auth = { authorization: `Bearer ${given.token ?? given.access_token ?? ''}` };
    answer = await send('POST', begin);
  }
  if (isRefusal(answer)) return said(answer);
  await answer.body?.cancel();
  const location = answer.headers.get('location');
  if (answer.status !== 202 || location === null) return null;
  const upload = new URL(location, origin).href;
  // Some hand out an upload to anyone and refuse its content.
  const content = { 'content-type': 'application/octet-stream', 'content-range': '0-0' };
  const patched = await send('PATCH', upload, { body: '.', headers: content });
  if (isRefusal(patched)) return said(patched);
  await patched.body?.cancel();
  const next = new URL(patched.headers.get('location') ?? upload, origin).href;
  // Where it cannot be given up the registry lets it lapse.
  await send('DELETE', next).then(
    (r) => r.body?.cancel(),
    () => undefined,
  );
  return null;
}

const isRefusal = ({ status }: Response): boolean => status === 401 || status === 403;
const basicOf = (login: Login): string => `Basic ${Buffer.from(`${login.registry_user}:${login.registry_password}`).toString('base64')}`;

/** RFC 6750 challenge, as the token server of a registry wants to be asked. Throws where the login would leave https. */
export function tokenUrl(challenge: string, name: string, origin: string): string {
  const field = (key: string): string | undefined => new RegExp(`${key}="([^"]*)"`).exec(challenge)?.[1];
  const url = new URL(field('realm') ?? '');
  if (url.protocol !== 'https:' && !origin.startsWith('http:')) throw new Error(`the token server ${url.host} speaks plain http`);
  const service = field('service');
  if (service !== undefined) url.searchParams.set('service', service);
  url.searchParams.set('scope', `repository:${name}:pull,push`);
  return url.href;
}

async function said(answer: Response): Promise<string> {
  const text = await answer.text();
  let words = text.slice(0, 300).trim();
  try {
    const [first] = (JSON.parse(text) as { errors?: { code?: string; message?: string }[] }).errors ?? [];
    if (first !== undefined) words = `${first.code ?? ''} ${first.message ?? ''}`.trim();
  } catch {
    // Some answer in plain text; it is shown as it is.
  }
  return `it answers an upload with status ${answer.status}${words === '' ? '' : ` (${words})`}`;
}
