/** What a deployment and its story say about the versions of its datasets. Pure. */
import type { TaskReport } from '@berth/wire/task';
import type { DatasetFact } from '../domain/facts.ts';
import { movedOn } from '../domain/mounts.ts';
import type { DeploymentRecord, PinnedDataset } from '../domain/records.ts';
import type { Draft } from './draft.ts';

/** Bytes a second that a copy is given at least, before anything was measured: an old disk over a slow network. */
const SLOWEST_COPY = 10_000_000;

/** What a deploy task is given beyond its time for what must be copied first. A measured rate is of a quiet hour: never counted on to be faster. */
export const copyMs = (bytes: number, rate: number | null): number =>
  Math.ceil((bytes / Math.min(rate ?? SLOWEST_COPY, SLOWEST_COPY)) * 1000);

/** Which versions it goes out with, beside what `before` (the release, or what serves) had. */
export function tellVersions(
  draft: Draft,
  d: Pick<DeploymentRecord, 'id'>,
  pins: readonly PinnedDataset[],
  before: readonly PinnedDataset[] | null,
  whose: string,
): void {
  for (const pin of pins) {
    const had = before?.find((b) => b.dataset_id === pin.dataset_id)?.version ?? null;
    if (pin.version === null || had === null || had === pin.version) continue;
    draft.say(d, 'dataset', `dataset ${pin.name}: version ${pin.version} (${whose} had ${had})`);
  }
}

/** A release that is brought back is deployed on the data of today. */
export function tellMovedOn(draft: Draft, d: Pick<DeploymentRecord, 'id'>, release: DeploymentRecord): void {
  for (const { pin, version } of movedOn(release.datasets, draft.facts.datasets))
    draft.say(d, 'dataset', `dataset ${pin.name}: version ${version} (the release had ${pin.version})`);
}

/** The versions that its node says it mounted: the source may have moved on while it was copied. */
export function mounted(d: DeploymentRecord, report: TaskReport): PinnedDataset[] | null {
  if (d.datasets === null || report.datasets === undefined) return d.datasets;
  const said = new Map(report.datasets.map((r) => [r.dataset_id, r.version]));
  return d.datasets.map((pin) => ({ ...pin, version: pin.mode === 'readwrite' ? null : (said.get(pin.dataset_id) ?? pin.version) }));
}

/** Datasets of what runs have newer versions: its story says so once for each version. */
export function datasetsChanged(draft: Draft, d: DeploymentRecord): void {
  const news = untold(d, draft.facts.datasets);
  if (news.length === 0) return;
  markTold(draft, d);
  if (draft.facts.project.on_dataset_change === 'ignore') return;
  for (const { pin, version } of news)
    draft.say(d, 'dataset', `dataset ${pin.name} has moved on: version ${version}, this deployment runs on ${pin.version}`);
}

/** Newer versions that its story does not speak of yet. */
export const untold = (d: DeploymentRecord, datasets: readonly DatasetFact[]): { pin: PinnedDataset; version: number }[] =>
  movedOn(d.datasets, datasets).filter(({ pin, version }) => isBehind(pin, version));

/** `version`: the newest of its dataset. */
export const isBehind = (pin: PinnedDataset, version: number | null): boolean =>
  pin.version !== null && version !== null && version > Math.max(pin.version, pin.told ?? 0);

/** All of them at once: one deployment takes them all. */
function markTold(draft: Draft, d: DeploymentRecord): void {
  const news = untold(d, draft.facts.datasets);
  const told = new Map(news.map(({ pin, version }) => [pin.dataset_id, version]));
  draft.set(d, {
    datasets: (d.datasets ?? []).map((pin) => {
      const version = told.get(pin.dataset_id);
      return version === undefined ? pin : { ...pin, told: version };
    }),
  });
}
