/**
 * Clean-up of the image registry: Berth deletes the images that no release needs, and the registry
 * frees their space.
 */
import { type Static, Type } from 'typebox';
import { Value } from 'typebox/value';
import { Id, ImageDigest, literals, orNull, Time } from './vocabulary.ts';

/** Agents with this capability run on the registry’s machine and accept `clean` tasks. */
export const REGISTRY_CAPABILITY = 'registry';

/** Maximum number of images that one clean-up removes. The next clean-up follows soon. */
export const MAX_IMAGES_A_CLEAN_UP = 1_000;
export const MAX_MISSING = 200;

/** Images of one repository. `remove` and `keep` have no digest in common. */
export const RepositoryImages = Type.Object({
  repository: Type.String({ description: 'path below the registry’s address' }),
  remove: Type.Array(ImageDigest),
  keep: Type.Array(ImageDigest, { description: 'images that a release needs' }),
  keep_tags: Type.Array(Type.String(), {
    description: 'tags of images whose digest is unknown and that a release needs',
  }),
});
export type RepositoryImages = Static<typeof RepositoryImages>;

/**
 * Payload of a `clean` task: delete the manifests of `remove`, then collect garbage while the
 * registry is read-only.
 */
export const CleanPayload = Type.Object({
  clean_up_id: Id,
  repositories: Type.Array(RepositoryImages),
});
export type CleanPayload = Static<typeof CleanPayload>;

/** `result` of a completed clean-up. */
export const CleanResult = Type.Object({
  removed: Type.Integer({ minimum: 0, description: 'manifests that this clean-up deleted' }),
  missing: Type.Array(Type.Object({ repository: Type.String(), digest: ImageDigest }), {
    maxItems: MAX_MISSING,
    description: 'kept images that the registry does not have',
  }),
  blobs: orNull(
    Type.Integer({
      minimum: 0,
      description: 'blobs that the registry deleted; null: it did not say',
    }),
  ),
  bytes_before: orNull(
    Type.Number({ minimum: 0, description: 'bytes of the registry’s blobs; null: unknown' }),
  ),
  bytes_after: orNull(Type.Number({ minimum: 0 })),
});
export type CleanResult = Static<typeof CleanResult>;
export const isCleanResult = (value: unknown): value is CleanResult =>
  Value.Check(CleanResult, value);

export const CLEAN_UP_STATES = ['waiting', 'running', 'done', 'failed'] as const;
export type CleanUpState = (typeof CLEAN_UP_STATES)[number];

export const CleanUp = Type.Object({
  id: Id,
  state: literals(CLEAN_UP_STATES),
  requested_by: orNull(Type.String({ description: 'null: CLEAN_INTERVAL' })),
  requested_at: Time,
  started_at: orNull(
    Type.Unsafe<Time>({ ...Time, description: 'when it had no build to wait for any more' }),
  ),
  finished_at: orNull(Time),
  waiting: orNull(Type.String({ description: 'why it has not started' })),
  images: Type.Integer({ description: 'images that no release needs' }),
  images_left: Type.Integer({ description: 'images that were too many for one clean-up' }),
  removed: orNull(Type.Integer()),
  missing: orNull(
    Type.Integer({
      description:
        'kept images that the registry does not have; a rollback to them is refused until a ' +
        'clean-up finds them, unless it failed',
    }),
  ),
  bytes_before: orNull(Type.Number()),
  bytes_after: orNull(Type.Number()),
  error: orNull(Type.Object({ code: Type.String(), message: Type.String() })),
});
export type CleanUp = Static<typeof CleanUp>;

export const CleanUps = Type.Object({
  unavailable: Type.Optional(
    Type.String({ description: 'why this installation cannot clean its registry' }),
  ),
  keep_releases: Type.Integer(),
  interval_seconds: orNull(Type.Number({ description: 'CLEAN_INTERVAL; null: only on request' })),
  next_at: orNull(
    Type.Unsafe<Time>({ ...Time, description: 'time of the next one by CLEAN_INTERVAL' }),
  ),
  current: orNull(CleanUp),
  items: Type.Array(CleanUp, { description: 'the last ones that ended, newest first' }),
});
export type CleanUps = Static<typeof CleanUps>;
