/**
 * Reads the logs that the control plane wants (docs/runtime.md "Logs"). The answer to a poll of
 * tasks says that the wants changed; the list itself is requested then, and every 10 s while a log
 * is read. A reader stops when the list does not name it, and when no list arrives for a minute.
 */
import { defined } from '@berth/kit/defined';
import type { Logger } from '@berth/kit/log';
import type { Client } from '@berth/wire/client';
import { MAX_BATCH_LINES, MAX_LINE_CHARS, type LogWant } from '@berth/wire/runtime';
import { randomUUID } from 'node:crypto';
import type { ListNodeContainers } from '../engine/node-ids.ts';
import { retryUntilAnswered } from '../link/retry.ts';
import { createShownText } from '../secrets/shown-text.ts';
import type { Container, Docker } from '../engine/docker.ts';
import { createBudget } from './budget.ts';
import { containerOf, type Follower, type SendBatch, startFollower } from './follower.ts';
import { readHistory } from './history.ts';
import type { RedactOf } from '../secrets/secrets-of.ts';

export type LogReadersDeps = {
  client: Client;
  docker: Pick<Docker, 'logs'>;
  listContainers: ListNodeContainers;
  redactOf: RedactOf;
  nodeId: () => string | null;
  /** Called when the engine has started a container again whose log is read. */
  onRestart?: (container: Container, startedAt: string) => void;
  log: Logger;
  /** Clock of this node, in ms. */
  now?: () => number;
};
export type LogReaders = {
  /** Passes the header of an answer to a poll; null: nothing is wanted. */
  wanted(tag: string | null): void;
  stop(): Promise<void>;
};

const NODE_RATE = { lines: 12_000, bytes: 3_000_000 };
const MAX_FOLLOWERS = 16;
const MAX_READS = 2;
/** Reads that wait. The control plane asks for fewer. */
const MAX_WAITING = 64;
const LIST_MS = 10_000;
const UNHEARD_MS = 60_000;
const READ_MS = 15_000;
const MAX_BATCH_CHARS = 512 * 1024;

export function createLogReaders({
  client,
  docker,
  listContainers,
  redactOf,
  nodeId,
  onRestart,
  log,
  now = Date.now,
}: LogReadersDeps): LogReaders {
  const ending = new AbortController();
  const followers = new Map<string, Follower>();
  const waiting: LogWant[] = [];
  /** Reads that were begun, so that a list that still names them starts them once. */
  const begun = new Set<string>();
  let reads = 0;
  let tag: string | null = null;
  let listing: Promise<void> | null = null;
  let again = false;
  let heardAt = performance.now();
  let timer: NodeJS.Timeout | undefined;
  const nodeBudget = createBudget(NODE_RATE, 1);
  const running = new Set<Promise<void>>();

  const send: SendBatch = (key, batch, signal) => {
    const node_id = nodeId();
    if (node_id === null) throw new Error('the node has no id');
    return client.call('agentLogBatch', { params: { key }, body: { ...batch, node_id }, signal });
  };
  function track(work: Promise<void>): void {
    const done: Promise<void> = work.finally(() => running.delete(done));
    running.add(done);
  }

  async function list(): Promise<void> {
    const node_id = nodeId();
    if (node_id === null) return;
    const { items } = await client.call('agentLogWants', {
      query: { node_id },
      signal: ending.signal,
    });
    heardAt = performance.now();
    apply(items);
  }
  function apply(items: readonly LogWant[]): void {
    const byKey = new Map(items.map((want) => [want.key, want]));
    for (const [key, running] of followers) if (!byKey.has(key)) running.stop();
    for (const key of begun) if (!byKey.has(key)) begun.delete(key);
    for (const want of items) {
      if (ending.signal.aborted) return;
      if (want.mode === 'follow') follow(want);
      else if (!begun.has(want.key) && waiting.length < MAX_WAITING) {
        begun.add(want.key);
        waiting.push(want);
      }
    }
    readNext();
  }
  function follow(want: LogWant): void {
    if (followers.has(want.key) || followers.size >= MAX_FOLLOWERS) return;
    const started = startFollower(want, {
      docker,
      listContainers,
      redactOf,
      send,
      nodeBudget,
      log,
      now,
      ...defined({ onRestart }),
    });
    followers.set(want.key, started);
    track(
      started.done.finally(() => {
        followers.delete(want.key);
        // It may have been wanted again meanwhile.
        if (!ending.signal.aborted && tag !== null) refresh();
      }),
    );
  }
  function readNext(): void {
    while (reads < MAX_READS) {
      const want = waiting.shift();
      if (want === undefined) return;
      reads += 1;
      track(
        readOnce(want)
          .catch(
            (err: unknown) =>
              void (
                ending.signal.aborted ||
                log.warn({ err, deployment: want.deployment_id }, 'reading a runtime log failed')
              ),
          )
          .finally(() => {
            reads -= 1;
            readNext();
          }),
      );
    }
  }

  async function readOnce(want: LogWant): Promise<void> {
    const signal = AbortSignal.any([ending.signal, AbortSignal.timeout(READ_MS)]);
    const epoch = randomUUID();
    const container = await containerOf(listContainers, want.deployment_id, signal);
    const ago = (ms: number | null): string | null =>
      ms === null ? null : new Date(now() - ms).toISOString();
    const result =
      container === null
        ? { lines: [], leftOut: 0, problem: 'its node has no container of this deployment' }
        : await readHistory(
            docker,
            container.id,
            {
              tail: want.tail,
              since: ago(want.since_ago_ms),
              until: ago(want.until_ago_ms),
              after: want.after,
              stream: want.stream,
            },
            createShownText(await redactOf(container)),
            signal,
          );
    let first = 0;
    do {
      const lines: typeof result.lines = [];
      for (let chars = 0; lines.length < MAX_BATCH_LINES && chars < MAX_BATCH_CHARS; ) {
        const line = result.lines[first + lines.length];
        if (line === undefined) break;
        chars += Math.min(line.text.length, MAX_LINE_CHARS);
        lines.push(line);
      }
      const end = first + lines.length >= result.lines.length;
      const batch = {
        epoch,
        first,
        lines,
        now: now(),
        ...(end ? { end: true, left_out: result.leftOut } : {}),
        ...defined({ problem: result.problem === null ? undefined : result.problem.slice(0, 500) }),
      };
      const { wanted } = await retryUntilAnswered(() => send(want.key, batch, signal), {
        signal,
        maxMs: 1_000,
      });
      if (!wanted || end) return;
      first += lines.length;
    } while (!signal.aborted);
  }

  function refresh(): void {
    if (listing !== null) {
      again = true;
      return;
    }
    listing = list()
      .catch((err: unknown) => {
        if (ending.signal.aborted) return;
        log.debug({ err }, 'requesting the wanted logs failed; will retry');
        if (performance.now() - heardAt > UNHEARD_MS)
          for (const running of followers.values()) running.stop();
      })
      .finally(() => {
        listing = null;
        clearTimeout(timer);
        if (ending.signal.aborted) return;
        if (again) {
          again = false;
          refresh();
        } else if (tag !== null || followers.size > 0) timer = setTimeout(refresh, LIST_MS).unref();
      });
  }

  return {
    wanted(changed) {
      if (changed === tag) return;
      tag = changed;
      refresh();
    },
    async stop() {
      ending.abort(new Error('the agent ends'));
      clearTimeout(timer);
      for (const running of followers.values()) running.stop();
      await Promise.all([...running, listing]);
    },
  };
}
