/**
 * Reads the logs that the control plane requests (docs/runtime.md "Logs"). The answer to a task
 * poll says that the list of wanted logs changed. The agent then requests the list, and again every
 * 10 s while it reads a log. A reader stops when the list no longer names it, or when no list
 * arrives for a minute.
 */
import { createLimit, type Limit } from '@berth/kit/limit';
import type { Logger } from '@berth/kit/log';
import { startLoop } from '@berth/kit/loop';
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
  now?: () => number;
};
export type LogReaders = {
  /** Receives the header of a poll's answer; null if no log is wanted. */
  wanted(tag: string | null): void;
  stop(): Promise<void>;
};

const NODE_RATE = { lines: 12_000, bytes: 3_000_000 };
const MAX_FOLLOWERS = 16;
const MAX_READS = 2;
const LIST_MS = 10_000;
const UNHEARD_MS = 60_000;

type Deps = Required<LogReadersDeps>;
type Work = {
  deps: Deps;
  ending: AbortController;
  send: SendBatch;
  nodeBudget: Budget;
  followers: Map<string, Follower>;
  /**
   * Reads that have started, so that each is started only once although later lists still name it.
   */
  begun: Set<string>;
  reads: Limit;
  tag: string | null;
  heardAt: number;
  /** Requests the list of wanted logs now. */
  wake: () => void;
  running: Set<Promise<void>>;
};

export function createLogReaders(given: LogReadersDeps): LogReaders {
  const deps = { now: Date.now, ...given };
  const work: Work = {
    deps,
    ending: new AbortController(),
    send: (...batch) => sendBatch(deps, ...batch),
    nodeBudget: createBudget(NODE_RATE, 1),
    followers: new Map(),
    begun: new Set(),
    reads: createLimit(MAX_READS),
    tag: null,
    heardAt: performance.now(),
    wake: () => loop.wake(),
    running: new Set(),
  };
  const run = (signal: AbortSignal): Promise<void> => requestWants(work, signal);
  const loop = startLoop({ name: 'wanted logs', periodMs: LIST_MS, run }, deps.log);
  return {
    wanted(tag) {
      if (tag === work.tag) return;
      work.tag = tag;
      work.wake();
    },
    async stop() {
      work.ending.abort(new Error('the agent ends'));
      stopFollowers(work);
      await Promise.all([...work.running, loop.stop()]);
    },
  };
}

function sendBatch(
  { nodeId, client, now }: Deps,
  ...[key, batch, signal]: Parameters<SendBatch>
): ReturnType<SendBatch> {
  const node_id = nodeId();
  if (node_id === null) throw new Error('the node has no id');
  const body = { ...batch, node_id, now: now() };
  return client.call('agentLogBatch', { params: { key }, body, signal });
}

function stopFollowers({ followers }: Work): void {
  for (const follower of followers.values()) follower.stop();
}

/** Requests the list of wanted logs, if there are any. */
async function requestWants(work: Work, signal: AbortSignal): Promise<void> {
  const { client, nodeId, log } = work.deps;
  const node_id = nodeId();
  if (node_id === null || (work.tag === null && work.followers.size === 0)) return;
  try {
    const { items } = await client.call('agentLogWants', { query: { node_id }, signal });
    work.heardAt = performance.now();
    apply(work, items);
  } catch (err) {
    if (signal.aborted) return;
    log.debug({ err }, 'requesting the wanted logs failed; will retry');
    if (performance.now() - work.heardAt > UNHEARD_MS) stopFollowers(work);
  }
}

/** Stops readers that are no longer wanted, and starts new ones. */
function apply(work: Work, items: readonly LogWant[]): void {
  const wantedKeys = new Set(items.map(({ key }) => key));
  for (const [key, follower] of work.followers) if (!wantedKeys.has(key)) follower.stop();
  for (const key of work.begun) if (!wantedKeys.has(key)) work.begun.delete(key);
  if (work.ending.signal.aborted) return;
  for (const want of items) {
    if (want.mode === 'follow') follow(work, want);
    else if (!work.begun.has(want.key)) {
      work.begun.add(want.key);
      track(work, read(work, want));
    }
  }
}

function follow(work: Work, want: LogWant): void {
  const { followers, deps, send, nodeBudget } = work;
  if (followers.has(want.key) || followers.size >= MAX_FOLLOWERS) return;
  const follower = startFollower(want, { ...deps, send, nodeBudget });
  followers.set(want.key, follower);
  const done = follower.done.finally(() => {
    followers.delete(want.key);
    // The log might have been wanted again meanwhile.
    work.wake();
  });
  track(work, done);
}

async function read({ deps, ending, send, reads }: Work, want: LogWant): Promise<void> {
  const { signal } = ending;
  await reads(() => sendHistory(want, { ...deps, send }, signal), signal).catch((err: unknown) => {
    if (!signal.aborted)
      deps.log.warn({ err, deployment: want.deployment_id }, 'reading a runtime log failed');
  });
}

function track({ running }: Work, work: Promise<void>): void {
  const done: Promise<void> = work.finally(() => running.delete(done));
  running.add(done);
}
