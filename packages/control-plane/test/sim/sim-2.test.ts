/** The second half of 600 seeded runs; see sim-1.test.ts. */
import { runSeeds } from './seeds.ts';

runSeeds(301, 600);
