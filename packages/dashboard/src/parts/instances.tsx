/** Tables of instances: the containers of a project, or those on a node. */
import type { DeploymentInstance, InstanceItem, PlacedInstance } from '@berth/wire/instance';
import { type Cell, Table } from '../ui/data.tsx';
import { Status } from '../ui/status.tsx';
import { whyThere } from './instance-text.ts';
import { DeploymentLink, NodeLink, ProjectLink } from './links.tsx';
import { INSTANCE_MARKS, INSTANCE_WORDS } from './states.tsx';
import { Ago } from './time.tsx';

const stateColumn: Cell<DeploymentInstance> = {
  head: 'State',
  cell: ({ state }) => <Status mark={INSTANCE_MARKS[state]}>{INSTANCE_WORDS[state]}</Status>,
};
const sinceColumn: Cell<DeploymentInstance> = {
  head: 'Since',
  cell: (row) => <Ago at={row.since} />,
};
const detailColumn: Cell<DeploymentInstance> = { head: 'Why', cell: (row) => row.detail ?? '' };
const nameOf = ({ process, number }: DeploymentInstance): string => `${process} ${number}`;

const OF_PROJECT: readonly Cell<PlacedInstance>[] = [
  { head: 'Instance', rowHead: true, cell: nameOf },
  {
    head: 'Node',
    cell: ({ node_id, node_name }) =>
      node_id === null ? 'none yet' : <NodeLink name={node_id}>{node_name ?? node_id}</NodeLink>,
  },
  stateColumn,
  sinceColumn,
  // A problem first; without one, the reason for the node.
  { head: 'Why', cell: (row) => row.detail ?? whyThere(row) ?? '' },
];

export const InstancesOfProject = ({ instances }: { instances: readonly PlacedInstance[] }) => (
  <Table label="Instances" rows={instances} id={(row) => row.id} cells={OF_PROJECT} />
);

const ON_NODE: readonly Cell<InstanceItem>[] = [
  {
    head: 'Project',
    rowHead: true,
    cell: (row) => <ProjectLink name={row.project} />,
  },
  { head: 'Instance', cell: nameOf },
  {
    head: 'Deployment',
    cell: (row) => <DeploymentLink id={row.deployment_id}>{row.generation}</DeploymentLink>,
  },
  stateColumn,
  sinceColumn,
  detailColumn,
];

export const InstancesOnNode = ({ instances }: { instances: readonly InstanceItem[] }) => (
  <Table label="Instances on this node" rows={instances} id={(row) => row.id} cells={ON_NODE} />
);
