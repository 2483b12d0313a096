/**
 * Repository looks: what a builder finds in a repository before or after its project exists:
 * branches, Dockerfiles with ports and stages, submodules, Git LFS.
 */
import { type Static, Type } from 'typebox';
import { Value } from 'typebox/value';
import { ById, type Route, Wait } from './route.ts';
import { CommitId, Id, literals, orNull, Time } from './vocabulary.ts';

/** Agents with this capability accept `look` tasks with the payload `RepositoryLookPayload`. */
export const REPOSITORY_LOOK_CAPABILITY = 'look_repository';

export const MAX_BRANCHES_FOUND = 200;
export const MAX_DOCKERFILES_FOUND = 20;
/** Maximum number of ports, and of stages, of one Dockerfile. */
export const MAX_PARTS_FOUND = 20;
const MAX_PATH = 400;

const Port = Type.Integer({ minimum: 1, maximum: 65_535 });
const Found = Type.String({ minLength: 1, maxLength: MAX_PATH });
export const DockerfileFound = Type.Object({
  path: Found,
  ports: orNull(
    Type.Array(Port, {
      maxItems: MAX_PARTS_FOUND,
      description: 'TCP ports that the last stage exposes; null: the file could not be read',
    }),
  ),
  targets: Type.Array(
    Type.Object({
      name: Type.String({ minLength: 1, maxLength: 200 }),
      ports: Type.Array(Port, { maxItems: MAX_PARTS_FOUND }),
    }),
    {
      maxItems: MAX_PARTS_FOUND,
      description: 'named stages, with the ports that each one exposes',
    },
  ),
});
export type DockerfileFound = Static<typeof DockerfileFound>;

export const RepositoryFound = Type.Object({
  default_branch: orNull(Type.String({ minLength: 1, maxLength: MAX_PATH })),
  branches: Type.Array(Type.String({ minLength: 1, maxLength: MAX_PATH }), {
    maxItems: MAX_BRANCHES_FOUND,
    description: 'the default branch first, then by name',
  }),
  branches_left_out: Type.Integer({
    minimum: 0,
    description: `branches beyond the first ${MAX_BRANCHES_FOUND}`,
  }),
  branch: orNull(
    Type.String({
      maxLength: MAX_PATH,
      description: 'the branch that was read; null: the repository does not have it',
    }),
  ),
  commit: orNull(CommitId),
  dockerfiles: Type.Array(DockerfileFound, {
    maxItems: MAX_DOCKERFILES_FOUND,
    description: 'the nearest to the root first',
  }),
  dockerfiles_left_out: Type.Integer({ minimum: 0 }),
  submodules: Type.Boolean(),
  lfs: Type.Boolean({
    description:
      'its .gitattributes sends files to Git LFS; a build fetches those if the project has git_lfs',
  }),
});
export type RepositoryFound = Static<typeof RepositoryFound>;
export const isRepositoryFound = (value: unknown): value is RepositoryFound =>
  Value.Check(RepositoryFound, value);

/**
 * Payload of a `look` task for a repository look. `repository` distinguishes it from a look for a
 * push. With `project_id`, the answer to the claim contains the git access of that project.
 */
export const RepositoryLookPayload = Type.Object({
  repository: Type.Literal(true),
  git_url: Type.String(),
  branch: orNull(Type.String({ description: 'null: the default branch' })),
  project_id: Type.Optional(Type.String()),
});
export type RepositoryLookPayload = Static<typeof RepositoryLookPayload>;

const RepositoryLookCreate = Type.Object(
  {
    git_url: Type.Optional(
      Type.String({ minLength: 1, maxLength: 2_000, description: 'required without `project_id`' }),
    ),
    project_id: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 300,
        description:
          'id or name: read the repository of this project with its deploy key or git token; ' +
          '`git_url` can only be its own',
      }),
    ),
    branch: Type.Optional(
      orNull(
        Type.String({
          minLength: 1,
          maxLength: 250,
          description: 'default: the default branch of the repository',
        }),
      ),
    ),
  },
  { additionalProperties: false },
);

const REPOSITORY_LOOK_STATES = ['waiting', 'done', 'failed', 'unavailable'] as const;
export const RepositoryLook = Type.Object({
  id: orNull(Type.String({ description: 'for `GET`; null if `state` is `unavailable`' })),
  state: literals(REPOSITORY_LOOK_STATES, {
    description: 'waiting: a builder reads the repository; unavailable: no builder can',
  }),
  unavailable: Type.Optional(
    Type.String({ description: 'why no builder can look; the project can be created anyway' }),
  ),
  git_url: Type.String(),
  branch: orNull(Type.String({ description: 'as requested' })),
  project_id: Type.Optional(Id),
  requested_at: Time,
  found: orNull(RepositoryFound),
  error: orNull(Type.Object({ code: Type.String(), message: Type.String() })),
});
export type RepositoryLook = Static<typeof RepositoryLook>;

export const REPOSITORY_LOOK_ROUTES = {
  createRepositoryLook: {
    method: 'POST',
    path: '/api/repository-looks',
    who: 'developer',
    scope: 'list',
    summary:
      'Let a builder read which branches and Dockerfiles a repository has, before its project ' +
      'exists or for its project',
    body: RepositoryLookCreate,
    status: 200,
    answer: RepositoryLook,
  },
  getRepositoryLook: {
    method: 'GET',
    path: '/api/repository-looks/:id',
    who: 'developer',
    scope: 'list',
    summary: 'Get what a builder found in a repository; kept for some minutes',
    params: ById,
    query: Type.Object({ ...Wait }),
    status: 200,
    answer: RepositoryLook,
    etag: true,
  },
} as const satisfies Record<string, Route>;
