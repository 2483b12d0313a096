/**
 * Tells the control plane which values of shared secrets this process has, as fingerprints, for
 * `berth rotate`.
 */
import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { defined } from '@berth/kit/defined';
import { fingerprintsOf } from '@berth/kit/fingerprint';
import type { GatewayDeps } from './deps.ts';

/** The control plane counts a gateway without a report for 75 s as stopped. */
const REPORT_MS = 20_000;
const TIMEOUT_MS = 3_000;

export type Presence = {
  start(): void;
  /**
   * Sends a report. Never rejects: an older control plane has no such route, and an unreachable
   * control plane receives the next report.
   */
  report(): Promise<void>;
  stop(): Promise<void>;
};

export function createPresence({
  config,
  controlPlane,
  secrets,
  log,
}: Pick<GatewayDeps, 'config' | 'controlPlane' | 'secrets' | 'log'>): Presence {
  const id = randomUUID();
  const { host, port } = config.LISTEN;
  let timer: NodeJS.Timeout | null = null;
  /**
   * The last report. Reports are sent one at a time, so that an older report cannot arrive last.
   */
  let last: Promise<void> = Promise.resolve();

  async function send(stopped: boolean): Promise<void> {
    const { gateway, session } = secrets();
    const values = {
      GATEWAY_SECRET: fingerprintsOf('GATEWAY_SECRET', gateway),
      SESSION_SECRET: fingerprintsOf('SESSION_SECRET', session),
    };
    const session_seconds = Math.ceil(config.SESSION_TTL / 1000);
    const body = {
      id,
      name: `${hostname()} ${host}:${port}`,
      values,
      session_seconds,
      ...defined({ stopped: stopped ? stopped : undefined }),
    };
    await controlPlane
      .call('gatewaySeen', { body, timeoutMs: TIMEOUT_MS })
      .catch((err: unknown) =>
        log.debug({ err }, 'the report of the secrets in use was not received'),
      );
  }
  const queue = (stopped: boolean): Promise<void> => (last = last.then(() => send(stopped)));

  return {
    start() {
      timer = setInterval(() => void queue(false), REPORT_MS);
      void queue(false);
    },
    report: () => queue(false),
    async stop() {
      if (timer === null) return;
      clearInterval(timer);
      await queue(true);
    },
  };
}
