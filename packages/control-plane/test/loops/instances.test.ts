/** For which deployments the loop of instances asks for a decision. */
import { silentLogger } from '@berth/kit/log';
import { expect, test } from 'vitest';
import type { InstanceRecord } from '../../src/domain/deployments/instance.ts';
import type { ScaledDeployment } from '../../src/domain/deployments/instance-store.ts';
import { type Deps, instances } from '../../src/loops/instances.ts';

const row = (number: number, state: InstanceRecord['state']): Partial<InstanceRecord> => ({
  id: `${number}-${state}`,
  deployment_id: 'd1',
  process: 'web',
  number,
  state,
});
const first: ScaledDeployment = {
  id: 'd1',
  instance_number: 1,
  lost_since: null,
  count: 2,
  workers: {},
  is_held: false,
};

test.each([
  ['as many as wanted', {}, [row(2, 'serving')], false],
  ['one is missing', {}, [], true],
  ['one is too many', { count: 1 }, [row(2, 'serving')], true],
  ['a draining one does not count', { count: 1 }, [row(2, 'draining')], false],
  // During a drain an instance and its replacement have one number.
  ['a drain moves one', {}, [row(2, 'serving'), row(2, 'starting')], false],
  ['a drain moves the first one', {}, [row(1, 'starting'), row(2, 'serving')], false],
  [
    'the first one is lost and has a replacement',
    { lost_since: 1 },
    [row(1, 'starting'), row(2, 'serving')],
    false,
  ],
  ['a lost one has no replacement', {}, [row(2, 'lost')], true],
  ['a lost one waits for its node', { is_held: true }, [row(2, 'lost')], false],
  [
    'a lost one waits, and the count is smaller now',
    { is_held: true, count: 1 },
    [row(2, 'lost')],
    true,
  ],
  ['it is scaled to 0', { count: 0 }, [], true],
  ['one waits for a node', {}, [row(2, 'waiting')], true],
])('%s', async (_, over, rows, asks) => {
  const asked: string[] = [];
  const deps = {
    instances: { all: async () => rows, scaled: async () => [{ ...first, ...over }] },
    driver: { advance: async (id: string) => void asked.push(id) },
    log: silentLogger(),
  };
  await instances(deps as unknown as Deps)(new AbortController().signal);
  expect(asked).toEqual(asks ? ['d1'] : []);
});
