/**
 * The logs that viewers at this control plane want, and the lines that agents send for them. A node
 * reads a log once, whatever the number of viewers: they share a channel. With several control
 * planes on one database the wants are rows (`log_wants`), because the agent may ask any of them,
 * and a batch goes on to the control planes that want it (LogRelay). With one control plane the
 * wants are in memory.
 */
import { createHash, randomBytes } from 'node:crypto';
import type { Logger } from '@berth/kit/log';
import {
  type LogBatch,
  LOGS_CAPABILITY,
  type LogWant,
  MAX_TAIL,
  type RuntimeStream,
} from '@berth/wire/runtime';
import type { Changes } from '../domain/platform/changes.ts';
import { DomainError } from '../domain/platform/errors.ts';
import type { NodeRecord } from '../domain/platform/records.ts';
import type { WantRecord } from '../domain/deployments/runtime-logs.ts';
import type { Stores } from '../domain/platform/stores.ts';
import type { UptimeClock } from '../domain/platform/uptime.ts';
import { type Channel, createChannel } from './log-channel.ts';

export type ReaderLimits = {
  follows: number;
  followsOfNode: number;
  reads: number;
  /** Lines and bytes of a channel. Together with `follows` and `reads` they bound the memory. */
  follow: { lines: number; bytes: number };
  read: { lines: number; bytes: number };
  readMs: number;
  lingerMs: number;
  /** A viewer must take the lines that are in memory for it alone within this time. */
  slowMs: number;
  linesPerSecond: number;
};
export const READER_LIMITS: ReaderLimits = {
  follows: 64,
  followsOfNode: 16,
  reads: 16,
  follow: { lines: 5_000, bytes: 1_048_576 },
  read: { lines: MAX_TAIL, bytes: 4 * 1_048_576 },
  readMs: 15_000,
  lingerMs: 5_000,
  slowMs: 30_000,
  linesPerSecond: 20_000,
};
/** Lines that a reader sends at first, besides the new ones. */
const FOLLOW_OVERLAP_LINES = 5_000;
const WANT_MS = 30_000;
const RENEW_MS = 5_000;
const REFRESH_MS = 2_000;

export type ReadRequest = {
  deployment_id: string;
  node_id: string;
  tail: number;
  since: number | null;
  until: number | null;
  stream: RuntimeStream | null;
  after: string | null;
  /** Most bytes of the lines in memory. */
  bytes?: number;
};
export type ReadResult = { channel: Channel; problem: string | null };

export type Readers = {
  limits: ReaderLimits;
  /** Other control planes may take lines for viewers here. */
  isShared: boolean;
  /**
   * Reads the log of a deployment from now on. Call `release` in a `finally`. Throws
   * too_many_requests.
   */
  follow(
    deployment_id: string,
    node_id: string,
  ): Promise<{ channel: Channel; since: number; release(): void }>;
  /** Whether `follow` of all these would succeed now. */
  hasRoom(targets: readonly { id: string; node_id: string | null }[]): boolean;
  /**
   * Reads a part of the log once. Equal requests at the same time share one read. Throws
   * too_many_requests.
   */
  read(request: ReadRequest, signal: AbortSignal): Promise<ReadResult>;
  /** Takes a batch of an agent. `wait_ms`: when it may send the next one. */
  accept(key: string, batch: LogBatch): Promise<{ wanted: boolean; wait_ms: number }>;
  /** The wants for a node, as its agent gets them. */
  wantsOf(node_id: string): Promise<LogWant[]>;
  /** Changes with the wants for a node, and is the same at each control plane; null: none. */
  tagOf(node_id: string): string | null;
  counts(): { follows: number; reads: number; lines: number; lost: number };
  close(): Promise<void>;
};

export type ReaderDeps = {
  stores: Pick<Stores, 'logWants' | 'logRelay'>;
  changes: Changes;
  uptime: Pick<UptimeClock, 'estimate'>;
  now: () => number;
  log: Logger;
  readerLimits?: Partial<ReaderLimits>;
};

export const canReadLogs = (node: Pick<NodeRecord, 'capabilities'>): boolean =>
  node.capabilities?.includes(LOGS_CAPABILITY) === true;

