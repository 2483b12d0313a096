/**
 * Sends changed topics to the other control planes on the database, by LISTEN/NOTIFY on a separate
 * connection. Notifications only save time: every waiter also polls, so it also finds changes whose
 * notification was lost.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'pg';
import type { Notifier, Topic } from '../../domain/platform/changes.ts';
import type { StoreLog } from './errors.ts';
import { clientConfig } from './postgres.ts';

const CHANNEL = 'berth_changes';
/** Below the server's limit of 8,000 bytes for a payload. */
const PAYLOAD_BYTES = 7_500;
/** Maximum number of unsent topics; beyond it the oldest are dropped. */
const MAX_PENDING = 10_000;
const RETRY_MS = { first: 200, most: 5_000 };
/** Keepalive: interval of the test query, and its timeout. */
const KEEPALIVE = { everyMs: 10_000, timeoutMs: 5_000 };

export function createNotifier(url: string, log: StoreLog): Notifier & { close(): Promise<void> } {
  const self = randomUUID();
  const pending = new Set<Topic>();
  let onTopics: (topics: readonly Topic[]) => void = () => {};
  let client: Client | null = null;
  let sending = false;
  const end = new AbortController();

  /** Sends one statement at a time; topics that arrive meanwhile are batched into the next one. */
  async function sendPending(): Promise<void> {
    if (sending || client === null) return;
    sending = true;
    try {
      // Waits for the end of this turn of the event loop, because one commit often changes several
      // topics.
      await new Promise(setImmediate);
      while (pending.size > 0 && client !== null)
        await client.query('select pg_notify($1, $2)', [
          CHANNEL,
          JSON.stringify({ from: self, topics: take(pending) }),
        ]);
    } catch {
      // Ignores the error: `run` logs it and opens a new connection.
      pending.clear();
    } finally {
      sending = false;
    }
  }

  function receive(payload: string | undefined): void {
    const { from, topics } = JSON.parse(payload ?? '{}') as { from?: string; topics?: Topic[] };
    if (from !== self && Array.isArray(topics)) onTopics(topics);
  }

  async function run(): Promise<void> {
    let pause = RETRY_MS.first;
    while (!end.signal.aborted) {
      const fresh = new Client({ ...clientConfig(url), query_timeout: KEEPALIVE.timeoutMs });
      try {
        const gone = new Promise<Error>((resolve) => {
          fresh.on('error', resolve);
          fresh.on('end', () => resolve(new Error('the connection ended')));
        });
        fresh.on('notification', (message) => receive(message.payload));
        await fresh.connect();
        await fresh.query(`listen ${CHANNEL}`);
        client = fresh;
        pause = RETRY_MS.first;
        // Topics might have changed while the connection was down. Held requests are not listed
        // here, because they poll by themselves.
        onTopics(['routes', 'policy', 'access', 'work']);
        await sendPending();
        await keepAlive(fresh, gone, end.signal);
      } catch (error) {
        if (!end.signal.aborted)
          log.warn(
            { err: error },
            'LISTEN connection failed; changes by other control planes arrive late until it ' +
              'reconnects',
          );
      } finally {
        client = null;
        pending.clear();
        // Ignores an error: the connection is abandoned even if it does not close properly.
        void fresh.end().catch(() => {});
      }
      await sleep(pause, undefined, { signal: end.signal }).catch(() => {});
      pause = Math.min(pause * 2, RETRY_MS.most);
    }
  }
  const running = run();

  return {
    send(topics) {
      if (client === null) return;
      for (const topic of topics) pending.add(topic);
      for (const topic of pending) {
        if (pending.size <= MAX_PENDING) break;
        pending.delete(topic);
      }
      void sendPending();
    },
    subscribe: (listener) => void (onTopics = listener),
    async close() {
      end.abort();
      await running;
    },
  };
}

/**
 * Checks the connection with test queries. Returns when `signal` aborts; throws if the connection
 * closes or does not answer.
 */
async function keepAlive(client: Client, gone: Promise<Error>, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    const pause = sleep(KEEPALIVE.everyMs, undefined, { signal }).catch(() => undefined);
    const error = await Promise.race([gone, pause]);
    if (error instanceof Error) throw error;
    if (!signal.aborted) await client.query('select 1');
  }
}

/** Removes and returns as many topics as fit into one message. */
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
