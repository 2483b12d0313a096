import { DEPLOYMENT_STATES, type DeploymentState, isSettled, isTerminal } from '@berth/wire/vocabulary';

/** Not at an end: still has, or may still get, a container or a route. */
export const LIVE_STATES: readonly DeploymentState[] = DEPLOYMENT_STATES.filter((state) => !isTerminal(state));
/** Somebody waits for it. */
export const UNSETTLED_STATES: readonly DeploymentState[] = DEPLOYMENT_STATES.filter((state) => !isSettled(state));
