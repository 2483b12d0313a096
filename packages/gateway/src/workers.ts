/**
 * Several worker processes that share the port (node:cluster distributes connections). Each worker
 * is a complete gateway. The primary process replaces workers that exit, forwards revocations
 * between workers and SIGHUP to all, and adds up their metrics.
 *
 *   running    a worker that exits is replaced; backoff applies if workers exit repeatedly
 *   draining   SIGTERM: each worker finishes its requests and exits; no worker is replaced
 */
import cluster, { type Worker } from 'node:cluster';
import { once } from 'node:events';
import { backoff } from '@berth/kit/backoff';
import type { Logger } from '@berth/kit/log';
import { AggregatorRegistry, type Registry } from 'prom-client';
import type { Metrics } from './metrics.ts';
import type { Peers } from './policy.ts';
import type { Revocation } from './policy-file.ts';

/**
 * Messages between primary and workers. prom-client sends its own messages over the same channel.
 */
type Message =
  | { berth: 'revoked'; revocation: Revocation }
  /**
   * `from` is the worker that issued the token. The primary process sets it, because a worker does
   * not know its own number.
   */
  | { berth: 'token'; id: number; from: number; token: string; ms: number }
  | { berth: 'token-known'; id: number; from: number }
  | { berth: 'metrics'; id: number }
  | { berth: 'metrics-text'; id: number; type: string; text: string }
  | { berth: 'drain' }
  | { berth: 'reload' };
const isMessage = (value: unknown): value is Message =>
  typeof value === 'object' && value !== null && 'berth' in value;

const RESPAWN = { min: 100, max: 10_000 };
/** A worker that ran for this long had a successful start. */
const STABLE_MS = 10_000;

export const isWorker = (): boolean => cluster.isWorker;

/**
 * Makes the workers accept connections themselves. By default the primary process accepts them;
 * when the last worker ends, it would drop connections that it has not yet passed on. The
 * distribution becomes less even. Call it before superviseWorkers.
 */
export const acceptInWorkers = (): void => void (cluster.schedulingPolicy = cluster.SCHED_NONE);

/**
 * Calls `giveUp` if a worker exits before any worker listened: a setting is wrong or the port is in
 * use, so a restart would not help.
 */
export function superviseWorkers(
  count: number,
  log: Logger,
  giveUp: () => void,
): { reload(): void; close(): Promise<void> } {
  const metrics = new AggregatorRegistry();
  let closing = false;
  let listened = false;
  let failures = 0;
  const pending = new Set<NodeJS.Timeout>();
  /**
   * Number of workers that do not know a token yet. The key is the id of the issuing worker and the
   * worker's number for the token.
   */
  const unknowing = new Map<string, number>();

  function fork(): void {
    const worker = cluster.fork();
    const since = performance.now();
    worker.on('message', (message: unknown) => void hear(worker, message));
    worker.once('listening', () => {
      listened = true;
    });
    worker.once('exit', (code, signal) => {
      if (closing) return;
      if (!listened) return giveUp();
      failures = performance.now() - since > STABLE_MS ? 0 : failures + 1;
      const waitMs = failures === 0 ? 0 : backoff(failures - 1, RESPAWN);
      log.error(
        { pid: worker.process.pid, code, signal, restart_in_ms: Math.round(waitMs) },
        'worker exited; starting another one',
      );
      const timer = setTimeout(() => {
        pending.delete(timer);
        fork();
      }, waitMs);
      pending.add(timer);
    });
  }

  async function hear(from: Worker, message: unknown): Promise<void> {
    if (!isMessage(message)) return;
    if (message.berth === 'revoked') for (const worker of others(from)) worker.send(message);
    if (message.berth === 'token') askOthers(from, message);
    if (message.berth === 'token-known') oneKnows(message);
    if (message.berth !== 'metrics') return;
    try {
      from.send({
        berth: 'metrics-text',
        id: message.id,
        type: metrics.contentType,
        text: await metrics.clusterMetrics(),
      } satisfies Message);
    } catch (error) {
      log.warn({ err: error }, 'collecting the metrics of all workers failed');
    }
  }

  function askOthers(from: Worker, message: Extract<Message, { berth: 'token' }>): void {
    const asked = others(from);
    const key = `${from.id} ${message.id}`;
    unknowing.set(key, asked.length);
    // A worker that exits never answers, so forget the token after `ms`.
    setTimeout(() => unknowing.delete(key), message.ms).unref();
    for (const worker of asked) worker.send({ ...message, from: from.id } satisfies Message);
    if (asked.length === 0)
      from.send({ berth: 'token-known', id: message.id, from: from.id } satisfies Message);
  }

  function oneKnows(message: Extract<Message, { berth: 'token-known' }>): void {
    const key = `${message.from} ${message.id}`;
    const unansweredWorkers = (unknowing.get(key) ?? 0) - 1;
    if (unansweredWorkers > 0) return void unknowing.set(key, unansweredWorkers);
    if (unknowing.delete(key))
      all()
        .find(({ id }) => id === message.from)
        ?.send(message);
  }

  for (let i = 0; i < count; i++) fork();
  return {
    reload() {
      if (!closing) for (const worker of all()) worker.send({ berth: 'reload' } satisfies Message);
    },
    async close() {
      closing = true;
      for (const timer of pending) clearTimeout(timer);
      await Promise.all(
        all().map(async (worker) => {
          const gone = once(worker, 'exit');
          worker.send({ berth: 'drain' } satisfies Message);
          await gone;
        }),
      );
    },
  };
}

