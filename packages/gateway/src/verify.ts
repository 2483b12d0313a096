/**
 * Serves /verify, which the proxy calls before every request to a protected project. Answers are
 * cached, so a repeated request costs one map lookup. The cache key contains everything that an
 * answer depends on. An entry is valid for one version of policy and secrets and expires with the
 * session, the token or the assertion, whichever is first.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Logger } from '@berth/kit/log';
import { LRUCache } from 'lru-cache';
import { type Answer, type Answers, createAnswers } from './answers.ts';
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

/** State that the functions of one `Verify` share. */
type Verifier = {
  readonly deps: VerifyDeps;
  readonly answers: Answers;
  /** Host of the gateway and of the API. */
  readonly authHost: string;
  readonly fixed: Omit<DecisionContext, 'view' | 'now' | 'gatewaySecrets'>;
  readonly cache: LRUCache<string, CachedAnswer>;
  /** The policy and the secrets from which the cached answers were computed. */
  cachedView: PolicyView | null;
  cachedSecrets: Secrets | null;
  readonly counts: Record<string, number>;
  draining: boolean;
  measured: (seconds: number) => void;
};

export function createVerify(deps: VerifyDeps): Verify {
  const verifier = newVerifier(deps);
  return {
    takes: isVerifyUrl,
    handle(request, response) {
      const startedAt = performance.now();
      if (reply(verifier, request, response))
        verifier.measured((performance.now() - startedAt) / 1000);
    },
    counts: () => verifier.counts,
    onAnswer: (listener) => void (verifier.measured = listener),
    drain: () => void (verifier.draining = true),
  };
}

function newVerifier(deps: VerifyDeps): Verifier {
  const { protocol, hostname } = new URL(deps.config.PUBLIC_URL);
  return {
    deps,
    answers: createAnswers(deps.config.PUBLIC_URL, deps.now),
    authHost: hostname,
    fixed: {
      sessions: deps.sessions,
      codes: deps.codes,
      baseDomain: deps.config.BASE_DOMAIN,
      authHost: hostname,
      secure: protocol === 'https:',
      adminEmails: deps.config.ADMIN_EMAILS,
    },
    cache: new LRUCache<string, CachedAnswer>({
      maxSize: MAX_CACHE_BYTES,
      sizeCalculation: (value, key) => 2 * key.length + sizeOf(value.answer),
    }),
    cachedView: null,
    cachedSecrets: null,
    counts: { cached: 0 },
    draining: false,
    measured: () => undefined,
  };
}

function count({ counts }: Verifier, outcome: Outcome | 'cached'): void {
  counts[outcome] = (counts[outcome] ?? 0) + 1;
}

/** Returns true if it answered synchronously. */
function reply(verifier: Verifier, request: IncomingMessage, response: ServerResponse): boolean {
  const view = verifier.deps.policy.view();
  const secrets = verifier.deps.secrets();
  dropStale(verifier, view, secrets);
  const key = keyOf(request);
  const cachedAnswer = key === null ? null : fromCache(verifier, key);
  if (cachedAnswer !== null) return send(verifier, response, cachedAnswer);
  if (isTooLarge(request)) return send(verifier, response, tooLarge(request));
  let ask: Ask | null = null;
  try {
    ask = askOf(request);
    const decision = decide(ask, {
      ...verifier.fixed,
      gatewaySecrets: secrets.gateway,
      view,
      now: verifier.deps.now(),
    });
    if (decision.kind !== 'redeem' && decision.kind !== 'reach')
      return send(verifier, response, settle(verifier, decision, ask, key));
    answerOfCode(verifier, decision, ask).then(
      (answer) => send(verifier, response, answer),
      (error: unknown) => response.destroy(error instanceof Error ? error : undefined),
    );
    return false;
  } catch (error) {
    // An unexpected error must never let a request pass.
    verifier.deps.log.error({ err: error }, 'verify decision failed');
    count(verifier, 'unavailable');
    return send(verifier, response, verifier.answers.unavailable(ask));
  }
}

/**
 * Clears the cache if the policy or the secrets changed. Cookies that a removed secret signed must
 * be refused, even if their answer is cached.
 */
