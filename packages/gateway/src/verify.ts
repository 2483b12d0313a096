/**
 * /verify as it is served: the proxy asks here before every request to a protected project. A request that was answered
 * before costs a look into a map: finished answers are kept under all that they depend on, for one version of the policy and
 * no longer than the session, the token and the assertion hold.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Logger } from '@berth/kit/log';
import { LRUCache } from 'lru-cache';
import { type Answer, createAnswers } from './answers.ts';
import type { Assertions } from './assertion.ts';
import type { GatewayDeps, PolicyView } from './deps.ts';
import { type Ask, type Decision, type Door, decide, type Knowledge, pathOf } from './forward-auth.ts';
import { isTooLarge, tooLarge } from './limits.ts';
import { isReservedPath } from './redirect.ts';

/** Bytes, about. */
const MAX_KEPT = 64 * 1024 * 1024;
/** A power of two less one: one answer of so many is measured. */
const SAMPLED = 15;
/** Larger requests are decided each time. */
const MAX_KEY = 8 * 1024;

type Kept = { answer: Answer; until: number; tokenId: string | null };
export type Outcome = Decision['kind'] | 'arrived' | 'used';
export type Verify = {
  /** Whether `url` is for this door and no route's. */
  takes(url: string): boolean;
  handle(request: IncomingMessage, response: ServerResponse): void;
  /** How many of each were answered. */
  counts(): Readonly<Record<string, number>>;
  /** Told how long every 16th answer took; to measure each would cost the others a tenth of a microsecond. */
  onSample(listener: (seconds: number) => void): void;
  /** From now on connections end with their answer. */
  drain(): void;
};
export type VerifyDeps = Pick<GatewayDeps, 'policy' | 'sessions' | 'codes' | 'now'> & {
  config: Pick<GatewayDeps['config'], 'PUBLIC_URL' | 'BASE_DOMAIN' | 'ADMIN_EMAILS' | 'GATEWAY_SECRET'>;
  assertions: Assertions;
  log: Logger;
};

