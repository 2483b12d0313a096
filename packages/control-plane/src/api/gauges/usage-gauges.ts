/** Gauges of the resources that the containers of each project use. */
import type { UsageStore } from '../../domain/nodes/usage.ts';
import type { GaugeRow } from './gauge-row.ts';

/**
 * Maximum age of a sample. Agents send one point a minute; older samples belong to stopped
 * containers or offline nodes.
 */
const USAGE_MS = 3 * 60_000;
const USAGE = [
  ['berth_project_cpu_seconds', 'CPU time since the start of the containers', 'cpu_seconds'],
  [
    'berth_project_throttled_seconds',
    'Time that processes waited because of the CPU limit',
    'throttled_seconds',
  ],
  [
    'berth_project_memory_bytes',
    'Memory without the file cache that the kernel can drop at once',
    'memory_bytes',
  ],
  ['berth_project_memory_limit_bytes', 'Memory limit; absent without a limit', 'memory_limit'],
  ['berth_project_restarts', 'Restarts by the engine', 'restarts'],
  ['berth_project_oom_kills', 'Processes that the kernel killed at the memory limit', 'oom_kills'],
  ['berth_project_network_received_bytes', 'Bytes received over the network', 'net_rx'],
  ['berth_project_network_sent_bytes', 'Bytes sent over the network', 'net_tx'],
] as const;
const MAX_PROJECTS = 200;

export type Deps = {
  usage: Pick<UsageStore, 'present'>;
  now: () => number;
};

export function usageGauges({ usage, now }: Deps): GaugeRow[] {
  const present = shared(() => usage.present(now() - USAGE_MS, MAX_PROJECTS));
  return USAGE.map(
    ([name, help, value]): GaugeRow => ({
      name,
      help:
        `${help}, by project: the sum of its containers by their last points; only the ` +
        `${MAX_PROJECTS} with the most memory`,
      labels: ['project'],
      async read() {
        const all = await present();
        return all.flatMap(({ project, values: { [value]: one } }) =>
          one === null ? [] : [{ labels: { project }, value: one }],
        );
      },
    }),
  );
}

/** Shares one query between the gauges of a scrape, which all read at the same moment. */
function shared<T>(read: () => Promise<T>): () => Promise<T> {
  let open: Promise<T> | null = null;
  return () => (open ??= read().finally(() => (open = null)));
}
