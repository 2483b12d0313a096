/**
 * Finishes deletions of projects and nodes: removes the row after the agents have reported that no
 * container is left.
 */
import { failPoint } from '@berth/kit/fail-point';
import type { FlowStore } from '../domain/deployments/flow-store.ts';
import type { NodeStore } from '../domain/nodes/node-store.ts';
import type { Changes } from '../domain/platform/changes.ts';
import type { ProjectStore } from '../domain/projects/project-store.ts';
import type { Driver } from '../flow/driver.ts';
import type { Logger } from '@berth/kit/log';

export type Deps = {
  projects: Pick<ProjectStore, 'listDeleting' | 'removeIfGone'>;
  flow: Pick<FlowStore, 'facts'>;
  nodes: Pick<NodeStore, 'listDeleting' | 'removeIfGone'>;
  driver: Pick<Driver, 'advance' | 'vacate'>;
  changes: Pick<Changes, 'notify'>;
  log: Logger;
};

export const removals =
  ({ projects, flow, nodes, driver, changes, log }: Deps) =>
  async (signal: AbortSignal): Promise<void> => {
    for (const project of await projects.listDeleting()) {
      if (signal.aborted) return;
      // End deployments that were requested during the deletion.
      const { live } = await flow.facts(project.id);
      for (const d of live) await driver.advance(d.id, { type: 'project_deleted' });
      if (!(await projects.removeIfGone(project.id))) continue;
      await failPoint('project.remove.after');
      changes.notify('policy');
      log.info({ project_id: project.id, project: project.name }, 'project deleted');
    }
    for (const node of await nodes.listDeleting()) {
      if (signal.aborted) return;
      // Move deployments that were assigned to the node during the deletion.
      await driver.vacate(node.id);
      if (!(await nodes.removeIfGone(node.id, false))) continue;
      await failPoint('node.remove.after');
      log.info({ node_id: node.id, hostname: node.hostname }, 'node deleted');
    }
  };
