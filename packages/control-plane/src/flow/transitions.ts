/**
 * Every change of state there is. docs/states.md is made from these rows, and test/flow has a test for each; a change that
 * is not a row here is refused by flow/deployment.ts itself.
 */
import type { DeploymentState } from '@berth/wire/vocabulary';

export type Transition = { from: DeploymentState; event: string; to: DeploymentState; when: string };

export const TRANSITIONS = [
  { from: 'pending', event: 'tick', to: 'building', when: 'a builder has room: a build task is created for it' },
  { from: 'pending', event: 'tick', to: 'built', when: 'it brings an earlier release back: nothing to build' },
  {
    from: 'pending',
    event: 'tick',
    to: 'failed',
    when: 'no builder had room in time, no REGISTRY_ADDR is set, or a login is required and no AUTH_SERVICE_URL is set',
  },
  { from: 'pending', event: 'cancel', to: 'cancelled', when: 'always' },
  { from: 'pending', event: 'superseded', to: 'superseded', when: 'a newer deployment of the project was requested' },
  { from: 'pending', event: 'project_deleted', to: 'cancelled', when: 'always' },

  { from: 'building', event: 'task_reported', to: 'built', when: 'the build task completed with an image' },
  {
    from: 'building',
    event: 'task_reported',
    to: 'pending',
    when: 'the builder cannot work (its engine is down, its disk is full): another one gets it',
  },
  { from: 'building', event: 'task_reported', to: 'failed', when: 'the build task failed' },
  { from: 'building', event: 'task_reported', to: 'cancelled', when: 'a cancellation was waiting for the agent' },
  { from: 'building', event: 'task_lost', to: 'pending', when: 'the builder went silent or did not take the task: another one gets it' },
  { from: 'building', event: 'task_lost', to: 'failed', when: 'too many builders were lost, or the build took longer than allowed' },
  { from: 'building', event: 'task_lost', to: 'cancelled', when: 'a cancellation was waiting for the agent' },
  { from: 'building', event: 'node_deleted', to: 'pending', when: 'its builder was deleted: another one gets the build' },
  { from: 'building', event: 'node_deleted', to: 'cancelled', when: 'a cancellation was waiting for its agent' },
  { from: 'building', event: 'cancel', to: 'cancelled', when: 'no agent has begun the task, or its agent cannot be told' },
  {
    from: 'building',
    event: 'superseded',
    to: 'superseded',
    when: 'a newer deployment of the project was requested, and not two builds in a row were ended so before; the lease is void',
  },
  { from: 'building', event: 'project_deleted', to: 'cancelled', when: 'always; the lease is void' },

  {
    from: 'built',
    event: 'tick',
    to: 'deploying',
    when: 'a deploy node is eligible, no other deployment of the project is deploying, and stop-first nothing else of it runs',
  },
  {
    from: 'built',
    event: 'tick',
    to: 'failed',
    when: 'no deploy node was eligible or a dataset not ready in time, another version may still be writing, two datasets have one path, or a login is required and no AUTH_SERVICE_URL is set',
  },
  { from: 'built', event: 'cancel', to: 'cancelled', when: 'always' },
  {
    from: 'built',
    event: 'superseded',
    to: 'superseded',
    when: 'a newer deployment of the project was requested, and not two builds in a row were ended so before',
  },
  { from: 'built', event: 'project_deleted', to: 'cancelled', when: 'always' },

  {
    from: 'deploying',
    event: 'route_confirmed',
    to: 'running',
    when: 'the proxy serves a configuration with its route; the old version retires',
  },
  {
    from: 'deploying',
    event: 'route_unreachable',
    to: 'failed',
    when: 'the proxy does not reach the node: the route goes back to the old version',
  },
  {
    from: 'deploying',
    event: 'tick',
    to: 'failed',
    when: 'the proxy did not take over the route in time: the route goes back to the old version',
  },
  { from: 'deploying', event: 'task_reported', to: 'failed', when: 'the deploy task failed; the old version was never touched' },
  { from: 'deploying', event: 'task_reported', to: 'cancelled', when: 'a cancellation was waiting for the agent' },
  {
    from: 'deploying',
    event: 'task_reported',
    to: 'built',
    when: 'the node cannot work (its engine is down, its disk is full): another one gets it',
  },
  { from: 'deploying', event: 'task_lost', to: 'built', when: 'the node went silent or did not take the task: placement decides again' },
  { from: 'deploying', event: 'task_lost', to: 'failed', when: 'too many nodes were lost, or it took longer than allowed' },
  { from: 'deploying', event: 'task_lost', to: 'cancelled', when: 'a cancellation was waiting for the agent' },
  { from: 'deploying', event: 'node_deleted', to: 'built', when: 'its node was deleted: placement decides again' },
  { from: 'deploying', event: 'node_deleted', to: 'cancelled', when: 'a cancellation was waiting for its agent' },
  { from: 'deploying', event: 'cancel', to: 'cancelled', when: 'no agent has begun the task' },
  { from: 'deploying', event: 'project_deleted', to: 'cancelled', when: 'always; its container is removed' },

  { from: 'running', event: 'replaced', to: 'retired', when: 'a newer deployment’s route was confirmed' },
  { from: 'running', event: 'node_deleted', to: 'retired', when: 'its node was deleted by force' },
  { from: 'running', event: 'project_deleted', to: 'retired', when: 'always; its container is removed' },
] as const satisfies readonly Transition[];

export const isTransition = (from: DeploymentState, event: string, to: DeploymentState): boolean =>
  TRANSITIONS.some((t) => t.from === from && t.event === event && t.to === to);
