/** The stores that decisions read and that plans change. */
import type { DatasetStore } from '../domain/data/dataset-stores.ts';
import type { VolumeStore } from '../domain/data/volume-store.ts';
import type { CleanUpStore } from '../domain/deployments/clean-up.ts';
import type { DeploymentStore } from '../domain/deployments/deployment-store.ts';
import type { InstanceStore } from '../domain/deployments/instance-store.ts';
import type { FlowStore } from '../domain/deployments/flow-store.ts';
import type { TaskStore } from '../domain/deployments/task-store.ts';
import type { HookStore } from '../domain/git/hooks.ts';
import type { RepositoryLookStore } from '../domain/git/repository-looks.ts';
import type { NodeStore } from '../domain/nodes/node-store.ts';
import type { RunStore } from '../domain/runs/run-store.ts';
import type { ProjectStore } from '../domain/projects/project-store.ts';

export type FlowStores = {
  projects: ProjectStore;
  deployments: DeploymentStore;
  flow: FlowStore;
  instances: InstanceStore;
  tasks: TaskStore;
  nodes: NodeStore;
  volumes: VolumeStore;
  datasets: DatasetStore;
  hooks: HookStore;
  cleanUps: CleanUpStore;
  repositoryLooks: RepositoryLookStore;
  runs: RunStore;
};
