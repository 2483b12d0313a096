/**
 * The two tables of error codes. ERRORS lists the errors of API requests. FAILURES lists the
 * reasons why a deployment or a task ended `failed`. test/structure.test.ts compares docs/errors.md
 * with these tables.
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
  insufficient_scope: {
    status: 403,
    title: 'The scope of this device token does not include the API',
  },
  not_found: { status: 404, title: 'The resource does not exist' },
  method_not_allowed: { status: 405, title: 'This path does not support the HTTP method' },
  ambiguous: { status: 409, title: 'More than one resource has this name; use the id instead' },
  name_taken: { status: 409, title: 'Another project already has this name' },
  job_name_taken: { status: 409, title: 'The project already has a job with this name' },
  dataset_name_taken: { status: 409, title: 'Another dataset already has this name' },
  dataset_in_use: {
    status: 409,
    title: 'Projects still use this dataset; remove it from them first',
  },
  domain_taken: {
    status: 409,
    title: 'Another project has this custom domain, or had it until recently',
  },
  domain_prefix_taken: {
    status: 409,
    title: 'Another project has this domain prefix, or had it until recently',
  },
  set_by_file: {
    status: 409,
    title: 'A file of the repository sets this field; change it there',
  },
  env_conflict: {
    status: 409,
    title: 'An environment variable and a secret must not have the same name',
  },
  email_taken: { status: 409, title: 'Another user already has this e-mail address' },
  code_used: { status: 409, title: 'The one-time code was already used or has expired' },
  last_admin: { status: 409, title: 'At least one enabled admin must remain' },
  admin_by_settings: {
    status: 409,
    title: 'ADMIN_EMAILS makes this account an admin; change that setting first',
  },
  too_many_tokens: { status: 409, title: 'This account has too many tokens; revoke one first' },
  too_many_sessions: { status: 409, title: 'Too many sessions of this user were revoked recently' },
  wrong_state: { status: 409, title: 'The current state does not allow this action' },
  node_doubled: { status: 409, title: 'Another machine is already registered under this name' },
  stale_lease: {
    status: 409,
    title: 'The lease is no longer valid: it expired, or another claim replaced it',
  },
  task_over: { status: 409, title: 'The task has already ended' },
  being_deleted: { status: 409, title: 'The resource is being deleted' },
  exec_off: { status: 409, title: 'Exec and tunnels are switched off here' },
  agent_cannot: { status: 409, title: 'The agent of the node cannot do this' },
  no_release: { status: 409, title: 'A rollback to this deployment is not possible' },
  busy: { status: 409, title: 'Concurrent requests changed the resource; try again' },
  changed_meanwhile: {
    status: 412,
    title: 'The resource changed after you read it; read it again',
  },
  upgrade_required: { status: 426, title: 'Open a WebSocket at this address' },
  request_timeout: { status: 408, title: 'The request did not arrive in time' },
  body_too_large: { status: 413, title: 'The request body is too large' },
  unsupported_media_type: { status: 415, title: 'Send the request body as application/json' },
  expectation_failed: { status: 417, title: 'The Expect header has an unsupported value' },
  validation: { status: 422, title: 'Some fields are invalid' },
  idempotency_mismatch: {
    status: 422,
    title: 'This Idempotency-Key was already used with a different body',
  },
  too_many_attempts: { status: 429, title: 'Too many failed attempts; try again later' },
  too_many_requests: { status: 429, title: 'Too many requests; try again later' },
  headers_too_large: { status: 431, title: 'The request headers are larger than 128 KiB' },
  internal: { status: 500, title: 'Internal error' },
  gateway_unreachable: {
    status: 503,
    title: 'The control plane cannot read the gateway’s keys at the moment; try again',
  },
  policy_unknown: {
    status: 503,
    title: 'The policy is unavailable at the moment; keep your last copy',
  },
  routes_unknown: {
    status: 503,
    title: 'The routes are unavailable at the moment; keep your last copy',
  },
  secrets_locked: {
    status: 503,
    title: 'This control plane cannot decrypt the secrets; check its SECRETS_KEY',
  },
  shutting_down: { status: 503, title: 'The control plane is shutting down; try again' },
} as const satisfies Record<string, { status: number; title: string }>;
export type ErrorCode = keyof typeof ERRORS;

/**
 * Maps a failure code to its meaning. The message of a failure is this meaning, followed by the
 * observed details.
 */
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
  git_submodule_credentials:
    'A submodule of the repository is private, and the project has no access to it',
  git_failed: 'A git command failed',
  // build
  config_invalid: 'The file berth.toml of the repository is wrong',
  dockerfile_missing: 'The Dockerfile does not exist in the repository',
  dockerfile_outside: 'The path of the Dockerfile leads outside the repository',
  build_context_missing: 'The build context does not exist in the repository or is not a folder',
  build_context_outside: 'The path of the build context leads outside the repository',
  build_target_missing: 'The Dockerfile has no stage with the name of the build target',
  build_step_failed: 'A step of the Dockerfile failed',
  build_base_image: 'A base image could not be pulled',
  wrong_commit: 'The builder built another commit than the requested one',
  build_timeout: 'The build exceeded its time limit',
  build_frontend_refused:
    'The Dockerfile requests a frontend (# syntax=) that the builder does not allow',
  build_image_refused: 'The Dockerfile uses an image that the builder does not allow',
  build_failed: 'The build failed',
  // registry
  registry_unreachable: 'The registry could not be reached',
  registry_failed: 'The registry answered with an error of its own',
  registry_refused: 'The registry rejected the image or the credentials',
  image_pull_failed: 'The image could not be pulled',
  registry_missing: 'REGISTRY_ADDR is not set, so an image cannot be stored',
  registry_other:
    'REGISTRY_URL does not lead to the registry of REGISTRY_ADDR, or the registry has lost its ' +
    'images',
  registry_images_missing: 'The registry lacks most of the images that releases need',
  registry_agents: 'More than one agent cleans the registry',
  registry_delete_disabled: 'The registry does not allow the deletion of images',
  registry_not_read_only: 'The registry could not be made read-only, so it collects no garbage',
  registry_stays_read_only:
    'The registry is still read-only after the clean-up, so it takes no images',
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
  ports_exhausted: 'The node has no free host port for the container',
  container_start_failed: 'The container could not be started',
  container_exited: 'The container exited unexpectedly',
  process_exited: 'A process of the project exited before it counted as started',
  container_name_taken: 'Another container on the node already has this name',
  container_not_listening: 'The container does not listen on any port',
  container_wrong_port: 'The container does not listen on the port that the project configures',
  container_loopback_only:
    'The container listens only on 127.0.0.1, so it cannot be reached from outside',
  health_check_failed: 'The container answers HTTP requests, but its health check fails',
  image_health_check_failed:
    'The container answers HTTP requests, but the HEALTHCHECK of its image fails',
  probe_timeout: 'The container did not answer an HTTP request in time',
  // runs
  command_failed: 'The command ended with an exit code other than 0',
  command_timeout: 'The command exceeded its time limit and was stopped',
  command_out_of_memory: 'The command exceeded its memory limit and was killed',
  run_input_missing: 'The standard input of the command did not arrive in time',
  run_lost: 'The node was lost after the command might have started',
  release_failed: 'The release command failed, so the new version did not start',
  release_unknown:
    'The node was lost after the release command might have started, so Berth does not repeat it',
  // platform
  no_builder: 'No builder node could take the build in time',
  no_deploy_node: 'No deploy node could take the deployment in time',
  no_room_for_two: 'No deploy node has room for two versions, and `replace` is `rolling`',
  task_not_claimed: 'The node did not claim the task in time',
  agent_cannot: 'No agent of a node can do what the project needs',
  node_lost: 'The node stopped reporting during the task',
  task_timeout: 'The task exceeded its time limit',
  too_many_attempts: 'The task was started too many times without finishing',
  proxy_unconfirmed: 'The reverse proxy did not apply the new route in time',
  proxy_cannot_reach_node: 'The reverse proxy cannot reach the node',
  auth_service_missing:
    'The project requires a login, but AUTH_SERVICE_URL is not set, so the project would be public',
  project_deleted: 'The project was deleted',
  node_deleted: 'The node was deleted',
  cancelled: 'The task was cancelled',
  task_failed: 'The agent reported a failure',
} as const satisfies Record<string, string>;
export type FailureCode = keyof typeof FAILURES;

