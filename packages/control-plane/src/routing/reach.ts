/**
 * Checks whether the reverse proxy reaches the node of a new route: requests the project's own
 * host, as a visitor does, through every address of PROXY_PROBE_URLS. Any answer proves it, except
 * the proxy's own 502, 503 and 504.
 *
 * Detection of the proxy's own answers: Traefik answers a failed connection with the name of the
 * status as text and without Content-Type ("Bad Gateway"), and a service without servers with "no
 * available server". Berth's development proxy sends its name in the header `Server`. If an
 * application's answer equals Traefik's, it counts as Traefik's.
 */
import { hostAndPort, onUnaskedUpgrade, PROBE_OPTIONS } from '@berth/kit/probe-request';
import {
  request as httpRequest,
  type IncomingHttpHeaders,
  type IncomingMessage,
  STATUS_CODES,
} from 'node:http';
import { request as httpsRequest } from 'node:https';
import { setTimeout as sleep } from 'node:timers/promises';
import { defined } from '@berth/kit/defined';
import type { Live } from '@berth/kit/live';
import { signReach } from '@berth/kit/reach-token';
import type { Reach, ReachTarget, ReachVerdict } from '../domain/routes/configuration.ts';

/** Time limit in ms of one answer. Only an agent's first probes of an application wait longer. */
const ANSWER_MS = 10_000;
const CHECK_MS = 10_000;
/** Time in ms within which a gateway learns of a new project. */
const GATEWAY_MS = 5_000;
const PAUSE_MS = 250;
/** Maximum bytes to read of an answer; the proxy's own answers are shorter. */
const MAX_BODY = 512;

type Answer =
  | { kind: 'answer'; status: number; headers: IncomingHttpHeaders; body: string }
  /** The proxy accepted the request and did not answer. */
  | { kind: 'silent' }
  | { kind: 'no_proxy' };

export type ReachSettings = {
  probeUrls: readonly string[];
  gatewaySecrets: Live<readonly string[]>;
  now: () => number;
};

/** Creates the check. It never throws and takes at most CHECK_MS + ANSWER_MS. */
export function createReach({ probeUrls, gatewaySecrets, now }: ReachSettings): Reach {
  async function through(
    base: string,
    target: ReachTarget,
    signal: AbortSignal,
  ): Promise<ReachVerdict> {
    const until = performance.now() + CHECK_MS;
    const gatewayUntil = performance.now() + GATEWAY_MS;
    for (let tries = 0; ; tries++) {
      const secrets = gatewaySecrets();
      const secret = secrets[tries % secrets.length];
      if (target.auth_required && secret === undefined)
        return { kind: 'unproven', why: 'GATEWAY_SECRET is not set' };
      const claim = { project_id: target.project_id, path: target.path };
      const authorization =
        target.auth_required && secret !== undefined ? signReach(secret, claim, now()) : null;
      const answer = await ask(base, target, authorization, signal);
      if (signal.aborted || answer.kind === 'no_proxy') return { kind: 'no_proxy' };
      if (answer.kind === 'silent') return { kind: 'unreachable', proxy: base, saw: 'no answer' };
      const isGateway = target.auth_required && isGatewaysOwn(answer);
      if (isProxysOwn(answer)) {
        if (performance.now() >= until)
          return {
            kind: 'unreachable',
            proxy: base,
            saw: `${answer.status} ${STATUS_CODES[answer.status]}`,
          };
      } else if (isGateway) {
        // Try the next secret, because a rotation might be running. The gateway might also not know
        // the project yet.
        if (performance.now() >= gatewayUntil)
          return { kind: 'unproven', why: `the login answered ${answer.status} to the check` };
      } else if (isRedirectToHttps(base, answer))
        return { kind: 'unproven', why: `${base} only redirects to https` };
      else return { kind: 'reached' };
      await sleep(PAUSE_MS, undefined, { signal }).catch(
        (error: unknown) => signal.aborted || Promise.reject(error),
      );
    }
  }
  return async (target, signal) => {
    const verdicts = await Promise.all(probeUrls.map((base) => through(base, target, signal)));
    const one = (kind: ReachVerdict['kind']): ReachVerdict | undefined =>
      verdicts.find((v) => v.kind === kind);
    return (
      one('unreachable') ??
      one('no_proxy') ??
      one('reached') ??
      one('unproven') ?? { kind: 'no_proxy' }
    );
  };
}

function ask(
  base: string,
  { host, path }: ReachTarget,
  authorization: string | null,
  signal: AbortSignal,
): Promise<Answer> {
  const url = new URL(base);
  const secure = url.protocol === 'https:';
  const deadline = AbortSignal.timeout(ANSWER_MS);
  return new Promise((resolve) => {
    let sent = false;
    const request = (secure ? httpsRequest : httpRequest)({
      ...hostAndPort(url),
      ...PROBE_OPTIONS,
      path,
      headers: {
        host,
        accept: '*/*',
        'user-agent': 'berth-control-plane',
        connection: 'close',
        ...defined({ authorization: authorization ?? undefined }),
      },
      // Accept any certificate: the first one might not be issued yet. The request contains no
      // secret, because its token is valid for this one check only.
      ...defined({
        rejectUnauthorized: secure ? false : undefined,
        servername: secure ? host : undefined,
      }),
      signal: AbortSignal.any([signal, deadline]),
    });
    request.on('socket', (socket) =>
      socket.once(secure ? 'secureConnect' : 'connect', () => (sent = true)),
    );
    request.on('response', (response) => readAnswer(response, resolve));
    onUnaskedUpgrade(request, (response) => resolve(answerOf(response, '')));
    request.on('error', () => resolve({ kind: sent ? 'silent' : 'no_proxy' }));
    request.on('close', () => resolve({ kind: sent ? 'silent' : 'no_proxy' }));
    request.end();
  });
}

type Answered = Extract<Answer, { kind: 'answer' }>;

const answerOf = (response: IncomingMessage, body: string): Answered => ({
  kind: 'answer',
  status: response.statusCode ?? 0,
  headers: response.headers,
  body,
});

/** Reads enough of the answer to tell whether the proxy itself sent it. */
function readAnswer(response: IncomingMessage, answered: (answer: Answered) => void): void {
  let body = '';
  const end = (): void => {
    answered(answerOf(response, body));
    response.destroy();
  };
  response.setEncoding('latin1');
  response.on('data', (chunk: string) => {
    body += chunk;
    if (body.length > MAX_BODY) end();
  });
  response.on('end', end);
  response.on('error', end);
  // The headers are enough unless the status can be the proxy's own error; the body can take long.
  if (![502, 503, 504].includes(response.statusCode ?? 0)) end();
}

function isProxysOwn({ status, headers, body }: Answered): boolean {
  if (status !== 502 && status !== 503 && status !== 504) return false;
  if (headers.server === 'berth-proxy') return true;
  if (status === 503 && body === 'no available server\n') return true;
  return headers['content-type'] === undefined && body === STATUS_CODES[status];
}

/** Returns whether the gateway itself answered: it rejects requests with a problem document. */
const isGatewaysOwn = ({ status, headers }: Answered): boolean =>
  [401, 403, 404, 429, 503].includes(status) &&
  headers['content-type']?.startsWith('application/problem+json') === true;

/**
 * Returns whether the answer redirects an http probe to https. The proxy itself can send this
 * redirect, so it does not prove the node. With an https probe, the application sent it.
 */
const isRedirectToHttps = (base: string, { status, headers }: Answered): boolean =>
  base.startsWith('http:') &&
  status >= 300 &&
  status < 400 &&
  headers.location?.startsWith('https:') === true;
