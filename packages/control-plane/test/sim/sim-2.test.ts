/** The second half of 400 seeded runs; see sim-1.test.ts. */
import { runSeeds } from './seeds.ts';

runSeeds(201, 400);
