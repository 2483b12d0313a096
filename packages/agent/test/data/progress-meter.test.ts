/** The progress of one copy. */
import { expect, it } from 'vitest';
import { createProgressMeter } from '../../src/data/progress-meter.ts';

const WANT = { dataset_id: 'd', name: 'set', nfs_path: 'set', version: 2, manifest_digest: '' };

it('the rate and the remaining time come from the last 10 s, not from the whole copy', () => {
  let now = 0;
  const meter = createProgressMeter(
    WANT,
    () => undefined,
    () => now,
  );
  meter.step('copying', 10_000);
  meter.bytes(0);
  expect(meter.now()).toMatchObject({ bytes_per_second: null, remaining_seconds: null });
  now = 20_000;
  meter.bytes(2_000);
  now = 22_000;
  meter.bytes(4_000);
  expect(meter.now()).toMatchObject({
    step: 'copying',
    bytes_done: 4_000,
    bytes_total: 10_000,
    bytes_per_second: 1_000,
    remaining_seconds: 6,
  });
  meter.step('verifying');
  expect(meter.now()).toMatchObject({ bytes_done: 4_000, bytes_per_second: null });
  meter.restart({ ...WANT, version: 3 });
  expect(meter.now()).toMatchObject({ version: 3, step: 'waiting', bytes_done: 0, bytes_total: 0 });
});
