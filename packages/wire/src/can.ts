/** Lists the states in which each action is legal. The server and the user interface both read these tables. */
import type { DatasetState } from './dataset.ts';
import { type DeploymentState, isSettled } from './vocabulary.ts';

export const DEPLOYMENT_ACTIONS = {
  /** A `deploying` deployment can be cancelled until its route is published. */
  cancel: ['pending', 'building', 'built', 'deploying'],
  /** Only a deployment that ran has a tested release. A deployment becomes `retired` only from `running`. */
  rollback_to: ['running', 'retired'],
} as const satisfies Record<string, readonly DeploymentState[]>;
export type DeploymentAction = keyof typeof DEPLOYMENT_ACTIONS;

export const can = (action: DeploymentAction, state: DeploymentState): boolean =>
  (DEPLOYMENT_ACTIONS[action] as readonly DeploymentState[]).includes(state);

/** Returns why the action is not possible in this state, as the end of a sentence; null if it is possible. */
export function whyNot(action: DeploymentAction, state: DeploymentState): string | null {
  if (can(action, state)) return null;
  if (action === 'cancel') return state === 'running' ? 'it is live already' : `it has ended (${state})`;
  return isSettled(state) ? `it never ran (${state})` : `it is not live yet (${state})`;
}

/** `running`: the project has a running deployment; while the project is stopped, its container is stopped. */
export type ProjectCondition = { deleting: boolean; stopped: boolean; running: boolean };
export const PROJECT_ACTIONS = ['restart', 'stop', 'start'] as const;
export type ProjectAction = (typeof PROJECT_ACTIONS)[number];

/** Returns why the action is not possible, as the end of a sentence; null if it is possible. A repeated stop is possible. */
export function whyNotProject(action: ProjectAction, { deleting, stopped, running }: ProjectCondition): string | null {
  if (deleting) return 'it is being deleted';
  if (action === 'restart') return stopped ? 'it is stopped; start it' : running ? null : 'it has no running version; deploy it';
  if (action === 'start') return stopped ? null : 'it is not stopped';
  return null;
}

export const DATASET_ACTIONS = {
  /** Not `unreachable`: what a scan cannot see is not lost. A scan checks that again, because the state may be old. */
  accept_loss: ['new', 'ok', 'suspicious'],
} as const satisfies Record<string, readonly DatasetState[]>;
export type DatasetAction = keyof typeof DATASET_ACTIONS;

export const canDataset = (action: DatasetAction, state: DatasetState): boolean =>
  (DATASET_ACTIONS[action] as readonly DatasetState[]).includes(state);
