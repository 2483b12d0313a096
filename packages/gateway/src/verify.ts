/**
 * Serves /verify, which the proxy calls before every request to a protected project. Answers are
 * cached, so a repeated request costs one map lookup. The cache key contains everything that an
 * answer depends on. An entry is valid for one version of policy and secrets and expires with the
 * session, the token or the assertion, whichever is first.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Logger } from '@berth/kit/log';
import { LRUCache } from 'lru-cache';
import { type Answer, createAnswers } from './answers.ts';
import type { Assertions } from './assertion.ts';
import { corsHeaders } from './cors.ts';
import type { GatewayDeps, PolicyView, Secrets } from './deps.ts';
import {
  type Ask,
  type Decision,
  type DecisionContext,
  decide,
  type Middleware,
  pathOf,
} from './forward-auth.ts';
import { isTooLarge, tooLarge } from './limits.ts';
import { isReservedPath } from './redirect.ts';

/** Approximate size limit of the cache in bytes. */
const MAX_CACHE_BYTES = 64 * 1024 * 1024;
/** Requests with longer headers are not cached. */
const MAX_KEY = 8 * 1024;

type CachedAnswer = { answer: Answer; until: number; tokenId: string | null };
export type Outcome = Decision['kind'] | 'arrived' | 'used';
export type Verify = {
  /** True if `url` is a verify endpoint and not a route of Fastify. */
  takes(url: string): boolean;
  handle(request: IncomingMessage, response: ServerResponse): void;
  /** Returns the number of answers by outcome. */
  counts(): Readonly<Record<string, number>>;
  /** Calls `listener` with the duration of every answer that needs no one-time code. */
  onAnswer(listener: (seconds: number) => void): void;
  /** Closes each connection after its next answer. */
  drain(): void;
};
export type VerifyDeps = Pick<GatewayDeps, 'policy' | 'sessions' | 'codes' | 'now' | 'secrets'> & {
  config: Pick<GatewayDeps['config'], 'PUBLIC_URL' | 'BASE_DOMAIN' | 'ADMIN_EMAILS'>;
  assertions: Assertions;
  log: Logger;
};

export function createVerify(deps: VerifyDeps): Verify {
  const { policy, sessions, codes, assertions, log, now } = deps;
  const publicUrl = new URL(deps.config.PUBLIC_URL);
  const answers = createAnswers(deps.config.PUBLIC_URL, now);
  const fixed: Omit<DecisionContext, 'view' | 'now' | 'gatewaySecrets'> = {
    sessions,
    codes,
    baseDomain: deps.config.BASE_DOMAIN,
    authHost: publicUrl.hostname,
    secure: publicUrl.protocol === 'https:',
    adminEmails: deps.config.ADMIN_EMAILS,
  };
  const cache = new LRUCache<string, CachedAnswer>({
    maxSize: MAX_CACHE_BYTES,
    sizeCalculation: (value, key) => 2 * key.length + sizeOf(value.answer),
  });
  let cachedView: PolicyView | null = null;
  let cachedSecrets: Secrets | null = null;
  const counts: Record<string, number> = { cached: 0 };
  let draining = false;
  let measured = (_seconds: number): void => undefined;
  const count = (outcome: Outcome): void => void (counts[outcome] = (counts[outcome] ?? 0) + 1);

  function handle(request: IncomingMessage, response: ServerResponse): void {
    const startedAt = performance.now();
    if (reply(request, response)) measured((performance.now() - startedAt) / 1000);
  }

  /** Returns true if it answered synchronously. */
  function reply(request: IncomingMessage, response: ServerResponse): boolean {
    const view = policy.view();
    const secrets = deps.secrets();
    // A dropped secret must refuse the cookies that it signed, also those of a cached answer.
    if (view !== cachedView || secrets !== cachedSecrets) {
      cache.clear();
      cachedView = view;
      cachedSecrets = secrets;
    }
    const key = keyOf(request);
    if (key !== null) {
      const found = cache.get(key);
      if (found !== undefined && found.until > now()) {
        counts['cached'] = (counts['cached'] ?? 0) + 1;
        if (found.tokenId !== null) policy.tokenUsed(found.tokenId);
        send(response, found.answer);
        return true;
      }
    }
    if (isTooLarge(request)) {
      send(response, tooLarge(request));
      return true;
    }
    let ask: Ask | null = null;
    try {
      ask = askOf(request);
      const decision = decide(ask, { ...fixed, gatewaySecrets: secrets.gateway, view, now: now() });
      if (decision.kind !== 'redeem' && decision.kind !== 'reach') {
        send(response, settle(decision, ask, key));
        return true;
      }
      (decision.kind === 'reach' ? reach(decision, ask) : redeem(decision, ask)).then(
        (answer) => send(response, answer),
        (error: unknown) => response.destroy(error instanceof Error ? error : undefined),
      );
      return false;
    } catch (error) {
      // An unexpected error must never let a request pass.
      log.error({ err: error }, 'verify decision failed');
      count('unavailable');
      send(response, answers.unavailable(ask));
      return true;
    }
  }

  function settle(
    decision: Exclude<Decision, { kind: 'redeem' | 'reach' }>,
    ask: Ask,
    key: string | null,
  ): Answer {
    count(decision.kind);
    if (decision.kind !== 'pass') return readable(answers.refuse(decision, ask), ask);
    const { host, identity, tokenId, sessionId, scope, cookie, authorization } = decision;
    // Only the API at the auth host needs the origin; projects must not learn it.
    const origin = host === publicUrl.hostname ? (tokenId ?? sessionId) : null;
    const assertion = assertions.for(identity, { host, endsAt: decision.until, scope, origin });
    const answer = answers.pass(identity, assertion.token, cookie, authorization);
    if (tokenId !== null) policy.tokenUsed(tokenId);
    if (key !== null)
      cache.set(key, { answer, until: Math.min(decision.until, assertion.renewAt), tokenId });
    return answer;
  }

  /** Adds the headers with which a page of another origin can read the answer. */
  function readable(answer: Answer, { middleware, origin }: Ask): Answer {
    const project =
      middleware.kind === 'project' ? policy.view().projectById(middleware.id) : undefined;
    return project === undefined
      ? answer
      : { ...answer, headers: [...answer.headers, ...corsHeaders(origin, project)] };
  }

  async function redeem(
    decision: Extract<Decision, { kind: 'redeem' }>,
    ask: Ask,
  ): Promise<Answer> {
    const { code, host, audience, redirect, cookieSeconds } = decision;
    try {
      if ((await codes.redeem(code)) === 'used') {
        count('used');
        log.warn({ host }, 'one-time code reused');
        return answers.used(host, redirect, ask);
      }
      count('arrived');
      return answers.arrived(
        host,
        redirect,
        sessions.seal(code.session, audience),
        code.session,
        cookieSeconds,
      );
    } catch (error) {
      log.warn({ err: error, host }, 'one-time code could not be redeemed');
      count('unavailable');
      return answers.unavailable(ask);
    }
  }

  async function reach(
    { code, cookie, host }: Extract<Decision, { kind: 'reach' }>,
    ask: Ask,
  ): Promise<Answer> {
    try {
      if ((await codes.redeem(code)) === 'used') {
        count('bad_token');
        log.warn({ host }, 'reach check reused');
        return answers.refuse({ kind: 'bad_token' }, ask);
      }
      count('reach');
      return answers.passWithoutIdentity(cookie);
    } catch (error) {
      log.warn({ err: error, host }, 'reach check could not be redeemed');
      count('unavailable');
      return answers.unavailable(ask);
    }
  }

  function send(response: ServerResponse, answer: Answer): void {
    if (draining) response.shouldKeepAlive = false;
    response.writeHead(answer.status, answer.headers);
    response.end(answer.body);
  }

  return {
    takes: isVerifyUrl,
    handle,
    counts: () => counts,
    onAnswer: (listener) => void (measured = listener),
    drain: () => void (draining = true),
  };
}

