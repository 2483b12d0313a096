/**
 * Scans datasets that are due: by their period, or because somebody asked. Several control planes may do so side by side; a claim
 * says which one scans a dataset, is renewed while it does, given back when this process ends, and taken over when it dies.
 */
import { randomUUID } from 'node:crypto';
import type { ScanClaim } from '../domain/dataset-stores.ts';
import type { Scanner, ScanOutcome, ScanRequest, ScanResult } from '../domain/scan.ts';
import { afterScan } from '../flow/dataset.ts';
import type { LoopDeps } from './deps.ts';

/** How long a control plane that died keeps others from its datasets. */
const CLAIM_MS = 30_000;
const RENEW_MS = CLAIM_MS / 3;
/** While it scans, how soon it looks whether others are due when nobody says so. */
const LOOK_MS = 2_000;

export const datasetMonitor =
  (deps: LoopDeps): ((signal: AbortSignal) => Promise<void>) =>
  async (signal) => {
    const { stores, changes, now, uptime, log, datasets } = deps;
    if (datasets === null) return;
    const active = new Set<Promise<void>>();
    try {
      for (;;) {
        while (active.size < datasets.scansAtOnce && !signal.aborted) {
          const { at } = await uptime.now();
          const claim = await stores.datasets.claimDue(randomUUID(), now(), at + CLAIM_MS, at);
          if (claim === null) break;
          const scan = scanOne(deps, datasets.scanner, claim, signal)
            .catch((error: unknown) => log.error({ err: error, dataset: claim.dataset.name }, 'a scan could not be ended'))
            .finally(() => active.delete(scan));
          active.add(scan);
        }
        if (active.size === 0) return;
        const woken = new AbortController();
        await Promise.race([...active, changes.wait('datasets', LOOK_MS, woken.signal)]);
        woken.abort();
      }
    } finally {
      // None is left behind, whatever ended this run: each ends by itself, and soon after the signal.
      await Promise.all(active);
    }
  };

async function scanOne(deps: LoopDeps, scanner: Scanner, claim: ScanClaim, stop: AbortSignal): Promise<void> {
  const { stores, changes, uptime, log } = deps;
  const { dataset } = claim;
  const lost = new AbortController();
  const signal = AbortSignal.any([stop, lost.signal]);
  const renew = async (): Promise<boolean> => stores.datasets.renewClaim(claim, (await uptime.now()).at + CLAIM_MS);
  const renewal = setInterval(() => {
    renew().then(
      (held) => held || lost.abort(),
      // It may come back before the claim runs out; each write asks for the claim anyway.
      (error: unknown) => log.warn({ err: error, dataset: dataset.name }, 'the claim on a dataset could not be renewed'),
    );
  }, RENEW_MS);
  try {
    if ((await scanAndRecord(deps, scanner, claim, signal)) !== 'new version') return;
    changes.notify('datasets', 'work', 'events');
    await deps.driver.datasetChanged(dataset.id);
  } catch (error) {
    // What cannot even be recorded as failed keeps its claim until that runs out: tried at once, it would be tried without end.
    if (!signal.aborted) throw error;
    await stores.datasets.giveBack(claim);
  } finally {
    clearInterval(renewal);
  }
}

/** An error of ours is told as the dataset's problem and tried again soon: what always fails must not be tried without end. */
async function scanAndRecord(deps: LoopDeps, scanner: Scanner, claim: ScanClaim, signal: AbortSignal): Promise<Recorded> {
  const { stores, now, log, datasets } = deps;
  const { dataset } = claim;
  if (datasets === null) throw new Error('there is no share');
  try {
    const forgotten = await stores.datasets.prune(claim, datasets.historyKeep);
    if (forgotten > 0) log.info({ dataset: dataset.name, versions: forgotten }, 'old versions of a dataset forgotten');
    const found = await scanner.scan(requestOf(datasets.basePath, claim), { signal });
    try {
      return await recorded(deps, claim, found, datasets.scanIntervalMs, signal);
    } finally {
      if (found.kind === 'changed') await found.dispose();
    }
  } catch (error) {
    if (signal.aborted) throw error;
    log.error({ err: error, dataset: dataset.name }, 'a scan failed; it is tried again');
    const problem = `the scan failed and is tried again: ${error instanceof Error ? error.message : String(error)}`;
    const plan = afterScan(dataset, { kind: 'unsettled', problem }, { now: now(), intervalMs: datasets.scanIntervalMs });
    return (await stores.datasets.finishScan(claim, plan, now())) ? 'no version' : 'claim lost';
  }
}

type Recorded = 'new version' | 'no version' | 'claim lost';

async function recorded(
  { stores, now, log }: LoopDeps,
  claim: ScanClaim,
  found: ScanResult,
  intervalMs: number,
  signal: AbortSignal,
): Promise<Recorded> {
  const plan = afterScan(claim.dataset, found, { now: now(), intervalMs });
  if (plan.newVersion !== null && found.kind === 'changed') {
    if (!(await stores.datasets.record(claim, plan.newVersion, found.objects, signal))) return 'claim lost';
  }
  signal.throwIfAborted();
  if (!(await stores.datasets.finishScan(claim, plan, now()))) return 'claim lost';
  tellOutcome(log, claim, found, plan.newVersion?.version ?? null);
  return plan.newVersion === null ? 'no version' : 'new version';
}

function requestOf(basePath: string, { dataset }: ScanClaim): ScanRequest {
  const { version, manifest_digest, files, bytes } = dataset;
  return {
    datasetId: dataset.id,
    basePath,
    nfsPath: dataset.nfs_path,
    full: dataset.scan_full,
    previous: version === null || manifest_digest === null ? null : { manifestDigest: manifest_digest, files, bytes },
    share: dataset.share,
    acceptLoss: dataset.accept_loss,
  };
}

function tellOutcome(log: LoopDeps['log'], { dataset }: ScanClaim, found: ScanOutcome, version: number | null): void {
  const fields = { dataset_id: dataset.id, dataset: dataset.name };
  if (version !== null) log.info({ ...fields, version }, 'a dataset has a new version');
  // Once for each state, not at every scan of a share that is away.
  if ('problem' in found && found.problem !== dataset.problem) log.warn({ ...fields, problem: found.problem }, `dataset ${found.kind}`);
  else if (!('problem' in found) && dataset.problem !== null) log.info(fields, 'a dataset is well again');
}
