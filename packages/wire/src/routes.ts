/**
 * The route table: every route of the control plane, with the required role and the schemas of
 * request and answer. The server cannot register a route without a row here. The typed client, the
 * OpenAPI document and docs/api.md are derived from this table, and test/structure.test.ts checks
 * docs/api.md.
 */
import { type Static, type TSchema, Type } from 'typebox';
import {
  Deployment,
  DeploymentCreate,
  DeploymentItem,
  LogPage,
  RollbackCreate,
} from './deployment.ts';
import { CleanUps } from './clean-up.ts';
import { DataCopies } from './data-copies.ts';
import { DATASET_ROUTES } from './dataset-routes.ts';
import { GATEWAY_ROUTES } from './gateway-routes.ts';
import { KEPT_HOST_ROUTES, ProjectDomains } from './domain.ts';
import { EventPage } from './event.ts';
import { EXEC_ROUTES } from './exec.ts';
import { HOOK_ROUTES } from './hook.ts';
import { NOTIFICATION_ROUTES } from './notification.ts';
import { GIT_ROUTES } from './git.ts';
import { IDENTITY_ROUTES } from './identity-routes.ts';
import { INSTANCE_ROUTES } from './instance.ts';
import { JOINING_ROUTES } from './joining.ts';
import { METRIC_ROUTES } from './metrics.ts';
import { NodePatch } from './machine.ts';
import {
  CacheRoom,
  Node,
  NodeDiskView,
  NodeFailover,
  NodeFailoverAnswer,
  NodeRegister,
  Placement,
  Prewarm,
} from './node.ts';
import { ByEnvName, EnvSet, Project, ProjectCreate, ProjectPatch, Scale } from './project.ts';
import {
  AgentConfig,
  ConfigFile,
  ConfigFileAnswer,
  Task,
  TaskClaim,
  TaskLogs,
  TaskRenewal,
  TaskReport,
  TaskReportAnswer,
} from './task.ts';
import { REPOSITORY_LOOK_ROUTES } from './repository-look.ts';
import { JOB_ROUTES } from './job.ts';
import { RUN_ROUTES } from './run.ts';
import { RUNTIME_ROUTES } from './runtime.ts';
import { SECRET_ROUTES } from './secret.ts';
import { System } from './system.ts';
import { ById, ByName, IdsFilter, LongWait, NameFilter, type Route, Wait } from './route.ts';
import { Version } from './version.ts';
import { VOLUME_ROUTES } from './volume.ts';
import { DEPLOYMENT_STATES, Id, listOf, literals, PageQuery } from './vocabulary.ts';

