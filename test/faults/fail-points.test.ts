/**
 * kill -9 at each named fail point in turn, with the real processes, engine, registry and git: whoever dies wherever, the
 * deployment ends as it should, the old version answers until the new one is routed, and nothing is left over.
 */
import { afterAll, beforeAll, describe, it } from 'vitest';
import { whyNot } from '../e2e/world.ts';
import { dieAt } from './fail-points/scenarios.ts';
import { type Stage, startStage } from './fail-points/stage.ts';
import { FAIL_POINTS } from './fail-points/table.ts';

const reason = await whyNot();
/** `FAIL_POINTS=run.,retire.` runs the rows whose names begin so. */
const only = process.env['FAIL_POINTS']?.split(',');
const rows = FAIL_POINTS.filter(({ name }) => only === undefined || only.some((prefix) => name.startsWith(prefix)));

describe.skipIf(reason !== undefined)(`kill -9 at a fail point${reason === undefined ? '' : ` (skipped: ${reason})`}`, () => {
  let stage: Stage;
  beforeAll(async () => {
    stage = await startStage();
  });
  afterAll(() => stage?.stop());

  // A row whose process does not pass its point fails: no point is in the table that the suite does not die at.
  it.each(rows.map((point) => [point.name, point] as const))('%s', (_, point) => dieAt(stage, point), 180_000);
});
