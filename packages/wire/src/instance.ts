/** Instances of deployments, as the API shows them. */
import { type Static, Type } from 'typebox';
import { Placement, PlacementRow } from './node.ts';
import type { Route } from './route.ts';
import { ByName } from './route.ts';
import {
  CommitId,
  Id,
  INSTANCE_STATES,
  listOf,
  literals,
  orNull,
  PageQuery,
  Time,
} from './vocabulary.ts';

export const DeploymentInstance = Type.Object({
  id: Id,
  process: Type.String(),
  number: Type.Integer(),
  state: literals(INSTANCE_STATES),
  node_id: orNull(Id),
  node_name: orNull(Type.String()),
  host_ip: orNull(Type.String()),
  host_port: orNull(Type.Integer()),
  container_id: orNull(Type.String()),
  since: Time,
  detail: orNull(Type.String({ description: 'why it is not `serving`' })),
});
export type DeploymentInstance = Static<typeof DeploymentInstance>;

/** An instance with the decision about its node. */
export const PlacedInstance = Type.Object({
  ...DeploymentInstance.properties,
  placement: orNull(Placement),
});
export type PlacedInstance = Static<typeof PlacedInstance>;

/** An instance in a list of several projects. */
export const InstanceItem = Type.Object({
  ...DeploymentInstance.properties,
  project_id: Id,
  project: Type.String({ description: 'name of the project' }),
  deployment_id: Id,
  generation: Type.Integer({ description: 'number of its deployment' }),
  commit: orNull(CommitId),
});
export type InstanceItem = Static<typeof InstanceItem>;

/** Why an instance runs on its node. */
export const InstancePlacement = Type.Object({
  process: Type.String(),
  number: Type.Integer(),
  state: literals(INSTANCE_STATES),
  node_id: orNull(Id),
  node_name: orNull(Type.String()),
  terms: Type.Array(PlacementRow, {
    description: 'the nodes that could take it, with the terms of their score, best first',
  }),
  refusals: Type.Array(
    Type.Object({ node_id: Id, node_name: Type.String(), reason: orNull(Type.String()) }),
    { description: 'the nodes that were refused' },
  ),
  left_out: Placement.properties.left_out,
  note: orNull(Type.String({ description: 'why it shares its node, or why it waits' })),
});
export type InstancePlacement = Static<typeof InstancePlacement>;

export const ProjectPlacement = Type.Object({
  deployment_id: orNull({
    ...Id,
    description: 'the deployment that serves, or else the one that is starting; null: none',
  }),
  items: Type.Array(InstancePlacement),
});
export type ProjectPlacement = Static<typeof ProjectPlacement>;

export const INSTANCE_ROUTES = {
  listInstances: {
    method: 'GET',
    path: '/api/instances',
    who: 'viewer',
    scope: 'list',
    summary:
      'List the instances of deployments that run or start, by project; `limit` counts ' +
      'deployments, and a page has all instances of its deployments',
    query: Type.Object({
      ...PageQuery,
      project_id: Type.Optional(Id),
      node_id: Type.Optional({ ...Id, description: 'only instances on this node' }),
    }),
    status: 200,
    answer: listOf(InstanceItem),
  },
  projectPlacement: {
    method: 'GET',
    path: '/api/projects/:id/placement',
    who: 'viewer',
    scope: 'project',
    summary: 'Show why each instance of a project runs on its node',
    params: ByName,
    status: 200,
    answer: ProjectPlacement,
  },
} as const satisfies Record<string, Route>;
