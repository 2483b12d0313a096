/** Checks an agent's report on its task. Pure. */
import { isLookResult } from '@berth/wire/look';
import { isMoveResult } from '@berth/wire/volume';
import type { BuildPayload, DeployPayload, TaskReport } from '@berth/wire/task';
import type { TaskState } from '@berth/wire/vocabulary';
import { DomainError, invalid } from '../domain/platform/errors.ts';
import type { TaskRecord } from '../domain/platform/records.ts';
import { stableJson } from '../domain/platform/stable-json.ts';

/** Throws validation if a completed task lacks its result. */
export function checkReport(task: TaskRecord, report: TaskReport): void {
  if (report.status !== 'completed') return;
  if (task.kind === 'build' && typeof report.image_tag !== 'string')
    throw invalid('image_tag', 'required', 'a completed build says which image it pushed');
  // Check the image only in the first report: a repeated report is compared with the accepted one.
  if (task.kind === 'build' && task.report === null)
    checkImage((task.payload as BuildPayload).image_repository, report.image_tag ?? '');
  if (task.kind === 'deploy' && hasPort(task) && typeof report.host_port !== 'number')
    throw invalid('host_port', 'required', 'a completed deploy task says which port was assigned');
  if (task.kind === 'look' && typeof report.commit !== 'string')
    throw invalid(
      'commit',
      'required',
      'a completed look says which commit is the tip of the branch',
    );
  if (task.kind === 'look' && !isLookResult(report.result))
    throw invalid(
      'result',
      'look',
      'a completed look says which skip mark its commit has, and which commits differ',
    );
  if (task.kind === 'move' && !isMoveResult(report.result))
    throw invalid(
      'result',
      'move',
      'a completed move says the digest, number and size of the files',
    );
}

/** Returns whether the container of a deploy task has a port: that of a worker has none. */
const hasPort = ({ payload }: TaskRecord): boolean =>
  (payload as DeployPayload).settle_seconds === undefined;

/**
 * Returns whether the image is a tag in the project's own repository. Nodes run the image that a
 * builder names, so the name must not be the image of another project or an option of docker.
 */
export function isOwnImage(repository: string, image: string): boolean {
  const tag = image.startsWith(`${repository}:`) ? image.slice(repository.length + 1) : '';
  return /^\w[\w.-]{0,127}$/.test(tag);
}
function checkImage(repository: string, image: string): void {
  if (!isOwnImage(repository, image))
    throw invalid(
      'image_tag',
      'repository',
      `must be ${repository}:TAG, with the repository of the task and a tag of at most 128 ` +
        'characters',
    );
}

/**
 * Throws stale_lease if the token does not match. A contract-only agent sends no lease, and its
 * task has attempt 0.
 */
export function checkLease(task: TaskRecord, token: string | null): void {
  if (task.attempt === 0 ? token !== null : token !== task.lease_token)
    throw new DomainError('stale_lease');
}

/**
 * Returns the answer to a repeated report on a task that has ended. Throws stale_lease, or
 * task_over if the report differs from the accepted one.
 */
export function repeatedAnswer(
  task: TaskRecord,
  token: string | null,
  report: TaskReport,
): TaskState {
  checkLease(task, token);
  // Compare by content: the repeated report might have its fields in a different order.
  if (task.report === null || stableJson(task.report) !== stableJson(report))
    throw new DomainError('task_over', `the task is already ${task.status}`);
  return task.status;
}
