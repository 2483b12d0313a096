/**
 * Runs every fault of docs/faults.md with real parts: our own processes, engines in namespaces,
 * registry, git, Traefik. Each row injects a fault and checks the outcome and the invariants.
 * `npm run test:faults`; `npm test` runs a selection (test/e2e/faults-quick.test.ts).
 */
import { ROWS } from './lib/rows.ts';
import { playRows } from './lib/play.ts';

for (const stage of ['main', 'disk', 'data', 'relay'] as const)
  playRows(
    stage,
    ROWS.filter((row) => row.stage === stage),
  );
