/** Handles the dataset versions of a deployment and adds story lines about them. Pure. */
import type { TaskReport } from '@berth/wire/task';
import type { DatasetFact } from '../domain/deployments/facts.ts';
import { newerVersions } from '../domain/data/mounts.ts';
import type { DeploymentRecord, PinnedDataset } from '../domain/platform/records.ts';
import type { Draft } from './plan-draft.ts';

/** Assumed copy rate in bytes per second: an old disk over a slow network. */
const SLOWEST_COPY = 10_000_000;

/**
 * Returns the time in ms that a deploy task gets for its copies. Assumes SLOWEST_COPY, or the
 * measured rate if that is slower.
 */
export const copyMs = (bytes: number, rate: number | null): number =>
  Math.ceil((bytes / Math.min(rate ?? SLOWEST_COPY, SLOWEST_COPY)) * 1000);

/**
 * Adds a story line for each dataset whose version differs from `before`. `whose` names the
 * deployment that had `before`.
 */
export function addVersions(
  draft: Draft,
  d: Pick<DeploymentRecord, 'id'>,
  pins: readonly PinnedDataset[],
  before: readonly PinnedDataset[] | null,
  whose: string,
): void {
  for (const pin of pins) {
    const had = before?.find((b) => b.dataset_id === pin.dataset_id)?.version ?? null;
    if (pin.version === null || had === null || had === pin.version) continue;
    draft.addLine(
      d,
      'dataset',
      `dataset ${pin.name}: version ${pin.version} (${whose} had version ${had})`,
    );
  }
}

/**
 * Adds a story line for each dataset that is newer than in the release: a rollback uses the newest
 * data.
 */
export function addNewerVersions(
  draft: Draft,
  d: Pick<DeploymentRecord, 'id'>,
  release: DeploymentRecord,
): void {
  for (const { pin, version } of newerVersions(release.datasets, draft.facts.datasets))
    draft.addLine(
      d,
      'dataset',
      `dataset ${pin.name}: version ${version} (the release had version ${pin.version})`,
    );
}

/**
 * Returns the versions that the node reports as mounted. If a dataset changed during the copy, they
 * differ from the versions in the task.
 */
export function mounted(d: DeploymentRecord, report: TaskReport): PinnedDataset[] | null {
  if (d.datasets === null || report.datasets === undefined) return d.datasets;
  const reported = new Map(report.datasets.map((r) => [r.dataset_id, r.version]));
  return d.datasets.map((pin) => ({
    ...pin,
    version: pin.mode === 'readwrite' ? null : (reported.get(pin.dataset_id) ?? pin.version),
  }));
}

/** Adds a story line once for each newer version of a dataset of the running deployment. */
export function addUnannounced(draft: Draft, d: DeploymentRecord): void {
  const news = unannounced(d, draft.facts.datasets);
  if (news.length === 0) return;
  markAnnounced(draft, d);
  if (draft.facts.project.on_dataset_change === 'ignore') return;
  for (const { pin, version } of news)
    draft.addLine(
      d,
      'dataset',
      `dataset ${pin.name} has a new version ${version}; this deployment uses version ` +
        pin.version,
    );
}

/** Returns the newer dataset versions that the story of the deployment does not mention yet. */
export const unannounced = (
  d: DeploymentRecord,
  datasets: readonly DatasetFact[],
): { pin: PinnedDataset; version: number }[] =>
  newerVersions(d.datasets, datasets).filter(({ pin, version }) => isBehind(pin, version));

/** Returns whether the story must mention `version`, the newest of its dataset. */
export const isBehind = (pin: PinnedDataset, version: number | null): boolean =>
  pin.version !== null && version !== null && version > Math.max(pin.version, pin.told ?? 0);

/** Marks all newer versions as mentioned at once, because one redeploy uses all of them. */
function markAnnounced(draft: Draft, d: DeploymentRecord): void {
  const news = unannounced(d, draft.facts.datasets);
  const announced = new Map(news.map(({ pin, version }) => [pin.dataset_id, version]));
  draft.set(d, {
    datasets: (d.datasets ?? []).map((pin) => {
      const version = announced.get(pin.dataset_id);
      return version === undefined ? pin : { ...pin, told: version };
    }),
  });
}
