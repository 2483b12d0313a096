/** Computes how many instances a version should have. Pure. */
import { WEB } from '@berth/wire/project';
import { isStopFirst } from '../data/volumes.ts';
import type { DeploymentRecord, ProjectSettings } from '../platform/records.ts';
import { type Counted, countIn, processIn } from '../projects/processes.ts';

/**
 * Returns how many `web` instances a version should have; 0: the project is scaled to 0, or the
 * version has no process `web`.
 */
export const countFor = (
  d: Pick<DeploymentRecord, 'config'> & {
    settings: Pick<ProjectSettings, 'datasets' | 'volumes' | 'processes'>;
  },
  project: Counted,
): number => {
  const web = processIn(d.settings, WEB);
  if (web === undefined) return 0;
  const count = countIn(project, web, d);
  return isStopFirst(d.settings) ? Math.min(1, count) : count;
};