type Own = {
  want: WantRecord;
  channel: Channel;
  viewers: number;
  ending: NodeJS.Timeout | undefined;
};

export function createReaders({
  stores,
  changes,
  uptime,
  now,
  log,
  readerLimits,
}: ReaderDeps): Readers {
  const limits = { ...READER_LIMITS, ...readerLimits };
  const { logWants, logRelay } = stores;
  const owner = logRelay?.owner ?? 'self';
  const own = new Map<string, Own>();
  const reading = new Map<string, Promise<ReadResult>>();
  /** Wants of the other control planes, as of the last refresh. */
  let others: WantRecord[] = [];
  let tags = new Map<string, string>();
  let timer: NodeJS.Timeout | undefined;
  let renewedAt = 0;
  let closed = false;
  let subscribed = false;
  const taken = { lines: 0, lost: 0 };
  let budget = { left: limits.linesPerSecond, at: performance.now() };

  /** Wakes the polls of the nodes whose wants changed. */
  function update(): void {
    const keys = new Map<string, Set<string>>();
    for (const { node_id, key } of [...[...own.values()].map((o) => o.want), ...others])
      keys.set(node_id, (keys.get(node_id) ?? new Set()).add(key));
    const before = tags;
    tags = new Map([...keys].map(([node, of]) => [node, tagFor([...of])]));
    const moved = [...new Set([...before.keys(), ...tags.keys()])].filter(
      (node) => before.get(node) !== tags.get(node),
    );
    if (moved.length > 0) changes.notify(...moved.map((node) => `node:${node}` as const));
  }

  async function refresh(): Promise<void> {
    if (logRelay === null) return;
    others = (await logWants.list(uptime.estimate().at)).filter((want) => want.owner !== owner);
    update();
  }
  function fail(err: unknown): void {
    if (!closed) log.warn({ err }, 'updating the wanted runtime logs failed; will retry');
  }
  function begin(): void {
    if (logRelay === null || closed) return;
    if (!subscribed) {
      subscribed = true;
      logRelay.subscribe((message) => fromOther(message));
    }
    timer ??= setInterval(() => void tick().catch(fail), REFRESH_MS).unref();
  }
  async function tick(): Promise<void> {
    if (own.size > 0 && performance.now() - renewedAt >= RENEW_MS) {
      renewedAt = performance.now();
      await save([...own.values()]);
    }
    await refresh();
  }
  async function save(some: readonly Own[]): Promise<void> {
    const { at } = uptime.estimate();
    for (const { want, channel } of some)
      await logWants.put(
        { ...want, position: channel.position() ?? want.position, expires_at: at + WANT_MS },
        at,
      );
  }
  const offWants = changes.on('log-wants', () => void refresh().catch(fail));
  if (logRelay !== null) begin();

  function fromOther(text: string): void {
    const { key, batch } = JSON.parse(text) as { key: string; batch: LogBatch };
    const mine = own.get(key);
    if (mine !== undefined && mine.want.node_id === batch.node_id) deliver(mine.channel, batch);
  }
  function deliver(channel: Channel, batch: LogBatch): void {
    taken.lines += batch.lines.length;
    channel.deliver(batch);
  }

  async function add(want: WantRecord, channel: Channel): Promise<Own> {
    const entry: Own = { want, channel, viewers: 1, ending: undefined };
    own.set(want.key, entry);
    try {
      if (logRelay !== null) {
        await save([entry]);
        changes.notify('log-wants');
      }
    } catch (error) {
      own.delete(want.key);
      throw error;
    }
    update();
    return entry;
  }
  function remove(entry: Own): void {
    clearTimeout(entry.ending);
    if (own.get(entry.want.key) === entry) own.delete(entry.want.key);
    entry.channel.close();
    taken.lost += entry.channel.missing();
    update();
    if (logRelay === null) return;
    void logWants
      .remove(entry.want.key, owner)
      .then(() => changes.notify('log-wants'))
      .catch(fail);
  }
  const lostNow = (): number =>
    [...own.values()].reduce((sum, { channel }) => sum + channel.missing(), taken.lost);
  const count = (mode: WantRecord['mode'], node_id?: string): number =>
    [...own.values()].filter(
      ({ want }) => want.mode === mode && (node_id === undefined || want.node_id === node_id),
    ).length;
  const newWant = (
    more: Pick<WantRecord, 'key' | 'node_id' | 'deployment_id' | 'mode' | 'tail'> &
      Partial<WantRecord>,
  ): WantRecord => ({
    owner,
    since_at: null,
    until_at: null,
    stream: null,
    position: null,
    expires_at: uptime.estimate().at + WANT_MS,
    ...more,
  });

  async function readNow(request: ReadRequest): Promise<ReadResult> {
    if (count('read') >= limits.reads)
      throw new DomainError(
        'too_many_requests',
        'too many logs are being read; try again in a moment',
      );
    const { deployment_id, node_id, tail, since, until, stream, after } = request;
    const key = `r-${randomBytes(12).toString('hex')}`;
    const channel = createChannel(
      { ...limits.read, bytes: request.bytes ?? limits.read.bytes },
      now,
    );
    const entry = await add(
      newWant({
        key,
        node_id,
        deployment_id,
        mode: 'read',
        tail,
        since_at: since,
        until_at: until,
        stream,
        position: after,
      }),
      channel,
    );
    try {
      const done = await waitFor(
        channel,
        () => channel.ended() || channel.problem() !== null,
        limits.readMs,
      );
      return {
        channel,
        problem:
          channel.problem() ??
          (done ? null : `its node did not answer within ${limits.readMs / 1000} s`),
      };
    } finally {
      remove(entry);
    }
  }

  return {
    limits,
    isShared: logRelay !== null,
    async follow(deployment_id, node_id) {
      const key = `f-${deployment_id}`;
      let entry = own.get(key);
      if (entry !== undefined && entry.want.node_id !== node_id) {
        // The deployment moved to another node.
        remove(entry);
        entry = undefined;
      }
      if (entry === undefined) {
        if (count('follow') >= limits.follows || count('follow', node_id) >= limits.followsOfNode)
          throw new DomainError(
            'too_many_requests',
            'too many logs are being followed; close some first',
          );
        const want = newWant({
          key,
          node_id,
          deployment_id,
          mode: 'follow',
          tail: FOLLOW_OVERLAP_LINES,
          since_at: now(),
        });
        entry = await add(want, createChannel(limits.follow, now));
      } else {
        entry.viewers += 1;
        clearTimeout(entry.ending);
        entry.ending = undefined;
      }
      const held = entry;
      let released = false;
      return {
        channel: held.channel,
        since: performance.now(),
        release() {
          if (released) return;
          released = true;
          held.viewers -= 1;
          // Others may come back in a moment: a browser that reloads, a client that reconnects.
          if (held.viewers === 0)
            held.ending = setTimeout(() => remove(held), closed ? 0 : limits.lingerMs).unref();
        },
      };
    },

    hasRoom(targets) {
      const fresh = targets.filter(
        ({ id, node_id }) => own.get(`f-${id}`)?.want.node_id !== node_id,
      );
      if (count('follow') + fresh.length > limits.follows) return false;
      return fresh.every(
        ({ node_id }) =>
          node_id === null ||
          count('follow', node_id) + fresh.filter((f) => f.node_id === node_id).length <=
            limits.followsOfNode,
      );
    },

    async read(request, signal) {
      const key = JSON.stringify(request);
      let shared = reading.get(key);
      if (shared === undefined) {
        shared = readNow(request).finally(() => reading.delete(key));
        shared.catch(() => undefined);
        reading.set(key, shared);
      }
      return Promise.race([shared, rejected(signal)]);
    },

    async accept(key, batch) {
      const { node_id } = batch;
      const isFor = (want: WantRecord): boolean => want.key === key && want.node_id === node_id;
      let mine = own.get(key);
      if (mine !== undefined && !isFor(mine.want)) mine = undefined;
      let elsewhere = others.filter(isFor);
      if (mine === undefined && elsewhere.length === 0) {
        await refresh();
        elsewhere = others.filter(isFor);
        if (elsewhere.length === 0) return { wanted: false, wait_ms: 0 };
      }
      if (mine !== undefined) deliver(mine.channel, batch);
      if (elsewhere.length > 0 && logRelay !== null) {
        const text = JSON.stringify({ key, batch });
        for (const want of elsewhere) logRelay.send(want.owner, text);
      }
      return { wanted: true, wait_ms: spend(batch.lines.length) };
    },

    async wantsOf(node_id) {
      const rows =
        logRelay === null
          ? [...own.values()].map(({ want, channel }) => ({
              ...want,
              position: channel.position() ?? want.position,
            }))
          : await logWants.list(uptime.estimate().at, node_id);
      const byKey = new Map<string, LogWant>();
      for (const row of rows) {
        if (row.node_id !== node_id) continue;
        const { key, mode, deployment_id, tail, since_at, until_at, stream, position } = row;
        const ago = (at: number | null): number | null =>
          at === null ? null : Math.max(0, Math.round(now() - at));
        // A log that is followed begins at its position, once it has one.
        const since_ago_ms = mode === 'follow' && position !== null ? null : ago(since_at);
        const want: LogWant = {
          key,
          mode,
          deployment_id,
          tail,
          since_ago_ms,
          until_ago_ms: ago(until_at),
          stream,
          after: position,
        };
        const known = byKey.get(key);
        byKey.set(key, known === undefined ? want : furthestBehind(known, want));
      }
      return [...byKey.values()];
    },
    tagOf: (node_id) => tags.get(node_id) ?? null,
    counts: () => ({
      follows: count('follow'),
      reads: count('read'),
      lines: taken.lines,
      lost: lostNow(),
    }),
    async close() {
      closed = true;
      clearInterval(timer);
      offWants();
      for (const entry of [...own.values()]) {
        clearTimeout(entry.ending);
        entry.channel.close();
      }
      own.clear();
      if (logRelay !== null && subscribed) await logWants.removeOwner(owner).catch(() => undefined);
    },
  };

  /**
   * Spends lines of the budget of this control plane, which all agents share. Returns how long the
   * sender waits.
   */
  function spend(lines: number): number {
    const at = performance.now();
    const left =
      Math.min(
        limits.linesPerSecond,
        budget.left + ((at - budget.at) / 1000) * limits.linesPerSecond,
      ) - lines;
    budget = { left, at };
    return left >= 0 ? 0 : Math.min(5_000, Math.ceil((-left / limits.linesPerSecond) * 1000));
  }
}