const sizeOf = ({ headers }: Answer): number =>
  headers.reduce((sum, text) => sum + 2 * text.length, 200);

const isVerifyUrl = (url: string): boolean =>
  url.startsWith('/verify') &&
  (url.length === 7 ||
    url[7] === '?' ||
    url === '/verify/admin' ||
    url.startsWith('/verify/admin?'));

/**
 * Accepts only the exact addresses (docs/interfaces.md "Verify endpoints"). A wrong address counts
 * as a project that does not exist, so that a typing error in a proxy configuration opens nothing.
 */
function middlewareOf(url: string): Middleware {
  if (url === '/verify') return { kind: 'any' };
  if (url === '/verify/admin') return { kind: 'admin' };
  const query = [...new URLSearchParams(url.slice('/verify'.length))];
  const [only] = query;
  return {
    kind: 'project',
    id: url.startsWith('/verify?') && query.length === 1 && only?.[0] === 'project' ? only[1] : '',
  };
}

/**
 * Returns the cache key, which contains everything that a `pass` depends on, or null if the request
 * must not be cached. It reads `headers` and not `rawHeaders`, because node:http has already built
 * `headers` for every request.
 */
function keyOf({ url, headers }: IncomingMessage): string | null {
  const { cookie = '', authorization = '' } = headers;
  const host = headers['x-forwarded-host'];
  const uri = headers['x-forwarded-uri'];
  if (typeof host !== 'string' || typeof uri !== 'string' || uri === '') return null;
  if (cookie.length + authorization.length + uri.length > MAX_KEY || isReservedPath(pathOf(uri)))
    return null;
  // None of the parts can contain a line feed.
  return `${url}\n${host}\n${authorization}\n${cookie}`;
}

/**
 * Reads the request. Repeated headers arrive joined with `, `, so a repeated host header never
 * parses as a host.
 */
function askOf(request: IncomingMessage): Ask {
  const { headers } = request;
  const one = (name: string): string | undefined => {
    const value = headers[name];
    return typeof value === 'string' ? value : value?.join(', ');
  };
  return {
    middleware: middlewareOf(request.url ?? ''),
    method: one('x-forwarded-method') ?? '',
    host: one('x-forwarded-host') ?? '',
    uri: one('x-forwarded-uri') ?? '',
    accept: headers.accept,
    origin: headers.origin,
    referer: headers.referer,
    fetchMode: one('sec-fetch-mode'),
    requestedWith: one('x-requested-with'),
    upgrade: headers.upgrade ?? headers['sec-websocket-key'],
    cookie: headers.cookie,
    authorization: headers.authorization,
  };
}
