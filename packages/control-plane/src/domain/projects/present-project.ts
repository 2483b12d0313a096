/** Reads a project with the settings that its running version has from berth.toml. */
import type { ProjectRecord } from '../platform/records.ts';
import { withConfig } from './config-file.ts';
import type { ProjectStore } from './project-store.ts';

/** Throws not_found. */
export async function presentProject(
  projects: Pick<ProjectStore, 'get' | 'configured'>,
  id: string,
): Promise<ProjectRecord> {
  const project = await projects.get(id);
  const configured = await projects.configured([project.id]);
  return withConfig(project, configured.get(project.id) ?? null);
}
