/**
 * kill -9 at each fail point in turn, with the real processes, engine, registry and git: after
 * every kill the deployment ends correctly, the old version answers until the new one is routed,
 * and nothing is left behind.
 */
import { afterAll, beforeAll, describe, it } from 'vitest';
import { whyNot } from '../e2e/world.ts';
import { dieAt } from './fail-points/scenarios.ts';
import { type Stage, startStage } from './fail-points/stage.ts';
import { FAIL_POINTS } from './fail-points/table.ts';

const reason = await whyNot();
/**
 * `FAIL_POINTS=run.,retire.` selects the rows whose names begin with these words,
 * `FAIL_POINTS='volume move'` those of an operation (docs/fail-points.md).
 */
const only = process.env['FAIL_POINTS']?.split(',');
const rows = FAIL_POINTS.filter(
  ({ name, during }) =>
    only === undefined ||
    only.some((word) => (word.includes('.') ? name.startsWith(word) : during === word)),
);

describe.skipIf(reason !== undefined)(
  `kill -9 at a fail point${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    let stage: Stage;
    beforeAll(async () => {
      stage = await startStage();
    });
    afterAll(() => stage?.stop());

    // A row fails when its process does not reach the point: so the suite kills at every point of
    // the table.
    it.each(rows.map((point) => [point.name, point.during, point] as const))(
      '%s (%s)',
      (_, _during, point) => dieAt(stage, point),
      180_000,
    );
  },
);
