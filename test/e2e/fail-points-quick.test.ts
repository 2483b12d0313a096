/**
 * kill -9 at some of the fail points; `npm run test:faults` uses all of them (docs/fail-points.md).
 */
import { afterAll, beforeAll, describe, it } from 'vitest';
import { dieAt } from '../faults/fail-points/scenarios.ts';
import { type Stage, startStage } from '../faults/fail-points/stage.ts';
import { FAIL_POINTS, QUICK } from '../faults/fail-points/table.ts';
import { whyNot } from './world.ts';

const reason = await whyNot();

describe.skipIf(reason !== undefined)(
  `kill -9 at a fail point, quick${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    let stage: Stage;
    beforeAll(async () => {
      stage = await startStage();
    });
    afterAll(() => stage?.stop());

    const rows = FAIL_POINTS.filter(({ name }) => QUICK.includes(name));
    it.each(rows.map((point) => [point.name, point] as const))('%s', (_, point) =>
      dieAt(stage, point),
    );
  },
);
