/**
 * Finds problems and their ends, for notifications. Compares the current state with the open
 * problems, so a restart loses nothing. Events only say which projects to check; after a start and
 * after a gap, all projects are checked.
 */
import type { DatasetStore } from '../domain/data/dataset-stores.ts';
import type { VolumeStore } from '../domain/data/volume-store.ts';
import type { CleanUpStore } from '../domain/deployments/clean-up.ts';
import type { Limits } from '../domain/deployments/facts.ts';
import type { FailoverWatch } from '../domain/nodes/failover-watch.ts';
import type { NodeStore } from '../domain/nodes/node-store.ts';
import { ofRegistry } from '../domain/notifications/problem-texts.ts';
import {
  type Observation,
  problemKey,
  type ProblemRecord,
  type ProblemStore,
} from '../domain/notifications/problems.ts';
import type { Changes } from '../domain/platform/changes.ts';
import type { EventStore } from '../domain/platform/event-store.ts';
import type { JobStore } from '../domain/runs/job-store.ts';
import type { UptimeClock } from '../domain/platform/uptime.ts';
import type { CertificateWatch } from '../domain/routes/configuration.ts';
import {
  observeCertificates,
  observeDatasets,
  observeFailover,
  observeJobs,
  observeNodes,
  observeProjects,
} from './problem-observations.ts';

export type Deps = {
  problems: Pick<
    ProblemStore,
    'lostNodes' | 'observe' | 'onDatasets' | 'onNodes' | 'open' | 'projects'
  >;
  events: Pick<EventStore, 'read'>;
  nodes: Pick<NodeStore, 'all'>;
  failover: FailoverWatch;
  volumes: Pick<VolumeStore, 'missing'>;
  datasets: Pick<DatasetStore, 'facts'>;
  cleanUps: Pick<CleanUpStore, 'last'>;
  jobs: Pick<JobStore, 'failing'>;
  /** Unset without an https address in PROXY_PROBE_URLS. */
  certificates?: Pick<CertificateWatch, 'watched'>;
  /** Observes the disk of the data folder. Unset for a database in memory. */
  ownDisk?: () => Promise<Observation[]>;
  changes: Pick<Changes, 'notify'>;
  limits: Limits;
  now: () => number;
  /** Uptime clock, used for every deadline. */
  uptime: Pick<UptimeClock, 'now'>;
};

const EVENTS_AT_ONCE = 1_000;
/** Interval in ms at which a problem that only one control plane observes is confirmed. */
const CONFIRMED_MS = 60_000;

export const problems = (deps: Deps) => {
  /** The last event whose project was checked; null: check all projects. */
  let lastEvent: number | null = null;

  return async (signal: AbortSignal): Promise<void> => {
    const { at, since } = await deps.uptime.now();
    const open = await deps.problems.open();
    const { ids, newest } = await changedProjects(deps.events, lastEvent);
    const observations: Observation[] = [
      ...(await observeProjects(deps.problems, ids, open)),
      ...(await observeNodes(deps, at - since >= deps.limits.offlineMs, open)),
      ...(await observeFailover(deps, open)),
      ...(await observeDatasets(deps, open)),
      ...(await observeJobs(deps.jobs, open)),
      ...observeCertificates(deps.certificates, open),
      ...ofRegistry(await deps.cleanUps.last()),
      ...((await deps.ownDisk?.()) ?? []),
    ];
    if (signal.aborted) return;
    const news = observations.filter((observation) =>
      isNews(observation, open.get(problemKey(observation))),
    );
    const written =
      news.length === 0 ? 0 : await deps.problems.observe(news, { now: deps.now(), uptime: at });
    // Set this last: after a failure above, the next run must read the same events again.
    lastEvent = newest;
    if (written > 0) deps.changes.notify('work');
  };
};

/** Returns the projects with a newer event; `ids` null: any project might have changed. */
async function changedProjects(
  events: Pick<EventStore, 'read'>,
  after: number | null,
): Promise<{ ids: Set<string> | null; newest: number }> {
  if (after === null) return { ids: null, newest: (await events.read(null, 1)).newest };
  const ids = new Set<string>();
  for (let from = after; ; ) {
    const page = await events.read(from, EVENTS_AT_ONCE);
    if (page.gap) return { ids: null, newest: page.newest };
    for (const { project_id } of page.items) if (project_id !== null) ids.add(project_id);
    const last = page.items.at(-1);
    if (last === undefined || page.items.length < EVENTS_AT_ONCE)
      return { ids, newest: last?.seq ?? from };
    from = last.seq;
  }
}

/**
 * Returns whether the observation can change a problem, so that an unchanged state costs no
 * transaction.
 */
function isNews({ isProblem, at }: Observation, begun: ProblemRecord | undefined): boolean {
  if (at !== null && begun !== undefined && at < begun.observed_at) return false;
  if (!isProblem) return begun !== undefined;
  return (
    begun === undefined ||
    begun.gone_since !== null ||
    (at !== null && at > begun.observed_at + CONFIRMED_MS)
  );
}
