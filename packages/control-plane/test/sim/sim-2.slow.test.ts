/** The second half of 100 seeded runs; see sim-1.slow.test.ts. */
import { runSeeds } from './seeds.ts';

runSeeds(51, 100);
