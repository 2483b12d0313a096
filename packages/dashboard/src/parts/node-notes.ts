/** Short texts about node problems that a person must solve. */
import { projectsWithMovingPorts } from '@berth/wire/moving-ports';
import type { Node } from '@berth/wire/node';
import { countText } from './time-text.ts';

type Noted = Pick<
  Node,
  'hostname' | 'host_ip' | 'address_taken' | 'unmanaged' | 'containers' | 'failover'
>;

/** Older control planes do not send these fields. */
export const addressTakenText = ({ host_ip, address_taken }: Noted): string | null =>
  address_taken ? `node ${address_taken.hostname} has its address ${host_ip}` : null;

export function toRemoveText({ unmanaged = [] }: Noted): string | null {
  if (unmanaged.length === 0) return null;
  const names = unmanaged.map(({ container, project }) => `${container} of ${project}`).join(', ');
  return `${countText(unmanaged.length, 'container')} to remove by hand: ${names}`;
}

/** Returns the text of the brake; null if it does not hold the node. */
export function brakeText({ hostname, failover }: Pick<Node, 'hostname' | 'failover'>) {
  if (!failover?.held || failover.waiting === 0) return null;
  const { silent_nodes, nodes, waiting } = failover;
  return (
    `most nodes are silent (${silent_nodes} of ${nodes}): is the network down? ` +
    `${countText(waiting, 'instance waits', 'instances wait')} for it; if the machine is gone: ` +
    `berth failover ${hostname} --now`
  );
}

/** Returns what happens with the instances of a silent deploy node. */
export function silentText({ failover }: Pick<Node, 'failover'>): string {
  if (!failover)
    return 'Its routes stay, because a silent machine may still serve, and no instance moves by itself.';
  const { held, silent_nodes, nodes, waiting } = failover;
  if (held)
    return (
      `Most nodes are silent (${silent_nodes} of ${nodes}), so nothing moves by itself: is the ` +
      `network down? ${waitText(waiting)}`
    );
  return `Instances that only read start on other nodes by themselves. ${waitText(waiting)}`;
}

const waitText = (waiting: number): string =>
  `${countText(waiting, 'instance waits', 'instances wait')} for this node.`;

export function nodeNotes(node: Noted): string[] {
  const moving = projectsWithMovingPorts(node.containers);
  return [
    brakeText(node),
    addressTakenText(node),
    toRemoveText(node),
    moving.length === 0 ? null : `no fixed port: ${moving.join(', ')}`,
  ].filter((text) => text !== null);
}
