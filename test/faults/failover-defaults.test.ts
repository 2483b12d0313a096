/**
 * The times that operators get: FAILOVER_AFTER is 30 s, OFFLINE_AFTER 2 minutes. A machine, its
 * cable or the control plane stops while clients send 50 requests a second through the real proxy.
 * The file takes about 12 minutes.
 */
import { afterAll, beforeAll, describe, it } from 'vitest';
import { whyNotManyNodes } from '../e2e/many-nodes-world.ts';
import {
  cableOutForLonger,
  cableOutShortly,
  controlPlaneAway,
  type FailoverStage,
  powerCutOfOne,
  powerCutOfTwo,
  startFailoverStage,
} from './lib/failover-rows.ts';

const reason = whyNotManyNodes();
const MINUTE = 60_000;

describe.skipIf(reason !== undefined)(
  `failover with default times${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    let stage: FailoverStage;
    beforeAll(async () => {
      stage = await startFailoverStage({ FAILOVER_AFTER: '30s', OFFLINE_AFTER: '2m' });
    }, 4 * MINUTE);
    afterAll(() => stage?.stop());

    it(
      'a cable that is out for 20 s: nothing moves',
      () => cableOutShortly(stage, 20_000),
      4 * MINUTE,
    );

    it(
      'a cable that is out for 60 s: the instance moves once, and one container is left after the return',
      () => cableOutForLonger(stage, MINUTE),
      6 * MINUTE,
    );

    it(
      'power cut of the machine of one instance: it answers from another one',
      () => powerCutOfOne(stage),
      8 * MINUTE,
    );

    it(
      'power cut of a machine of two instances: at most 1 % of the requests fail',
      () => powerCutOfTwo(stage),
      8 * MINUTE,
    );

    it(
      'a control plane that is away for five minutes: no request fails, and nothing moves',
      () => controlPlaneAway(stage, 5 * MINUTE),
      9 * MINUTE,
    );
  },
);
