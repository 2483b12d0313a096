/**
 * Two tables, each the only place its codes stand (docs/errors.md is kept equal to them by test/structure.test.ts):
 * ERRORS, what a request can be answered with, and FAILURES, why a deployment or a task ended `failed`.
 */
import { type Static, Type } from 'typebox';

/** code -> HTTP status and the sentence that is the problem's `title` (RFC 9457). */
export const ERRORS = {
  invalid_json: { status: 400, title: 'The body is not JSON' },
  bad_request: { status: 400, title: 'The request could not be understood' },
  unauthenticated: { status: 401, title: 'Sign in first' },
  wrong_credentials: { status: 401, title: 'E-mail or password is wrong' },
  refresh_token: { status: 401, title: 'The refresh token is not valid any more; sign in again' },
  agent_secret: { status: 401, title: 'The X-Agent-Secret header is missing or wrong' },
  gateway_secret: { status: 401, title: 'The X-Gateway-Secret header is missing or wrong' },
  no_role: { status: 403, title: 'You are signed in, but have no role here' },
  account_disabled: { status: 403, title: 'The account is disabled' },
  forbidden: { status: 403, title: 'Your role does not allow this' },
  insufficient_scope: { status: 403, title: 'The device token was not given for the API' },
  not_found: { status: 404, title: 'There is no such thing' },
  method_not_allowed: { status: 405, title: 'This path does not take that method' },
  ambiguous: { status: 409, title: 'Several have this name; say which one by its id' },
  name_taken: { status: 409, title: 'Another project has this name' },
  dataset_name_taken: { status: 409, title: 'Another dataset has this name' },
  dataset_in_use: { status: 409, title: 'The dataset is in use; take it out of the projects first' },
  domain_prefix_taken: { status: 409, title: 'Another project has this domain prefix' },
  email_taken: { status: 409, title: 'Another user has this e-mail address' },
  code_used: { status: 409, title: 'The one-time code was used already, or is over' },
  last_admin: { status: 409, title: 'Somebody must be left who is admin and not disabled' },
  admin_by_settings: { status: 409, title: 'ADMIN_EMAILS makes this account admin; change the setting first' },
  too_many_tokens: { status: 409, title: 'There are too many tokens of this account; revoke one first' },
  too_many_sessions: { status: 409, title: 'Too many sessions of this person were ended of late' },
  wrong_state: { status: 409, title: 'That is not possible in the present state' },
  node_doubled: { status: 409, title: 'Another machine is registered under this name' },
  stale_lease: { status: 409, title: 'The lease is no longer valid: somebody else has this task, or it is over' },
  task_over: { status: 409, title: 'The task has ended otherwise' },
  being_deleted: { status: 409, title: 'It is being deleted' },
  no_release: { status: 409, title: 'That deployment cannot be brought back' },
  busy: { status: 409, title: 'It was changed by others at the same moment; try again' },
  changed_meanwhile: { status: 412, title: 'It was changed since you read it; read it again' },
  request_timeout: { status: 408, title: 'The request did not arrive in time' },
  body_too_large: { status: 413, title: 'The body is too large' },
  unsupported_media_type: { status: 415, title: 'Send the body as application/json' },
  expectation_failed: { status: 417, title: 'The expectation is not supported' },
  validation: { status: 422, title: 'Some fields are not valid' },
  idempotency_mismatch: { status: 422, title: 'This Idempotency-Key was used with another body' },
  too_many_attempts: { status: 429, title: 'Too many wrong tries; wait a little' },
  too_many_requests: { status: 429, title: 'Too many requests; wait a little' },
  headers_too_large: { status: 431, title: 'The headers are larger than 128 KiB' },
  internal: { status: 500, title: 'Something went wrong on our side' },
  gateway_unreachable: { status: 503, title: 'The gateway’s keys cannot be read right now; try again' },
  policy_unknown: { status: 503, title: 'The policy cannot be read right now; keep what you have' },
  routes_unknown: { status: 503, title: 'The routes cannot be read right now; keep what you have' },
  shutting_down: { status: 503, title: 'The control plane is shutting down' },
} as const satisfies Record<string, { status: number; title: string }>;
export type ErrorCode = keyof typeof ERRORS;

