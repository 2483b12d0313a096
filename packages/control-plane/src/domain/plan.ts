/**
 * What a decision wants changed, as data. store/commit-plan.ts writes a plan in one transaction if the project stands as it
 * did when the decision was made (`flow_version`), else nothing at all.
 */
import type { TaskReport } from '@berth/wire/task';
import type { DeploymentState, TaskKind, TaskState } from '@berth/wire/vocabulary';
import type { DeploymentRecord, ProjectRecord, RouteRecord, TaskRecord } from './records.ts';

export type DeploymentChange = {
  id: string;
  /** The state it must still be in. */
  from: DeploymentState;
  set: Partial<Omit<DeploymentRecord, 'id' | 'project_id' | 'generation' | 'settings' | 'created_at'>>;
};

export type NewTask = Pick<TaskRecord, 'id' | 'deployment_id' | 'node_id' | 'queue_deadline_at' | 'wall_deadline_at'> &
  { [K in TaskKind]: { kind: K; payload: TaskRecord<K>['payload'] } }[TaskKind];

/** Ends or flags an open task; `attempt` must still be the present one. */
export type TaskChange = { id: string; attempt: number } & (
  | {
      end: Exclude<TaskState, 'pending' | 'running'>;
      report?: TaskReport;
      /** Of the lease that is taken away because it ran out: one that was renewed since stands. */
      lease_expires_at?: number | null;
    }
  | { requestCancel: true }
);

export type RouteChange = { set: RouteRecord } | { remove: { project_id: string } };

export type Plan = {
  /** What the plan was made from; a project that moved on since makes it stale. */
  project: { id: string; flow_version: number };
  createDeployment: DeploymentRecord | null;
  deployments: DeploymentChange[];
  createTasks: NewTask[];
  tasks: TaskChange[];
  route: RouteChange | null;
  /** Lines of the deployments' stories. */
  events: { deployment_id: string; kind: string; message: string }[];
  now: number;
  /** The uptime clock (domain/uptime.ts): by it work that ends is in order with what nodes report. */
  uptime: number;
};

export const emptyPlan = (project: Pick<ProjectRecord, 'id' | 'flow_version'>, now: number, uptime: number): Plan => ({
  project: { id: project.id, flow_version: project.flow_version },
  createDeployment: null,
  deployments: [],
  createTasks: [],
  tasks: [],
  route: null,
  events: [],
  now,
  uptime,
});

export const isEmptyPlan = (p: Plan): boolean =>
  p.createDeployment === null && p.deployments.length + p.createTasks.length + p.tasks.length + p.events.length === 0 && p.route === null;
