/**
 * The changes of a decision as data. store/commit-plan.ts writes the whole plan in one transaction,
 * or nothing if the project changed since the decision (`flow_version`).
 */
import type { TaskReport } from '@berth/wire/task';
import type { DeploymentState, TaskKind, TaskState } from '@berth/wire/vocabulary';
import type { PushChange } from '../git/hooks.ts';
import type { DeviceTake, Holder } from '../nodes/room.ts';
import type { UnmanagedChange } from '../nodes/unmanaged-containers.ts';
import type { InstanceChange } from './instance.ts';
import type { VolumeCopy } from '../data/volume-copy.ts';
import type { NewFileJobs } from '../runs/file-jobs.ts';
import type {
  DeploymentRecord,
  ProjectRecord,
  RouteRecord,
  TaskRecord,
} from '../platform/records.ts';

export type DeploymentChange = {
  id: string;
  /** State that the deployment must still have; otherwise the plan is stale. */
  from: DeploymentState;
  set: Partial<Omit<DeploymentRecord, 'id' | 'project_id' | 'generation' | 'created_at'>>;
};

export type NewTask = Pick<
  TaskRecord,
  'id' | 'deployment_id' | 'node_id' | 'queue_deadline_at' | 'wall_deadline_at'
> &
  { [K in TaskKind]: { kind: K; payload: TaskRecord<K>['payload'] } }[TaskKind];

/** Ends an open task or requests its cancellation. `attempt` must still be the current attempt. */
export type TaskChange = { id: string; attempt: number } & (
  | {
      end: Exclude<TaskState, 'pending' | 'running'>;
      report?: TaskReport;
      /** Expiry of the lost lease. If the agent has renewed the lease since, the plan is stale. */
      lease_expires_at?: number | null;
    }
  | { requestCancel: true }
);

export type RouteChange = { set: RouteRecord } | { remove: { project_id: string } };

export type MemoryTake = {
  node_id: string;
  bytes: number;
  most: number;
  without: readonly string[];
};

export type Plan = {
  /** The version of the project that the plan is based on. */
  project: { id: string; flow_version: number };
  createDeployment: DeploymentRecord | null;
  changeDeployments: DeploymentChange[];
  createTasks: NewTask[];
  changeTasks: TaskChange[];
  route: RouteChange | null;
  /**
   * Stops the project (`at`: time of the stop) or ends the stop (`at` null). `byPerson`: a person
   * stopped it, so that a scale does not start it. `message`: for the feed.
   */
  stopped?: { at: number | null; byPerson: boolean; message: string };
  /** Lines for the stories of deployments. The feed `GET /api/events` also shows them. */
  storyLines: { deployment_id: string; kind: string; message: string }[];
  push: PushChange | null;
  /** New and changed copies of volumes. */
  volumes: VolumeCopy[];
  unmanaged?: UnmanagedChange[];
  /**
   * The jobs that berth.toml of a version that goes live sets. Jobs of an earlier file that are not
   * listed are deleted.
   */
  fileJobs?: NewFileJobs;
  instances?: InstanceChange[];
  /**
   * Memory that a deployment takes, one entry for each node. The plan is stale if `bytes` and the
   * memory limits of the other deployments on the node together exceed `most`. `without`:
   * deployments whose limits do not count.
   */
  takeMemory?: MemoryTake[];
  /** Devices that a deployment takes (domain/nodes/room.ts). */
  takeDevices?: DeviceTake[];
  /**
   * Containers that are gone from the node. A retire task needs no entry here: its end frees the
   * devices of the containers that it removed.
   */
  freeDevices?: (Holder & { node_id: string })[];
  /** The machine of a node has registered as another node, with this deployment. */
  moveDevices?: { deployment_id: string; from: string; to: string };
  now: number;
  /**
   * Value of the uptime clock (domain/platform/uptime.ts). Orders the ends of tasks and the reports
   * of nodes.
   */
  uptime: number;
};

export const emptyPlan = (
  project: Pick<ProjectRecord, 'id' | 'flow_version'>,
  now: number,
  uptime: number,
): Plan => ({
  project: { id: project.id, flow_version: project.flow_version },
  createDeployment: null,
  changeDeployments: [],
  createTasks: [],
  changeTasks: [],
  route: null,
  storyLines: [],
  push: null,
  volumes: [],
  now,
  uptime,
});

export const isEmptyPlan = (p: Plan): boolean =>
  p.createDeployment === null &&
  p.changeDeployments.length +
    p.createTasks.length +
    p.changeTasks.length +
    p.storyLines.length +
    p.volumes.length ===
    0 &&
  p.route === null &&
  p.stopped === undefined &&
  p.unmanaged === undefined &&
  p.instances === undefined &&
  p.push === null;
