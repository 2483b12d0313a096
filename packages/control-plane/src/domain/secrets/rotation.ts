/**
 * Reports which processes and requests still use which value of a shared secret. Each process
 * writes rows to `meta` with fingerprints of the values, so that the answer survives a restart:
 *   control-plane <id>, gateway <id>   values that a process has; renewed every REPORT_MS, removed
 *                                      when the process stops
 *   sent <fingerprint> <address>       a request that used an old GATEWAY_SECRET
 *   signed <setting> <fingerprint>     latest expiry of the objects that a value signed
 * Not listed here: nodes (in their own rows) and project keys (each has the id of its wrapping
 * key).
 */
import type { GatewaySeen, RotatedSetting, Rotation } from '@berth/wire/rotation';
import type { MetaStore } from '../platform/meta-store.ts';
import type { NodeStore } from '../nodes/node-store.ts';
import type { ProjectKeyStore } from './vault.ts';

export const SECRET_USE = 'secret_use ';
export const REPORT_MS = 20_000;
/** A process that has not reported for this long counts as stopped. */
const SILENT_MS = 75_000;
/** Retention of rows of processes that did not remove them, and of old requests. */
const KEEP_MS = 86_400_000;

export type ValuePrints = GatewaySeen['values'];
export type Seen = { name: string; at: number; values: ValuePrints };
export type ControlPlaneSeen = Seen & { key_id: string };
export type GatewayRow = Seen & { address: string; sends: string };

export const useKey = {
  controlPlane: (id: string): string => `${SECRET_USE}control-plane ${id}`,
  gateway: (id: string): string => `${SECRET_USE}gateway ${id}`,
  sent: (fingerprint: string, address: string): string =>
    `${SECRET_USE}sent ${fingerprint} ${address}`,
  signed: (setting: RotatedSetting, fingerprint: string): string =>
    `${SECRET_USE}signed ${setting} ${fingerprint}`,
};

export type RotationSource = {
  meta: MetaStore;
  nodes: Pick<NodeStore, 'withoutSecret'>;
  projectKeys: Pick<ProjectKeyStore, 'counts'>;
};

/** Reads which values are still in use. `named`: includes nodes, which only admins can see. */
export async function readRotation(
  { meta, nodes, projectKeys }: RotationSource,
  now: number,
  named: boolean,
): Promise<Rotation> {
  const [rows, shared, counts] = await Promise.all([
    meta.startingWith(SECRET_USE),
    named ? nodes.withoutSecret() : [],
    projectKeys.counts(),
  ]);
  const rotation: Rotation = {
    control_planes: [],
    gateways: [],
    senders: [],
    signed: [],
    nodes: shared.map(({ hostname, role, agent_version, shared_secret, last_seen_at }) => ({
      name: hostname,
      role,
      agent_version,
      fingerprint: shared_secret,
      seen_at: time(last_seen_at),
    })),
    project_keys: Object.fromEntries(counts),
  };
  for (const { key, value } of rows) {
    const [kind, ...rest] = key.slice(SECRET_USE.length).split(' ');
    const row = JSON.parse(value) as ControlPlaneSeen & GatewayRow & { until: number };
    const presence = {
      name: row.name,
      seen_at: time(row.at ?? 0),
      running: now - row.at < SILENT_MS,
      values: row.values,
    };
    if (kind === 'control-plane') rotation.control_planes.push({ ...presence, key_id: row.key_id });
    if (kind === 'gateway')
      rotation.gateways.push({ ...presence, address: row.address, sends: row.sends });
    if (kind === 'sent')
      rotation.senders.push({
        fingerprint: rest[0] ?? '',
        address: rest[1] ?? '',
        seen_at: time(row.at),
      });
    if (kind === 'signed')
      rotation.signed.push({
        setting: rest[0] as RotatedSetting,
        fingerprint: rest[1] ?? '',
        until: time(row.until),
      });
  }
  rotation.control_planes = withoutEarlier(rotation.control_planes);
  rotation.gateways = withoutEarlier(rotation.gateways);
  return rotation;
}

/**
 * Omits rows of stopped processes whose successor (same name) is running. A killed process leaves
 * such a row.
 */
const withoutEarlier = <T extends { name: string; running: boolean }>(all: readonly T[]): T[] =>
  all.filter(
    (one) => one.running || !all.some((other) => other.running && other.name === one.name),
  );

/** Returns whether a row has expired. */
export const isOld = (value: string, now: number): boolean => {
  const { at, until } = JSON.parse(value) as { at?: number; until?: number };
  return Math.max(at ?? 0, until ?? 0) < now - KEEP_MS;
};

const time = (ms: number): string => new Date(ms).toISOString();
