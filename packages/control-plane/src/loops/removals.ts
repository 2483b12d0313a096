/**
 * Finishes deletions of projects and nodes: removes the row when the agents have reported that no
 * container is left.
 */
import { failPoint } from '@berth/kit/fail-point';
import type { LoopDeps } from './deps.ts';

export const removals =
  ({ stores, driver, changes, log }: LoopDeps) =>
  async (signal: AbortSignal): Promise<void> => {
    for (const project of await stores.projects.listDeleting()) {
      if (signal.aborted) return;
      // Ends deployments that were requested during the deletion.
      const { live } = await stores.flow.facts(project.id);
      for (const d of live) await driver.advance(d.id, { type: 'project_deleted' });
      if (!(await stores.projects.removeIfGone(project.id))) continue;
      await failPoint('project.remove.after');
      changes.notify('policy');
      log.info({ project_id: project.id, project: project.name }, 'project deleted');
    }
    for (const node of await stores.nodes.listDeleting()) {
      if (signal.aborted) return;
      // Moves deployments that were assigned to the node during the deletion.
      await driver.vacate(node.id);
      if (!(await stores.nodes.removeIfGone(node.id, false))) continue;
      await failPoint('node.remove.after');
      log.info({ node_id: node.id, hostname: node.hostname }, 'node deleted');
    }
  };
