/**
 * All state changes of a deployment. flow/deployment.ts refuses a change that has no row here.
 * docs/states.md is generated from these rows, and test/flow has a test for each row.
 */
import type { DeploymentState } from '@berth/wire/vocabulary';

export type Transition = {
  from: DeploymentState;
  event: string;
  to: DeploymentState;
  when: string;
};

export const TRANSITIONS = [
  {
    from: 'pending',
    event: 'tick',
    to: 'building',
    when: 'a builder has room; a build task is created for it',
  },
  {
    from: 'pending',
    event: 'tick',
    to: 'built',
    when: 'the deployment uses an earlier release, so it needs no build',
  },
  {
    from: 'pending',
    event: 'tick',
    to: 'failed',
    when:
      'no builder had room in time, REGISTRY_ADDR is not set, or a login is required and ' +
      'AUTH_SERVICE_URL is not set',
  },
  { from: 'pending', event: 'cancel', to: 'cancelled', when: 'always' },
  {
    from: 'pending',
    event: 'superseded',
    to: 'superseded',
    when: 'a newer deployment of the project was requested',
  },
  { from: 'pending', event: 'project_deleted', to: 'cancelled', when: 'always' },
  { from: 'pending', event: 'project_stopped', to: 'cancelled', when: 'always' },

  {
    from: 'building',
    event: 'task_reported',
    to: 'built',
    when: 'the build task completed with an image',
  },
  {
    from: 'building',
    event: 'task_reported',
    to: 'pending',
    when: 'the builder cannot work (engine down, disk full); another builder gets the build',
  },
  { from: 'building', event: 'task_reported', to: 'failed', when: 'the build task failed' },
  {
    from: 'building',
    event: 'task_reported',
    to: 'cancelled',
    when: 'a cancellation was waiting for the agent',
  },
  {
    from: 'building',
    event: 'task_lost',
    to: 'pending',
    when: 'the builder stopped reporting or did not claim the task; another builder gets the build',
  },
  {
    from: 'building',
    event: 'task_lost',
    to: 'failed',
    when: 'too many builders were lost, or the build exceeded its time limit',
  },
  {
    from: 'building',
    event: 'task_lost',
    to: 'cancelled',
    when: 'a cancellation was waiting for the agent',
  },
  {
    from: 'building',
    event: 'node_deleted',
    to: 'pending',
    when: 'the builder was deleted; another builder gets the build',
  },
  {
    from: 'building',
    event: 'node_deleted',
    to: 'cancelled',
    when: 'a cancellation was waiting for the agent',
  },
  {
    from: 'building',
    event: 'cancel',
    to: 'cancelled',
    when: 'no agent has claimed the task, or its agent does not support cancellation',
  },
  {
    from: 'building',
    event: 'superseded',
    to: 'superseded',
    when:
      'a newer deployment was requested, and fewer than two builds in a row were superseded ' +
      'before; the lease is void',
  },
  {
    from: 'building',
    event: 'project_deleted',
    to: 'cancelled',
    when: 'always; the lease is void',
  },
  {
    from: 'building',
    event: 'project_stopped',
    to: 'cancelled',
    when: 'always; the lease is void',
  },

  {
    from: 'built',
    event: 'tick',
    to: 'deploying',
    when:
      'a deploy node is eligible and no other deployment of the project is deploying; with ' +
      '`replace: recreate`, also no other version runs',
  },
  {
    from: 'built',
    event: 'tick',
    to: 'failed',
    when:
      'no deploy node was eligible in time, a dataset was not ready in time, another version may ' +
      'still be writing, mount paths conflict, or a login is required and AUTH_SERVICE_URL is ' +
      'not set',
  },
  {
    from: 'built',
    event: 'tick',
    to: 'superseded',
    when: 'a newer deployment went live first, because this one lost its node',
  },
  {
    from: 'built',
    event: 'tick',
    to: 'cancelled',
    when: 'a cancellation was requested, and the task of its release command has ended',
  },
  {
    from: 'built',
    event: 'task_reported',
    to: 'cancelled',
    when: 'a cancellation was requested, and its release command has ended',
  },
  {
    from: 'built',
    event: 'task_lost',
    to: 'cancelled',
    when: 'a cancellation was requested, and the agent of its release command was lost',
  },
  {
    from: 'built',
    event: 'task_reported',
    to: 'failed',
    when: 'its volumes could not be copied to another node',
  },
  {
    from: 'built',
    event: 'task_lost',
    to: 'failed',
    when: 'too many nodes were lost while its volumes were copied',
  },
  {
    from: 'built',
    event: 'node_deleted',
    to: 'failed',
    when: 'too many nodes were lost while its volumes were copied',
  },
  { from: 'built', event: 'cancel', to: 'cancelled', when: 'always' },
  {
    from: 'built',
    event: 'superseded',
    to: 'superseded',
    when:
      'a newer deployment was requested, and fewer than two builds in a row were superseded ' +
      'before',
  },
  { from: 'built', event: 'project_deleted', to: 'cancelled', when: 'always' },
  { from: 'built', event: 'project_stopped', to: 'cancelled', when: 'always' },

  {
    from: 'deploying',
    event: 'route_confirmed',
    to: 'running',
    when: 'the proxy serves a configuration with the new route; the old version retires',
  },
  {
    from: 'deploying',
    event: 'route_unreachable',
    to: 'failed',
    when: 'the proxy cannot reach the node; the route points to the old version again',
  },
  {
    from: 'deploying',
    event: 'tick',
    to: 'failed',
    when: 'the proxy did not apply the route in time; the route points to the old version again',
  },
  {
    from: 'deploying',
    event: 'task_reported',
    to: 'failed',
    when: 'the deploy task failed; the old version was not changed',
  },
  {
    from: 'deploying',
    event: 'task_reported',
    to: 'cancelled',
    when: 'a cancellation was waiting for the agent',
  },
  {
    from: 'deploying',
    event: 'task_reported',
    to: 'built',
    when: 'the node cannot work (engine down, disk full); another node is chosen',
  },
  {
    from: 'deploying',
    event: 'task_lost',
    to: 'built',
    when: 'the node stopped reporting or did not claim the task; another node is chosen',
  },
  {
    from: 'deploying',
    event: 'task_lost',
    to: 'failed',
    when: 'too many nodes were lost, or the task exceeded its time limit',
  },
  {
    from: 'deploying',
    event: 'task_lost',
    to: 'cancelled',
    when: 'a cancellation was waiting for the agent',
  },
  {
    from: 'deploying',
    event: 'node_deleted',
    to: 'built',
    when: 'the node was deleted; another node is chosen',
  },
  {
    from: 'deploying',
    event: 'node_deleted',
    to: 'cancelled',
    when: 'a cancellation was waiting for the agent',
  },
  { from: 'deploying', event: 'cancel', to: 'cancelled', when: 'no agent has claimed the task' },
  {
    from: 'deploying',
    event: 'project_deleted',
    to: 'cancelled',
    when: 'always; the container is removed',
  },
  {
    from: 'deploying',
    event: 'project_stopped',
    to: 'cancelled',
    when: 'always, also after its route was published; the container is removed',
  },

  {
    from: 'running',
    event: 'replaced',
    to: 'retired',
    when: 'the route of a newer deployment was confirmed',
  },
  {
    from: 'running',
    event: 'node_deleted',
    to: 'retired',
    when: 'the node was deleted with `force`, or the project is stopped',
  },
  {
    from: 'running',
    event: 'project_deleted',
    to: 'retired',
    when: 'always; the container is removed',
  },
] as const satisfies readonly Transition[];

export const isTransition = (from: DeploymentState, event: string, to: DeploymentState): boolean =>
  TRANSITIONS.some((t) => t.from === from && t.event === event && t.to === to);
