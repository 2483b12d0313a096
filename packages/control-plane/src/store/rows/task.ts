import type { TaskProgress } from '@berth/wire/dataset';
import type { Payload, TaskReport } from '@berth/wire/task';
import type { NewTask } from '../../domain/deployments/plan.ts';
import type { TaskRecord } from '../../domain/platform/records.ts';
import type { NewRow, Row } from '../engine/tables.ts';

export const taskOf = ({ seq: _order, ...row }: Row<'tasks'>): TaskRecord => ({
  ...row,
  payload: JSON.parse(row.payload) as TaskRecord['payload'],
  report: row.report === null ? null : (JSON.parse(row.report) as TaskReport),
  progress: row.progress === null ? null : (JSON.parse(row.progress) as TaskProgress),
});

/**
 * Returns the payload of a deploy task without env, which is not needed after the task has
 * finished.
 */
export const payloadWithoutEnv = (payload: string): string =>
  JSON.stringify({
    ...(JSON.parse(payload) as Payload['deploy']),
    env: {},
  } satisfies Payload['deploy']);

/**
 * Returns the payload of a build task without build arguments, which are not needed after the task
 * has finished; null if it has none.
 */
export function payloadWithoutArgs(payload: string): string | null {
  const { build_args, ...rest } = JSON.parse(payload) as Payload['build'];
  return build_args === undefined ? null : JSON.stringify(rest satisfies Payload['build']);
}

/** Returns the columns of a new task. `projectId` is null for tasks that belong to no project. */
export const newTaskColumns = (
  task: NewTask,
  projectId: string | null,
  now: number,
): NewRow<'tasks'> => ({
  id: task.id,
  kind: task.kind,
  status: 'pending',
  project_id: projectId,
  deployment_id: task.deployment_id,
  node_id: task.node_id,
  attempt: 0,
  payload: JSON.stringify(task.payload),
  queue_deadline_at: task.queue_deadline_at,
  wall_deadline_at: task.wall_deadline_at,
  created_at: now,
});
