/**
 * Topics from one control plane to the others of its database, by LISTEN/NOTIFY on a connection of its own. Only a matter of
 * speed: what is lost while the connection is down is found by the looks that every waiter takes by itself.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'pg';
import type { Relay, Topic } from '../../domain/changes.ts';
import type { StoreLog } from './errors.ts';
import { connection } from './postgres.ts';

const CHANNEL = 'berth_changes';
/** The server refuses 8000 bytes. */
const PAYLOAD_BYTES = 7_500;
/** Topics not yet sent; beyond it the oldest are dropped. */
const MAX_PENDING = 10_000;
const RETRY_MS = { first: 200, most: 5_000 };
/** How often a connection on which nothing comes is asked whether it still stands, and how long it may take to say so. */
const ALIVE = { everyMs: 10_000, withinMs: 5_000 };

export function createRelay(url: string, log: StoreLog): Relay & { close(): Promise<void> } {
  const self = randomUUID();
  const pending = new Set<Topic>();
  let heard: (topics: readonly Topic[]) => void = () => {};
  let client: Client | null = null;
  let sending = false;
  const end = new AbortController();

  /** One statement at a time: what comes meanwhile goes together with the next. */
  async function send(): Promise<void> {
    if (sending || client === null) return;
    sending = true;
    try {
      // After the turn in which they came: one commit often moves several topics.
      await new Promise(setImmediate);
      while (pending.size > 0 && client !== null)
        await client.query('select pg_notify($1, $2)', [CHANNEL, JSON.stringify({ from: self, topics: take(pending) })]);
    } catch {
      // The connection's own error says why; `run` makes a new one.
      pending.clear();
    } finally {
      sending = false;
    }
  }

  function hear(payload: string | undefined): void {
    const { from, topics } = JSON.parse(payload ?? '{}') as { from?: string; topics?: Topic[] };
    if (from !== self && Array.isArray(topics)) heard(topics);
  }

  async function run(): Promise<void> {
    let pause = RETRY_MS.first;
    while (!end.signal.aborted) {
      const fresh = new Client({ ...connection(url), query_timeout: ALIVE.withinMs });
      try {
        const gone = new Promise<Error>((resolve) => {
          fresh.on('error', resolve);
          fresh.on('end', () => resolve(new Error('the connection ended')));
        });
        fresh.on('notification', (message) => hear(message.payload));
        await fresh.connect();
        await fresh.query(`listen ${CHANNEL}`);
        client = fresh;
        pause = RETRY_MS.first;
        // Something may have moved while nobody listened; held requests look by themselves.
        heard(['routes', 'policy', 'access', 'work']);
        await send();
        await stays(fresh, gone, end.signal);
      } catch (error) {
        if (!end.signal.aborted)
          log.warn({ err: error }, 'changes made by other control planes are seen late: the connection for them failed');
      } finally {
        client = null;
        pending.clear();
        // Its answer is of no interest: the connection is given up either way.
        void fresh.end().catch(() => {});
      }
      await sleep(pause, undefined, { signal: end.signal }).catch(() => {});
      pause = Math.min(pause * 2, RETRY_MS.most);
    }
  }
  const running = run();

  return {
    tell(topics) {
      if (client === null) return;
      for (const topic of topics) pending.add(topic);
      for (const topic of pending) {
        if (pending.size <= MAX_PENDING) break;
        pending.delete(topic);
      }
      void send();
    },
    hear: (listener) => void (heard = listener),
    async close() {
      end.abort();
      await running;
    },
  };
}

/** Returns when told to end; throws when the connection is gone or no longer answers. */
async function stays(client: Client, gone: Promise<Error>, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    const pause = sleep(ALIVE.everyMs, undefined, { signal }).catch(() => undefined);
    const error = await Promise.race([gone, pause]);
    if (error instanceof Error) throw error;
    if (!signal.aborted) await client.query('select 1');
  }
}

/** As many as one message holds. */
function take(pending: Set<Topic>): Topic[] {
  const topics: Topic[] = [];
  let bytes = 0;
  for (const topic of pending) {
    bytes += Buffer.byteLength(JSON.stringify(topic)) + 1;
    if (bytes > PAYLOAD_BYTES && topics.length > 0) break;
    topics.push(topic);
    pending.delete(topic);
  }
  return topics;
}
