/** Computes how many instances a version should have. Pure. */
import { WEB } from '@berth/wire/project';
import { isStopFirst } from '../data/volumes.ts';
import type { ProjectSettings } from '../platform/records.ts';
import { type Counted, countIn, processIn } from '../projects/processes.ts';

/**
 * Returns how many `web` instances a version with these settings should have; 0: the project is
 * scaled to 0.
 */
export const countFor = (
  settings: Pick<ProjectSettings, 'datasets' | 'volumes' | 'processes'>,
  project: Counted,
): number => {
  const count = countIn(project, processIn(settings, WEB) ?? { name: WEB });
  return isStopFirst(settings) ? Math.min(1, count) : count;
};