function dropStale(verifier: Verifier, view: PolicyView, secrets: Secrets): void {
  if (view === verifier.cachedView && secrets === verifier.cachedSecrets) return;
  verifier.cache.clear();
  verifier.cachedView = view;
  verifier.cachedSecrets = secrets;
}

function fromCache(verifier: Verifier, key: string): Answer | null {
  const { policy, now } = verifier.deps;
  const cached = verifier.cache.get(key);
  if (cached === undefined || cached.until <= now()) return null;
  count(verifier, 'cached');
  if (cached.tokenId !== null) policy.tokenUsed(cached.tokenId);
  return cached.answer;
}

function settle(
  verifier: Verifier,
  decision: Exclude<Decision, { kind: 'redeem' | 'reach' }>,
  ask: Ask,
  key: string | null,
): Answer {
  const { deps, answers, authHost, cache } = verifier;
  count(verifier, decision.kind);
  if (decision.kind !== 'pass') return readable(deps, answers.refuse(decision, ask), ask);
  const { host, identity, tokenId, sessionId, scope, cookie, authorization } = decision;
  // Only the API at the auth host needs the origin; projects must not learn it.
  const origin = host === authHost ? (tokenId ?? sessionId) : null;
  const assertion = deps.assertions.for(identity, { host, endsAt: decision.until, scope, origin });
  const answer = answers.pass(identity, assertion.token, cookie, authorization);
  if (tokenId !== null) deps.policy.tokenUsed(tokenId);
  if (key !== null)
    cache.set(key, { answer, until: Math.min(decision.until, assertion.renewAt), tokenId });
  return answer;
}

/** Adds the headers with which a page of another origin can read the answer. */
function readable({ policy }: VerifyDeps, answer: Answer, { middleware, origin }: Ask): Answer {
  const project =
    middleware.kind === 'project' ? policy.view().projectById(middleware.id) : undefined;
  return project === undefined
    ? answer
    : { ...answer, headers: [...answer.headers, ...corsHeaders(origin, project)] };
}

type Redeem = Extract<Decision, { kind: 'redeem' }>;
type Reach = Extract<Decision, { kind: 'reach' }>;

const answerOfCode = (verifier: Verifier, decision: Redeem | Reach, ask: Ask): Promise<Answer> =>
  decision.kind === 'reach' ? reach(verifier, decision, ask) : redeem(verifier, decision, ask);

async function redeem(verifier: Verifier, decision: Redeem, ask: Ask): Promise<Answer> {
  const { codes, sessions, log } = verifier.deps;
  const { code, host, audience, redirect, cookieSeconds } = decision;
  try {
    if ((await codes.redeem(code)) === 'used') {
      count(verifier, 'used');
      log.warn({ host }, 'one-time code reused');
      return verifier.answers.used(host, redirect, ask);
    }
    count(verifier, 'arrived');
    const cookie = sessions.seal(code.session, audience);
    return verifier.answers.arrived(host, redirect, cookie, code.session, cookieSeconds);
  } catch (error) {
    log.warn({ err: error, host }, 'one-time code could not be redeemed');
    count(verifier, 'unavailable');
    return verifier.answers.unavailable(ask);
  }
}

async function reach(verifier: Verifier, decision: Reach, ask: Ask): Promise<Answer> {
  const { codes, log } = verifier.deps;
  const { code, cookie, host } = decision;
  try {
    if ((await codes.redeem(code)) === 'used') {
      count(verifier, 'bad_token');
      log.warn({ host }, 'reach check reused');
      return verifier.answers.refuse({ kind: 'bad_token' }, ask);
    }
    count(verifier, 'reach');
    return verifier.answers.passWithoutIdentity(cookie);
  } catch (error) {
    log.warn({ err: error, host }, 'reach check could not be redeemed');
    count(verifier, 'unavailable');
    return verifier.answers.unavailable(ask);
  }
}

function send({ draining }: Verifier, response: ServerResponse, answer: Answer): true {
  if (draining) response.shouldKeepAlive = false;
  response.writeHead(answer.status, answer.headers);
  response.end(answer.body);
  return true;
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
