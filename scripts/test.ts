/**
 * npm test: every gate and every suite that guards daily work. Goes on after a failure, so that one run shows everything. The
 * last line counts: `N passed, N failed, N skipped`. Arguments select test files; the gates are then left out.
 */
import { conclude, gates, suite } from './lib/suites.ts';

const filters = process.argv.slice(2);
if (filters.length === 0) await gates();
for (const project of ['unit', 'slow', 'real', 'browser'] as const) await suite(project, filters);
conclude();
