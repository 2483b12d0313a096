/** Runs and release commands that have not ended on a node. A drain waits for them. */
import type { Node, NodeCommand } from '@berth/wire/node';
import { DeploymentLink, ProjectLink } from '../../parts/links.tsx';
import { durationText } from '../../parts/time-text.ts';
import { type Cell, Table } from '../../ui/data.tsx';
import { Panel } from '../../ui/layout.tsx';
import { PageLink, Text } from '../../ui/text.tsx';

const COLUMNS: Cell<NodeCommand>[] = [
  {
    head: 'Command',
    rowHead: true,
    cell: ({ run_id, deployment_id }) =>
      run_id === null ? (
        <DeploymentLink id={deployment_id}>release command of a deployment</DeploymentLink>
      ) : (
        <PageLink to="/runs/$id" params={{ id: run_id }} size="sm">
          {run_id}
        </PageLink>
      ),
  },
  { head: 'Project', cell: ({ project }) => <ProjectLink name={project} /> },
  {
    head: 'Time limit',
    cell: ({ timeout_seconds }) => `${durationText(timeout_seconds * 1_000)} after its start`,
  },
];

export function NodeCommands({ node }: { node: Node }) {
  const commands = node.commands ?? [];
  if (commands.length === 0) return null;
  return (
    <Panel flush title="Commands" id="commands">
      <div style={{ padding: '0 16px 16px' }}>
        <Text>These commands have not ended. A drain of the node waits for them.</Text>
      </div>
      <Table
        label="Commands that have not ended"
        rows={commands}
        id={({ run_id, deployment_id }) => run_id ?? deployment_id}
        cells={COLUMNS}
      />
    </Panel>
  );
}
