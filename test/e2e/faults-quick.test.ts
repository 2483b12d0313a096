/** Some rows of the fault suite; `npm run test:faults` runs all of them. */
import { playRows } from '../faults/lib/play.ts';
import { ROWS } from '../faults/lib/rows.ts';

playRows(
  'main',
  ROWS.filter((row) => row.quick === true),
);
