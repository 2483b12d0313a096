/** The checks of a running container whose failure means that it does not serve. Pure. */
import type { ObservedContainer } from '@berth/wire/node';
import type { HealthCause } from '@berth/wire/vocabulary';

export type FailingCheck = {
  cause: Extract<HealthCause, 'health_path' | 'image_health_check'>;
  text: string;
};

/** Returns the check that fails; null if none does. The probe from outside shows what users see. */
export function failingCheckOf({
  probe,
  health,
}: Pick<ObservedContainer, 'health' | 'probe'>): FailingCheck | null {
  if (probe?.status === 'unhealthy')
    return { cause: 'health_path', text: `it does not answer${after(probe.output)}` };
  if (health?.status !== 'unhealthy') return null;
  return {
    cause: 'image_health_check',
    text: `the HEALTHCHECK of its image fails${after(health.output)}`,
  };
}

const after = (output: string | undefined): string =>
  output === undefined || output === '' ? '' : `: ${output}`;
