/** The Berth containers on a node. */
import type { Node, ObservedContainer } from '@berth/wire/node';
import { Empty } from '../../parts/command.tsx';
import { ProjectLink } from '../../parts/links.tsx';
import { type Cell, Table } from '../../ui/data.tsx';
import { Panel } from '../../ui/layout.tsx';
import { Code } from '../../ui/text.tsx';

function stateText(node: Node, { name, state, port_fixed }: ObservedContainer): string {
  if (node.quarantined?.includes(name) === true)
    return `${state}, in quarantine: its deployment is unknown`;
  return port_fixed === false && state === 'running' ? `${state}, its port is not fixed` : state;
}

const containerColumns = (node: Node): Cell<ObservedContainer>[] => [
  { head: 'Container', rowHead: true, cell: (row) => <Code>{row.name}</Code> },
  { head: 'State', cell: (row) => stateText(node, row) },
  {
    head: 'Project',
    // An older agent did not label its containers with the project name.
    cell: ({ labels: { 'berth.project_name': name } }) =>
      name === undefined ? null : <ProjectLink name={name} />,
  },
  { head: 'Port', number: true, wide: true, cell: (row) => row.host_port ?? '' },
];

export const Containers = ({ node }: { node: Node }) => (
  <Panel flush title="Containers" id="containers">
    {node.containers.length === 0 ? (
      <Empty>No containers of Berth run here.</Empty>
    ) : (
      <Table
        label="Containers"
        rows={node.containers}
        id={(row) => row.name}
        cells={containerColumns(node)}
      />
    )}
  </Panel>
);
