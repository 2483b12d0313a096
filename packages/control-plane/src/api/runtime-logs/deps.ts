/** Stores, settings and readers that the files of runtime logs share. */
import type { Changes } from '../../domain/platform/changes.ts';
import type { Limits } from '../../domain/deployments/facts.ts';
import type { DeploymentStore } from '../../domain/deployments/deployment-store.ts';
import type { InstanceStore } from '../../domain/deployments/instance-store.ts';
import type { ExitStore } from '../../domain/deployments/runtime-logs.ts';
import type { NodeStore } from '../../domain/nodes/node-store.ts';
import type { ProjectStore } from '../../domain/projects/project-store.ts';
import type { Holds } from '../long-poll.ts';
import type { Readers } from './readers.ts';

export type RuntimeLogDeps = {
  stores: {
    projects: Pick<ProjectStore, 'get' | 'configured'>;
    deployments: Pick<DeploymentStore, 'get' | 'getMany' | 'list'>;
    instances: Pick<InstanceStore, 'ofDeployments'>;
    exits: ExitStore;
    nodes: Pick<NodeStore, 'getMany'>;
  };
  changes: Changes;
  limits: Limits;
  now: () => number;
  holds: Holds;
  readers: Readers;
};
