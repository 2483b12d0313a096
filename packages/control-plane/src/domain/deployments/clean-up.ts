/** Decides which images of the registry no release needs, and when a clean-up is due. Pure. */
import {
  type CleanResult,
  type CleanUpState,
  MAX_MISSING,
  REGISTRY_CAPABILITY,
  type RepositoryImages,
} from '@berth/wire/clean-up';
import type { TaskReport } from '@berth/wire/task';
import { type DeploymentState, isTerminal, type TaskState } from '@berth/wire/vocabulary';
import type { NodeRecord, TaskRecord } from '../platform/records.ts';

export type CleanUpRecord = {
  id: string;
  state: CleanUpState;
  /** E-mail of the admin; null: CLEAN_INTERVAL. */
  requested_by: string | null;
  /** New builds wait for it. Builds always wait while it is `running`. */
  holds_builds: boolean;
  /** Why it has not started, for people. */
  waiting: string | null;
  task_id: string | null;
  node_id: string | null;
  images: number;
  images_left: number;
  removed: number | null;
  missing: number | null;
  bytes_before: number | null;
  bytes_after: number | null;
  error_code: string | null;
  error_message: string | null;
  requested_at: number;
  started_at: number | null;
  finished_at: number | null;
};

/** A deployment as far as its image is concerned. */
export type ImageUse = {
  generation: number;
  status: DeploymentState;
  image_tag: string | null;
  image_digest: string | null;
  /** The registry no longer has it, or will not have it soon. */
  image_removed_at: number | null;
  image_deleting: boolean;
  /** The registry lacked it at `image_removed_at`. Absent: false. */
  image_missing?: boolean;
};

export type StartOfCleanUp = {
  id: string;
  taskId: string;
  nodeId: string;
  keepReleases: number;
  queue_deadline_at: number;
  wall_deadline_at: number;
};

export type CleanUpStore = {
  /** Records a request. While one is open, it returns that one. */
  request(input: { id: string; by: string | null }, now: number): Promise<CleanUpRecord>;
  /** Returns the one that has not ended. */
  open(): Promise<CleanUpRecord | null>;
  /** Returns the one that ended last. */
  last(): Promise<CleanUpRecord | null>;
  /** Returns the last ones, newest first, the open one too. */
  list(): Promise<CleanUpRecord[]>;
  /** From now on, new builds wait for it. */
  holdBuilds(id: string): Promise<void>;
  setWaiting(id: string, waiting: string): Promise<void>;
  /**
   * Opens the window without builds: marks the images that no release needs, and creates the task.
   * Returns `builds` and changes nothing while a build is open.
   */
  start(input: StartOfCleanUp, now: number): Promise<'started' | 'builds' | 'changed'>;
  /**
   * Ends one without a report. Images that were marked stay marked, and the next clean-up deletes
   * them.
   */
  fail(id: string, error: { code: string; message: string }, now: number): Promise<void>;
  /**
   * Ends its task with a report. A repeated report gets the same answer. Throws not_found,
   * stale_lease, task_over.
   */
  endTask(
    taskId: string,
    leaseToken: string | null,
    report: TaskReport,
    now: number,
  ): Promise<{ status: TaskState }>;
  /**
   * After `lease` the task is offered again until `offerUntil` (uptime clock); otherwise it ends,
   * and the clean-up fails.
   */
  loseTask(
    task: TaskRecord,
    why: 'queue' | 'lease' | 'wall' | 'attempts',
    now: number,
    offerUntil: number,
  ): Promise<boolean>;
};

/** The settings of clean-ups. `intervalMs` null: only on request. */
export type CleanSettings = { keepReleases: number; intervalMs: number | null };

/** A scheduled clean-up lets builds go first for this long. */
export const PATIENCE_MS = 15 * 60_000;
/** Time limit of the task. */
export const CLEAN_MS = 2 * 3_600_000;
/** A clean-up whose node does not answer for this long fails. */
export const AWAY_MS = 10 * 60_000;
const RETRY_MS = 3_600_000;
const REST_MS = 60_000;

/**
 * Returns when the next scheduled clean-up is due, in ms since the epoch. `since`: start of the
 * first control plane that cleans.
 */
export function nextCleanUpAt(
  last: readonly CleanUpRecord[],
  intervalMs: number | null,
  since: number,
): number | null {
  if (intervalMs === null) return null;
  const [newest] = last;
  if (newest === undefined) return since + intervalMs;
  const ended = newest.finished_at ?? newest.requested_at;
  if (newest.state === 'failed') return ended + Math.min(RETRY_MS, intervalMs);
  // More images than one clean-up removes: the rest follows soon.
  return ended + (newest.images_left > 0 ? Math.min(REST_MS, intervalMs) : intervalMs);
}

/**
 * Returns the path of a repository below the registry's address: the same registry can have several
 * addresses.
 */
export function repositoryPath(imageTag: string): string {
  const slash = imageTag.indexOf('/');
  const path = imageTag.slice(slash + 1);
  const at = path.indexOf('@');
  const withoutDigest = at === -1 ? path : path.slice(0, at);
  const colon = withoutDigest.indexOf(':', withoutDigest.lastIndexOf('/') + 1);
  return colon === -1 ? withoutDigest : withoutDigest.slice(0, colon);
}
/**
 * Returns the tag under the registry’s present address: releases follow a changed REGISTRY_ADDR.
 * The repository and its folder in the registry stay. `moved`: the registry has another address
 * than when the image was pushed.
 */
