/** Tests each state of a dataset with each outcome of a scan. */
import fc from 'fast-check';
import { DATASET_STATES, type DatasetState } from '@berth/wire/dataset';
import { expect, test } from 'vitest';
import type { ScanOutcome } from '../../src/domain/data/scan.ts';
import { afterScan } from '../../src/flow/dataset.ts';

const NOW = 1_790_000_000_000;
const digest = (c: string): string => `sha256:${c.repeat(64)}`;
const share = { marker: 'm', mount: null };
const skipped = { count: 1, first: [{ path: 'fifo', reason: 'a FIFO' }] };

const OUTCOMES: Record<ScanOutcome['kind'], ScanOutcome> = {
  unchanged: { kind: 'unchanged', files: 3, bytes: 30, skipped, share },
  changed: { kind: 'changed', manifestDigest: digest('b'), files: 4, bytes: 40, skipped, share },
  unreachable: { kind: 'unreachable', problem: 'not mounted' },
  suspicious: {
    kind: 'suspicious',
    problem: 'emptied',
    files: 0,
    bytes: 0,
    share: { marker: 'm', mount: null },
  },
  changing: { kind: 'changing', problem: 'a.log kept changing' },
};
const known = (status: DatasetState) => ({ status, version: 7, manifest_digest: digest('a') });
const fresh = (status: DatasetState) => ({ status, version: null, manifest_digest: null });
const at = { now: NOW, intervalMs: 600_000 };

test.each(
  DATASET_STATES.flatMap((status) =>
    Object.values(OUTCOMES).map((found) => [status, found.kind, found] as const),
  ),
)('%s, then %s', (status, kind, found) => {
  const { set, newVersion } = afterScan(known(status), found, at);
  const next = {
    unchanged: 'ok',
    changed: 'ok',
    unreachable: 'unreachable',
    suspicious: 'suspicious',
    changing: status,
  }[kind];
  expect(set.status).toBe(next);
  expect(set.problem).toBe('problem' in found ? found.problem : null);
  expect(newVersion).toEqual(
    kind === 'changed' ? { version: 8, manifest_digest: digest('b'), files: 4, bytes: 40 } : null,
  );
  // Skipped files are known only after a good scan, and the identity of the share also after one
  // that found a loss.
  expect(set.skipped).toEqual('skipped' in found ? skipped : undefined);
  expect(set.share).toEqual('share' in found ? found.share : undefined);
  expect(set.next_scan_at - NOW).toBe(
    kind === 'unreachable' || kind === 'changing' ? 60_000 : 600_000,
  );
});

test('the first scanned content is version 1, and an impossible outcome throws', () => {
  expect(afterScan(fresh('new'), OUTCOMES.changed, at).newVersion?.version).toBe(1);
  expect(afterScan(fresh('unreachable'), OUTCOMES.changed, at).newVersion?.version).toBe(1);
  expect(afterScan(fresh('new'), OUTCOMES.unreachable, at)).toMatchObject({
    set: { status: 'unreachable' },
    newVersion: null,
  });
  expect(() => afterScan(fresh('new'), OUTCOMES.unchanged, at)).toThrow();
});

test('unchanged content after a full scan creates no version', () => {
  const found: ScanOutcome = {
    kind: 'changed',
    manifestDigest: digest('a'),
    files: 3,
    bytes: 30,
    skipped,
    share,
  };
  expect(afterScan(known('suspicious'), found, at)).toMatchObject({
    set: { status: 'ok', problem: null },
    newVersion: null,
  });
});

test('over any sequence of scans versions rise by one, only for scanned content', () => {
  const outcome = fc.oneof(
    fc.constantFrom('a', 'b', 'c').map(
      (c): ScanOutcome => ({
        kind: 'changed',
        manifestDigest: digest(c),
        files: 1,
        bytes: 1,
        skipped,
        share,
      }),
    ),
    fc.constantFrom<ScanOutcome>(OUTCOMES.unreachable, OUTCOMES.suspicious, OUTCOMES.changing),
  );
  fc.assert(
    fc.property(
      fc.array(outcome, { maxLength: 30 }),
      fc.integer({ min: 1, max: 10_000_000 }),
      (outcomes, intervalMs) => {
        let dataset: {
          status: DatasetState;
          version: number | null;
          manifest_digest: string | null;
        } = fresh('new');
        let now = NOW;
        for (const found of outcomes) {
          const { set, newVersion } = afterScan(dataset, found, { now, intervalMs });
          expect(set.last_scanned_at).toBe(now);
          expect(set.next_scan_at).toBeGreaterThan(now);
          expect(set.next_scan_at).toBeLessThanOrEqual(now + intervalMs);
          expect((set.problem === null) === (found.kind === 'changed')).toBe(true);
          if (newVersion !== null) {
            expect(newVersion.version).toBe((dataset.version ?? 0) + 1);
            expect(newVersion.manifest_digest).not.toBe(dataset.manifest_digest);
          }
          dataset = { ...dataset, status: set.status, ...newVersion };
          if (found.kind === 'changed') expect(dataset.manifest_digest).toBe(found.manifestDigest);
          now = set.next_scan_at;
        }
      },
    ),
  );
});
