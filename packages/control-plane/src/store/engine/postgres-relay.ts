/**
 * Carries lines of runtime logs between the control planes on one database, by LISTEN/NOTIFY: the
 * agent can send a batch to a different control plane than the one with the reader. Lines are not
 * stored; the batch numbers show lost lines. The relay has its own connection, so that lines never
 * delay notifications of changes, and opens it at the first read of a log.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { deflateRawSync, inflateRawSync } from 'node:zlib';
import { Client } from 'pg';
import type { LogRelay } from '../../domain/deployments/runtime-logs.ts';
import type { StoreLog } from './errors.ts';
import { clientConfig } from './postgres.ts';

/** Below the server's limit of 8,000 bytes for a payload. */
const PART_CHARS = 7_500;
/** Maximum number of unsent characters. A message that would exceed it is dropped. */
const MAX_PENDING = 4 * 1024 * 1024;
/** Limits of an incoming message: parts, and bytes after decompression. */
const MAX_PARTS = 600;
const MAX_BYTES = 24 * 1024 * 1024;
/** Maximum number of senders with an incomplete message. */
const MAX_SENDERS = 16;
const RETRY_MS = { first: 200, most: 5_000 };
const STATEMENT_MS = 5_000;

type Part = { channel: string; payload: string };

export function createLogRelay(url: string, log: StoreLog): LogRelay & { close(): Promise<void> } {
  const owner = randomUUID().replaceAll('-', '').slice(0, 20);
  const self = channelOf(owner);
  const pending: Part[] = [];
  let pendingChars = 0;
  let messages = 0;
  let listener: (message: string) => void = () => {};
  let client: Client | null = null;
  let sending = false;
  let running: Promise<void> | null = null;
  const end = new AbortController();
  const incoming = createAssembly((message) => listener(message));

  async function sendPending(): Promise<void> {
    if (sending || client === null) return;
    sending = true;
    try {
      for (;;) {
        const part = pending.shift();
        if (part === undefined) return;
        pendingChars -= part.payload.length;
        await client.query('select pg_notify($1, $2)', [part.channel, part.payload]);
      }
    } catch {
      // Ignores the error: `run` logs it and opens a new connection. Readers see a gap in the log.
      pending.length = 0;
      pendingChars = 0;
    } finally {
      sending = false;
    }
  }

  async function run(): Promise<void> {
    let pause = RETRY_MS.first;
    while (!end.signal.aborted) {
      const fresh = new Client({ ...clientConfig(url), query_timeout: STATEMENT_MS });
      try {
        const gone = new Promise<void>((resolve) => {
          fresh.on('error', () => resolve());
          fresh.on('end', () => resolve());
        });
        fresh.on('notification', (message) => incoming.add(message.payload ?? ''));
        await fresh.connect();
        // Notifications need not survive a crash, so their commit does not wait for the disk.
        await fresh.query('set synchronous_commit to off');
        await fresh.query(`listen ${self}`);
        client = fresh;
        pause = RETRY_MS.first;
        void sendPending();
        await Promise.race([gone, aborted(end.signal)]);
        if (!end.signal.aborted) throw new Error('the connection ended');
      } catch (error) {
        if (!end.signal.aborted)
          log.warn(
            { err: error },
            'connection for runtime logs failed; readers may miss lines until it reconnects',
          );
      } finally {
        client = null;
        void fresh.end().catch(() => {});
      }
      await sleep(pause, undefined, { signal: end.signal }).catch(() => {});
      pause = Math.min(pause * 2, RETRY_MS.most);
    }
  }
  const open = (): void => void (running ??= run());

  return {
    owner,
    send(to, message) {
      open();
      const text = deflateRawSync(message, { level: 1 }).toString('base64');
      const parts = Math.ceil(text.length / PART_CHARS);
      if (parts > MAX_PARTS || pendingChars + text.length > MAX_PENDING) return;
      const id = `${owner} ${messages++}`;
      for (let i = 0; i < parts; i++) {
        const payload = `${id} ${i} ${parts} ${text.slice(i * PART_CHARS, (i + 1) * PART_CHARS)}`;
        pending.push({ channel: channelOf(to), payload });
        pendingChars += payload.length;
      }
      void sendPending();
    },
    subscribe(given) {
      listener = given;
      open();
    },
    async close() {
      end.abort();
      await running;
    },
  };
}

const channelOf = (owner: string): string => `berth_logs_${owner.replaceAll(/[^0-9a-z]/g, '')}`;

const aborted = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) =>
    signal.aborted ? resolve() : signal.addEventListener('abort', () => resolve(), { once: true }),
  );

/**
 * Assembles messages from their parts. The parts of one sender arrive in order; a message with a
 * missing part is dropped.
 */
export function createAssembly(onMessage: (message: string) => void): {
  add(payload: string): void;
} {
  const bySender = new Map<string, { id: string; text: string; next: number }>();
  return {
    add(payload) {
      const [sender = '', id = '', index = '', of = '', text = ''] = payload.split(' ');
      const [at, parts] = [Number(index), Number(of)];
      if (!(parts > 0 && parts <= MAX_PARTS)) return;
      const unfinished = bySender.get(sender);
      bySender.delete(sender);
      if (at !== 0 && (unfinished === undefined || unfinished.id !== id || unfinished.next !== at))
        return;
      const whole = (at === 0 ? '' : (unfinished?.text ?? '')) + text;
      if (at + 1 < parts) {
        bySender.set(sender, { id, text: whole, next: at + 1 });
        if (bySender.size > MAX_SENDERS) bySender.delete(bySender.keys().next().value ?? '');
        return;
      }
      try {
        onMessage(
          inflateRawSync(Buffer.from(whole, 'base64'), { maxOutputLength: MAX_BYTES }).toString(),
        );
      } catch {
        // Ignores a message in an unknown format, which a newer or older version of Berth can send.
        // Readers see a gap in the log.
      }
    },
  };
}