/**
 * Maps a failure code to the next step for a person: a sentence without capital letter and full
 * stop.
 */
export const NEXT_STEPS: Readonly<Record<FailureCode, string>> = {
  git_unknown_branch: 'push the branch, or set the branch of the project to one that exists',
  git_unknown_commit: 'push the commit, or request one that is on the git server',
  git_commit_refused:
    'deploy the branch without a commit, or allow the fetch of single commits on the git server',
  git_repository_not_found:
    'correct git_url; for a private repository, create a deploy key or set a git token',
  git_credentials:
    'create a deploy key for the project, or set a git token that may read the repository',
  git_key_refused:
    'add the public key of the project (berth deploy-key show) to the repository on the forge',
  git_token_refused:
    'create a token on the forge that may read the repository, and set it with berth git-token set',
  git_key_readable: 'run chmod 600 on the key file that the message names, on the builder',
  git_host_unknown:
    'compare the fingerprint with what the operator of the server publishes; then trust it ' +
    'with berth git-host trust',
  git_host_changed:
    'ask the operator of the git server why its key changed, and trust the new key only then',
  git_unreachable: 'run git ls-remote on the builder, and check its DNS and firewall',
  git_timeout:
    'check the network between builder and git server, or raise CLONE_TIMEOUT or ' +
    'GIT_STALL_TIMEOUT of the builder',
  git_redirect_refused: 'set git_url to the final address of the repository',
  git_submodule_refused:
    'correct the address of the submodule, or add its host to ALLOWED_GIT_HOSTS of the control ' +
    'plane',
  git_submodule_credentials:
    'give the deploy key or the git token access to the submodule, or set submodules of the ' +
    'project to false',
  git_failed: 'read the message of git in the build log, and run the same command on the builder',
  config_invalid:
    'correct the line that the message names, check the file with `berth config check`, commit ' +
    'and push',
  dockerfile_missing: 'commit a Dockerfile, or correct dockerfile_path of the project',
  dockerfile_outside: 'correct dockerfile_path of the project: a path inside the repository',
  build_context_missing: 'correct build_context of the project: a folder of the repository',
  build_context_outside: 'correct build_context of the project: a folder inside the repository',
  build_target_missing:
    'correct build_target of the project: a stage (FROM … AS name) of the Dockerfile',
  build_step_failed: 'read the output of the step in the build log, correct it and push',
  build_base_image:
    'correct the name in FROM, or run docker pull on the builder to see why it fails',
  wrong_commit:
    'deploy again; if it repeats, update the agent of the builder or add a builder with ' +
    'Berth’s agent',
  build_timeout:
    'shorten the build, or raise BUILD_TIMEOUT of the builder and of the control plane',
  build_frontend_refused:
    'remove the line # syntax= or use docker/dockerfile, or add the frontend to ' +
    'BUILD_FRONTENDS of the builder',
  build_image_refused:
    'use an image of another registry or of the project itself, or add it to BUILD_BASE_IMAGES ' +
    'of the builder',
  build_failed: 'read the end of the build log, and try docker build on your machine',
  registry_unreachable:
    'check that the registry runs at REGISTRY_ADDR, and add it to insecure-registries of the ' +
    'engine if it has no TLS',
  registry_failed:
    'look at the free space of the disk of the registry (df -h) and at its log: journalctl -u ' +
    'berth-registry -n 50',
  registry_refused: 'set REGISTRY_USER and REGISTRY_PASSWORD of the control plane',
  image_pull_failed:
    'run docker pull on the node to see why it fails; if the image is gone, deploy the commit ' +
    'again',
  registry_missing: 'set REGISTRY_ADDR of the control plane',
  registry_other:
    'correct REGISTRY_URL of the agent that cleans; if the registry lost its disk, mount it or ' +
    'deploy the projects again',
  registry_images_missing:
    'check that the disk of the registry is mounted; then run berth clean-up --now',
  registry_agents: 'remove REGISTRY_CONFIG from all agents but one, and restart the others',
  registry_delete_disabled:
    'set storage.delete.enabled in the configuration of the registry, and restart it',
  registry_not_read_only: 'check that the agent can write REGISTRY_CONFIG and restart the registry',
  registry_stays_read_only:
    'remove the read-only setting from the configuration of the registry and restart it',
  registry_collect_failed: 'read the message of the registry, and check its disk',
  disk_full: 'free space on the disk that the message names; berth node disk lists what uses it',
  engine_unavailable: 'look at the engine on the node: systemctl status docker, docker info',
  dataset_not_ready:
    'wait for the scan of the dataset, or look at its problem with berth dataset show',
  dataset_unreachable:
    'mount the share on the node at DATASET_NFS_BASE_PATH, and check the file server',
  dataset_moving: 'stop the program that changes the files while they are copied',
  dataset_copy_failed:
    'read the error in the message, and check the share and the disk of the node',
  mount_conflict: 'give the datasets of the project mount paths that are neither equal nor nested',
  no_share: 'set DATASET_NFS_BASE_PATH on the node, mount the share there and restart the agent',
  still_writing: 'start the node again, or remove the container that the message names',
  no_room: 'free space on the node, raise MAX_STORAGE, or add a node',
  volume_missing:
    'mount the disk or restore the folders that the message names, with .copy.json; then ' +
    'deploy again',
  volume_unreachable:
    'start the node with the volumes again, or restore their backup on another one',
  volume_failed: 'read the reason in the message, correct it on the node and deploy again',
  network_pool_exhausted: 'use a larger PROJECT_NETWORK_POOL on the node',
  ports_exhausted: 'use a larger PUBLISH_PORTS on the node, or one that no other program uses',
  container_start_failed:
    'read the error of the engine in the message, and correct the image or the settings of the ' +
    'project',
  container_exited: 'read the last lines of the application in the log, and check its variables',
  process_exited:
    'read the last lines of the process in the log, and check its command and variables; raise ' +
    'memory_bytes if it ran out of memory',
  container_name_taken: 'rename or remove the foreign container that the message names',
  container_not_listening:
    'let the application listen on container_port, or raise start_seconds of the project for a ' +
    'slow start',
  container_wrong_port: 'set container_port of the project to the port of the application',
  container_loopback_only: 'let the application listen on 0.0.0.0',
  health_check_failed:
    'correct health_path of the project or the application, or raise start_seconds for a slow ' +
    'start',
  image_health_check_failed: 'correct HEALTHCHECK in the Dockerfile, or the application',
  probe_timeout: 'raise start_seconds of the project for a slow start, or correct the application',
  command_failed: 'read what the command printed, with berth runs logs',
  command_timeout: 'shorten the command, or raise timeout_seconds of the run',
  command_out_of_memory: 'raise memory_bytes of the run or of the project',
  run_input_missing:
    'start the run again and let berth run stay connected, or start it with --no-stdin',
  run_lost:
    'check how far the command came; Berth does not repeat it, because it might have started',
  release_failed: 'read the lines of the step `release` in the log, correct the command and push',
  release_unknown:
    'check how far the release command came, for example in the database; then deploy again',
  no_builder: 'look at the builders with berth node list; start one or add one',
  no_room_for_two:
    'remove `replace: rolling` (the old version then stops first), lower the memory limit or the ' +
    'devices, or add a node',
  no_deploy_node:
    'look at the deploy nodes with berth node list; start one, uncordon one or add one',
  task_not_claimed: 'read the log of the agent on the node: journalctl -u berth-agent* -n 50',
  agent_cannot: 'update the agent that the message names, or remove the setting that it cannot use',
  node_lost: 'look at the node and at the log of its agent: journalctl -u berth-agent* -n 50',
  task_timeout:
    'find the slow step in the phases of the deployment, or raise BUILD_TIMEOUT or ' +
    'DEPLOY_TIMEOUT of the control plane',
  too_many_attempts:
    'look on the node why its agent ended each time, for example for lack of memory: journalctl -k',
  proxy_unconfirmed:
    'check that the reverse proxy runs and reads its configuration from Berth (docs/proxy.md)',
  proxy_cannot_reach_node: 'open PUBLISH_PORTS of the node for the machine of the reverse proxy',
  auth_service_missing:
    'set AUTH_SERVICE_URL of the control plane, or auth_required of the project to false',
  project_deleted: 'create the project again if it is still needed',
  node_deleted: 'deploy again',
  cancelled: 'deploy again if it was not meant',
  task_failed: 'read what the agent reported in the message, and the log of the agent on the node',
};

export const isFailureCode = (code: string): code is FailureCode => Object.hasOwn(FAILURES, code);

/** RFC 9457 problem details. `errors` names the invalid or conflicting fields of a 422 or 409. */
export const ProblemDocument = Type.Object({
  type: Type.String(),
  title: Type.String(),
  status: Type.Integer(),
  detail: Type.String(),
  code: Type.String(),
  errors: Type.Optional(
    Type.Array(Type.Object({ field: Type.String(), rule: Type.String(), message: Type.String() })),
  ),
  request_id: Type.Optional(Type.String()),
  /**
   * Seconds to wait before a retry, equal to the header Retry-After, for clients that see only the
   * body.
   */
  retry_after: Type.Optional(Type.Integer()),
  /** For 404: this version of Berth has no such path. Absent if the path has no such resource. */
  unknown_path: Type.Optional(Type.Literal(true)),
});
export type ProblemDocument = Static<typeof ProblemDocument>;