export function createVerify(deps: VerifyDeps): Verify {
  const { policy, sessions, codes, assertions, log, now } = deps;
  const own = new URL(deps.config.PUBLIC_URL);
  const answers = createAnswers(deps.config.PUBLIC_URL, now);
  const fixed: Omit<Knowledge, 'view' | 'now'> = {
    sessions,
    codes,
    baseDomain: deps.config.BASE_DOMAIN,
    authHost: own.hostname,
    secure: own.protocol === 'https:',
    adminEmails: deps.config.ADMIN_EMAILS,
    gatewaySecrets: deps.config.GATEWAY_SECRET,
  };
  const kept = new LRUCache<string, Kept>({ maxSize: MAX_KEPT, sizeCalculation: (value, key) => 2 * key.length + sizeOf(value.answer) });
  let keptFor: PolicyView | null = null;
  const counts: Record<string, number> = { kept: 0 };
  let draining = false;
  let asked = 0;
  let sample = (_seconds: number): void => undefined;
  const count = (outcome: Outcome): void => void (counts[outcome] = (counts[outcome] ?? 0) + 1);

  function handle(request: IncomingMessage, response: ServerResponse): void {
    if ((++asked & SAMPLED) !== 0) return void reply(request, response);
    const began = performance.now();
    if (reply(request, response)) sample((performance.now() - began) / 1000);
  }

  /** Gives whether it was answered at once. */
  function reply(request: IncomingMessage, response: ServerResponse): boolean {
    const view = policy.view();
    if (view !== keptFor) {
      kept.clear();
      keptFor = view;
    }
    const key = keyOf(request);
    if (key !== null) {
      const found = kept.get(key);
      if (found !== undefined && found.until > now()) {
        counts['kept'] = (counts['kept'] ?? 0) + 1;
        if (found.tokenId !== null) policy.tokenUsed(found.tokenId);
        send(response, found.answer);
        return true;
      }
    }
    if (isTooLarge(request)) {
      send(response, tooLarge());
      return true;
    }
    let ask: Ask | null = null;
    try {
      ask = askOf(request);
      const decision = decide(ask, { ...fixed, view, now: now() });
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
      // Nothing that was not foreseen lets anybody in.
      log.error({ err: error }, 'a decision failed');
      count('doubt');
      send(response, answers.doubt(ask));
      return true;
    }
  }

  function settle(decision: Exclude<Decision, { kind: 'redeem' | 'reach' }>, ask: Ask, key: string | null): Answer {
    count(decision.kind);
    if (decision.kind !== 'pass') return answers.refuse(decision, ask);
    const { host, identity, tokenId, sessionId, scope, cookie, authorization } = decision;
    // For the API alone: no project needs to know it.
    const origin = host === own.hostname ? (tokenId ?? sessionId) : null;
    const assertion = assertions.for(identity, { host, endsAt: decision.until, scope, origin });
    const answer = answers.pass(identity, assertion.token, cookie, authorization);
    if (tokenId !== null) policy.tokenUsed(tokenId);
    if (key !== null) kept.set(key, { answer, until: Math.min(decision.until, assertion.renewAt), tokenId });
    return answer;
  }

  async function redeem(decision: Extract<Decision, { kind: 'redeem' }>, ask: Ask): Promise<Answer> {
    const { code, host, audience, redirect } = decision;
    try {
      if ((await codes.redeem(code)) === 'used') {
        count('used');
        log.warn({ host }, 'a one-time code came a second time');
        return answers.used(host, redirect, ask);
      }
      count('arrived');
      return answers.arrived(host, redirect, sessions.seal(code.session, audience), code.session);
    } catch (error) {
      log.warn({ err: error, host }, 'a one-time code could not be taken');
      count('doubt');
      return answers.doubt(ask);
    }
  }

  async function reach({ code, cookie, host }: Extract<Decision, { kind: 'reach' }>, ask: Ask): Promise<Answer> {
    try {
      if ((await codes.redeem(code)) === 'used') {
        count('bad_token');
        log.warn({ host }, 'a check of the control plane came a second time');
        return answers.refuse({ kind: 'bad_token' }, ask);
      }
      count('reach');
      return answers.passNobody(cookie);
    } catch (error) {
      log.warn({ err: error, host }, 'a check of the control plane could not be taken');
      count('doubt');
      return answers.doubt(ask);
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
    onSample: (listener) => void (sample = listener),
    drain: () => void (draining = true),
  };
}

const sizeOf = ({ headers }: Answer): number => headers.reduce((sum, text) => sum + 2 * text.length, 200);

const isVerifyUrl = (url: string): boolean =>
  url.startsWith('/verify') && (url.length === 7 || url[7] === '?' || url === '/verify/admin' || url.startsWith('/verify/admin?'));

/** Exactly the addresses of INTERFACES.md: one that is nearly right is no door to everybody, but a project that does not exist. */
function doorOf(url: string): Door {
  if (url === '/verify') return { kind: 'any' };
  if (url === '/verify/admin') return { kind: 'admin' };
  const query = [...new URLSearchParams(url.slice('/verify'.length))];
  const [only] = query;
  return { kind: 'project', id: url.startsWith('/verify?') && query.length === 1 && only?.[0] === 'project' ? only[1] : '' };
}

/**
 * All that a `pass` depends on; null: never to be answered from what is kept. `headers` and not `rawHeaders`: node:http has looked
 * for Host and Expect there before us, so they are built, and a loop of our own only comes on top.
 */
function keyOf({ url, headers }: IncomingMessage): string | null {
  const { cookie = '', authorization = '' } = headers;
  const host = headers['x-forwarded-host'];
  const uri = headers['x-forwarded-uri'];
  if (typeof host !== 'string' || typeof uri !== 'string' || uri === '') return null;
  if (cookie.length + authorization.length + uri.length > MAX_KEY || isReservedPath(pathOf(uri))) return null;
  // A line feed can stand in none of them.
  return `${url}\n${host}\n${authorization}\n${cookie}`;
}

/** One of a name, or joined by `, ` as node:http does: no host, then. */
function askOf(request: IncomingMessage): Ask {
  const { headers } = request;
  const one = (name: string): string | undefined => {
    const value = headers[name];
    return typeof value === 'string' ? value : value?.join(', ');
  };
  return {
    door: doorOf(request.url ?? ''),
    method: one('x-forwarded-method') ?? '',
    host: one('x-forwarded-host') ?? '',
    uri: one('x-forwarded-uri') ?? '',
    accept: headers.accept,
    fetchMode: one('sec-fetch-mode'),
    requestedWith: one('x-requested-with'),
    upgrade: headers.upgrade ?? headers['sec-websocket-key'],
    cookie: headers.cookie,
    authorization: headers.authorization,
  };
}
