/**
 * Serves GET /metrics of the agent for Prometheus. A scrape only reads values in memory, and asks
 * neither the engine nor the disks.
 */
import type { NodeDisk } from '@berth/wire/node';
import { type NodeRole, TASK_KINDS } from '@berth/wire/vocabulary';
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { Measured } from './usage/meter.ts';
import { TASK_ENDS, type TaskEnd, type TaskMeter } from './tasks/run-task.ts';
import { COPY_OUTCOMES, type CopyEnd } from './data/transfer.ts';

export type Metrics = TaskMeter & {
  registered(): void;
  registrationFailed(): void;
  /** Call this after each copy of a dataset version, with its result. */
  copyEnded(ended: CopyEnd): void;
  imageRemoved(): void;
  render(): Promise<{ type: string; text: string }>;
};
export type MetricsSource = {
  version: string;
  role: NodeRole;
  /** Returns the disk use of the last registration; null before the first count. */
  disk: () => NodeDisk | null;
  engineOk: () => boolean | null;
  /** Returns the last reading of the containers' resource usage. */
  usage: () => readonly Measured[];
};

/**
 * Gauges of the library with names like counters. The library also has each of them under a correct
 * name.
 */
const MISNAMED = [
  'nodejs_active_handles_total',
  'nodejs_active_requests_total',
  'nodejs_active_resources_total',
];
const MEASURED_BUILDS: readonly TaskEnd[] = ['completed', 'failed'];
const SECONDS = [1, 5, 15, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600];

/**
 * Exposed as gauges and not as counters, because the values restart with each start of a container.
 */
const USAGE = [
  ['berth_container_cpu_seconds', 'CPU time since the start of the container', 'cpu_seconds'],
  [
    'berth_container_throttled_seconds',
    'Time that processes waited because of the CPU limit',
    'throttled_seconds',
  ],
  [
    'berth_container_memory_bytes',
    'Memory without the file cache that the kernel can drop at once',
    'memory_bytes',
  ],
  ['berth_container_memory_limit_bytes', 'Memory limit; absent without a limit', 'memory_limit'],
  ['berth_container_restarts', 'Restarts by the engine', 'restarts'],
  [
    'berth_container_oom_kills',
    'Processes that the kernel killed at the memory limit',
    'oom_kills',
  ],
  ['berth_container_network_received_bytes', 'Bytes received over the network', 'net_rx'],
  ['berth_container_network_sent_bytes', 'Bytes sent over the network', 'net_tx'],
] as const;
const MAX_PROJECTS = 500;
function sums(usage: readonly Measured[], value: (typeof USAGE)[number][2]): Map<string, number> {
  const byProject = new Map<string, number>();
  for (const { project, point } of usage) {
    const amount = point[value];
    if (amount === null || (!byProject.has(project) && byProject.size >= MAX_PROJECTS)) continue;
    byProject.set(project, (byProject.get(project) ?? 0) + amount);
  }
  return byProject;
}

type MetricsOptions = {
  /** If true, adds memory, CPU and event loop metrics of this process. */
  processMetrics: boolean;
};

export function createMetrics(source: MetricsSource, options: MetricsOptions): Metrics {
  const registry = new Registry();
  if (options.processMetrics) addProcessMetrics(registry);
  addIdentity(registry, source);
  const tasks = createTaskMetrics(registry);
  const copies = createCopyMetrics(registry);
  addDiskGauges(registry, source.disk);
  addUsageGauges(registry, source.usage);
  const registrations = createRegistrationMetrics(registry);
  const imagesRemoved = new Counter({
    name: 'berth_agent_images_removed_total',
    help: 'References of old images that were removed from this node',
    registers: [registry],
  });
  addEngineGauge(registry, source.engineOk);
  return {
    ...tasks,
    ...copies,
    ...registrations,
    imageRemoved: () => imagesRemoved.inc(),
    render: async () => ({ type: registry.contentType, text: await registry.metrics() }),
  };
}

/** Adds a gauge whose value is read at each scrape. The gauge is absent while the value is null. */
function addGauge(
  registry: Registry,
  name: string,
  help: string,
  read: () => number | null,
): Gauge {
  return new Gauge({
    name,
    help,
    registers: [registry],
    collect() {
      const now = read();
      if (now === null) this.remove();
      else this.set(now);
    },
  });
}

function addProcessMetrics(registry: Registry): void {
  // The library's default of 10 ms would wake an idle process 100 times per second.
  collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: 100 });
  for (const name of MISNAMED) registry.removeSingleMetric(name);
}

function addIdentity(registry: Registry, { version, role }: MetricsSource): void {
  new Gauge({
    name: 'berth_agent_build_info',
    help: 'Version of the agent, its role, and the version of Node.js that it runs on',
    labelNames: ['version', 'role', 'node'],
    registers: [registry],
  }).set({ version, role, node: process.versions.node }, 1);
  addGauge(
    registry,
    'berth_clock_seconds',
    'Clock of this machine, in seconds since 1970, at the scrape',
    () => Date.now() / 1000,
  );
}

