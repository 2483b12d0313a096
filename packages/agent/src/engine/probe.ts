/**
 * Sends HTTP requests to a new container from outside until it answers. A TCP connect would prove
 * nothing, because the engine accepts connections even if no program listens on the port.
 */
import { defined } from '@berth/kit/defined';
import { onUnaskedUpgrade, PROBE_OPTIONS } from '@berth/kit/probe-request';
import { request } from 'node:http';
import { pause, reasonOf } from '../stopped.ts';

export type ProbeTarget = {
  host: string;
  port: number;
  /** Path of the health check: a status below 400 passes. If null, any HTTP answer passes. */
  healthPath: string | null;
  /**
   * The address that visitors use; null if unknown. An application with a list of allowed hosts
   * refuses any other Host header.
   */
  visitorUrl: string | null;
};
/** The last result, for the diagnosis. */
export type ProbeAnswer =
  | { kind: 'status'; status: number }
  | { kind: 'refused'; message: string }
  | { kind: 'late'; message: string }
  /** `isUnsent`: this machine could not send the request, so it says nothing about the container. */
  | { kind: 'no_http'; message: string; isUnsent?: boolean };
export type ProbeResult =
  | { ok: true; status: number; tries: number }
  | { ok: false; last: ProbeAnswer | null; tries: number };

/** Errors of this machine: no file descriptor, port or memory for one more connection. */
const UNSENT: readonly (string | undefined)[] = [
  'EMFILE',
  'ENFILE',
  'ENOBUFS',
  'ENOMEM',
  'EADDRNOTAVAIL',
];

/** Pause in ms before an attempt. Short at first: most containers answer in less than a second. */
const waitBefore = (attempt: number): number => Math.min(1_000, 25 * 1.5 ** attempt);
const TRY_MS = 5_000;
/**
 * After a timeout, the next request gets more time: the first answer of some applications is slow.
 */
const MAX_TRY_MS = 30_000;

/**
 * Probes until the container is healthy or `deadlineMs` has passed. Rejects with the signal's
 * reason.
 */
export async function probe(
  target: ProbeTarget,
  deadlineMs: number,
  signal: AbortSignal,
): Promise<ProbeResult> {
  const until = performance.now() + deadlineMs;
  let last: ProbeAnswer | null = null;
  let tryMs = TRY_MS;
  for (let tries = 0; ; tries += 1) {
    const leftMs = Math.ceil(until - performance.now());
    if (leftMs <= 0) return { ok: false, last, tries };
    const answer = await ask(target, Math.min(tryMs, leftMs), signal);
    if (answer.kind === 'late') tryMs = Math.min(MAX_TRY_MS, tryMs * 2);
    if (answer.kind === 'status' && passes(target, answer))
      return { ok: true, status: answer.status, tries: tries + 1 };
    // Keep the last status: it explains more than a refused connection after it.
    if (answer.kind === 'status' || last?.kind !== 'status') last = answer;
    await pause(
      Math.min(waitBefore(tries), Math.max(0, Math.ceil(until - performance.now()))),
      signal,
    );
  }
}

/** Returns the headers that the reverse proxy adds to a visitor’s request. */
function visitorHeaders(visitorUrl: string | null): Record<string, string> {
  if (visitorUrl === null || !URL.canParse(visitorUrl)) return {};
  const { host, protocol } = new URL(visitorUrl);
  return { host, 'x-forwarded-host': host, 'x-forwarded-proto': protocol.slice(0, -1) };
}

/** Returns whether the answer passes. */
export const passes = (
  { healthPath }: Pick<ProbeTarget, 'healthPath'>,
  answer: ProbeAnswer,
): boolean => answer.kind === 'status' && (healthPath === null || answer.status < 400);

/** Sends one GET on a new connection. Counts a redirect as an answer and does not follow it. */
export function ask(
  target: ProbeTarget,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<ProbeAnswer> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(reasonOf(signal));
    const deadline = AbortSignal.timeout(timeoutMs);
    const req = request({
      host: target.host,
      port: target.port,
      path: target.healthPath ?? '/',
      method: 'GET',
      ...PROBE_OPTIONS,
      signal: AbortSignal.any([signal, deadline]),
      headers: {
        'user-agent': 'berth-agent',
        accept: '*/*',
        connection: 'close',
        ...visitorHeaders(target.visitorUrl),
      },
    });
    req.once('response', (response) => {
      const status = response.statusCode ?? 0;
      // Only the status matters, and a body can be endless.
      response.destroy();
      resolve({ kind: 'status', status });
    });
    onUnaskedUpgrade(req, ({ statusCode: status = 0 }) => resolve({ kind: 'status', status }));
    req.once('close', () =>
      resolve({ kind: 'no_http', message: 'the connection was closed without an answer' }),
    );
    req.once('error', (error: NodeJS.ErrnoException) => {
      if (signal.aborted) return reject(reasonOf(signal));
      if (deadline.aborted) return resolve({ kind: 'late', message: 'no answer in time' });
      if (
        error.code === 'ECONNREFUSED' ||
        error.code === 'EHOSTUNREACH' ||
        error.code === 'ENETUNREACH'
      )
        return resolve({ kind: 'refused', message: error.message });
      const isUnsent = UNSENT.includes(error.code) || undefined;
      resolve({ kind: 'no_http', message: error.message, ...defined({ isUnsent }) });
    });
    req.end();
  });
}

/** Returns the address on which the published ports of this node answer. */
export async function publishedHost({
  publishIp,
  hostIp,
}: {
  publishIp: string | undefined;
  hostIp: () => Promise<string>;
}): Promise<string> {
  const isEveryAddress = publishIp === undefined || publishIp === '0.0.0.0' || publishIp === '::';
  return isEveryAddress ? hostIp() : publishIp;
}