export function atPresentRegistry(
  imageTag: string,
  registryAddr: string,
): { tag: string; moved: { from: string; to: string } | null } {
  const [to = ''] = registryAddr.split('/');
  const slash = imageTag.indexOf('/');
  const from = imageTag.slice(0, Math.max(0, slash));
  if (to === '' || from === '' || from === to) return { tag: imageTag, moved: null };
  return { tag: `${to}${imageTag.slice(slash)}`, moved: { from, to } };
}
const tagOf = (imageTag: string): string => imageTag.slice(imageTag.lastIndexOf(':') + 1);

/**
 * Divides the images of one project into those that a release needs and the others. It keeps
 * - the images of all deployments that have not ended;
 * - the images of the last `keepReleases` releases that ran. Releases with one image count once: a
 *   restart, a drain or a rollback adds a deployment but no image, and must not push out older
 *   images. A missing image stays in the list, so that each clean-up looks again, but does not
 *   count.
 */
export function imagesOf(uses: readonly ImageUse[], keepReleases: number): RepositoryImages[] {
  const keep = new Set<string>();
  const keptTags = new Set<string>();
  const images = new Set<string>();
  const oldestFirst = [...uses].sort((a, b) => a.generation - b.generation);
  for (const use of oldestFirst.toReversed()) {
    if (use.image_tag === null) continue;
    const ran = use.status === 'running' || use.status === 'retired';
    const image = use.image_digest ?? use.image_tag;
    const isMissing = use.image_missing === true;
    const isKept =
      ran &&
      (use.image_removed_at === null || isMissing) &&
      (images.has(image) || images.size < keepReleases);
    if (isTerminal(use.status) && !isKept) continue;
    if (ran && !isMissing) images.add(image);
    if (use.image_digest !== null) keep.add(`${repositoryPath(use.image_tag)} ${use.image_digest}`);
    else keptTags.add(`${repositoryPath(use.image_tag)} ${tagOf(use.image_tag)}`);
  }
  const remove = new Set<string>();
  for (const {
    image_tag,
    image_digest,
    image_removed_at,
    image_deleting,
    image_missing,
  } of oldestFirst) {
    if (image_tag === null || image_digest === null) continue;
    if (image_removed_at !== null && !image_deleting && image_missing !== true) continue;
    const image = `${repositoryPath(image_tag)} ${image_digest}`;
    if (!keep.has(image)) remove.add(image);
  }
  const all = (of: ReadonlySet<string>, repository: string): string[] =>
    [...of].flatMap((text) =>
      text.startsWith(`${repository} `) ? [text.slice(repository.length + 1)] : [],
    );
  const repositories = new Set(
    [...keep, ...keptTags, ...remove].map((text) => text.slice(0, text.indexOf(' '))),
  );
  return [...repositories].map((repository) => ({
    repository,
    remove: all(remove, repository),
    keep: all(keep, repository),
    keep_tags: all(keptTags, repository),
  }));
}

/** Code of a clean-up that found most images missing. */
export const MOST_MISSING = 'registry_images_missing';
/**
 * Returns why a report about the registry is not believed, or null. A registry that lacks most
 * images at once has probably lost its disk for now, like a dataset that lacks most files. If it
 * deleted images, it has its disk.
 */
export function lossOf(
  { removed, missing }: Pick<CleanResult, 'removed' | 'missing'>,
  kept: number,
): string | null {
  // The agent stops to count at MAX_MISSING.
  const present = missing.length >= MAX_MISSING ? 0 : kept - missing.length;
  if (removed > 0 || kept === 0 || (present > 0 && present * 2 >= kept)) return null;
  const count =
    missing.length >= MAX_MISSING ? `lacks at least ${MAX_MISSING}` : `has only ${present}`;
  return (
    `the registry ${count} of the ${kept} images that releases need; nothing was marked as ` +
    'removed. Check that its disk is mounted'
  );
}

/**
 * Row of `meta`: when the first control plane that cleans started. The first scheduled clean-up
 * comes CLEAN_INTERVAL later.
 */
export const CLEANS_SINCE = 'cleans_since';
export const NO_AGENT =
  'no agent runs on the machine of the registry: set REGISTRY_CONFIG on the agent there ' +
  '(docs/clean-up.md)';
/**
 * Chooses the agent of a clean-up. Two agents would make the registry writable while the other one
 * collects, so more than one is an error: `several`. Agents that are offline do not count beside
 * one that is online, because a machine might have been replaced.
 */
export function cleanerOf(
  nodes: readonly NodeRecord[],
  online: (node: NodeRecord) => boolean,
): { node: NodeRecord } | { why: string; several: boolean } {
  const all = nodes.filter(cleansRegistry);
  const [node, ...others] = all.filter(online);
  if (node !== undefined && others.length === 0) return { node };
  if (node !== undefined) {
    const names = [node, ...others].map(({ hostname, role }) => `${hostname} (${role})`).sort();
    return {
      why: `these agents have REGISTRY_CONFIG: ${names.join(', ')}; remove it from all but one`,
      several: true,
    };
  }
  return {
    why:
      all[0] === undefined
        ? NO_AGENT
        : `${all[0].hostname}, the machine of the registry, is offline`,
    several: false,
  };
}

export const cleansRegistry = (node: Pick<NodeRecord, 'capabilities' | 'deleting_at'>): boolean =>
  node.deleting_at === null && node.capabilities?.includes(REGISTRY_CAPABILITY) === true;
