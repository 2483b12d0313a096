/**
 * Records which process uses which value of a shared secret (domain/secrets/rotation.ts), for
 * `berth rotate`. Values appear only as fingerprints.
 */
import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { fingerprintOf, fingerprintsOf } from '@berth/kit/fingerprint';
import type { Live } from '@berth/kit/live';
import type { GatewaySeen, RotatedSetting } from '@berth/wire/rotation';
import {
  type ControlPlaneSeen,
  type GatewayRow,
  isOld,
  REPORT_MS,
  SECRET_USE,
  useKey,
  type ValuePrints,
} from '../../domain/secrets/rotation.ts';
import type { MetaStore } from '../../domain/platform/meta-store.ts';
import { TOKEN_SECONDS } from './tokens.ts';

/** Maximum number of senders of an older GATEWAY_SECRET to remember between two reports. */
const MAX_SENDERS = 200;
/** Longest delay of a report, added to `until` so that `until` is never too early. */
const LATE_MS = 2 * REPORT_MS;

export type SecretUse = {
  /**
   * Writes the values of this control plane, and the requests since the last call. Run it every
   * REPORT_MS and after each reload.
   */
  report(): Promise<void>;
  /**
   * Records that a gateway sent this value of GATEWAY_SECRET. Costs nothing for the current value.
   */
  gatewaySent(value: string, address: string): void;
  gatewaySeen(seen: GatewaySeen, sent: string, address: string): Promise<void>;
  close(): Promise<void>;
};

export type SecretUseDeps = {
  meta: MetaStore;
  secrets: Live<{ agent: readonly string[]; gateway: readonly string[]; jwt: readonly string[] }>;
  /** Fingerprints of SECRETS_KEY, and the id of the key that wraps project keys. */
  vault: { fingerprints(): string[]; wrapsWith(): string };
  /** Address on which this control plane listens; it distinguishes two on one machine. */
  listen: string;
  now: () => number;
};

export function createSecretUse({ meta, secrets, vault, listen, now }: SecretUseDeps): SecretUse {
  const id = randomUUID();
  const own = useKey.controlPlane(id);
  const name = `${hostname()} ${listen}`;
  const senders = new Map<string, number>();
  /**
   * The last `until` written for each row. A row is written again only if `until` moves by more
   * than half of REPORT_MS, so several gateways share one write.
   */
  const signedUntil = new Map<string, number>();
  let lastJwt: string | null = null;

  async function signed(
    setting: RotatedSetting,
    fingerprint: string | undefined,
    lifeMs: number,
  ): Promise<void> {
    if (fingerprint === undefined) return;
    const key = useKey.signed(setting, fingerprint);
    const until = now() + lifeMs + LATE_MS;
    if ((signedUntil.get(key) ?? 0) >= until - REPORT_MS / 2) return;
    const stored = await meta.get(key);
    // Keep the stored `until` if it is later: a different process can sign with a longer lifetime.
    const latest = Math.max(
      until,
      stored === null ? 0 : (JSON.parse(stored) as { until: number }).until,
    );
    signedUntil.set(key, latest);
    await meta.set(key, JSON.stringify({ until: latest }));
  }

  return {
    async report() {
      const { agent, gateway, jwt } = secrets();
      const values: ValuePrints = {
        AGENT_SECRET: fingerprintsOf('AGENT_SECRET', agent),
        GATEWAY_SECRET: fingerprintsOf('GATEWAY_SECRET', gateway),
        JWT_SECRET: fingerprintsOf('JWT_SECRET', jwt),
        SECRETS_KEY: vault.fingerprints(),
      };
      const row: ControlPlaneSeen = { name, at: now(), values, key_id: vault.wrapsWith() };
      await meta.set(own, JSON.stringify(row));
      const current = values['JWT_SECRET']?.[0];
      // The previous secret signed tokens until the reload.
      if (lastJwt !== null && lastJwt !== current)
        await signed('JWT_SECRET', lastJwt, TOKEN_SECONDS * 1000);
      await signed('JWT_SECRET', current, TOKEN_SECONDS * 1000);
      lastJwt = current ?? null;
      for (const [key, at] of [...senders]) {
        await meta.set(key, JSON.stringify({ at }));
        senders.delete(key);
      }
      for (const { key, value } of await meta.startingWith(SECRET_USE))
        if (isOld(value, now())) await meta.remove(key);
    },
    gatewaySent(value, address) {
      if (value === secrets().gateway[0] || senders.size >= MAX_SENDERS) return;
      senders.set(useKey.sent(fingerprintOf('GATEWAY_SECRET', value), address), now());
    },
    async gatewaySeen(
      { id: process, name: gatewayName, values, session_seconds, stopped },
      sent,
      address,
    ) {
      const key = useKey.gateway(process);
      const lifeMs = session_seconds * 1000;
      const before = await meta.get(key);
      const [current] = values['SESSION_SECRET'] ?? [];
      const [previous] =
        before === null ? [] : ((JSON.parse(before) as GatewayRow).values['SESSION_SECRET'] ?? []);
      if (previous !== current) await signed('SESSION_SECRET', previous, lifeMs);
      await signed('SESSION_SECRET', current, lifeMs);
      if (stopped === true) return meta.remove(key);
      const row: GatewayRow = {
        name: gatewayName,
        address,
        at: now(),
        values,
        sends: fingerprintOf('GATEWAY_SECRET', sent),
      };
      await meta.set(key, JSON.stringify(row));
    },
    close: () => meta.remove(own),
  };
}
