/**
 * npm test: runs every gate and every suite. Continues after a failure, so that one run shows
 * everything. The last line is `N passed, N failed, N skipped`. Arguments select test files; the
 * gates are then left out.
 */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { conclude, gates, suite } from './lib/suites.ts';

const filters = process.argv.slice(2);
// Some tests run programs in temporary folders, so the compiled code (vitest.config.ts) would grow
// with each run.
rmSync(join(import.meta.dirname, '..', '.tools', 'compile-cache'), {
  recursive: true,
  force: true,
});
if (filters.length === 0) await gates();
for (const project of ['unit', 'slow', 'real', 'alone'] as const) await suite(project, filters);
conclude();
