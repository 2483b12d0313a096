/**
 * Several processes that share the port (node:cluster hands each connection to the next one). A worker is a whole gateway; the
 * first process only keeps as many alive as were asked for, passes logouts from one to the others, and adds up their metrics.
 *
 *   running    a worker that ends is replaced, with back-off when it ends again and again
 *   draining   SIGTERM: each worker ends its requests and exits; none is replaced
 */
import cluster, { type Worker } from 'node:cluster';
import { once } from 'node:events';
import { backoff } from '@berth/kit/backoff';
import type { Logger } from '@berth/kit/log';
import { AggregatorRegistry, type Registry } from 'prom-client';
import type { Metrics } from './metrics.ts';
import type { Peers } from './policy.ts';
import type { Revocation } from './policy-file.ts';

/** What goes over the channel, beside prom-client's own messages. */
type Message =
  | { berth: 'revoked'; revocation: Revocation }
  | { berth: 'metrics'; id: number }
  | { berth: 'metrics-text'; id: number; type: string; text: string }
  | { berth: 'drain' };
const isMessage = (value: unknown): value is Message => typeof value === 'object' && value !== null && 'berth' in value;

const RESPAWN = { min: 100, max: 10_000 };
/** One that lived so long did not fail at its start. */
const LIVED_MS = 10_000;

export const isWorker = (): boolean => cluster.isWorker;

/** `giveUp`: none ever listened, so a setting is wrong or the port is taken, and another one would not fare better. */
export function superviseWorkers(count: number, log: Logger, giveUp: () => void): { close(): Promise<void> } {
  const metrics = new AggregatorRegistry();
  let closing = false;
  let listened = false;
  let failures = 0;
  const pending = new Set<NodeJS.Timeout>();

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
      failures = performance.now() - since > LIVED_MS ? 0 : failures + 1;
      const waitMs = failures === 0 ? 0 : backoff(failures - 1, RESPAWN);
      log.error({ pid: worker.process.pid, code, signal, again_ms: Math.round(waitMs) }, 'a worker ended; another takes its place');
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
    if (message.berth !== 'metrics') return;
    try {
      from.send({
        berth: 'metrics-text',
        id: message.id,
        type: metrics.contentType,
        text: await metrics.clusterMetrics(),
      } satisfies Message);
    } catch (error) {
      log.warn({ err: error }, 'the metrics of all workers could not be had');
    }
  }

  for (let i = 0; i < count; i++) fork();
  return {
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
  Object.values(cluster.workers ?? {}).filter((worker) => worker !== undefined && worker.isConnected()) as Worker[];
const others = (from: Worker): Worker[] => all().filter((worker) => worker.id !== from.id);

export type WorkerSide = {
  peers: Peers;
  renderMetrics: Metrics['render'];
  shareMetrics(registry: Registry): void;
  onDrain(drain: () => void): void;
};

const METRICS_TIMEOUT_MS = 5_000;

export function workerSide(): WorkerSide {
  const asked = new Map<number, (metrics: { type: string; text: string }) => void>();
  /** Until somebody listens, they are kept. */
  const early: Revocation[] = [];
  let heard: (revocation: Revocation) => void = (revocation) => void early.push(revocation);
  let drain: () => void = () => undefined;
  let id = 0;
  // A signal to the whole group (Ctrl-C) is the first process's to answer: it drains us.
  process.on('SIGINT', () => undefined);
  process.on('SIGTERM', () => undefined);
  process.on('message', (message: unknown) => {
    if (!isMessage(message)) return;
    if (message.berth === 'revoked') heard(message.revocation);
    if (message.berth === 'drain') drain();
    if (message.berth === 'metrics-text') {
      asked.get(message.id)?.(message);
      asked.delete(message.id);
    }
  });
  const send = (message: Message): void => void process.send?.(message);

  return {
    peers: {
      tell: (revocation) => send({ berth: 'revoked', revocation }),
      onTold(f) {
        heard = f;
        for (const revocation of early.splice(0)) f(revocation);
      },
    },
    renderMetrics: () =>
      new Promise((resolve, reject) => {
        const mine = ++id;
        const timer = setTimeout(() => {
          asked.delete(mine);
          reject(new Error('the first process did not answer'));
        }, METRICS_TIMEOUT_MS);
        asked.set(mine, ({ type, text }) => {
          clearTimeout(timer);
          resolve({ type, text });
        });
        send({ berth: 'metrics', id: mine });
      }),
    shareMetrics(registry) {
      AggregatorRegistry.setRegistries(registry);
      // It answers the first process from now on.
      void new AggregatorRegistry();
    },
    onDrain: (f) => void (drain = f),
  };
}
