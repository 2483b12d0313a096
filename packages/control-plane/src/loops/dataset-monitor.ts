/**
 * Scans datasets that are due by their interval or on request. Each scan needs the claim on its
 * dataset, so several control planes can run this loop. The claim is renewed during the scan,
 * returned at shutdown, and expires if the process dies.
 */
import { randomUUID } from 'node:crypto';
import { messageOf } from '@berth/kit/message-of';
import type { ScanClaim, DatasetStore } from '../domain/data/dataset-stores.ts';
import type { Scanner, ScanOutcome, ScanRequest, ScanResult } from '../domain/data/scan.ts';
import { afterScan } from '../flow/dataset.ts';
import type { Changes } from '../domain/platform/changes.ts';
import type { UptimeClock } from '../domain/platform/uptime.ts';
import type { Driver } from '../flow/driver.ts';
import type { ScanSettings } from './settings.ts';
import type { Logger } from '@berth/kit/log';

/**
 * Lifetime of a claim in ms: after this time, others can scan the datasets of a dead control plane.
 */
const CLAIM_MS = 30_000;
const RENEW_MS = CLAIM_MS / 3;
/** Interval in ms at which the loop checks for more due datasets while scans run. */
const CHECK_MS = 2_000;

export type Deps = {
  datasets: Pick<
    DatasetStore,
    'claimDue' | 'finishScan' | 'giveBack' | 'prune' | 'record' | 'renewClaim'
  >;
  driver: Pick<Driver, 'datasetChanged'>;
  changes: Pick<Changes, 'notify' | 'wait'>;
  /** Uptime clock, used for every deadline. */
  uptime: Pick<UptimeClock, 'now'>;
  /** Null without shared storage. */
  scans: ScanSettings | null;
  log: Logger;
  now: () => number;
};

export const datasetMonitor =
  (deps: Deps): ((signal: AbortSignal) => Promise<void>) =>
  async (signal) => {
    const { datasets, changes, now, uptime, log, scans } = deps;
    if (scans === null) return;
    const active = new Set<Promise<void>>();
    try {
      for (;;) {
        while (active.size < scans.scansAtOnce && !signal.aborted) {
          const { at } = await uptime.now();
          const claim = await datasets.claimDue(randomUUID(), now(), at + CLAIM_MS, at);
          if (claim === null) break;
          const scan = scanOne(deps, scans.scanner, claim, signal)
            .catch((error: unknown) =>
              log.error({ err: error, dataset: claim.dataset.name }, 'could not end a scan'),
            )
            .finally(() => active.delete(scan));
          active.add(scan);
        }
        if (active.size === 0) return;
        const woken = new AbortController();
        await Promise.race([...active, changes.wait('datasets', CHECK_MS, woken.signal)]);
        woken.abort();
      }
    } finally {
      // Wait for all scans: each one ends by itself, or soon after the signal.
      await Promise.all(active);
    }
  };

async function scanOne(
  deps: Deps,
  scanner: Scanner,
  claim: ScanClaim,
  stop: AbortSignal,
): Promise<void> {
  const { datasets, changes, uptime, log } = deps;
  const { dataset } = claim;
  const lost = new AbortController();
  const signal = AbortSignal.any([stop, lost.signal]);
  const renew = async (): Promise<boolean> =>
    datasets.renewClaim(claim, (await uptime.now()).at + CLAIM_MS);
  const renewal = setInterval(() => {
    renew().then(
      (held) => held || lost.abort(),
      // Only warn: the database might be back before the claim expires, and each write checks the
      // claim.
      (error: unknown) =>
        log.warn({ err: error, dataset: dataset.name }, 'could not renew the claim on a dataset'),
    );
  }, RENEW_MS);
  try {
    if ((await scanAndRecord(deps, scanner, claim, signal)) !== 'new version') return;
    changes.notify('datasets', 'work', 'events');
    await deps.driver.datasetChanged(dataset.id);
  } catch (error) {
    // Keep the claim of a failed scan whose result could not be recorded, until it expires.
    // Otherwise the scan would repeat without a pause.
    if (!signal.aborted) throw error;
    await datasets.giveBack(claim);
  } finally {
    clearInterval(renewal);
  }
}

/**
 * Scans a dataset and records the result. Records an internal error as the dataset's problem; the
 * next scan follows soon, but not at once, because the error might be permanent.
 */
async function scanAndRecord(
  deps: Deps,
  scanner: Scanner,
  claim: ScanClaim,
  signal: AbortSignal,
): Promise<Recorded> {
  const { datasets, now, log, scans } = deps;
  const { dataset } = claim;
  if (scans === null) throw new Error('there is no share');
  try {
    const removed = await datasets.prune(claim, scans.historyKeep);
    if (removed > 0)
      log.info({ dataset: dataset.name, versions: removed }, 'old versions of a dataset removed');
    const scan = await scanner.scan(requestOf(scans.basePath, claim), { signal });
    try {
      return await record(deps, claim, scan, scans.scanIntervalMs, signal);
    } finally {
      if (scan.kind === 'changed') await scan.dispose();
    }
  } catch (error) {
    if (signal.aborted) throw error;
    log.error({ err: error, dataset: dataset.name }, 'scan failed; will retry');
    const problem = 'the scan failed; Berth retries it: ' + messageOf(error);
    const plan = afterScan(
      dataset,
      { kind: 'changing', problem },
      { now: now(), intervalMs: scans.scanIntervalMs },
    );
    return (await datasets.finishScan(claim, plan, now())) ? 'no version' : 'claim lost';
  }
}

type Recorded = 'new version' | 'no version' | 'claim lost';

async function record(
  { datasets, now, log }: Deps,
  claim: ScanClaim,
  found: ScanResult,
  intervalMs: number,
  signal: AbortSignal,
): Promise<Recorded> {
  const plan = afterScan(claim.dataset, found, { now: now(), intervalMs });
  if (plan.newVersion !== null && found.kind === 'changed') {
    if (!(await datasets.record(claim, plan.newVersion, found.objects, signal)))
      return 'claim lost';
  }
  signal.throwIfAborted();
  if (!(await datasets.finishScan(claim, plan, now()))) return 'claim lost';
  logOutcome(log, claim, found, plan.newVersion?.version ?? null);
  return plan.newVersion === null ? 'no version' : 'new version';
}

function requestOf(basePath: string, { dataset }: ScanClaim): ScanRequest {
  const { version, manifest_digest, files, bytes } = dataset;
  return {
    datasetId: dataset.id,
    basePath,
    nfsPath: dataset.nfs_path,
    full: dataset.scan_full,
    previous:
      version === null || manifest_digest === null
        ? null
        : { manifestDigest: manifest_digest, files, bytes },
    share: dataset.share,
    acceptLoss: dataset.accept_loss,
  };
}

function logOutcome(
  log: Logger,
  { dataset }: ScanClaim,
  found: ScanOutcome,
  version: number | null,
): void {
  const fields = { dataset_id: dataset.id, dataset: dataset.name };
  if (version !== null) log.info({ ...fields, version }, 'new dataset version');
  // Log each problem once, not at every scan of an unreachable share.
  if ('problem' in found && found.problem !== dataset.problem)
    log.warn({ ...fields, problem: found.problem }, `dataset ${found.kind}`);
  else if (!('problem' in found) && dataset.problem !== null) log.info(fields, 'dataset ok again');
}
