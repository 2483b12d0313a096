/**
 * Reports sign-ins, refusals and sign-outs to the control plane's audit log. Logins do not wait for
 * the report.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { backoff } from '@berth/kit/backoff';
import type { Logger } from '@berth/kit/log';
import { ApiError, type Client } from '@berth/wire/client';
import type { LoginSeen } from '@berth/wire/gateway';

/**
 * Maximum number of reports that wait while the control plane is unreachable. The gateway's own log
 * has a line for each login in any case.
 */
const MAX_QUEUED = 500;
/**
 * Maximum number of refusals that wait. Anybody can cause refusals, so they have their own queue,
 * and sign-ins and sign-outs are sent first.
 */
const MAX_REFUSALS = 200;
const MAX_TRIES = 6;
const RETRY = { min: 200, max: 5_000 };
const TIMEOUT_MS = 5_000;
const CLOSING_MS = 1_000;

export type Reports = { send(login: LoginSeen): void; close(): Promise<void> };

/** Calls `onLogin` immediately for each login, even if its report fails later. */
export function createReports(
  controlPlane: Client,
  log: Logger,
  onLogin: (login: LoginSeen) => void = () => undefined,
): Reports {
  const queue: LoginSeen[] = [];
  const refusals: LoginSeen[] = [];
  const next = (): LoginSeen | undefined => queue.shift() ?? refusals.shift();
  const closing = new AbortController();
  let working: Promise<void> | null = null;

  async function deliver(login: LoginSeen): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      try {
        await controlPlane.call('loginSeen', {
          body: login,
          timeoutMs: TIMEOUT_MS,
          signal: closing.signal,
        });
        return;
      } catch (error) {
        const permanent = error instanceof ApiError && error.status < 500 && error.status !== 429;
        if (permanent || attempt === MAX_TRIES || closing.signal.aborted) {
          log.warn(
            { outcome: login.outcome, provider: login.provider, why: String(error) },
            'reporting a sign-in to the audit log failed',
          );
          return;
        }
        await pause(backoff(attempt, RETRY), undefined, { signal: closing.signal }).catch(
          () => undefined,
        );
      }
    }
  }
  async function work(): Promise<void> {
    for (let login = next(); login !== undefined; login = next()) await deliver(login);
    working = null;
  }

  return {
    send(login) {
      onLogin(login);
      const [waiting, max] =
        login.outcome === 'refused' ? [refusals, MAX_REFUSALS] : [queue, MAX_QUEUED];
      if (waiting.length >= max) {
        log.warn(
          { outcome: login.outcome, provider: login.provider },
          'a sign-in was not reported to the audit log: the queue is full',
        );
        return;
      }
      waiting.push(login);
      working ??= work();
    },
    async close() {
      // Give reports in progress a moment, but do not wait long for an unreachable control plane.
      const late = setTimeout(() => closing.abort(), CLOSING_MS);
      await working;
      clearTimeout(late);
    },
  };
}
