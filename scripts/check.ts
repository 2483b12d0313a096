/**
 * npm run check: the gates and the unit tests, in less than a minute on two cores. It starts no
 * Docker, no database server and no browser. Arguments select test files; the gates are then left
 * out. `npm test` runs everything.
 */
import { conclude, gates, suite } from './lib/suites.ts';

const filters = process.argv.slice(2);
// One after the other: side by side on two cores, each makes the other wait until time limits fail.
if (filters.length === 0) await gates();
await suite('unit', filters, 'dot');
conclude();