function createTaskMetrics(registry: Registry): TaskMeter {
  const registers = [registry];
  const inProgress = new Gauge({
    name: 'berth_agent_tasks_in_progress',
    help: 'Tasks that this agent has claimed and that have not ended',
    labelNames: ['kind'],
    registers,
  });
  const finished = new Counter({
    name: 'berth_agent_tasks_finished_total',
    help: 'Tasks that this agent claimed, by outcome',
    labelNames: ['kind', 'outcome'],
    registers,
  });
  for (const kind of TASK_KINDS) {
    inProgress.set({ kind }, 0);
    for (const outcome of TASK_ENDS) finished.inc({ kind, outcome }, 0);
  }
  const builds = new Histogram({
    name: 'berth_agent_build_duration_seconds',
    help:
      'Time from the claim of a build to the answer to its report; without builds that were ' +
      'cancelled, lost or interrupted',
    labelNames: ['outcome'],
    buckets: SECONDS,
    registers,
  });
  return {
    taskBegan(task) {
      const kind = kindOf(task);
      const begun = performance.now();
      inProgress.inc({ kind });
      return (outcome) => {
        inProgress.dec({ kind });
        finished.inc({ kind, outcome });
        if (kind === 'build' && MEASURED_BUILDS.includes(outcome))
          builds.observe({ outcome }, (performance.now() - begun) / 1000);
      };
    },
  };
}

const kindOf = (kind: string): string =>
  (TASK_KINDS as readonly string[]).includes(kind) ? kind : 'other';

function createCopyMetrics(registry: Registry): Pick<Metrics, 'copyEnded'> {
  const registers = [registry];
  const durations = new Histogram({
    name: 'berth_agent_copy_duration_seconds',
    help:
      'Duration of one copy of a dataset version to this node, ' +
      'without the wait for a free slot',
    labelNames: ['outcome'],
    buckets: SECONDS,
    registers,
  });
  const sizes = new Histogram({
    name: 'berth_agent_copy_bytes',
    help: 'Bytes that one copy read from the share; without files that were linked on this node',
    labelNames: ['outcome'],
    buckets: [1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12],
    registers,
  });
  for (const outcome of COPY_OUTCOMES)
    for (const histogram of [durations, sizes]) histogram.zero({ outcome });
  return {
    copyEnded({ outcome, bytes, ms }) {
      durations.observe({ outcome }, ms / 1000);
      sizes.observe({ outcome }, bytes);
    },
  };
}

function addDiskGauges(registry: Registry, disk: MetricsSource['disk']): void {
  registry.registerMetric(
    new Gauge({
      name: 'berth_agent_disk_bytes',
      help:
        'Disk use of this node by kind, at the last count (every 5 min at most); without unknown ' +
        'parts',
      labelNames: ['use'],
      registers: [],
      collect() {
        this.reset();
        const now = disk();
        for (const use of ['datasets', 'images', 'build_cache', 'other'] as const)
          if (now !== null && now[use] !== null) this.set({ use }, now[use]);
      },
    }),
  );
  addGauge(
    registry,
    'berth_agent_disk_free_bytes',
    'Free bytes on the disks of this node, at the last count',
    () => disk()?.free ?? null,
  );
  addGauge(
    registry,
    'berth_agent_disk_size_bytes',
    'Size of the disks of this node',
    () => disk()?.total ?? null,
  );
}

function addUsageGauges(registry: Registry, usage: MetricsSource['usage']): void {
  for (const [name, help, value] of USAGE)
    registry.registerMetric(
      new Gauge({
        name,
        help:
          `${help}, by project: the sum of its containers on this node, at the last reading ` +
          '(every minute)',
        labelNames: ['project'],
        registers: [],
        collect() {
          this.reset();
          for (const [project, sum] of sums(usage(), value)) this.set({ project }, sum);
        },
      }),
    );
}

function createRegistrationMetrics(
  registry: Registry,
): Pick<Metrics, 'registered' | 'registrationFailed'> {
  const failures = new Counter({
    name: 'berth_agent_registrations_failed_total',
    help: 'Registrations that got no answer or a refusal',
    registers: [registry],
  });
  /** Time of the last registration on the monotonic clock in ms. */
  let registeredAt: number | null = null;
  addGauge(
    registry,
    'berth_agent_last_registration_age_seconds',
    'Seconds since the control plane last accepted a registration; -1 before the first',
    () => (registeredAt === null ? -1 : (performance.now() - registeredAt) / 1000),
  );
  return {
    registered: () => void (registeredAt = performance.now()),
    registrationFailed: () => failures.inc(),
  };
}

function addEngineGauge(registry: Registry, engineOk: MetricsSource['engineOk']): void {
  addGauge(
    registry,
    'berth_agent_engine_ok',
    '1 while the container engine answers, else 0; absent before the first request to it',
    () => {
      const ok = engineOk();
      return ok === null ? null : Number(ok);
    },
  );
}
