/** One attempt at one deploy task. Each step of the deployment (deploy.ts) takes it. */
import type { TaskOf } from '@berth/wire/task';
import type { AttemptContainer } from './attempt-container.ts';
import type { TaskContext } from './task.ts';

export type DeployTask = TaskOf<'deploy'>;
export type DeployAttempt = {
  task: DeployTask;
  /** The id of the deployment. */
  deployment: string;
  context: TaskContext;
  container: AttemptContainer;
};
