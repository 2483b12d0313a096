/** The second half of the seeded runs of a day; see sim-1.slow.test.ts. */
import { runSeedsOfToday } from './seeds.ts';

runSeedsOfToday(1);
