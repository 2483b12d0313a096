/**
 * Stores the facts that an agent finds during a build: commit, author, pushed image. The deployment
 * keeps them even if the build fails. Pure.
 */
import { defined } from '@berth/kit/defined';
import type { BuildPayload, TaskFacts, TaskReport } from '@berth/wire/task';
import type { DeploymentRecord, TaskRecord } from '../domain/platform/records.ts';
import { decimalSizeText } from '@berth/wire/size-text';
import type { Change, Draft } from './plan-draft.ts';
import type { EventOf } from './events.ts';
import { isOwnImage } from './report.ts';

/** Clears `image` and `message`: they belong to the commit of an earlier attempt. */
const NOTHING_BUILT = {
  image_tag: null,
  image_digest: null,
  image_arch: null,
  commit_message: null,
  commit_author: null,
} as const;

/**
 * Returns the fields of the deployment that the facts change. An absent or null fact changes
 * nothing.
 */
export function factsOf(d: DeploymentRecord, facts: TaskFacts): Change {
  const { commit, commit_message, commit_author, image_tag, image_digest, arch } = facts;
  const isAnother = typeof commit === 'string' && commit !== d.commit;
  const set: Change = {
    ...defined(isAnother ? { ...NOTHING_BUILT, commit } : {}),
    ...defined({
      commit_message: typeof commit_message === 'string' ? commit_message : undefined,
      commit_author: typeof commit_author === 'string' ? commit_author : undefined,
      image_tag: typeof image_tag === 'string' ? image_tag : undefined,
      image_digest: typeof image_digest === 'string' ? image_digest : undefined,
      image_arch: typeof arch === 'string' ? arch : undefined,
    }),
  };
  return Object.fromEntries(
    Object.entries(set).filter(([field, value]) => d[field as keyof DeploymentRecord] !== value),
  );
}

/** Stores the facts of a build that is in progress or ended without an image. */
export function keepFacts(
  draft: Draft,
  d: DeploymentRecord,
  task: TaskRecord,
  sent: TaskFacts,
): DeploymentRecord {
  const { image_tag, image_digest: _digest, arch: _arch, ...source } = sent;
  // Accept only an image of the project's own repository, as in the report of a completed build.
  const isOwn =
    typeof image_tag === 'string' &&
    isOwnImage((task.payload as BuildPayload).image_repository, image_tag);
  const set = factsOf(d, isOwn ? sent : source);
  if (Object.keys(set).length === 0) return d;
  draft.set(d, set);
  return { ...d, ...set };
}

/**
 * Stores facts that the agent sends during the build. They remain if the lease of the build
 * expires.
 */
export function learned(
  draft: Draft,
  d: DeploymentRecord,
  { task, facts }: EventOf<'task_learned'>,
): void {
  if (task.kind === 'build') keepFacts(draft, d, task, facts);
}

/** Adds the notes of the agent to the story. */
export function addNotes(
  draft: Draft,
  d: Pick<DeploymentRecord, 'id'>,
  { notes }: Pick<TaskReport, 'notes'>,
): void {
  for (const { kind, message } of notes ?? []) draft.addLine(d, kind, message);
}

/**
 * Adds a story line that shows how far the unfinished copies were when a deploy task failed or its
 * lease expired.
 */
export function addCopied(
  draft: Draft,
  d: Pick<DeploymentRecord, 'id'>,
  { kind, progress }: Pick<TaskRecord, 'kind' | 'progress'>,
): void {
  if (kind !== 'deploy') return;
  for (const { name, step, bytes_done, bytes_total } of progress?.datasets ?? [])
    if (step !== 'done')
      draft.addLine(
        d,
        'copied',
        `dataset ${name}: ${decimalSizeText(bytes_done)} of ${decimalSizeText(bytes_total)} were copied ` +
          `(${step})`,
      );
}
