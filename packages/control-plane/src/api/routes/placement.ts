/** The scheduler's answer without doing it. */
import { place } from '../../domain/placement.ts';
import type { Define } from '../define.ts';
import type { ApiDeps } from '../deps.ts';

export function placementRoutes(route: Define, { stores, limits, now }: ApiDeps): void {
  route('placement', async ({ query }) => {
    const project = await stores.projects.get(query.project_id);
    const running = (await stores.projects.runningDeployments([project.id])).get(project.id);
    const previous = running === undefined ? null : (await stores.deployments.get(running)).node_id;
    return place(project, await stores.nodes.all('deploy'), now(), limits, [], previous);
  });
}
