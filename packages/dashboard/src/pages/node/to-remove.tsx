/** Containers that Berth cannot remove, because a contract-only agent runs them. */
import type { ContainerToRemove, Node } from '@berth/wire/node';
import { useState } from 'react';
import { useApiMutation } from '../../api/mutations.ts';
import { Command } from '../../parts/command.tsx';
import { useReasons } from '../../parts/permissions.ts';
import { dialogError } from '../../parts/problem.tsx';
import { Ago } from '../../parts/time.tsx';
import { Button } from '../../ui/controls.tsx';
import { type Cell, Table } from '../../ui/data.tsx';
import { Panel } from '../../ui/layout.tsx';
import { Confirm } from '../../ui/overlay.tsx';
import { Code, Text } from '../../ui/text.tsx';

const containerColumns = (node: Node): Cell<ContainerToRemove>[] => [
  { head: 'Container', rowHead: true, cell: (row) => <Code>{row.container}</Code> },
  // Show no link, because the project might have been deleted.
  { head: 'Project', cell: (row) => row.project },
  { head: 'Started', cell: (row) => <Ago at={row.since} /> },
  { head: 'On the machine', cell: (row) => <Code>{`docker rm -f ${row.container}`}</Code> },
  {
    head: 'Then',
    cell: (row) => <Command words={['node', 'removed', node.hostname, row.container]} />,
  },
];

export function ToRemoveByHand({ node }: { node: Node }) {
  const reason = useReasons()('confirm_removed', node);
  /** Name of the container in the open dialog; null if the dialog is closed. */
  const [removedByHand, setRemovedByHand] = useState<string | null>(null);
  const removed = useApiMutation('confirmRemoved', () => setRemovedByHand(null));
  const containers = node.unmanaged ?? [];
  if (containers.length === 0) return null;
  const confirmColumn: Cell<ContainerToRemove> = {
    head: 'Change',
    cell: ({ container }) => (
      <Button
        size="xs"
        label={`Confirm that ${container} is removed`}
        reason={reason}
        onClick={() => setRemovedByHand(container)}
      >
        Confirm removed …
      </Button>
    ),
  };
  return (
    <Panel flush title="To remove by hand" id="unmanaged">
      <div style={{ padding: '0 16px 16px' }}>
        <Text>
          An agent that implements only the contract started these containers, and no deployment
          uses them any more. Berth cannot see or remove them. Remove each one on the machine, then
          confirm it. Until then a drain waits for it, and so does the next version of a project
          that never runs two versions at once.
        </Text>
      </div>
      <Table
        label="Containers to remove by hand"
        rows={containers}
        id={(row) => `${row.container} ${row.project_id}`}
        cells={[...containerColumns(node), confirmColumn]}
      />
      <Confirm
        open={removedByHand !== null}
        onClose={() => {
          setRemovedByHand(null);
          removed.reset();
        }}
        title={`Is ${removedByHand ?? ''} gone from ${node.hostname}?`}
        action="It is removed"
        danger
        busy={removed.busy}
        error={dialogError(removed.error)}
        onConfirm={() => {
          if (removedByHand !== null)
            void removed.run({ params: { id: node.id, container: removedByHand } });
        }}
      >
        <Text>
          Berth cannot check it, and starts other versions as if the container was gone. If it still
          runs, two versions may write the same data.
        </Text>
      </Confirm>
    </Panel>
  );
}
