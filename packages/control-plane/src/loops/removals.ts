/** Finishes what DELETE of a project or node began: the row goes when the agents have reported that nothing of it is left. */
import { failPoint } from '@berth/kit/fail-point';
import type { LoopDeps } from './deps.ts';

export const removals =
  ({ stores, driver, changes, log }: LoopDeps) =>
  async (signal: AbortSignal): Promise<void> => {
    for (const project of await stores.projects.listDeleting()) {
      if (signal.aborted) return;
      // A deployment that was requested at the very moment of the deletion ends here.
      const { live } = await stores.flow.facts(project.id);
      for (const d of live) await driver.advance(d.id, { type: 'project_deleted' });
      if (!(await stores.projects.removeIfGone(project.id))) continue;
      await failPoint('project.remove.after');
      changes.notify('policy');
      log.info({ project_id: project.id, project: project.name }, 'project deleted');
    }
    for (const node of await stores.nodes.listDeleting()) {
      if (signal.aborted) return;
      // A deployment that was placed there at the very moment of the deletion goes elsewhere.
      await driver.vacate(node.id);
      if (!(await stores.nodes.removeIfGone(node.id, false))) continue;
      await failPoint('node.remove.after');
      log.info({ node_id: node.id, hostname: node.hostname }, 'node deleted');
    }
  };
