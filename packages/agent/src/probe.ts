/**
 * Asks a new container over HTTP, from outside, until it answers (INTERFACES.md "Details settled"). A TCP connect proves
 * nothing: the engine accepts for a port where nothing listens.
 */
import { request } from 'node:http';
import { pause, reasonOf } from './stopped.ts';

export type ProbeTarget = {
  host: string;
  port: number;
  /** Null: any HTTP answer passes. Otherwise a status below 400 passes. */
  healthPath: string | null;
  /** How visitors reach the project. Applications with a list of allowed hosts refuse any other Host. Null: not known. */
  visitorUrl: string | null;
};
/** The last thing seen, for the diagnosis. */
export type ProbeAnswer = { kind: 'status'; status: number } | { kind: 'refused'; message: string } | { kind: 'no_http'; message: string };
export type ProbeResult = { ok: true; status: number; tries: number } | { ok: false; last: ProbeAnswer | null; tries: number };

/** Quick at first, since most are up in less than a second. */
const waitBefore = (attempt: number): number => Math.min(1_000, 25 * 1.5 ** attempt);
const TRY_MS = 5_000;

/** Ends when it is healthy, when `deadlineMs` is over, or (rejecting with the reason) when the signal aborts. */
export async function probe(target: ProbeTarget, deadlineMs: number, signal: AbortSignal): Promise<ProbeResult> {
  const until = Date.now() + deadlineMs;
  let last: ProbeAnswer | null = null;
  for (let tries = 0; ; tries += 1) {
    const left = until - Date.now();
    if (left <= 0) return { ok: false, last, tries };
    const answer = await ask(target, Math.min(TRY_MS, left), signal);
    if (answer.kind === 'status' && (target.healthPath === null || answer.status < 400))
      return { ok: true, status: answer.status, tries: tries + 1 };
    // A status says more than the refused try that came after it.
    if (answer.kind === 'status' || last?.kind !== 'status') last = answer;
    await pause(Math.min(waitBefore(tries), Math.max(0, until - Date.now())), signal);
  }
}

/** Headers that the reverse proxy adds to a visitor's request. */
function visitorHeaders(visitorUrl: string | null): Record<string, string> {
  if (visitorUrl === null || !URL.canParse(visitorUrl)) return {};
  const { host, protocol } = new URL(visitorUrl);
  return { host, 'x-forwarded-host': host, 'x-forwarded-proto': protocol.slice(0, -1) };
}

/** One GET on a connection of its own; redirects are answers, not followed. */
function ask(target: ProbeTarget, timeoutMs: number, signal: AbortSignal): Promise<ProbeAnswer> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(reasonOf(signal));
    const deadline = AbortSignal.timeout(timeoutMs);
    const req = request({
      host: target.host,
      port: target.port,
      path: target.healthPath ?? '/',
      method: 'GET',
      agent: false,
      signal: AbortSignal.any([signal, deadline]),
      headers: { 'user-agent': 'berth-agent', accept: '*/*', connection: 'close', ...visitorHeaders(target.visitorUrl) },
    });
    req.once('response', (response) => {
      const status = response.statusCode ?? 0;
      // The head is the answer; a body may be endless.
      response.destroy();
      resolve({ kind: 'status', status });
    });
    req.once('error', (error: NodeJS.ErrnoException) => {
      if (signal.aborted) return reject(reasonOf(signal));
      if (deadline.aborted) return resolve({ kind: 'no_http', message: 'no answer' });
      if (error.code === 'ECONNREFUSED' || error.code === 'EHOSTUNREACH' || error.code === 'ENETUNREACH')
        return resolve({ kind: 'refused', message: error.message });
      resolve({ kind: 'no_http', message: error.message });
    });
    req.end();
  });
}
