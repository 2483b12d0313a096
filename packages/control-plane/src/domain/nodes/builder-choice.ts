/** Chooses the builder of a deployment. Pure. */
import { lack, type Need } from './build-needs.ts';
import type { Limits, NodeFact } from '../deployments/facts.ts';
import { refusal, whyNone } from './placement.ts';
import type { DeploymentRecord } from '../platform/records.ts';

/**
 * `busy`: a builder is eligible and only waits for one of its builds to end. `cannot`: no builder
 * has an agent that can do what the build needs, so waiting is useless.
 */
export type BuilderChoice =
  | { node: NodeFact }
  | { node: null; why: string; plain: string; busy: boolean; cannot: boolean };

/**
 * Returns the builder of the last build if it has a free slot, because its cache is warm; else the
 * least busy one. A contract-only one is chosen only if no other is free: it knows neither commits
 * nor submodules.
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
    .filter((n) => n.role === 'builder')
    .map((node) => {
      const refused = lack(node, needs) ?? refusal(node, deployment.losses, now, limits);
      return { node, refused, why: refused ?? fullness(node) };
    });
  const free = builders
    .filter((b) => b.why === null)
    .map((b) => b.node)
    .sort(
      (a, b) =>
        Number(a.agent_version === null) - Number(b.agent_version === null) ||
        Number(b.id === lastBuilderId) - Number(a.id === lastBuilderId) ||
        a.open_builds - b.open_builds ||
        (a.hostname < b.hostname ? -1 : 1),
    );
  if (free[0] !== undefined) return { node: free[0] };
  if (builders.length === 0) {
    const why = 'no builder node has ever registered';
    return { node: null, busy: false, cannot: false, why, plain: why };
  }
  const busy = builders.some((b) => b.refused === null);
  const cannot = builders.every((b) => lack(b.node, needs) !== null);
  const items = builders.map((b) => ({ hostname: b.node.hostname, reason: b.why }));
  return { node: null, busy, cannot, why: whyNone({ items }), plain: whyNone({ items }, true) };
}

const fullness = (node: NodeFact): string | null =>
  node.open_builds >= node.max_builds
    ? `already runs ${node.open_builds} of ${node.max_builds} builds`
    : null;
