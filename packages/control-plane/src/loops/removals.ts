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
import { each } from './each.ts';

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
  async (signal: AbortSignal): Promise<string | undefined> => {
    const ofProjects = await each(await projects.listDeleting(), signal, {
      async step({ id, name }) {
        // End deployments that were requested during the deletion.
        const { live } = await flow.facts(id);
        for (const d of live) await driver.advance(d.id, { type: 'project_deleted' });
        if (!(await projects.removeIfGone(id))) return;
        await failPoint('project.remove.after');
        changes.notify('policy');
        log.info({ project_id: id, project: name }, 'project deleted');
      },
      failed: (err, { id, name }) =>
        log.error(
          { err, project_id: id, project: name },
          'could not finish the deletion of a project; will retry',
        ),
    });
    const ofNodes = await each(await nodes.listDeleting(), signal, {
      async step({ id, hostname }) {
        // Move deployments that were assigned to the node during the deletion.
        await driver.vacate(id);
        if (!(await nodes.removeIfGone(id, false))) return;
        await failPoint('node.remove.after');
        log.info({ node_id: id, hostname }, 'node deleted');
      },
      failed: (err, { id, hostname }) =>
        log.error(
          { err, node_id: id, hostname },
          'could not finish the deletion of a node; will retry',
        ),
    });
    return ofProjects ?? ofNodes;
  };