/** code -> what it means, as a person would say it. The message of one failure adds what was seen. */
export const FAILURES = {
  // git
  git_unknown_branch: 'The branch is not in the repository',
  git_unknown_commit: 'The commit is not in the repository',
  git_commit_refused: 'The git server does not hand out a single commit by its id',
  git_repository_not_found: 'There is no repository at this address',
  git_credentials: 'The git server did not accept the credentials, or wants some',
  git_unreachable: 'The git server could not be reached',
  git_timeout: 'The git server did not answer in time, or too slowly',
  git_redirect_refused: 'The git server redirects to where Berth does not follow',
  git_submodule_refused: 'A submodule of the repository may not be fetched',
  git_failed: 'git failed',
  // build
  dockerfile_missing: 'The Dockerfile is not in the repository',
  dockerfile_outside: 'The Dockerfile’s path leads out of the repository',
  build_step_failed: 'A step of the Dockerfile failed',
  build_base_image: 'A base image could not be pulled',
  build_timeout: 'The build took longer than allowed',
  build_frontend_refused: 'The Dockerfile asks for a frontend (# syntax=) that the builder does not allow',
  build_failed: 'The build failed',
  // registry
  registry_unreachable: 'The registry could not be reached',
  registry_refused: 'The registry did not accept the image or the credentials',
  image_pull_failed: 'The image could not be pulled',
  registry_missing: 'No REGISTRY_ADDR is set: an image would have nowhere to go',
  // machine
  disk_full: 'The disk is full',
  engine_unavailable: 'The container engine does not answer',
  // data
  dataset_not_ready: 'A dataset of the project has no version yet',
  dataset_unreachable: 'The shared storage of a dataset could not be read',
  dataset_moving: 'The files of a dataset kept changing while they were copied',
  dataset_copy_failed: 'A dataset could not be copied',
  mount_conflict: 'Two datasets would be mounted at one path, or one inside the other',
  no_share: 'The node has no DATASET_NFS_BASE_PATH',
  still_writing: 'Another version of it may still be writing to its datasets',
  no_room: 'There is no room for the datasets, even without all that may be evicted',
  // container
  network_pool_exhausted: 'The node has no free network for the project',
  container_start_failed: 'The container could not be started',
  container_exited: 'The container stopped by itself',
  container_name_taken: 'Another container on the node has the name',
  container_not_listening: 'Nothing in the container listens on any port',
  container_wrong_port: 'The container listens on another port than the project says',
  container_loopback_only: 'The container listens on 127.0.0.1 only, where nobody outside can reach it',
  health_check_failed: 'The container answers, but not as healthy',
  probe_timeout: 'The container did not answer HTTP in time',
  // platform
  no_builder: 'No builder node could take the build in time',
  no_deploy_node: 'No deploy node could take the deployment in time',
  task_not_claimed: 'The node did not take the task in time',
  node_lost: 'The node went silent while it worked on the task',
  task_timeout: 'The task took longer than allowed',
  too_many_attempts: 'The task was begun too often without an end',
  proxy_unconfirmed: 'The reverse proxy did not take over the new route in time',
  proxy_cannot_reach_node: 'The reverse proxy cannot reach the node',
  auth_service_missing: 'The project requires a login, but no AUTH_SERVICE_URL is set: it would have been public',
  project_deleted: 'The project was deleted',
  node_deleted: 'The node was deleted',
  cancelled: 'It was cancelled',
  task_failed: 'The agent reported a failure',
} as const satisfies Record<string, string>;
export type FailureCode = keyof typeof FAILURES;

export const isFailureCode = (code: string): code is FailureCode => Object.hasOwn(FAILURES, code);

/** RFC 9457 problem details. `errors` names fields: on 422, and on a 409 about fields. */
export const Problem = Type.Object({
  type: Type.String(),
  title: Type.String(),
  status: Type.Integer(),
  detail: Type.String(),
  code: Type.String(),
  errors: Type.Optional(Type.Array(Type.Object({ field: Type.String(), rule: Type.String(), message: Type.String() }))),
  request_id: Type.Optional(Type.String()),
  /** Seconds, as in the header Retry-After: for clients that see the body alone. */
  retry_after: Type.Optional(Type.Integer()),
});
export type Problem = Static<typeof Problem>;
