/** The second half of a thousand seeded runs; see sim-1.test.ts. */
import { runSeeds } from './thousand.ts';

runSeeds(501, 1_000);
