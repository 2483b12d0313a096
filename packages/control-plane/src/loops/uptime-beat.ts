/** Reads the uptime clock at a fixed interval, because the clock advances only when it is read. */
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
