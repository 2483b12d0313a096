/** Says how a stopped project starts. */
import { isScaledToZero, type Project, restsAtZero } from '@berth/wire/project';

type Resting = Pick<Project, 'name' | 'processes' | 'stopped_by_person'>;

export const howToScaleUp = ({ name }: Pick<Project, 'name'>): string =>
  `berth scale web=1 --project ${name}`;

/** A project that a person stopped at count 0 needs both: a start alone leaves it at count 0. */
export function howToStart(project: Resting): string {
  if (restsAtZero(project)) return howToScaleUp(project);
  const start = `berth start ${project.name}`;
  return isScaledToZero(project) ? `${howToScaleUp(project)} && ${start}` : start;
}
