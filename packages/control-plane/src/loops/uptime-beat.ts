/** Advances the uptime clock if no other reader does. */
import type { UptimeClock } from '../domain/platform/uptime.ts';

export type Deps = {
  /** Uptime clock, used for every deadline. */
  uptime: Pick<UptimeClock, 'now'>;
};

export const uptimeBeat =
  ({ uptime }: Deps) =>
  async (): Promise<void> => {
    await uptime.now();
  };
