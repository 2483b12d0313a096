/**
 * An uptime clock of a control plane that has always been there: a test that moves its clock means
 * that Berth served all the while.
 */
import type { UptimeClock } from '../src/domain/platform/uptime.ts';

export const steadyUptime = (now: () => number): UptimeClock => ({
  now: () => Promise.resolve({ at: now(), since: 0 }),
  estimate: () => ({ at: now(), since: 0 }),
});
