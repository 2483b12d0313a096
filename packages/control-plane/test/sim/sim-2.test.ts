/** The second half of 200 seeded runs; see sim-1.test.ts. */
import { runSeeds } from './seeds.ts';

runSeeds(101, 200);