export const ROUTES = {
  ...IDENTITY_ROUTES,

  listProjects: {
    method: 'GET',
    path: '/api/projects',
    who: 'viewer',
    scope: 'list',
    summary: 'List all projects by name',
    query: Type.Object({
      ...PageQuery,
      ...NameFilter,
      ...IdsFilter,
      find: Type.Optional(
        Type.String({
          minLength: 1,
          maxLength: 253,
          description: 'a part of the name, the domain prefix or the git address, in any case',
        }),
      ),
      attention: Type.Optional(
        Type.Boolean({
          description:
            'only projects whose host has an invalid certificate, or one that expires soon',
        }),
      ),
    }),
    status: 200,
    answer: listOf(Project),
  },
  ...REPOSITORY_LOOK_ROUTES,

  createProject: {
    method: 'POST',
    path: '/api/projects',
    who: 'developer',
    scope: 'new',
    summary: 'Create a project',
    body: ProjectCreate,
    status: 201,
    answer: Project,
    etag: true,
  },
  getProject: {
    method: 'GET',
    path: '/api/projects/:id',
    who: 'viewer',
    scope: 'project',
    summary: 'Get a project',
    params: ByName,
    status: 200,
    answer: Project,
    etag: true,
  },
  projectDataCopies: {
    method: 'GET',
    path: '/api/projects/:id/data-copies',
    who: 'viewer',
    scope: 'project',
    summary: 'Show on which nodes the datasets of the running deployment are kept',
    params: ByName,
    status: 200,
    answer: DataCopies,
  },
  patchProject: {
    method: 'PATCH',
    path: '/api/projects/:id',
    who: 'developer',
    scope: 'project',
    summary:
      'Change a project; the change takes effect with the next deployment; `env` and ' +
      '`build_args` are merged by key',
    params: ByName,
    body: ProjectPatch,
    status: 200,
    answer: Project,
    etag: true,
    locked: true,
  },
  deleteProject: {
    method: 'DELETE',
    path: '/api/projects/:id',
    who: 'developer',
    scope: 'project',
    summary:
      'Delete a project; it disappears after its containers are removed; its volumes stay on ' +
      'their node, unless `volumes` is true',
    params: ByName,
    query: Type.Object({
      volumes: Type.Optional(
        Type.Boolean({ description: 'delete the volumes and their data too' }),
      ),
    }),
    status: 202,
    answer: Project,
    etag: true,
    locked: true,
  },
  putEnv: {
    method: 'PUT',
    path: '/api/projects/:id/env/:name',
    who: 'developer',
    scope: 'project',
    summary: 'Set an environment variable; `If-Match` takes the ETag of the project',
    params: ByEnvName,
    body: EnvSet,
    status: 200,
    answer: Project,
    etag: true,
    locked: true,
  },
  deleteEnv: {
    method: 'DELETE',
    path: '/api/projects/:id/env/:name',
    who: 'developer',
    scope: 'project',
    summary: 'Remove an environment variable; `If-Match` takes the ETag of the project',
    params: ByEnvName,
    status: 200,
    answer: Project,
    etag: true,
    locked: true,
  },
  projectDomains: {
    method: 'GET',
    path: '/api/projects/:id/domains',
    who: 'viewer',
    scope: 'project',
    summary: 'Show whether the custom domains of a project point here, and their certificates',
    params: ByName,
    status: 200,
    answer: ProjectDomains,
  },
  ...KEPT_HOST_ROUTES,
  ...GIT_ROUTES,

  ...SECRET_ROUTES,

  createDeployment: {
    method: 'POST',
    path: '/api/projects/:id/deployments',
    who: 'developer',
    scope: 'project',
    summary: 'Deploy the branch or a commit; an Idempotency-Key is valid for 24 h',
    params: ByName,
    body: DeploymentCreate,
    bodyOptional: true,
    status: 201,
    location: '/api/deployments/:id',
    answer: Deployment,
  },
  rollback: {
    method: 'POST',
    path: '/api/projects/:id/rollback',
    who: 'developer',
    scope: 'project',
    summary:
      'Deploy the image of an earlier deployment again, without a build; without a body: the ' +
      'next older release that ran',
    params: ByName,
    body: RollbackCreate,
    bodyOptional: true,
    status: 201,
    location: '/api/deployments/:id',
    answer: Deployment,
  },
  scaleProject: {
    method: 'POST',
    path: '/api/projects/:id/scale',
    who: 'developer',
    scope: 'project',
    summary:
      'Set how many instances of a process run, at once and without a build: `{"web": 3}`; the ' +
      'others stay',
    params: ByName,
    body: Scale,
    status: 200,
    answer: Project,
    etag: true,
  },
  ...INSTANCE_ROUTES,
  ...EXEC_ROUTES,
  restartProject: {
    method: 'POST',
    path: '/api/projects/:id/restart',
    who: 'developer',
    scope: 'project',
    summary:
      'Deploy the running release again, without a build; the old container serves until the ' +
      'new one is confirmed',
    params: ByName,
    status: 201,
    location: '/api/deployments/:id',
    answer: Deployment,
  },
  stopProject: {
    method: 'POST',
    path: '/api/projects/:id/stop',
    who: 'developer',
    scope: 'project',
    summary:
      'Stop a project: cancels its deployments in progress and stops its container; the host ' +
      'answers 503 with a page',
    params: ByName,
    status: 202,
    location: '/api/projects/:id',
    answer: Project,
    etag: true,
  },
  startProject: {
    method: 'POST',
    path: '/api/projects/:id/start',
    who: 'developer',
    scope: 'project',
    summary: 'Start a stopped project: deploys the release that it ran last, without a build',
    params: ByName,
    status: 201,
    location: '/api/deployments/:id',
    answer: Deployment,
  },
  listDeployments: {
    method: 'GET',
    path: '/api/deployments',
    who: 'viewer',
    scope: 'list',
    summary: 'List deployments, newest first',
    query: Type.Object({
      ...PageQuery,
      project_id: Type.Optional(Id),
      status: Type.Optional(literals(DEPLOYMENT_STATES)),
      dataset_id: Type.Optional({ ...Id, description: 'only deployments that use this dataset' }),
      ...IdsFilter,
      attention: Type.Optional(
        Type.Boolean({
          description:
            'only the newest of a project if it failed, and running ones that are not healthy',
        }),
      ),
    }),
    status: 200,
    answer: listOf(DeploymentItem),
  },
  projectDeployments: {
    method: 'GET',
    path: '/api/projects/:id/deployments',
    who: 'viewer',
    scope: 'project',
    summary: 'List the deployments of a project, newest first',
    params: ByName,
    query: Type.Object({ ...PageQuery, status: Type.Optional(literals(DEPLOYMENT_STATES)) }),
    status: 200,
    answer: listOf(DeploymentItem),
  },
  getDeployment: {
    method: 'GET',
    path: '/api/deployments/:id',
    who: 'viewer',
    scope: 'deployment',
    summary:
      'Get a deployment with its events; with `wait`, held while the ETag equals If-None-Match',
    params: ById,
    query: Type.Object(Wait),
    status: 200,
    answer: Deployment,
    etag: true,
  },
  cancelDeployment: {
    method: 'POST',
    path: '/api/deployments/:id/cancel',
    who: 'developer',
    scope: 'deployment',
    summary: 'Cancel a deployment; it becomes `cancelled` when the agent has stopped its work',
    params: ById,
    status: 200,
    answer: Deployment,
  },
  deploymentLogs: {
    method: 'GET',
    path: '/api/deployments/:id/logs',
    who: 'viewer',
    scope: 'deployment',
    summary: 'Get log lines after a sequence number; `Accept: text/event-stream` streams new lines',
    params: ById,
    query: Type.Object({
      after: Type.Optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
      limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 5000 })),
    }),
    status: 200,
    answer: LogPage,
    streams: true,
  },

  ...RUN_ROUTES,
  ...JOB_ROUTES,
  ...RUNTIME_ROUTES,
  ...HOOK_ROUTES,

  ...METRIC_ROUTES,

  ...NOTIFICATION_ROUTES,

  listNodes: {
    method: 'GET',
    path: '/api/nodes',
    who: 'viewer',
    scope: 'list',
    summary: 'List all nodes',
    query: Type.Object({ ...PageQuery, ...NameFilter }),
    status: 200,
    answer: listOf(Node),
  },
  getNode: {
    method: 'GET',
    path: '/api/nodes/:id',
    who: 'viewer',
    scope: 'list',
    summary: 'Get a node',
    params: ByName,
    status: 200,
    answer: Node,
  },
  patchNode: {
    method: 'PATCH',
    path: '/api/nodes/:id',
    who: 'admin',
    scope: 'list',
    summary: 'Set and remove labels of a node; they win over those of its agent',
    params: ByName,
    body: NodePatch,
    status: 200,
    answer: Node,
  },
  cordonNode: {
    method: 'POST',
    path: '/api/nodes/:id/cordon',
    who: 'admin',
    scope: 'list',
    summary: 'Cordon a node: it gets no new work',
    params: ByName,
    status: 200,
    answer: Node,
  },
  uncordonNode: {
    method: 'POST',
    path: '/api/nodes/:id/uncordon',
    who: 'admin',
    scope: 'list',
    summary: 'Uncordon a node: it gets work again; stops a drain',
    params: ByName,
    status: 200,
    answer: Node,
  },
  deleteNode: {
    method: 'DELETE',
    path: '/api/nodes/:id',
    who: 'admin',
    scope: 'list',
    summary:
      'Delete a node after its projects have moved, as in a drain; use `force` for a node that ' +
      'never comes back',
    params: ByName,
    query: Type.Object({ force: Type.Optional(Type.Boolean()) }),
    status: 202,
    answer: Node,
  },
  failoverNode: {
    method: 'POST',
    path: '/api/nodes/:id/failover',
    who: 'admin',
    scope: 'list',
    summary:
      'Start the instances of a silent node on other nodes now, although the brake holds it or ' +
      'its projects wait',
    params: ByName,
    body: NodeFailover,
    bodyOptional: true,
    status: 202,
    answer: NodeFailoverAnswer,
  },
  drainNode: {
    method: 'POST',
    path: '/api/nodes/:id/drain',
    who: 'admin',
    scope: 'list',
    summary:
      'Drain a node: cordon it and move its deployments to other nodes; `uncordon` stops the drain',
    params: ByName,
    status: 202,
    answer: Node,
  },
  confirmRemoved: {
    method: 'DELETE',
    path: '/api/nodes/:id/unmanaged/:container',
    who: 'admin',
    scope: 'list',
    summary:
      'Confirm that a container which only a person can remove (`unmanaged`) is gone from a node',
    params: Type.Object({
      ...ByName.properties,
      container: Type.String({ minLength: 1, maxLength: 200 }),
    }),
    status: 200,
    answer: Node,
  },
  prewarmNode: {
    method: 'POST',
    path: '/api/nodes/:id/prewarm',
    who: 'admin',
    scope: 'list',
    summary: 'Copy the newest version of a dataset to a node now',
    params: ByName,
    body: Prewarm,
    status: 202,
    answer: Node,
  },
  cacheRoom: {
    method: 'GET',
    path: '/api/nodes/:id/cache',
    who: 'viewer',
    scope: 'list',
    summary: 'List the cached datasets that would be evicted, in order, to make room for `bytes`',
    params: ByName,
    query: Type.Object({
      bytes: Type.Optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
    }),
    status: 200,
    answer: CacheRoom,
  },
  nodeDisk: {
    method: 'GET',
    path: '/api/nodes/:id/disk',
    who: 'viewer',
    scope: 'list',
    summary:
      'Show what uses the disk of a node, and what would be evicted, and why, to make room for ' +
      '`bytes`',
    params: ByName,
    query: Type.Object({
      bytes: Type.Optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
    }),
    status: 200,
    answer: NodeDiskView,
  },
  placement: {
    method: 'GET',
    path: '/api/placement',
    who: 'viewer',
    scope: 'query',
    summary: 'Preview the placement of a project: the score of each node and the winner',
    query: Type.Object({ project_id: Id }),
    status: 200,
    answer: Placement,
  },

  cleanUps: {
    method: 'GET',
    path: '/api/clean-up',
    who: 'viewer',
    scope: 'none',
    summary:
      'Get the state of the registry’s clean-up: the current one, the last ones, and when the ' +
      'next one is due',
    status: 200,
    answer: CleanUps,
  },
  startCleanUp: {
    method: 'POST',
    path: '/api/clean-up',
    who: 'admin',
    scope: 'none',
    summary:
      'Remove the images that no release needs from the registry now; new builds wait meanwhile',
    status: 202,
    location: '/api/clean-up',
    answer: CleanUps,
  },

  resetNodeSecret: {
    method: 'POST',
    path: '/api/nodes/:id/reset-secret',
    who: 'admin',
    scope: 'list',
    summary:
      'Revoke the node’s own secret; its next registration with AGENT_SECRET or a join token ' +
      'gets a new one',
    params: ById,
    status: 200,
    answer: Node,
  },
  ...JOINING_ROUTES,

  agentRegister: {
    method: 'POST',
    path: '/api/agent/register',
    who: 'agent',
    scope: 'none',
    summary: 'Register a node; agents send this on start and every 30 s',
    body: NodeRegister,
    status: 200,
    answer: Node,
  },
  agentConfig: {
    method: 'GET',
    path: '/api/agent/config',
    who: 'agent',
    scope: 'none',
    summary: 'Get the settings that agents need: registry and base domain',
    status: 200,
    answer: AgentConfig,
  },
  agentBeat: {
    method: 'POST',
    path: '/api/agent/beat',
    who: 'agent',
    scope: 'none',
    summary: 'Tell that the agent of a node works, every `beat_seconds` of its registration',
    query: Type.Object({ node_id: Id }),
    status: 204,
  },
  agentTasks: {
    method: 'GET',
    path: '/api/agent/tasks',
    who: 'agent',
    scope: 'none',
    summary: 'List the unfinished tasks of a node; safe to repeat; held with `wait`',
    query: Type.Object({ node_id: Id, ...LongWait }),
    status: 200,
    answer: Type.Array(Task),
    etag: true,
  },
  agentStart: {
    method: 'POST',
    path: '/api/agent/tasks/:id/start',
    who: 'agent',
    scope: 'none',
    summary: 'Claim a task; raises `attempt` and voids earlier leases',
    params: ById,
    status: 200,
    answer: TaskClaim,
  },
  agentRenew: {
    method: 'POST',
    path: '/api/agent/tasks/:id/renew',
    who: 'agent',
    scope: 'none',
    summary: 'Renew the lease of a task (X-Lease-Token)',
    params: ById,
    status: 200,
    answer: TaskRenewal,
  },
  agentLogs: {
    method: 'POST',
    path: '/api/agent/tasks/:id/logs',
    who: 'agent',
    scope: 'none',
    summary: 'Send log lines of a task (X-Lease-Token)',
    params: ById,
    body: TaskLogs,
    status: 200,
    answer: Type.Object({ stored: Type.Integer() }),
  },
  agentConfigFile: {
    method: 'POST',
    path: '/api/agent/tasks/:id/config-file',
    who: 'agent',
    scope: 'none',
    summary: 'Check berth.toml before the build, and get the settings of the build (X-Lease-Token)',
    params: ById,
    body: ConfigFile,
    status: 200,
    answer: ConfigFileAnswer,
  },
  agentComplete: {
    method: 'POST',
    path: '/api/agent/tasks/:id/complete',
    who: 'agent',
    scope: 'none',
    summary: 'Report the result of a task; a repeated report has no further effect',
    params: ById,
    body: TaskReport,
    status: 200,
    answer: TaskReportAnswer,
  },

  ...VOLUME_ROUTES,
  ...DATASET_ROUTES,
  ...GATEWAY_ROUTES,

  traefikConfig: {
    method: 'GET',
    path: '/api/traefik/config',
    who: 'public',
    scope: 'none',
    summary: 'Get the dynamic configuration of the reverse proxy; held with `wait`',
    query: Type.Object(Wait),
    status: 200,
    etag: true,
  },
  events: {
    method: 'GET',
    path: '/api/events',
    who: 'viewer',
    scope: 'list',
    summary:
      'List events in order; without `after` the newest ones; `Accept: text/event-stream` ' +
      'streams new events',
    query: Type.Object({
      after: Type.Optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
      before: Type.Optional(
        Type.Integer({
          minimum: 1,
          maximum: Number.MAX_SAFE_INTEGER,
          description: 'the newest events before this number; not with `after`',
        }),
      ),
      find: Type.Optional(
        Type.String({
          minLength: 1,
          maxLength: 253,
          description: 'a part of the kind or the message, in any case; not for a stream',
        }),
      ),
      limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000 })),
    }),
    status: 200,
    answer: EventPage,
    streams: true,
  },
  version: {
    method: 'GET',
    path: '/api/version',
    who: 'viewer',
    scope: 'none',
    summary: 'Get the versions of Berth, Node.js and the database schema',
    status: 200,
    answer: Version,
  },
  system: {
    method: 'GET',
    path: '/api/system',
    who: 'admin',
    scope: 'none',
    summary: 'Get the settings in force, without secrets, and the last backups',
    status: 200,
    answer: System,
  },
  berthTomlSchema: {
    method: 'GET',
    path: '/api/schemas/berth-toml.json',
    who: 'public',
    scope: 'none',
    summary: 'Get the JSON Schema of berth.toml',
    status: 200,
    answer: Type.Object({}, { additionalProperties: true }),
  },
  openapi: {
    method: 'GET',
    path: '/api/openapi.json',
    who: 'public',
    scope: 'none',
    summary: 'Get this API as an OpenAPI document',
    status: 200,
  },
  healthz: {
    method: 'GET',
    path: '/healthz',
    who: 'public',
    scope: 'none',
    summary: 'Check that the process is alive',
    status: 200,
  },
  readyz: {
    method: 'GET',
    path: '/readyz',
    who: 'public',
    scope: 'none',
    summary: 'Check that the control plane is ready to serve; lists reasons if it is not',
    status: 200,
  },
  metrics: {
    method: 'GET',
    path: '/metrics',
    who: 'public',
    scope: 'none',
    summary: 'Get Prometheus metrics',
    status: 200,
  },
} as const satisfies Record<string, Route>;

export type RouteName = keyof typeof ROUTES;
type Shape<R, K extends string> =
  R extends Record<K, infer S extends TSchema> ? Static<S> : undefined;
export type ParamsOf<N extends RouteName> = Shape<(typeof ROUTES)[N], 'params'>;
export type QueryOf<N extends RouteName> = Shape<(typeof ROUTES)[N], 'query'>;
export type BodyOf<N extends RouteName> = Shape<(typeof ROUTES)[N], 'body'>;
export type AnswerOf<N extends RouteName> = Shape<(typeof ROUTES)[N], 'answer'>;
