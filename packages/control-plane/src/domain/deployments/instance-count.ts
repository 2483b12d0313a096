/** Computes how many instances a version should have. Pure. */
import { isStopFirst } from '../data/volumes.ts';
import type { ProjectSettings } from '../platform/records.ts';
import { webCount } from './instance.ts';

/**
 * Returns how many `web` instances a version with these settings should have; 0: the project is
 * scaled to 0.
 */
export const countFor = (
  settings: Pick<ProjectSettings, 'datasets' | 'volumes'>,
  project: Pick<ProjectSettings, 'processes'>,
): number => {
  const count = webCount(project);
  return isStopFirst(settings) ? Math.min(1, count) : count;
};
