/** A gauge: a value that is read at each request of Prometheus. */
import type { Logger } from '@berth/kit/log';
import { Gauge } from 'prom-client';

type Reading = { labels: Record<string, string>; value: number };
export type GaugeRow = {
  name: string;
  help: string;
  labels: string[];
  read: () => Reading[] | Promise<Reading[]>;
};

/**
 * Time limit of a reading. If the database hangs, the page must still show the other metrics, which
 * tell the cause.
 */
export const READ_MS = 2_000;
export const ONE_OR_ZERO = [() => 1, () => 0] as const;

/**
 * Creates a gauge. If it cannot be read, the page lacks this gauge but has the others.
 * `berth_database_ok` tells the cause.
 */
export const gaugeOf = (
  { name, help, labels, read }: GaugeRow,
  log: Pick<Logger, 'debug'>,
): Gauge =>
  new Gauge({
    name,
    help,
    labelNames: labels,
    registers: [],
    async collect() {
      this.reset();
      // Remove a metric without labels: reset() would set it to 0, which would be a value.
      if (labels.length === 0) this.remove();
      try {
        for (const { labels: one, value } of await within(READ_MS + 500, (async () => read())()))
          this.set(one, value);
      } catch (error) {
        log.debug({ err: error, metric: name }, 'metric not read');
      }
    },
  });

export async function within<T>(ms: number, work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${ms} ms`)), ms);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}
