/** Returns which node the scheduler would choose for a project, and why. Changes nothing. */
import { wantedOf } from '../../domain/data/mounts.ts';
import { place } from '../../domain/nodes/placement.ts';
import { limitNeeds } from '../../domain/nodes/build-needs.ts';
import { currentCopy, volumeNeeds } from '../../domain/data/volumes.ts';
import { secretNeeds } from '../../flow/secrets.ts';
import type { Define } from '../define.ts';
import type { ApiDeps } from '../deps.ts';

export function placementRoutes(route: Define, { stores, limits, now, cacheIndex }: ApiDeps): void {
  route('placement', async ({ query }) => {
    const project = await stores.projects.get(query.project_id);
    const running = (await stores.projects.runningDeployments([project.id])).get(project.id);
    const { node_id: runsOn, image_arch: arch } =
      running === undefined
        ? { node_id: null, image_arch: null }
        : await stores.deployments.get(running);
    const wanted = wantedOf(project.datasets, await stores.datasets.facts());
    const needs = [
      ...secretNeeds(await stores.secrets.list(project.id), 'deploy'),
      ...volumeNeeds(project),
      ...limitNeeds(project),
    ];
    const copy =
      project.volumes.length === 0 ? null : currentCopy(await stores.volumes.ofProject(project.id));
    const home = copy === null || copy.names.length === 0 ? null : copy.node_id;
    const question = {
      wanted,
      losses: [],
      runsOn,
      arch,
      stays: project.replace === 'recreate',
      needs,
      home,
    };
    return place(question, await stores.nodes.all(), { now: now(), limits, cacheIndex });
  });
}