const all = (): Worker[] =>
  Object.values(cluster.workers ?? {}).filter(
    (worker) => worker !== undefined && worker.isConnected(),
  ) as Worker[];
const others = (from: Worker): Worker[] => all().filter((worker) => worker.id !== from.id);

export type WorkerSide = {
  peers: Peers;
  renderMetrics: Metrics['render'];
  shareMetrics(registry: Registry): void;
  onDrain(drain: () => void): void;
  onReload(reload: () => void): void;
};

const METRICS_TIMEOUT_MS = 5_000;

export function workerSide(): WorkerSide {
  const pendingMetrics = new Map<number, (metrics: { type: string; text: string }) => void>();
  /** Revocations that arrived before `onRevocation` was called. */
  const early: Revocation[] = [];
  let receive: (revocation: Revocation) => void = (revocation) => void early.push(revocation);
  let confirmToken: (token: string, ms: number) => Promise<boolean> = () => Promise.resolve(false);
  const pendingTokens = new Map<number, () => void>();
  let drain: () => void = () => undefined;
  let reload: () => void = () => undefined;
  let id = 0;
  // Ignore signals to the process group (Ctrl-C): the primary handles them and drains the workers.
  process.on('SIGINT', () => undefined);
  process.on('SIGTERM', () => undefined);
  process.on('message', (message: unknown) => {
    if (!isMessage(message)) return;
    if (message.berth === 'revoked') receive(message.revocation);
    if (message.berth === 'token') {
      const { id: number, from, token, ms } = message;
      // A worker that does not receive the token in time sends no answer.
      void confirmToken(token, ms).then((isKnown) =>
        isKnown ? send({ berth: 'token-known', id: number, from }) : undefined,
      );
    }
    if (message.berth === 'token-known') pendingTokens.get(message.id)?.();
    if (message.berth === 'drain') drain();
    if (message.berth === 'reload') reload();
    if (message.berth === 'metrics-text') {
      pendingMetrics.get(message.id)?.(message);
      pendingMetrics.delete(message.id);
    }
  });
  const send = (message: Message): void => void process.send?.(message);

  return {
    peers: {
      send: (revocation) => send({ berth: 'revoked', revocation }),
      onRevocation(listener) {
        receive = listener;
        for (const revocation of early.splice(0)) listener(revocation);
      },
      untilTokenKnown: (token, ms) =>
        new Promise((resolve) => {
          const mine = ++id;
          const done = (): void => {
            clearTimeout(timer);
            pendingTokens.delete(mine);
            resolve();
          };
          const timer = setTimeout(done, ms);
          pendingTokens.set(mine, done);
          send({ berth: 'token', id: mine, from: 0, token, ms });
        }),
      onToken: (f) => void (confirmToken = f),
    },
    renderMetrics: () =>
      new Promise((resolve, reject) => {
        const mine = ++id;
        const timer = setTimeout(() => {
          pendingMetrics.delete(mine);
          reject(new Error('the primary process did not send the metrics in time'));
        }, METRICS_TIMEOUT_MS);
        pendingMetrics.set(mine, ({ type, text }) => {
          clearTimeout(timer);
          resolve({ type, text });
        });
        send({ berth: 'metrics', id: mine });
      }),
    shareMetrics(registry) {
      AggregatorRegistry.setRegistries(registry);
      // The constructor installs the listener that answers the primary's requests for metrics.
      void new AggregatorRegistry();
    },
    onDrain: (f) => void (drain = f),
    onReload: (f) => void (reload = f),
  };
}
