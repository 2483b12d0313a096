/** Chooses the builder of a deployment. Pure. */
import { lack, type Need } from './build-needs.ts';
import type { Limits, NodeFact } from '../deployments/facts.ts';
import { refusalOf } from './placement.ts';
import { nameFirst, type Refusal, type Refusals } from './refusal.ts';
import type { DeploymentRecord } from '../platform/records.ts';

export type BuilderChoice =
  | { node: NodeFact }
  | {
      node: null;
      /** Reasons of the refused builders; empty if no builder has ever registered. */
      refusals: Refusals;
      /** True if a builder is eligible but already runs its maximum of builds. */
      busy: boolean;
      /** True if the agent of every builder lacks a needed capability, so waiting does not help. */
      cannot: boolean;
    };

/**
 * Returns the builder of the last build if it has a free slot, because its cache is warm; else the
 * least busy builder. Chooses a contract-only builder only if no builder with Berth's agent is
 * free, because a contract-only builder supports neither commits nor submodules.
 */
export function chooseBuilder(
  deployment: Pick<DeploymentRecord, 'losses'>,
  nodes: readonly NodeFact[],
  lastBuilderId: string | null,
  now: number,
  limits: Limits,
  needs: readonly Need[] = [],
): BuilderChoice {
  const builders = nodes
    .filter((node) => node.role === 'builder')
    .map((node) => {
      const refusal = lack(node, needs) ?? refusalOf(node, deployment.losses, now, limits);
      return { node, isBusy: refusal === null, refusal: refusal ?? fullness(node) };
    });
  const [best] = builders
    .filter(({ refusal }) => refusal === null)
    .map(({ node }) => node)
    .sort(
      (a, b) =>
        Number(a.agent_version === null) - Number(b.agent_version === null) ||
        Number(b.id === lastBuilderId) - Number(a.id === lastBuilderId) ||
        a.open_builds - b.open_builds ||
        (a.hostname < b.hostname ? -1 : 1),
    );
  if (best !== undefined) return { node: best };
  const refused = builders.flatMap(({ node: { hostname }, refusal }) =>
    refusal === null ? [] : [{ hostname, refusal }],
  );
  return {
    node: null,
    refusals: nameFirst(refused),
    busy: builders.some(({ isBusy }) => isBusy),
    cannot: builders.length > 0 && builders.every(({ node }) => lack(node, needs) !== null),
  };
}

const fullness = (node: NodeFact): Refusal | null =>
  node.open_builds >= node.max_builds
    ? { kind: 'builds_full', running: node.open_builds, max: node.max_builds }
    : null;
