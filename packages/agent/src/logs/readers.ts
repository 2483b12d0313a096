/**
 * Reads the logs that the control plane wants (docs/runtime.md "Logs"). The answer to a task poll
 * says that the list of wanted logs changed. The agent then requests the list, and again every 10 s
 * while it reads a log. A reader stops when the list no longer names it, or when no list arrives
 * for a minute.
 */
import type { Logger } from '@berth/kit/log';
import type { Client } from '@berth/wire/client';
import type { LogWant } from '@berth/wire/runtime';
import type { ListNodeContainers } from '../engine/node-ids.ts';
import type { Container, Docker } from '../engine/docker.ts';
import { type Budget, createBudget } from './budget.ts';
import { type Follower, type SendBatch, startFollower } from './follower.ts';
import { sendHistory } from './history-sender.ts';
import type { RedactOf } from '../secrets/secrets-of.ts';

export type LogReadersDeps = {
  client: Client;
  docker: Pick<Docker, 'logs'>;
  listContainers: ListNodeContainers;
  redactOf: RedactOf;
  nodeId: () => string | null;
  /** Called when the engine has restarted a container whose log is being read. */
  onRestart: (container: Container, startedAt: string) => void;
  log: Logger;
  /** Clock of this node in ms. */
  now: () => number;
};
export type LogReaders = {
  /** Receives the header of a poll's answer; null if no log is wanted. */
  wanted(tag: string | null): void;
  stop(): Promise<void>;
};

const NODE_RATE = { lines: 12_000, bytes: 3_000_000 };
const MAX_FOLLOWERS = 16;
const MAX_READS = 2;
/** Maximum number of waiting reads. The control plane requests fewer. */
const MAX_WAITING = 64;
const LIST_MS = 10_000;
const UNHEARD_MS = 60_000;

type Work = {
  deps: LogReadersDeps;
  ending: AbortController;
  send: SendBatch;
  nodeBudget: Budget;
  followers: Map<string, Follower>;
  waiting: LogWant[];
  /**
   * Reads that have started, so that each is started only once although later lists still name it.
   */
  begun: Set<string>;
  reads: number;
  tag: string | null;
  listing: Promise<void> | null;
  /** True if the wanted logs changed while the list was being requested. */
  isStale: boolean;
  heardAt: number;
  timer: NodeJS.Timeout | undefined;
  running: Set<Promise<void>>;
};

export function createLogReaders(deps: LogReadersDeps): LogReaders {
  const work: Work = {
    deps,
    ending: new AbortController(),
    send: (...batch) => sendBatch(deps, ...batch),
    nodeBudget: createBudget(NODE_RATE, 1),
    followers: new Map(),
    waiting: [],
    begun: new Set(),
    reads: 0,
    tag: null,
    listing: null,
    isStale: false,
    heardAt: performance.now(),
    timer: undefined,
    running: new Set(),
  };
  return {
    wanted(tag) {
      if (tag === work.tag) return;
      work.tag = tag;
      refresh(work);
    },
    stop: () => stopAll(work),
  };
}

function sendBatch(
  { nodeId, client }: LogReadersDeps,
  ...[key, batch, signal]: Parameters<SendBatch>
): ReturnType<SendBatch> {
  const node_id = nodeId();
  if (node_id === null) throw new Error('the node has no id');
  return client.call('agentLogBatch', { params: { key }, body: { ...batch, node_id }, signal });
}

async function stopAll(work: Work): Promise<void> {
  work.ending.abort(new Error('the agent ends'));
  clearTimeout(work.timer);
  for (const follower of work.followers.values()) follower.stop();
  await Promise.all([...work.running, work.listing]);
}

/** Requests the list of wanted logs, and again after 10 s while a log is being read. */
function refresh(work: Work): void {
  if (work.listing !== null) {
    work.isStale = true;
    return;
  }
  const { signal } = work.ending;
  work.listing = requestWants(work)
    .catch((err: unknown) => {
      if (signal.aborted) return;
      work.deps.log.debug({ err }, 'requesting the wanted logs failed; will retry');
      if (performance.now() - work.heardAt > UNHEARD_MS)
        for (const follower of work.followers.values()) follower.stop();
    })
    .finally(() => {
      work.listing = null;
      clearTimeout(work.timer);
      if (signal.aborted) return;
      if (work.isStale) {
        work.isStale = false;
        refresh(work);
      } else if (work.tag !== null || work.followers.size > 0)
        work.timer = setTimeout(() => refresh(work), LIST_MS).unref();
    });
}

async function requestWants(work: Work): Promise<void> {
  const node_id = work.deps.nodeId();
  if (node_id === null) return;
  const { signal } = work.ending;
  const { items } = await work.deps.client.call('agentLogWants', { query: { node_id }, signal });
  work.heardAt = performance.now();
  apply(work, items);
}

/** Stops readers that are no longer wanted, and starts new ones. */
function apply(work: Work, items: readonly LogWant[]): void {
  const wantedKeys = new Set(items.map(({ key }) => key));
  for (const [key, follower] of work.followers) if (!wantedKeys.has(key)) follower.stop();
  for (const key of work.begun) if (!wantedKeys.has(key)) work.begun.delete(key);
  for (const want of items) {
    if (work.ending.signal.aborted) return;
    if (want.mode === 'follow') follow(work, want);
    else if (!work.begun.has(want.key) && work.waiting.length < MAX_WAITING) {
      work.begun.add(want.key);
      work.waiting.push(want);
    }
  }
  readNext(work);
}

function follow(work: Work, want: LogWant): void {
  const { followers, deps, send, nodeBudget } = work;
  if (followers.has(want.key) || followers.size >= MAX_FOLLOWERS) return;
  const follower = startFollower(want, { ...deps, send, nodeBudget });
  followers.set(want.key, follower);
  const done = follower.done.finally(() => {
    followers.delete(want.key);
    // The log might have been wanted again meanwhile.
    if (!work.ending.signal.aborted && work.tag !== null) refresh(work);
  });
  track(work, done);
}

function readNext(work: Work): void {
  while (work.reads < MAX_READS) {
    const want = work.waiting.shift();
    if (want === undefined) return;
    work.reads += 1;
    track(work, read(work, want));
  }
}

async function read(work: Work, want: LogWant): Promise<void> {
  const { deps, ending, send } = work;
  try {
    await sendHistory(want, { ...deps, send }, ending.signal);
  } catch (err) {
    if (!ending.signal.aborted)
      deps.log.warn({ err, deployment: want.deployment_id }, 'reading a runtime log failed');
  } finally {
    work.reads -= 1;
    readNext(work);
  }
}

function track({ running }: Work, work: Promise<void>): void {
  const done: Promise<void> = work.finally(() => running.delete(done));
  running.add(done);
}
