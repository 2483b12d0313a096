/**
 * The logs that control planes request from the nodes ("wants"). If several control planes share
 * one database, the wants are rows (`log_wants`), because the agent can ask any control plane.
 * Otherwise they are in memory.
 */
import { createHash } from 'node:crypto';
import type { Logger } from '@berth/kit/log';
import type { LogWant } from '@berth/wire/runtime';
import type { WantRecord } from '../../domain/deployments/runtime-logs.ts';
import type { Changes } from '../../domain/platform/changes.ts';
import type { LogRelay, LogWantStore } from '../../domain/deployments/runtime-logs.ts';
import type { UptimeClock } from '../../domain/platform/uptime.ts';
import { type Channel, closeChannel } from './channel.ts';

export type WantDeps = {
  stores: { logWants: LogWantStore; logRelay: LogRelay | null };
  changes: Changes;
  uptime: Pick<UptimeClock, 'estimate'>;
  now: () => number;
  log: Logger;
};

export type Want = Omit<WantRecord, 'owner' | 'expires_at'>;
/** A log that this control plane requests for its viewers. */
export type OwnWant = {
  want: Want;
  channel: Channel;
  viewers: number;
  ending: NodeJS.Timeout | undefined;
};

export type Wants = {
  deps: WantDeps;
  owner: string;
  own: Map<string, OwnWant>;
  /** Logs that the other control planes request, as of the last refresh. */
  others: WantRecord[];
  /**
   * Tag for each node. It changes with the logs that are requested of the node; all control planes
   * compute the same tag.
   */
  tags: Map<string, string>;
  timer: NodeJS.Timeout | undefined;
  renewedAt: number;
  isClosed: boolean;
  /** Stops listening to other control planes. */
  unsubscribe: () => void;
};

const WANT_MS = 30_000;
const RENEW_MS = 5_000;
const REFRESH_MS = 2_000;

/** `onMessage` receives the batches that other control planes pass on. */
export function createWants(deps: WantDeps, onMessage: (message: string) => void): Wants {
  const { logRelay } = deps.stores;
  const wants: Wants = {
    deps,
    owner: logRelay?.owner ?? 'self',
    own: new Map(),
    others: [],
    tags: new Map(),
    timer: undefined,
    renewedAt: 0,
    isClosed: false,
    unsubscribe: () => undefined,
  };
  const warn = (err: unknown): void => warnOf(wants, err);
  wants.unsubscribe = deps.changes.on('log-wants', () => void refreshWants(wants).catch(warn));
  if (logRelay === null) return wants;
  logRelay.subscribe(onMessage);
  wants.timer = setInterval(() => void tick(wants).catch(warn), REFRESH_MS).unref();
  return wants;
}

function warnOf({ isClosed, deps }: Wants, err: unknown): void {
  if (!isClosed) deps.log.warn({ err }, 'updating the wanted runtime logs failed; will retry');
}

async function tick(wants: Wants): Promise<void> {
  if (wants.own.size > 0 && performance.now() - wants.renewedAt >= RENEW_MS) {
    wants.renewedAt = performance.now();
    for (const own of wants.own.values()) await save(wants, own);
  }
  await refreshWants(wants);
}

async function save({ deps, owner }: Wants, own: OwnWant): Promise<void> {
  const { at } = deps.uptime.estimate();
  await deps.stores.logWants.put({ ...presentWant(own), owner, expires_at: at + WANT_MS }, at);
}

const presentWant = ({ want, channel }: OwnWant): Want => ({
  ...want,
  position: channel.end?.at ?? want.position,
});

/** Reads the wants of the other control planes. */
export async function refreshWants(wants: Wants): Promise<void> {
  const { stores, uptime } = wants.deps;
  if (stores.logRelay === null) return;
  const rows = await stores.logWants.list(uptime.estimate().at);
  wants.others = rows.filter(({ owner }) => owner !== wants.owner);
  wakeNodes(wants);
}

