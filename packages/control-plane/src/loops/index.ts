/**
 * Declares all loops of the control plane. Loops do not decide about deployments; they send events
 * to the flow.
 */
import { type LoopRun, startLoop } from '@berth/kit/loop';
import type { Logger } from '@berth/kit/log';
import type { Changes } from '../domain/platform/changes.ts';
import { backups } from './backups.ts';
import { certificates } from './certificates.ts';
import { cleanUps } from './clean-ups.ts';
import { commitStatuses } from './commit-statuses.ts';
import { dataCopies } from './data-copies.ts';
import { datasetChanges } from './dataset-changes.ts';
import { datasetMonitor } from './dataset-monitor.ts';
import { datasetRemovals } from './dataset-removals.ts';
import { deploymentRetention } from './deployment-retention.ts';
import { drains } from './drains.ts';
import { failover } from './failover.ts';
import { instanceDrains } from './instance-drains.ts';
import { instances } from './instances.ts';
import { leaseReaper } from './lease-reaper.ts';
import { nodeWatch } from './node-watch.ts';
import { nodeMarks } from './node-marks.ts';
import { policyRefresh } from './policy-refresh.ts';
import { proxyHeaders } from './proxy-headers.ts';
import { pushes } from './pushes.ts';
import { notifications } from './notifications.ts';
import { problems } from './problems.ts';
import { removals } from './removals.ts';
import { deleteExpiredRows } from './expired-rows.ts';
import { routeCollisions } from './route-collisions.ts';
import { routeConfirmer } from './route-confirmer.ts';
import { routesRefresh } from './routes-refresh.ts';
import { jobs } from './jobs.ts';
import { runs } from './runs.ts';
import { scheduler } from './scheduler.ts';
import { taskWatch } from './task-watch.ts';
import { uptimeBeat } from './uptime-beat.ts';

type Declaration = {
  name: string;
  description: string;
  periodMs: number;
  wokenBy: readonly ('work' | 'routes' | 'datasets')[];
  /** Each loop takes its own `Deps`, and no other part of the platform. */
  make: (deps: never) => LoopRun;
};

