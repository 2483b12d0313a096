import type { ObservedContainer } from './node.ts';
import { LABELS } from './vocabulary.ts';

/**
 * Returns the projects of running containers whose host port changes at each start, because an
 * older version of the agent started them.
 */
export const projectsWithMovingPorts = (containers: readonly ObservedContainer[]): string[] => [
  ...new Set(
    containers
      .filter((c) => c.port_fixed === false && c.state === 'running')
      .map((c) => c.labels[LABELS.project_name] ?? c.name.replace(/^svc-/, '')),
  ),
];
