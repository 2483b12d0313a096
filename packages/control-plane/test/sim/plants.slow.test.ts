/**
 * Planted bugs that the checker finds within the first seeds. The others take minutes:
 * plants.faults.test.ts.
 */
import { findPlants, QUICK_PLANTS } from './find-plants.ts';

findPlants(QUICK_PLANTS);
