/** Lists the states in which each action is legal. The server and the user interface both read this table. */
import type { DeploymentState } from './vocabulary.ts';

export const DEPLOYMENT_ACTIONS = {
  /** A `deploying` deployment can be cancelled until its route is published. */
  cancel: ['pending', 'building', 'built', 'deploying'],
  /** Only a deployment that ran has a tested release. A deployment becomes `retired` only from `running`. */
  rollback_to: ['running', 'retired'],
} as const satisfies Record<string, readonly DeploymentState[]>;
export type DeploymentAction = keyof typeof DEPLOYMENT_ACTIONS;

export const can = (action: DeploymentAction, state: DeploymentState): boolean =>
  (DEPLOYMENT_ACTIONS[action] as readonly DeploymentState[]).includes(state);
