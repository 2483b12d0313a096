/** Which action is legal in which state. The server refuses by these rows and the user interface greys out by them. */
import type { DeploymentState } from './vocabulary.ts';

export const DEPLOYMENT_ACTIONS = {
  /** A `deploying` one can be cancelled until its route is published. */
  cancel: ['pending', 'building', 'built', 'deploying'],
  /** Only what ran can be brought back. A deployment becomes `retired` only from `running`. */
  rollback_to: ['running', 'retired'],
} as const satisfies Record<string, readonly DeploymentState[]>;
export type DeploymentAction = keyof typeof DEPLOYMENT_ACTIONS;

export const can = (action: DeploymentAction, state: DeploymentState): boolean =>
  (DEPLOYMENT_ACTIONS[action] as readonly DeploymentState[]).includes(state);
