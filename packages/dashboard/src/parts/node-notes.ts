/** Short texts about node problems that a person must solve. */
import { projectsWithMovingPorts } from '@berth/wire/moving-ports';
import type { Node } from '@berth/wire/node';
import { countText } from './time-text.ts';

type Noted = Pick<Node, 'host_ip' | 'address_taken' | 'unmanaged' | 'containers'>;

/** Older control planes do not send these fields. */
export const addressTakenText = ({ host_ip, address_taken }: Noted): string | null =>
  address_taken ? `node ${address_taken.hostname} has its address ${host_ip}` : null;

export function toRemoveText({ unmanaged = [] }: Noted): string | null {
  if (unmanaged.length === 0) return null;
  const names = unmanaged.map(({ container, project }) => `${container} of ${project}`).join(', ');
  return `${countText(unmanaged.length, 'container')} to remove by hand: ${names}`;
}

export function nodeNotes(node: Noted): string[] {
  const moving = projectsWithMovingPorts(node.containers);
  return [
    addressTakenText(node),
    toRemoveText(node),
    moving.length === 0 ? null : `no fixed port: ${moving.join(', ')}`,
  ].filter((text) => text !== null);
}
