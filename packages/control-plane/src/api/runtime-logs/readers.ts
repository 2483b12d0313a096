/**
 * The logs that viewers at this control plane read, and the lines that agents send for them. A node
 * reads a log once, whatever the number of viewers, because they share a channel. A batch is also
 * passed on to the other control planes that have viewers of the log (LogRelay).
 */
import { randomBytes } from 'node:crypto';
import { type LogBatch, type LogWant, MAX_TAIL, type RuntimeStream } from '@berth/wire/runtime';
import type { LogCursor } from '@berth/wire/log-cursor';
import { DomainError } from '../../domain/platform/errors.ts';
import {
  type Channel,
  type ChannelLine,
  createChannel,
  deliver,
  keptLines,
  type Taken,
  waitFor,
} from './channel.ts';
import {
  addWant,
  closeWants,
  createWants,
  listWants,
  type OwnWant,
  refreshWants,
  removeWant,
  type Want,
  type WantDeps,
  type Wants,
} from './wants.ts';

export type ReaderLimits = {
  follows: number;
  followsOfNode: number;
  reads: number;
  /** Limits of a channel. Together with `follows` and `reads` they limit the memory. */
  follow: { lines: number; bytes: number };
  read: { lines: number; bytes: number };
  readMs: number;
  lingerMs: number;
  /** Time limit in ms in which a viewer must receive the lines that are in memory only for it. */
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
/** Number of older lines that a 0.1.0 agent sends first. */
const FOLLOW_OVERLAP_LINES = 5_000;

/** The container whose log is read; `key` identifies its instance. */
export type LogOf = {
  key: string;
  deployment_id: string;
  /** Label of the container (LogWant). */
  instance: string | null;
  node_id: string;
};
export type ReadRequest = Omit<LogOf, 'key'> & {
  tail: number;
  since: number | null;
  until: number | null;
  stream: RuntimeStream | null;
  /** Cursor time at which the lines begin. */
  after: string | null;
  /** Maximum bytes of the lines in memory. */
  bytes?: number;
};
export type ReadResult = {
  lines: ChannelLine[];
  /** True if the range has older lines. */
  isCut: boolean;
  /** True if lines of the requested range did not fit into `bytes`. */
  isOverBytes: boolean;
  /** Cursor of the log's newest line; undefined: unknown. */
  last: LogCursor | null | undefined;
  /** True if the log no longer has the line of `after`. */
  isReset: boolean;
  /** Correction of the node's times, in ms. */
  offset: number;
  /** Why lines are missing; null if none are. */
  problem: string | null;
};
/**
 * Where a reader of the agent begins: at a cursor's time, otherwise at a time of this control
 * plane.
 */
export type FollowBegin = { after: string | null; since: number };
export type Held = { channel: Channel; release(): void };
type Target = Pick<LogOf, 'key'> & { node_id: string | null };

export type Readers = {
  limits: ReaderLimits;
  /**
   * Follows the log of an instance from now on. Call `release` once, in a `finally`. Throws
   * too_many_requests.
   */
  follow(of: LogOf, begin: FollowBegin): Promise<Held>;
  /** Returns whether `follow` of all these targets would succeed now. */
  hasRoom(targets: readonly Target[]): boolean;
  /**
   * Reads a part of the log once. Equal requests at the same time share one read. Throws
   * too_many_requests.
   */
  read(request: ReadRequest, signal: AbortSignal): Promise<ReadResult>;
  /** Accepts a batch of an agent. `wait_ms`: time until the agent can send the next batch. */
  accept(key: string, batch: LogBatch): Promise<{ wanted: boolean; wait_ms: number }>;
  /** Returns the logs requested from a node, in the form that its agent gets. */
  wantsOf(node_id: string): Promise<LogWant[]>;
  /**
   * Returns a tag that changes with the logs requested from a node; all control planes compute the
   * same tag. Null if no log is requested.
   */
  tagOf(node_id: string): string | null;
  counts(): { follows: number; reads: number; lines: number; lost: number };
  close(): Promise<void>;
};
export type ReaderDeps = WantDeps & { readerLimits?: Partial<ReaderLimits> };

type State = {
  limits: ReaderLimits;
  now: () => number;
  wants: Wants;
  reading: Map<string, Promise<ReadResult>>;
  taken: Taken;
  /** Number of lines that agents can send now. */
  budget: { lines: number; at: number };
};

export function createReaders(deps: ReaderDeps): Readers {
  const limits = { ...READER_LIMITS, ...deps.readerLimits };
  const state: State = {
    limits,
    now: deps.now,
    wants: createWants(deps, (message) => takeMessage(state, message)),
    reading: new Map(),
    taken: { lines: 0, lost: 0 },
    budget: { lines: limits.linesPerSecond, at: performance.now() },
  };
  const { wants } = state;
  return {
    limits,
    follow: (of, begin) => follow(state, of, begin),
    hasRoom: (targets) => hasRoom(state, targets),
    read: (request, signal) => Promise.race([sharedRead(state, request), rejected(signal)]),
    accept: (key, batch) => accept(state, key, batch),
    wantsOf: (node_id) => listWants(wants, node_id),
    tagOf: (node_id) => wants.tags.get(node_id) ?? null,
    counts: () => ({
      follows: countOf(state, 'follow'),
      reads: countOf(state, 'read'),
      ...state.taken,
    }),
    close: () => closeWants(wants),
  };
}

const followKey = ({ key }: Pick<LogOf, 'key'>): string => `f-${key}`;

async function follow(state: State, of: LogOf, { after, since }: FollowBegin): Promise<Held> {
  const { wants, limits, now, taken } = state;
  const { deployment_id, instance, node_id } = of;
  const key = followKey(of);
  let own = wants.own.get(key);
  if (own !== undefined && own.want.node_id !== node_id) {
    // End the reader: the instance moved to another node.
    removeWant(wants, own);
    own = undefined;
  }
  if (own === undefined && !hasRoom(state, [of])) throw tooManyFollows();
  const want: Want = {
    key,
    node_id,
    deployment_id,
    instance,
    mode: 'follow',
    tail: FOLLOW_OVERLAP_LINES,
    since_at: since,
    until_at: null,
    stream: null,
    position: after,
  };
  const held = own ?? (await addWant(wants, want, createChannel(limits.follow, now, taken)));
  held.viewers += 1;
  clearTimeout(held.ending);
  return { channel: held.channel, release: () => release(state, held) };
}

export const tooManyFollows = (): DomainError =>
  new DomainError('too_many_requests', 'too many logs are being followed; close some first');

function release({ wants, limits }: State, own: OwnWant): void {
  own.viewers -= 1;
  if (own.viewers > 0) return;
  // Keep the reader for a while: a browser might reload, or a client might reconnect.
  const lingerMs = wants.isClosed ? 0 : limits.lingerMs;
  own.ending = setTimeout(() => removeWant(wants, own), lingerMs).unref();
}

const countOf = ({ wants }: State, mode: Want['mode'], node_id?: string): number =>
  [...wants.own.values()].filter(
    ({ want }) => want.mode === mode && (node_id === undefined || want.node_id === node_id),
  ).length;

function hasRoom(state: State, targets: readonly Target[]): boolean {
  const { limits, wants } = state;
  const added = targets.filter(
    (target) => wants.own.get(followKey(target))?.want.node_id !== target.node_id,
  );
  if (countOf(state, 'follow') + added.length > limits.follows) return false;
  return added.every(({ node_id }) => {
    if (node_id === null) return true;
    const ofNode = added.filter((target) => target.node_id === node_id).length;
    return countOf(state, 'follow', node_id) + ofNode <= limits.followsOfNode;
  });
}

function sharedRead(state: State, request: ReadRequest): Promise<ReadResult> {
  const { reading } = state;
  const key = JSON.stringify(request);
  const shared = reading.get(key);
  if (shared !== undefined) return shared;
  const result = read(state, request).finally(() => reading.delete(key));
  result.catch(() => undefined);
  reading.set(key, result);
  return result;
}

async function read(state: State, request: ReadRequest): Promise<ReadResult> {
  const { limits, now, wants, taken } = state;
  if (countOf(state, 'read') >= limits.reads)
    throw new DomainError(
      'too_many_requests',
      'too many logs are being read; try again in a moment',
    );
  const { since, until, after, bytes = limits.read.bytes, ...log } = request;
  const want: Want = {
    ...log,
    key: `r-${randomBytes(12).toString('hex')}`,
    mode: 'read',
    since_at: since,
    until_at: until,
    position: after,
  };
  const own = await addWant(wants, want, createChannel({ ...limits.read, bytes }, now, taken));
  const { channel } = own;
  try {
    const isOver = (): boolean => channel.hasEnded || channel.problem !== null;
    const isDone = await waitFor(channel, isOver, limits.readMs);
    return resultOf(
      channel,
      isDone ? null : `its node did not answer within ${limits.readMs / 1000} s`,
    );
  } finally {
    removeWant(wants, own);
  }
}

function resultOf(channel: Channel, problem: string | null): ReadResult {
  const lines = keptLines(channel);
  const isOverBytes = channel.tail > lines.length;
  return {
    lines,
    isCut: channel.leftOut > 0 || isOverBytes,
    isOverBytes,
    last: channel.last ?? channel.end ?? channel.last,
    isReset: channel.isReset,
    offset: channel.offset,
    problem: channel.problem ?? problem,
  };
}

async function accept(
  state: State,
  key: string,
  batch: LogBatch,
): Promise<{ wanted: boolean; wait_ms: number }> {
  const { wants } = state;
  const { logRelay } = wants.deps.stores;
  const isFor = (want: Want): boolean => want.key === key && want.node_id === batch.node_id;
  const own = wants.own.get(key);
  const isOwn = own !== undefined && isFor(own.want);
  if (!isOwn && !wants.others.some(isFor)) await refreshWants(wants);
  const elsewhere = wants.others.filter(isFor);
  if (!isOwn && elsewhere.length === 0) return { wanted: false, wait_ms: 0 };
  if (isOwn) deliver(own.channel, batch);
  if (elsewhere.length > 0 && logRelay !== null) {
    const message = JSON.stringify({ key, batch });
    for (const { owner } of elsewhere) logRelay.send(owner, message);
  }
  return { wanted: true, wait_ms: spend(state, batch.lines.length) };
}

/** Accepts a batch that another control plane received. */
function takeMessage(state: State, message: string): void {
  const { key, batch } = JSON.parse(message) as { key: string; batch: LogBatch };
  const own = state.wants.own.get(key);
  if (own !== undefined && own.want.node_id === batch.node_id) deliver(own.channel, batch);
}

/**
 * Takes lines from the budget of this control plane, which all agents share. Returns the time in ms
 * that the sender must wait.
 */
function spend(state: State, lines: number): number {
  const { linesPerSecond } = state.limits;
  const at = performance.now();
  const refilled = state.budget.lines + ((at - state.budget.at) / 1000) * linesPerSecond;
  state.budget = { lines: Math.min(linesPerSecond, refilled) - lines, at };
  if (state.budget.lines >= 0) return 0;
  return Math.min(5_000, Math.ceil((-state.budget.lines / linesPerSecond) * 1000));
}

const rejected = (signal: AbortSignal): Promise<never> =>
  new Promise((_, reject) => {
    const abort = (): void =>
      reject(signal.reason instanceof Error ? signal.reason : new Error('aborted'));
    if (signal.aborted) abort();
    else signal.addEventListener('abort', abort, { once: true });
  });
