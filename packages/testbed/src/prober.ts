/**
 * A client that sends requests at a steady rate, whatever the answers are. Tests use it to show
 * that a deployment loses no request.
 */
import { Agent as HttpAgent, request as httpRequest } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import type { Platform } from './platform.ts';

export type ProberOptions = {
  entry: Platform['entry'];
  /** Value of the Host header. */
  host: string;
  path?: string;
  headers?: Record<string, string>;
  perSecond: number;
  /**
   * Returns the version that a body shows. An answer is stale when its version is lower than one
   * seen before its request was sent.
   */
  versionOf: (body: string) => number;
  timeoutMs?: number;
  /**
   * At most so many requests wait for an answer; further ones are not sent. Without it, the rate
   * stays as specified: on a machine that serves fewer requests, they pile up until they time out,
   * whatever Berth does.
   */
  mostOpen?: number;
};

export type ProbeReport = {
  sent: number;
  /** Requests without an answer or with a status other than 200; at most 20 descriptions. */
  failures: string[];
  failed: number;
  /** Answers with an older version than one that was seen before the request was sent. */
  stale: number;
  /** The versions in the order of their first answers. */
  versions: number[];
  /** Latency in milliseconds. */
  p50: number;
  p99: number;
  slowest: number;
};

export type Prober = { stop(): Promise<ProbeReport>; latest(): number };

export function startProber(options: ProberOptions): Prober {
  const { entry, host } = options;
  const agent = entry.secure
    ? new HttpsAgent({ keepAlive: true, servername: host, rejectUnauthorized: false })
    : new HttpAgent({ keepAlive: true });
  const request = entry.secure ? httpsRequest : httpRequest;
  const times: number[] = [];
  const failures: string[] = [];
  const versions: number[] = [];
  const open = new Set<Promise<void>>();
  let sent = 0;
  let failed = 0;
  let stale = 0;
  let newest = Number.NEGATIVE_INFINITY;

  const note = (what: string): void => {
    failed++;
    if (failures.length < 20) failures.push(`${new Date().toISOString()} ${what}`);
  };
  const once = (): Promise<void> => {
    const seenBefore = newest;
    const from = performance.now();
    sent++;
    return new Promise((resolve) => {
      const call = request(
        {
          host: entry.host,
          port: entry.port,
          path: options.path ?? '/',
          headers: { host, ...options.headers },
          agent,
          timeout: options.timeoutMs ?? 5_000,
        },
        (response) => {
          let body = '';
          response.setEncoding('utf8');
          response.on('data', (chunk: string) => (body += chunk));
          response.on('error', (error) => {
            note(error.message);
            resolve();
          });
          response.on('end', () => {
            times.push(performance.now() - from);
            if (response.statusCode !== 200) note(`${response.statusCode} ${body.slice(0, 80)}`);
            else {
              const version = options.versionOf(body);
              if (!versions.includes(version)) versions.push(version);
              if (version < seenBefore) stale++;
              newest = Math.max(newest, version);
            }
            resolve();
          });
        },
      );
      call.on('timeout', () => call.destroy(new Error('request timed out')));
      call.on('error', (error) => {
        note(error.message);
        resolve();
      });
      call.end();
    });
  };
  const began = performance.now();
  const mostOpen = options.mostOpen ?? Number.POSITIVE_INFINITY;
  let omitted = 0;
  // When the timer fires late on a busy machine, the missing requests are sent at once: the rate
  // stays as specified.
  const timer = setInterval(() => {
    const due = Math.floor(((performance.now() - began) / 1000) * options.perSecond);
    while (sent + omitted < due) {
      if (open.size >= mostOpen) {
        omitted = due - sent;
        return;
      }
      const asked = once();
      open.add(asked);
      void asked.finally(() => open.delete(asked));
    }
  }, 1000 / options.perSecond);

  return {
    latest: () => newest,
    async stop() {
      clearInterval(timer);
      await Promise.all(open);
      agent.destroy();
      const sorted = times.toSorted((a, b) => a - b);
      const at = (q: number): number =>
        sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * q))] ?? Number.NaN;
      return {
        sent,
        failures,
        failed,
        stale,
        versions,
        p50: at(0.5),
        p99: at(0.99),
        slowest: sorted.at(-1) ?? Number.NaN,
      };
    },
  };
}
