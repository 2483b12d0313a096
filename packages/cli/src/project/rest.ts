/** Says how a stopped project starts. */
import { isScaledToZero, type Project } from '@berth/wire/project';

type Resting = Pick<Project, 'name' | 'processes'>;

export const howToStart = (project: Resting): string =>
  isScaledToZero(project)
    ? `berth scale web=1 --project ${project.name}`
    : `berth start ${project.name}`;
