/**
 * Ends routes that the proxy's configuration omits because a later route leads to the same address
 * (routing/traefik.ts). The health and the story of the deployments then say so. A route is
 * published again when a report shows the deployment's own container.
 */
import type { ConfigSource } from '../domain/routes/configuration.ts';
import type { Driver } from '../flow/driver.ts';

export type Deps = {
  driver: Pick<Driver, 'advance'>;
  source: Pick<ConfigSource, 'current'>;
};

export const routeCollisions =
  ({ source, driver }: Deps) =>
  async (signal: AbortSignal): Promise<void> => {
    for (const { deployment_id, ...taken } of source.current().collisions) {
      if (signal.aborted) return;
      await driver.advance(deployment_id, { type: 'address_taken', ...taken, isRouted: true });
    }
  };
