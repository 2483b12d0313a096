import {
  DEPLOYMENT_STATES,
  type DeploymentState,
  isSettled,
  isTerminal,
} from '@berth/wire/vocabulary';

/** Deployments in these states have, or might still get, a container or a route. */
export const LIVE_STATES: readonly DeploymentState[] = DEPLOYMENT_STATES.filter(
  (state) => !isTerminal(state),
);
/** Deployments in these states have work in progress. */
export const UNSETTLED_STATES: readonly DeploymentState[] = DEPLOYMENT_STATES.filter(
  (state) => !isSettled(state),
);
