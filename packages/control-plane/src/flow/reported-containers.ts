/** The containers of a project as its nodes listed them, and how old these lists are. Pure. */
import type { ObservedContainer } from '@berth/wire/node';
import { LABELS } from '@berth/wire/vocabulary';
import type { NodeFact } from '../domain/deployments/facts.ts';
import type { Draft } from './plan-draft.ts';

const STOPPED_STATES: readonly string[] = ['created', 'exited', 'dead'];
export const isStoppedContainer = ({ state }: Pick<ObservedContainer, 'state'>): boolean =>
  STOPPED_STATES.includes(state);

export const ofProject = (
  node: Pick<NodeFact, 'containers'>,
  projectId: string,
): ObservedContainer[] => node.containers.filter((c) => c.labels[LABELS.project] === projectId);

/**
 * Uptime clock. Earlier versions wrote the machine's clock: a time in the future counts as never.
 */
export const observedAt = (
  { facts }: Draft,
  { observed_at }: Pick<NodeFact, 'observed_at'>,
): number =>
  observed_at === null || observed_at > facts.uptime.at ? Number.NEGATIVE_INFINITY : observed_at;
