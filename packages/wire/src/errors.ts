/**
 * The two tables of codes. No other place defines codes, and test/structure.test.ts compares docs/errors.md with these tables.
 * ERRORS lists the errors of API requests. FAILURES lists the reasons why a deployment or a task ended `failed`.
 */
import { type Static, Type } from 'typebox';

/** Maps an error code to its HTTP status and to the `title` of the problem document (RFC 9457). */
export const ERRORS = {
  invalid_json: { status: 400, title: 'The request body is not valid JSON' },
  bad_request: { status: 400, title: 'The request is malformed' },
  unauthenticated: { status: 401, title: 'Authentication is required; sign in first' },
  wrong_credentials: { status: 401, title: 'The e-mail address or the password is wrong' },
  refresh_token: { status: 401, title: 'The refresh token is no longer valid; sign in again' },
  agent_secret: { status: 401, title: 'The X-Agent-Secret header is missing or wrong' },
  gateway_secret: { status: 401, title: 'The X-Gateway-Secret header is missing or wrong' },
  no_role: { status: 403, title: 'You are signed in but have no role; ask an admin for one' },
  account_disabled: { status: 403, title: 'This account is disabled; ask an admin to enable it' },
  forbidden: { status: 403, title: 'Your role does not allow this action' },
  insufficient_scope: { status: 403, title: 'The scope of this device token does not include the API' },
  not_found: { status: 404, title: 'The resource does not exist' },
  method_not_allowed: { status: 405, title: 'This path does not support the HTTP method' },
  ambiguous: { status: 409, title: 'More than one resource has this name; use the id instead' },
  name_taken: { status: 409, title: 'Another project already has this name' },
  dataset_name_taken: { status: 409, title: 'Another dataset already has this name' },
  dataset_in_use: { status: 409, title: 'Projects still use this dataset; remove it from them first' },
  domain_taken: { status: 409, title: 'Another project has this custom domain, or had it until recently' },
  domain_prefix_taken: { status: 409, title: 'Another project already has this domain prefix' },
  env_conflict: { status: 409, title: 'An environment variable and a secret must not have the same name' },
  email_taken: { status: 409, title: 'Another user already has this e-mail address' },
  code_used: { status: 409, title: 'The one-time code was already used or has expired' },
  last_admin: { status: 409, title: 'At least one enabled admin must remain' },
  admin_by_settings: { status: 409, title: 'ADMIN_EMAILS makes this account an admin; change that setting first' },
  too_many_tokens: { status: 409, title: 'This account has too many tokens; revoke one first' },
  too_many_sessions: { status: 409, title: 'Too many sessions of this user were revoked recently' },
  wrong_state: { status: 409, title: 'The current state does not allow this action' },
  node_doubled: { status: 409, title: 'Another machine is already registered under this name' },
  stale_lease: { status: 409, title: 'The lease is no longer valid: it expired, or another claim replaced it' },
  task_over: { status: 409, title: 'The task has already ended' },
  being_deleted: { status: 409, title: 'The resource is being deleted' },
  no_release: { status: 409, title: 'A rollback to this deployment is not possible' },
  busy: { status: 409, title: 'Concurrent requests changed the resource; try again' },
  changed_meanwhile: { status: 412, title: 'The resource changed after you read it; read it again' },
  request_timeout: { status: 408, title: 'The request did not arrive in time' },
  body_too_large: { status: 413, title: 'The request body is too large' },
  unsupported_media_type: { status: 415, title: 'Send the request body as application/json' },
  expectation_failed: { status: 417, title: 'The Expect header has an unsupported value' },
  validation: { status: 422, title: 'Some fields are invalid' },
  idempotency_mismatch: { status: 422, title: 'This Idempotency-Key was already used with a different body' },
  too_many_attempts: { status: 429, title: 'Too many failed attempts; try again later' },
  too_many_requests: { status: 429, title: 'Too many requests; try again later' },
  headers_too_large: { status: 431, title: 'The request headers are larger than 128 KiB' },
  internal: { status: 500, title: 'Internal error' },
  gateway_unreachable: { status: 503, title: 'The control plane cannot read the gateway’s keys at the moment; try again' },
  policy_unknown: { status: 503, title: 'The policy is unavailable at the moment; keep your last copy' },
  routes_unknown: { status: 503, title: 'The routes are unavailable at the moment; keep your last copy' },
  secrets_locked: { status: 503, title: 'This control plane cannot decrypt the secrets; check its SECRETS_KEY' },
  shutting_down: { status: 503, title: 'The control plane is shutting down; try again' },
} as const satisfies Record<string, { status: number; title: string }>;
export type ErrorCode = keyof typeof ERRORS;

