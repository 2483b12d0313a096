/** Name of the container that serves a project (docs/contract.md "Deployment flow"). */
import { LABELS } from '@berth/wire/vocabulary';
import type { DeploymentRecord, NodeRecord, ProjectSettings } from '../platform/records.ts';

export const finalName = (settings: Pick<ProjectSettings, 'domain_prefix'>): string =>
  `svc-${settings.domain_prefix}`;

/**
 * Returns whether the node of a running deployment reports its container under a name that is not
 * the final one.
 */
export const isMisnamedOn = (nodes: readonly NodeRecord[], d: DeploymentRecord): boolean =>
  d.status === 'running' &&
  nodes.some(
    (node) =>
      node.id === d.node_id &&
      node.containers.some(
        (c) =>
          c.labels[LABELS.deployment] === d.id &&
          (c.labels[LABELS.instance] ?? null) === d.instance_id &&
          c.name !== finalName(d.settings),
      ),
  );
