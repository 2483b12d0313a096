/**
 * npm test: runs every gate and every suite. Continues after a failure, so that one run shows everything. The last line is
 * `N passed, N failed, N skipped`. Arguments select test files; the gates are then left out.
 */
import { conclude, gates, suite } from './lib/suites.ts';

const filters = process.argv.slice(2);
if (filters.length === 0) await gates();
for (const project of ['unit', 'slow', 'real', 'browser'] as const) await suite(project, filters);
conclude();