export const LOOPS = [
  {
    name: 'scheduler',
    description: 'dispatches builds and deployments, and checks their deadlines',
    periodMs: 1_000,
    wokenBy: ['work'],
    make: scheduler,
  },
  {
    name: 'jobs',
    description: 'starts the runs of jobs at their times',
    periodMs: 1_000,
    wokenBy: [],
    make: jobs,
  },
  {
    name: 'runs',
    description: 'hands commands to nodes, and ends those that no node can execute',
    periodMs: 1_000,
    wokenBy: ['work'],
    make: runs,
  },
  {
    name: 'instances',
    description: 'brings projects to the number of instances that they want',
    periodMs: 1_000,
    wokenBy: [],
    make: instances,
  },
  {
    name: 'failover',
    description: 'starts the instances of silent nodes on other nodes',
    periodMs: 1_000,
    wokenBy: [],
    make: failover,
  },
  {
    name: 'instance-drains',
    description: 'removes instances after the proxy has stopped to send them requests',
    periodMs: 500,
    wokenBy: ['routes'],
    make: instanceDrains,
  },
  {
    name: 'pushes',
    description: 'checks the branches of projects that were pushed to',
    periodMs: 1_000,
    wokenBy: ['work'],
    make: pushes,
  },
  {
    name: 'commit-statuses',
    description: 'sends the states of deployments to the forges of their projects',
    periodMs: 1_000,
    wokenBy: ['work'],
    make: commitStatuses,
  },
  {
    name: 'problems',
    description: 'finds problems and their ends, for notifications',
    periodMs: 5_000,
    wokenBy: [],
    make: problems,
  },
  {
    name: 'notifications',
    description: 'sends notifications of problems',
    periodMs: 1_000,
    wokenBy: [],
    make: notifications,
  },
  {
    name: 'lease-reaper',
    description: 'reassigns tasks of nodes that missed a deadline',
    periodMs: 1_000,
    wokenBy: [],
    make: leaseReaper,
  },
  {
    name: 'route-confirmer',
    description: 'checks whether the proxy serves published routes',
    periodMs: 250,
    wokenBy: ['routes'],
    make: routeConfirmer,
  },
  {
    name: 'route-collisions',
    description: 'withdraws routes whose address belongs to another project',
    periodMs: 2_000,
    wokenBy: ['routes'],
    make: routeCollisions,
  },
  {
    name: 'routes-refresh',
    description: 'reads the routes for the proxy’s configuration',
    periodMs: 2_000,
    wokenBy: [],
    make: routesRefresh,
  },
  {
    name: 'proxy-headers',
    description: 'checks whether the proxy forwards headers like X!Forwarded!User',
    periodMs: 30_000,
    wokenBy: [],
    make: proxyHeaders,
  },
  {
    name: 'certificates',
    description: 'checks the certificates that the proxy serves',
    periodMs: 1_000,
    wokenBy: [],
    make: certificates,
  },
  {
    name: 'node-watch',
    description: 'sets the health of deployments on silent nodes to unknown',
    periodMs: 5_000,
    wokenBy: [],
    make: nodeWatch,
  },
  {
    name: 'node-marks',
    description: 'writes when nodes were last seen',
    periodMs: 1_000,
    wokenBy: [],
    make: nodeMarks,
  },
  {
    name: 'task-watch',
    description: 'notifies held requests of tasks that another control plane changed',
    periodMs: 2_000,
    wokenBy: [],
    make: taskWatch,
  },
  {
    name: 'policy-refresh',
    description: 'reads the policy of the gateways again after another control plane changed it',
    periodMs: 2_000,
    wokenBy: [],
    make: policyRefresh,
  },
  {
    name: 'expired-rows',
    description: 'removes expired sessions, codes and tokens, and old lines of the audit log',
    periodMs: 60_000,
    wokenBy: [],
    make: deleteExpiredRows,
  },
  {
    name: 'uptime',
    description: 'advances the clock of every deadline',
    periodMs: 500,
    wokenBy: [],
    make: uptimeBeat,
  },
  {
    name: 'deployment-retention',
    description: 'removes expired data of deployments, logs and nodes',
    periodMs: 10_000,
    wokenBy: [],
    make: deploymentRetention,
  },
  {
    name: 'drains',
    description: 'moves deployments away from draining nodes',
    periodMs: 1_000,
    wokenBy: [],
    make: drains,
  },
  {
    name: 'dataset-changes',
    description: 'notifies or redeploys deployments that use an older version of a dataset',
    periodMs: 30_000,
    wokenBy: ['datasets'],
    make: datasetChanges,
  },
  {
    name: 'data-copies',
    description: 'keeps the datasets of projects on several nodes',
    periodMs: 5_000,
    wokenBy: ['datasets'],
    make: dataCopies,
  },
  {
    name: 'removals',
    description: 'finishes deletions of projects and nodes',
    periodMs: 2_000,
    wokenBy: ['work'],
    make: removals,
  },
  {
    name: 'dataset-monitor',
    description: 'scans the datasets that are due and records their new versions',
    periodMs: 2_000,
    wokenBy: ['datasets'],
    make: datasetMonitor,
  },
  {
    name: 'backups',
    description: 'makes the scheduled backups',
    periodMs: 15_000,
    wokenBy: [],
    make: backups,
  },
  {
    name: 'clean-ups',
    description: 'removes the images that no release needs from the registry',
    periodMs: 2_000,
    wokenBy: [],
    make: cleanUps,
  },
  {
    name: 'dataset-removals',
    description: 'finishes deletions of datasets',
    periodMs: 5_000,
    wokenBy: ['datasets'],
    make: datasetRemovals,
  },
] as const satisfies readonly Declaration[];

type Make = (typeof LOOPS)[number]['make'];
/** The `Deps` of all loops together. */
export type LoopsDeps = ([Make] extends [(deps: infer Deps) => unknown] ? Deps : never) & {
  changes: Pick<Changes, 'on'>;
  log: Logger;
};

export type Loops = {
  stop(): Promise<void>;
  status(): {
    name: string;
    description: string;
    lastOkAt: number | null;
    lastError: string | null;
  }[];
};

export function startLoops(deps: LoopsDeps): Loops {
  const running = LOOPS.map(({ name, description, periodMs, wokenBy, make }) => {
    const loop = startLoop({ name, periodMs, run: make(deps) }, deps.log);
    return { loop, description, off: wokenBy.map((topic) => deps.changes.on(topic, loop.wake)) };
  });
  return {
    async stop() {
      for (const { off } of running) for (const unsubscribe of off) unsubscribe();
      await Promise.all(running.map(({ loop }) => loop.stop()));
    },
    status: () =>
      running.map(({ loop, description }) => ({ name: loop.name, description, ...loop.status() })),
  };
}