/** Maps a failure code to its meaning. The message of a concrete failure is this meaning, followed by the observed details. */
export const FAILURES = {
  // git
  git_unknown_branch: 'The branch does not exist in the repository',
  git_unknown_commit: 'The commit does not exist in the repository',
  git_commit_refused: 'The git server does not allow a fetch of a single commit by its id',
  git_repository_not_found: 'No repository exists at this address',
  git_credentials: 'The git server requires credentials or rejected them',
  git_key_refused: 'The git server rejected the deploy key of the project',
  git_token_refused: 'The git server rejected the git token of the project',
  git_key_readable: 'ssh does not use a key file of the builder, because other users can read it',
  git_host_unknown: 'No admin trusts the ssh host key of the git server yet',
  git_host_changed: 'The git server presents another ssh host key than the trusted one',
  git_unreachable: 'The git server could not be reached',
  git_timeout: 'The git server did not answer in time or was too slow',
  git_redirect_refused: 'The git server redirects to an address that Berth does not follow',
  git_submodule_refused: 'A submodule of the repository is not allowed',
  git_submodule_credentials: 'A submodule of the repository is private, and the project has no access to it',
  git_failed: 'A git command failed',
  // build
  dockerfile_missing: 'The Dockerfile does not exist in the repository',
  dockerfile_outside: 'The path of the Dockerfile leads outside the repository',
  build_context_missing: 'The build context does not exist in the repository or is not a folder',
  build_context_outside: 'The path of the build context leads outside the repository',
  build_target_missing: 'The Dockerfile has no stage with the name of the build target',
  build_step_failed: 'A step of the Dockerfile failed',
  build_base_image: 'A base image could not be pulled',
  build_timeout: 'The build exceeded its time limit',
  build_frontend_refused: 'The Dockerfile requests a frontend (# syntax=) that the builder does not allow',
  build_failed: 'The build failed',
  // registry
  registry_unreachable: 'The registry could not be reached',
  registry_refused: 'The registry rejected the image or the credentials',
  image_pull_failed: 'The image could not be pulled',
  registry_missing: 'REGISTRY_ADDR is not set, so an image cannot be stored',
  registry_other: 'REGISTRY_URL does not lead to the registry of REGISTRY_ADDR, or the registry has lost its images',
  registry_delete_disabled: 'The registry does not allow the deletion of images',
  registry_not_read_only: 'The registry could not be made read-only, so it collects no garbage',
  registry_stays_read_only: 'The registry is still read-only after the clean-up, so it takes no images',
  registry_collect_failed: 'The garbage collection of the registry failed',
  // machine
  disk_full: 'The disk is full',
  engine_unavailable: 'The container engine does not respond',
  // data
  dataset_not_ready: 'A dataset of the project has no version yet',
  dataset_unreachable: 'A dataset is not available on its shared storage',
  dataset_moving: 'The files of a dataset kept changing during the copy',
  dataset_copy_failed: 'A dataset could not be copied',
  mount_conflict: 'Two datasets have the same mount path, or one mount path is inside the other',
  no_share: 'DATASET_NFS_BASE_PATH is not set on the node',
  still_writing: 'Another version of the project may still be writing to its datasets',
  no_room: 'The node has too little storage for the datasets, even after every allowed eviction',
  // volumes
  volume_missing: 'A volume of the project is not on its node',
  volume_unreachable: 'The node with the volumes of the project is not available',
  volume_failed: 'A volume could not be prepared',
  // container
  network_pool_exhausted: 'The node has no free network for the project',
  container_start_failed: 'The container could not be started',
  container_exited: 'The container exited unexpectedly',
  container_name_taken: 'Another container on the node already has this name',
  container_not_listening: 'The container does not listen on any port',
  container_wrong_port: 'The container does not listen on the port that the project configures',
  container_loopback_only: 'The container listens only on 127.0.0.1, so it cannot be reached from outside',
  health_check_failed: 'The container answers HTTP requests, but its health check fails',
  probe_timeout: 'The container did not answer an HTTP request in time',
  // platform
  no_builder: 'No builder node could take the build in time',
  no_deploy_node: 'No deploy node could take the deployment in time',
  task_not_claimed: 'The node did not claim the task in time',
  agent_cannot: 'No agent of a node can do what the project needs',
  node_lost: 'The node stopped reporting during the task',
  task_timeout: 'The task exceeded its time limit',
  too_many_attempts: 'The task was started too many times without finishing',
  proxy_unconfirmed: 'The reverse proxy did not apply the new route in time',
  proxy_cannot_reach_node: 'The reverse proxy cannot reach the node',
  auth_service_missing: 'The project requires a login, but AUTH_SERVICE_URL is not set, so the project would be public',
  project_deleted: 'The project was deleted',
  node_deleted: 'The node was deleted',
  cancelled: 'The task was cancelled',
  task_failed: 'The agent reported a failure',
} as const satisfies Record<string, string>;
export type FailureCode = keyof typeof FAILURES;

export const isFailureCode = (code: string): code is FailureCode => Object.hasOwn(FAILURES, code);

/** RFC 9457 problem details. `errors` names the invalid or conflicting fields of a 422 or 409. */
export const ProblemDocument = Type.Object({
  type: Type.String(),
  title: Type.String(),
  status: Type.Integer(),
  detail: Type.String(),
  code: Type.String(),
  errors: Type.Optional(Type.Array(Type.Object({ field: Type.String(), rule: Type.String(), message: Type.String() }))),
  request_id: Type.Optional(Type.String()),
  /** Seconds; equal to the header Retry-After, for clients that see only the body. */
  retry_after: Type.Optional(Type.Integer()),
});
export type ProblemDocument = Static<typeof ProblemDocument>;
