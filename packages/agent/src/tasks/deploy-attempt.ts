/**
 * The context of one attempt at a deploy task, passed to each step of the deployment (deploy.ts).
 */
import type { TaskOf } from '@berth/wire/task';
import type { AttemptContainer } from './attempt-container.ts';
import type { TaskContext } from './task.ts';

export type DeployTask = TaskOf<'deploy'>;
export type DeployAttempt = {
  task: DeployTask;
  /** Id of the deployment. */
  deployment: string;
  context: TaskContext;
  container: AttemptContainer;
};
