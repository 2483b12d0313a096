/** Planted bugs that only some seeds show, after a rare fault. */
import { FOUND_BY, findPlants, QUICK_PLANTS } from './find-plants.ts';

findPlants(
  (Object.keys(FOUND_BY) as (keyof typeof FOUND_BY)[]).filter(
    (plant) => !QUICK_PLANTS.includes(plant),
  ),
);
