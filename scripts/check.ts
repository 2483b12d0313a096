/**
 * npm run check: the gates and the unit tests, in less than a minute on two cores. It starts no
 * Docker, no database server and no browser. Arguments select test files; the gates are then left
 * out. `npm test` runs everything.
 */
import { conclude, gates, suite } from './lib/suites.ts';

const filters = process.argv.slice(2);
// Side by side: the gates and the tests fill both cores.
await Promise.all([filters.length === 0 ? gates() : undefined, suite('unit', filters, 'dot')]);
conclude();
