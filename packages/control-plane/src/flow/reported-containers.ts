/**
 * Reads the containers of a project from the lists of its nodes, and the age of these lists. Pure.
 */
import type { ObservedContainer } from '@berth/wire/node';
import { LABELS } from '@berth/wire/vocabulary';
import type { NodeFact } from '../domain/deployments/facts.ts';
import type { InstanceRecord } from '../domain/deployments/instance.ts';
import type { Draft } from './plan-draft.ts';

const STOPPED_STATES: readonly string[] = ['created', 'exited', 'dead'];
export const isStoppedContainer = ({ state }: Pick<ObservedContainer, 'state'>): boolean =>
  STOPPED_STATES.includes(state);

export const ofProject = (
  node: Pick<NodeFact, 'containers'>,
  projectId: string,
): ObservedContainer[] => node.containers.filter((c) => c.labels[LABELS.project] === projectId);

/**
 * Returns the uptime at which the node listed its containers. Older versions stored the machine's
 * clock, so a time in the future counts as never.
 */
export const observedAt = (
  { facts }: Draft,
  { observed_at }: Pick<NodeFact, 'observed_at'>,
): number =>
  observed_at === null || observed_at > facts.uptime.at ? Number.NEGATIVE_INFINITY : observed_at;

/**
 * Returns whether the two have the same container id. After a machine was renamed, another node
 * reports its containers, so the node does not identify a container.
 */
export const isSameContainer = (
  { container_id }: Pick<InstanceRecord, 'container_id'>,
  { id }: Pick<ObservedContainer, 'id'>,
): boolean => container_id !== null && container_id === id;
