/**
 * Every fault of docs/faults.md with real parts: our own processes, engines in namespaces, registry, git, Traefik. One row each:
 * inject, what must happen, which invariants. `npm run test:faults`; a selection is in `npm test` (test/e2e/faults-quick.test.ts).
 */
import { ROWS } from './lib/rows.ts';
import { playRows } from './lib/play.ts';

for (const stage of ['main', 'disk', 'data', 'relay'] as const)
  playRows(
    stage,
    ROWS.filter((row) => row.stage === stage),
  );