/** Wakes the polls of the nodes whose wants changed. */
function wakeNodes(wants: Wants): void {
  const keys = new Map<string, Set<string>>();
  for (const { node_id, key } of [...[...wants.own.values()].map((o) => o.want), ...wants.others])
    keys.set(node_id, (keys.get(node_id) ?? new Set()).add(key));
  const old = wants.tags;
  wants.tags = new Map([...keys].map(([node, ofNode]) => [node, tagFor([...ofNode])]));
  const changed = [...new Set([...old.keys(), ...wants.tags.keys()])].filter(
    (node) => old.get(node) !== wants.tags.get(node),
  );
  if (changed.length > 0)
    wants.deps.changes.notify(...changed.map((node) => `node:${node}` as const));
}

const tagFor = (keys: string[]): string =>
  createHash('sha256').update(keys.sort().join('\n')).digest('base64url').slice(0, 12);

export async function addWant(wants: Wants, want: Want, channel: Channel): Promise<OwnWant> {
  const { changes, stores } = wants.deps;
  const own: OwnWant = { want, channel, viewers: 0, ending: undefined };
  wants.own.set(want.key, own);
  try {
    if (stores.logRelay !== null) {
      await save(wants, own);
      changes.notify('log-wants');
    }
  } catch (error) {
    wants.own.delete(want.key);
    throw error;
  }
  wakeNodes(wants);
  return own;
}

export function removeWant(wants: Wants, { want, channel, ending }: OwnWant): void {
  clearTimeout(ending);
  if (wants.own.get(want.key)?.channel === channel) wants.own.delete(want.key);
  closeChannel(channel);
  wakeNodes(wants);
  const { stores, changes } = wants.deps;
  if (stores.logRelay === null) return;
  void stores.logWants
    .remove(want.key, wants.owner)
    .then(() => changes.notify('log-wants'))
    .catch((err: unknown) => warnOf(wants, err));
}

export async function closeWants(wants: Wants): Promise<void> {
  const { logWants, logRelay } = wants.deps.stores;
  wants.isClosed = true;
  clearInterval(wants.timer);
  wants.unsubscribe();
  for (const { ending, channel } of wants.own.values()) {
    clearTimeout(ending);
    closeChannel(channel);
  }
  wants.own.clear();
  if (logRelay !== null) await logWants.removeOwner(wants.owner).catch(() => undefined);
}

/** Returns the logs requested from a node, in the form that its agent gets. */
export async function listWants(wants: Wants, node_id: string): Promise<LogWant[]> {
  const { stores, uptime, now } = wants.deps;
  const rows =
    stores.logRelay === null
      ? [...wants.own.values()].map(presentWant)
      : await stores.logWants.list(uptime.estimate().at, node_id);
  const byKey = new Map<string, LogWant>();
  for (const row of rows) {
    if (row.node_id !== node_id) continue;
    const want = wantView(row, now());
    const other = byKey.get(want.key);
    byKey.set(want.key, other === undefined ? want : furthestBehind(other, want));
  }
  return [...byKey.values()];
}

function wantView(row: Want, now: number): LogWant {
  const { key, mode, deployment_id, instance, tail, since_at, until_at, stream, position } = row;
  const ago = (at: number | null): number | null =>
    at === null ? null : Math.max(0, Math.round(now - at));
  // If a followed log already has a position, it begins there.
  const since_ago_ms = mode === 'follow' && position !== null ? null : ago(since_at);
  const until_ago_ms = ago(until_at);
  return {
    key,
    mode,
    deployment_id,
    instance,
    tail,
    since_ago_ms,
    until_ago_ms,
    stream,
    after: position,
  };
}

/**
 * Merges the requests of several control planes that follow one log. A new reader begins at the
 * earliest position that one of them needs.
 */
function furthestBehind(a: LogWant, b: LogWant): LogWant {
  const ages = [a, b].flatMap(({ since_ago_ms }) => since_ago_ms ?? []);
  const positions = [a, b].flatMap(({ after }) => after ?? []);
  return {
    ...a,
    since_ago_ms: ages.length === 0 ? null : Math.max(...ages),
    after: positions.sort()[0] ?? null,
  };
}
