/** Describes instances for people. */
import type { Deployment } from '@berth/wire/deployment';
import type { DeploymentInstance } from '@berth/wire/instance';
import { WEB } from '@berth/wire/project';
import { oneLine } from './text.ts';

/** Returns the instances; empty for a control plane of an earlier version, which sends none. */
export const instancesOf = (d: Deployment): Deployment['instances'] =>
  (d as Partial<Deployment>).instances ?? [];

type Shown = Pick<DeploymentInstance, 'process' | 'number' | 'state' | 'node_name' | 'detail'>;

const STATES: Record<DeploymentInstance['state'], string> = {
  waiting: 'waits',
  starting: 'starts',
  serving: 'serves',
  up: 'runs',
  unhealthy: 'does not answer',
  lost: 'is lost',
  draining: 'drains',
  ended: 'ended',
};

/** Returns whether the instance serves, or runs without HTTP. */
export const isUp = ({ state }: Pick<DeploymentInstance, 'state'>): boolean =>
  state === 'serving' || state === 'up';

/** Formats an instance: `web 2 serves on node-1`. */
export function instanceText({ process, number, state, node_name, detail }: Shown): string {
  const place = node_name === null ? '' : ` on ${node_name}`;
  const why = detail === null ? '' : `: ${oneLine(detail)}`;
  // A process without HTTP is never asked for an answer.
  const does = state === 'unhealthy' && process !== WEB ? 'is unhealthy' : STATES[state];
  return `${process} ${number} ${does}${place}${why}`;
}

/** Formats the nodes of several instances: `3 instances on node-1, node-2`. */
export function placesText(instances: readonly Pick<DeploymentInstance, 'node_name'>[]): string {
  const names = [...new Set(instances.flatMap(({ node_name }) => node_name ?? []))];
  const count = `${instances.length} ${instances.length === 1 ? 'instance' : 'instances'}`;
  return names.length === 0 ? count : `${count} on ${names.join(', ')}`;
}
