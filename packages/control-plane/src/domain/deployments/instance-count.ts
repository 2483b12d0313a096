/** Computes how many instances a version should have. Pure. */
import { whyOnlyOne } from '@berth/wire/can';
import type { ProjectSettings } from '../platform/records.ts';
import { webCount } from './instance.ts';

/**
 * Returns how many `web` instances a version with these settings should have; 0: the project is
 * scaled to 0. Devices are leased to the first instance only (domain/nodes/room.ts).
 */
export const countFor = (
  settings: Pick<ProjectSettings, 'datasets' | 'volumes' | 'requires'>,
  project: Pick<ProjectSettings, 'processes'>,
): number => {
  const count = webCount(project);
  return whyOnlyOne(settings) === null ? count : Math.min(1, count);
};
