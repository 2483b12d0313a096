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
import type { DeploymentRecord, NodeRecord, TaskRecord } from '../platform/records.ts';

export type CleanUpRecord = {
  id: string;
  state: CleanUpState;
  /** E-mail of the admin who requested it; null: scheduled by CLEAN_INTERVAL. */
  requested_by: string | null;
  /**
   * True if new builds already wait before the clean-up starts. While it is `running`, they always
   * wait.
   */
  holds_builds: boolean;
  /** Human-readable reason why the clean-up has not started. */
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

/** The image of a deployment and the state that decides whether to keep it. */
export type ImageUse = {
  generation: number;
  status: DeploymentState;
  image_tag: string | null;
  image_digest: string | null;
  /** When a clean-up began to remove the image or found it missing; null: the registry has it. */
  image_removed_at: number | null;
  image_deleting: boolean;
  /** True if the registry lacked the image at `image_removed_at`. Absent: false. */
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
  /** Records a request for a clean-up. Returns the open clean-up instead if there is one. */
  request(input: { id: string; by: string | null }, now: number): Promise<CleanUpRecord>;
  /** Returns the clean-up that has not ended. */
  open(): Promise<CleanUpRecord | null>;
  /** Returns the clean-up that ended last. */
  last(): Promise<CleanUpRecord | null>;
  /** Returns the last clean-ups, newest first, including the open one. */
  list(): Promise<CleanUpRecord[]>;
  /** Makes new builds wait for this clean-up. */
  holdBuilds(id: string): Promise<void>;
  setWaiting(id: string, waiting: string): Promise<void>;
  /**
   * Marks the images that no release needs, creates the task, and blocks new builds until it ends.
   * Returns `builds` and changes nothing while a build is open.
   */
  start(input: StartOfCleanUp, now: number): Promise<'started' | 'builds' | 'changed'>;
  /**
   * Ends a clean-up without a report. Marked images stay marked; the next clean-up deletes them.
   */
  fail(id: string, error: { code: string; message: string }, now: number): Promise<void>;
  /**
   * Ends the task of a clean-up with a report. A repeated report gets the same answer. Throws
   * not_found, stale_lease, task_over.
   */
  endTask(
    taskId: string,
    leaseToken: string | null,
    report: TaskReport,
    now: number,
  ): Promise<{ status: TaskState }>;
  /**
   * Handles a lost task. After a lost lease (`lease`), offers the task again until `offerUntil`
   * (uptime clock); otherwise ends the task, and the clean-up fails.
   */
  loseTask(
    task: TaskRecord,
    why: 'queue' | 'lease' | 'wall' | 'attempts',
    now: number,
    offerUntil: number,
  ): Promise<boolean>;
};

/** Settings of clean-ups. `intervalMs` null: only on request. */
export type CleanSettings = { keepReleases: number; intervalMs: number | null };

/** A clean-up waits this long for open builds to end; after that, new builds must wait. */
export const PATIENCE_MS = 15 * 60_000;
/** Time limit of the clean-up task. */
export const CLEAN_MS = 2 * 3_600_000;
/** A clean-up fails if its node is silent for this long. */
export const AWAY_MS = 10 * 60_000;
const RETRY_MS = 3_600_000;
const REST_MS = 60_000;

/**
 * Returns when the next scheduled clean-up is due, in ms since the epoch. `since`: first start of a
 * control plane that supports clean-ups.
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
  // A clean-up removes a limited number of images; schedule the next one soon for the rest.
  return ended + (newest.images_left > 0 ? Math.min(REST_MS, intervalMs) : intervalMs);
}

/**
 * Returns the path of a repository without the registry address, because one registry can have
 * several addresses.
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
 * Returns the image tag with the current registry address, so that releases follow a changed
 * REGISTRY_ADDR. The repository path stays the same. `moved`: the address at the push and the
 * current one, if they differ.
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
/** Returns the reference of the image of a release. Prefers the digest: a tag can change its content. */
export function imageOf(
  { image_tag, image_digest }: Pick<DeploymentRecord, 'image_tag' | 'image_digest'>,
  registryAddr: string,
): string {
  const { tag } = atPresentRegistry(image_tag ?? '', registryAddr);
  return image_digest === null ? tag : `${tag.replace(/:[^:/]*$/, '')}@${image_digest}`;
}
const tagOf = (imageTag: string): string => imageTag.slice(imageTag.lastIndexOf(':') + 1);

/**
 * Divides the images of one project into images to keep and images to remove. Keeps
 * - the images of all deployments that have not ended;
 * - the images of the last `keepReleases` releases that ran. Releases with the same image count
 *   once: a restart, a drain or a rollback adds a deployment but no image, and must not push out
 *   older images. A missing image stays in the list, so that each clean-up checks again, but it
 *   does not count.
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

/** Error code of a clean-up that found most images missing. */
export const MOST_MISSING = 'registry_images_missing';
/**
 * Returns why Berth distrusts a report about the registry, or null. If most images are missing at
 * once, the disk of the registry is probably not mounted, as with a dataset that lacks most files.
 * If the registry deleted images, its disk is mounted.
 */
export function lossOf(
  { removed, missing }: Pick<CleanResult, 'removed' | 'missing'>,
  kept: number,
): string | null {
  // The agent stops counting at MAX_MISSING.
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
 * Key in `meta`: first start of a control plane that supports clean-ups. The first scheduled
 * clean-up is due CLEAN_INTERVAL later.
 */
export const CLEANS_SINCE = 'cleans_since';
export const NO_AGENT =
  'no agent runs on the machine of the registry: set REGISTRY_CONFIG on the agent there ' +
  '(docs/clean-up.md)';
/**
 * Chooses the agent for a clean-up. With two agents, one would make the registry writable during
 * the garbage collection of the other, so two online agents are an error (`several`). Offline
 * agents are ignored if one is online, because a machine might have been replaced.
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
