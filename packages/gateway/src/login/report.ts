/** Tells the control plane of sign-ins, refusals and sign-outs for its audit log. No login waits for it or depends on it. */
import { setTimeout as pause } from 'node:timers/promises';
import { backoff } from '@berth/kit/backoff';
import type { Logger } from '@berth/kit/log';
import { ApiError, type Client } from '@berth/wire/client';
import type { LoginSeen } from '@berth/wire/gateway';

/** While the control plane is away; the gateway's own log has a line for each in any case. */
const MOST_WAITING = 500;
const TRIES = 6;
const RETRY = { min: 200, max: 5_000 };
const TIMEOUT_MS = 5_000;
const CLOSING_MS = 1_000;

export type Reports = { tell(seen: LoginSeen): void; close(): Promise<void> };

/** `seen`: told of each at once, whatever becomes of the report. */
export function createReports(controlPlane: Client, log: Logger, seen: (login: LoginSeen) => void = () => undefined): Reports {
  const waiting: LoginSeen[] = [];
  const closing = new AbortController();
  let working: Promise<void> | null = null;

  async function deliver(seen: LoginSeen): Promise<void> {
    for (let tried = 1; ; tried++) {
      try {
        await controlPlane.call('loginSeen', { body: seen, timeoutMs: TIMEOUT_MS, signal: closing.signal });
        return;
      } catch (error) {
        const forGood = error instanceof ApiError && error.status < 500 && error.status !== 429;
        if (forGood || tried === TRIES || closing.signal.aborted) {
          log.warn({ outcome: seen.outcome, provider: seen.provider, why: String(error) }, 'the audit log could not be told of a sign-in');
          return;
        }
        await pause(backoff(tried, RETRY), undefined, { signal: closing.signal }).catch(() => undefined);
      }
    }
  }
  async function work(): Promise<void> {
    for (let seen = waiting.shift(); seen !== undefined; seen = waiting.shift()) await deliver(seen);
    working = null;
  }

  return {
    tell(login) {
      seen(login);
      if (waiting.length >= MOST_WAITING) {
        log.warn({ outcome: login.outcome, provider: login.provider }, 'the audit log is too far behind to be told of a sign-in');
        return;
      }
      waiting.push(login);
      working ??= work();
    },
    async close() {
      // What is under way gets a moment; the gateway does not wait for a control plane that is away.
      const late = setTimeout(() => closing.abort(), CLOSING_MS);
      await working;
      clearTimeout(late);
    },
  };
}