/**
 * Several control planes follow the log: a new reader begins where the one that is furthest behind
 * needs it.
 */
function furthestBehind(a: LogWant, b: LogWant): LogWant {
  const ages = [a, b].flatMap(({ since_ago_ms }) => since_ago_ms ?? []);
  const positions = [a, b].flatMap(({ after }) => after ?? []);
  // The row of a control plane of an earlier version has neither.
  const isUnknown = [a, b].some(
    ({ after, since_ago_ms }) => after === null && since_ago_ms === null,
  );
  return {
    ...a,
    since_ago_ms: ages.length === 0 ? null : Math.max(...ages),
    after: isUnknown ? null : (positions.sort()[0] ?? null),
  };
}

const tagFor = (keys: string[]): string =>
  createHash('sha256').update(keys.sort().join('\n')).digest('base64url').slice(0, 12);

const rejected = (signal: AbortSignal): Promise<never> =>
  new Promise((_, reject) => {
    const abort = (): void =>
      reject(signal.reason instanceof Error ? signal.reason : new Error('aborted'));
    if (signal.aborted) abort();
    else signal.addEventListener('abort', abort, { once: true });
  });

/**
 * Resolves to true when the condition holds after a change of the channel, and to false after `ms`.
 */
export function waitFor(
  channel: Channel,
  condition: () => boolean,
  ms: number,
  signal?: AbortSignal,
): Promise<boolean> {
  return new Promise((resolve) => {
    if (condition()) return resolve(true);
    const finish = (result: boolean): void => {
      off();
      clearTimeout(timer);
      signal?.removeEventListener('abort', aborted);
      resolve(result);
    };
    const aborted = (): void => finish(false);
    const off = channel.on(() => condition() && finish(true));
    const timer = setTimeout(() => finish(false), ms);
    signal?.addEventListener('abort', aborted, { once: true });
    if (signal?.aborted === true) finish(false);
  });
}
