/**
 * The route table: every request the control plane answers, who may make it, and the shapes both ways.
 * The server registers by it (a route without a row cannot be registered), the typed client and the OpenAPI document are
 * made from it, and test/structure.test.ts holds it equal to docs/api.md.
 */
import { type Static, type TSchema, Type } from 'typebox';
import { Deployment, DeploymentCreate, LogPage, RollbackCreate } from './deployment.ts';
import { DATASET_ROUTES } from './dataset-routes.ts';
import { GATEWAY_ROUTES } from './gateway-routes.ts';
import { IDENTITY_ROUTES } from './identity-routes.ts';
import { CacheRoom, Node, NodeRegister, Placement, Prewarm } from './node.ts';
import { Project, ProjectCreate, ProjectPatch } from './project.ts';
import { AgentConfig, Task, TaskClaim, TaskLogs, TaskRenewal, TaskReport, TaskReportAnswer } from './task.ts';
import { ById, LongWait, type Route, Wait } from './route.ts';
import { DEPLOYMENT_STATES, Id, listOf, literals, PageQuery } from './vocabulary.ts';

export const ROUTES = {
  ...IDENTITY_ROUTES,

  listProjects: {
    method: 'GET',
    path: '/api/projects',
    who: 'viewer',
    summary: 'All projects, by name',
    query: Type.Object(PageQuery),
    status: 200,
    answer: listOf(Project),
  },
  createProject: {
    method: 'POST',
    path: '/api/projects',
    who: 'developer',
    summary: 'Make a project',
    body: ProjectCreate,
    status: 201,
    answer: Project,
  },
  getProject: {
    method: 'GET',
    path: '/api/projects/:id',
    who: 'viewer',
    summary: 'One project',
    params: ById,
    status: 200,
    answer: Project,
  },
  patchProject: {
    method: 'PATCH',
    path: '/api/projects/:id',
    who: 'developer',
    summary: 'Change a project; takes effect with its next deployment',
    params: ById,
    body: ProjectPatch,
    status: 200,
    answer: Project,
  },
  deleteProject: {
    method: 'DELETE',
    path: '/api/projects/:id',
    who: 'developer',
    summary: 'Delete a project: gone when its containers are',
    params: ById,
    status: 202,
    answer: Project,
  },

  createDeployment: {
    method: 'POST',
    path: '/api/projects/:id/deployments',
    who: 'developer',
    summary: 'Bring the branch (or one commit) live; Idempotency-Key honoured for 24 h',
    params: ById,
    body: DeploymentCreate,
    bodyOptional: true,
    status: 201,
    answer: Deployment,
  },
  rollback: {
    method: 'POST',
    path: '/api/projects/:id/rollback',
    who: 'developer',
    summary: 'Bring an earlier deployment’s image live again, nothing built',
    params: ById,
    body: RollbackCreate,
    status: 201,
    answer: Deployment,
  },
  listDeployments: {
    method: 'GET',
    path: '/api/deployments',
    who: 'viewer',
    summary: 'Deployments, newest first',
    query: Type.Object({ ...PageQuery, project_id: Type.Optional(Id), status: Type.Optional(literals(DEPLOYMENT_STATES)) }),
    status: 200,
    answer: listOf(Deployment),
  },
  getDeployment: {
    method: 'GET',
    path: '/api/deployments/:id',
    who: 'viewer',
    summary: 'One deployment with its story',
    params: ById,
    status: 200,
    answer: Deployment,
  },
  cancelDeployment: {
    method: 'POST',
    path: '/api/deployments/:id/cancel',
    who: 'developer',
    summary: 'Cancel; ends `cancelled` once the agent has let go',
    params: ById,
    status: 200,
    answer: Deployment,
  },
  deploymentLogs: {
    method: 'GET',
    path: '/api/deployments/:id/logs',
    who: 'viewer',
    summary: 'Log lines after a sequence number; `Accept: text/event-stream` follows',
    params: ById,
    query: Type.Object({
      after: Type.Optional(Type.Integer({ minimum: 0 })),
      limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 5000 })),
    }),
    status: 200,
    answer: LogPage,
  },

  listNodes: {
    method: 'GET',
    path: '/api/nodes',
    who: 'viewer',
    summary: 'All nodes',
    query: Type.Object(PageQuery),
    status: 200,
    answer: listOf(Node),
  },
  getNode: { method: 'GET', path: '/api/nodes/:id', who: 'viewer', summary: 'One node', params: ById, status: 200, answer: Node },
  cordonNode: {
    method: 'POST',
    path: '/api/nodes/:id/cordon',
    who: 'admin',
    summary: 'Give it no new work',
    params: ById,
    status: 200,
    answer: Node,
  },
  uncordonNode: {
    method: 'POST',
    path: '/api/nodes/:id/uncordon',
    who: 'admin',
    summary: 'Give it work again',
    params: ById,
    status: 200,
    answer: Node,
  },
  deleteNode: {
    method: 'DELETE',
    path: '/api/nodes/:id',
    who: 'admin',
    summary: 'Delete a node: gone when its agent removed what runs there; `force` for one that never will',
    params: ById,
    query: Type.Object({ force: Type.Optional(Type.Boolean()) }),
    status: 202,
    answer: Node,
  },
  drainNode: {
    method: 'POST',
    path: '/api/nodes/:id/drain',
    who: 'admin',
    summary: 'Cordon it and move what runs there elsewhere; `uncordon` stops it',
    params: ById,
    status: 202,
    answer: Node,
  },
  prewarmNode: {
    method: 'POST',
    path: '/api/nodes/:id/prewarm',
    who: 'admin',
    summary: 'Copy the newest version of a dataset to it now',
    params: ById,
    body: Prewarm,
    status: 202,
    answer: Node,
  },
  cacheRoom: {
    method: 'GET',
    path: '/api/nodes/:id/cache',
    who: 'viewer',
    summary: 'Which cached datasets would go, and in which order, to make room for `bytes`',
    params: ById,
    query: Type.Object({ bytes: Type.Optional(Type.Integer({ minimum: 0 })) }),
    status: 200,
    answer: CacheRoom,
  },
  placement: {
    method: 'GET',
    path: '/api/placement',
    who: 'viewer',
    summary: 'Where a project would go, and why',
    query: Type.Object({ project_id: Id }),
    status: 200,
    answer: Placement,
  },

  agentRegister: {
    method: 'POST',
    path: '/api/agent/register',
    who: 'agent',
    summary: 'Sent on start and every 30 s',
    body: NodeRegister,
    status: 200,
    answer: Node,
  },
  agentConfig: {
    method: 'GET',
    path: '/api/agent/config',
    who: 'agent',
    summary: 'What an agent needs to work',
    status: 200,
    answer: AgentConfig,
  },
  agentTasks: {
    method: 'GET',
    path: '/api/agent/tasks',
    who: 'agent',
    summary: 'The node’s unfinished tasks; safe to repeat; held with `wait`',
    query: Type.Object({ node_id: Id, ...LongWait }),
    status: 200,
    answer: Type.Array(Task),
  },
  agentStart: {
    method: 'POST',
    path: '/api/agent/tasks/:id/start',
    who: 'agent',
    summary: 'Claim: raises `attempt`, voids earlier leases',
    params: ById,
    status: 200,
    answer: TaskClaim,
  },
  agentRenew: {
    method: 'POST',
    path: '/api/agent/tasks/:id/renew',
    who: 'agent',
    summary: 'Keep the lease (X-Lease-Token)',
    params: ById,
    status: 200,
    answer: TaskRenewal,
  },
  agentLogs: {
    method: 'POST',
    path: '/api/agent/tasks/:id/logs',
    who: 'agent',
    summary: 'Log lines of the task (X-Lease-Token)',
    params: ById,
    body: TaskLogs,
    status: 200,
    answer: Type.Object({ stored: Type.Integer() }),
  },
  agentComplete: {
    method: 'POST',
    path: '/api/agent/tasks/:id/complete',
    who: 'agent',
    summary: 'Report the end; the same report twice has one effect',
    params: ById,
    body: TaskReport,
    status: 200,
    answer: TaskReportAnswer,
  },

  ...DATASET_ROUTES,
  ...GATEWAY_ROUTES,

  traefikConfig: {
    method: 'GET',
    path: '/api/traefik/config',
    who: 'public',
    summary: 'Dynamic configuration for the reverse proxy; held with `wait`',
    query: Type.Object(Wait),
    status: 200,
  },
  openapi: { method: 'GET', path: '/api/openapi.json', who: 'public', summary: 'This API as OpenAPI', status: 200 },
  healthz: { method: 'GET', path: '/healthz', who: 'public', summary: 'The process lives', status: 200 },
  readyz: { method: 'GET', path: '/readyz', who: 'public', summary: 'Ready to serve, with reasons', status: 200 },
  metrics: { method: 'GET', path: '/metrics', who: 'public', summary: 'Prometheus metrics', status: 200 },
} as const satisfies Record<string, Route>;

export type RouteName = keyof typeof ROUTES;
type Shape<R, K extends string> = R extends Record<K, infer S extends TSchema> ? Static<S> : undefined;
export type ParamsOf<N extends RouteName> = Shape<(typeof ROUTES)[N], 'params'>;
export type QueryOf<N extends RouteName> = Shape<(typeof ROUTES)[N], 'query'>;
export type BodyOf<N extends RouteName> = Shape<(typeof ROUTES)[N], 'body'>;
export type AnswerOf<N extends RouteName> = Shape<(typeof ROUTES)[N], 'answer'>;
