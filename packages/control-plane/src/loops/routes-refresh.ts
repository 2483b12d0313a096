/**
 * Reads the routes regularly, because another control plane might have changed them. Otherwise the
 * state of the configuration would become unsure.
 */
import type { ConfigSource } from '../domain/routes/configuration.ts';

export type Deps = {
  source: Pick<ConfigSource, 'refresh'>;
};

export const routesRefresh =
  ({ source }: Deps) =>
  async (): Promise<void> => {
    await source.refresh();
  };
