/** Notes about node problems that need a person. */
import { projectsWithMovingPorts } from '@berth/wire/moving-ports';
import type { Node } from '@berth/wire/node';
import { Command } from '../../parts/command.tsx';
import { NodeLink } from '../../parts/links.tsx';
import { Ago } from '../../parts/time.tsx';
import { silentText } from '../../parts/node-notes.ts';
import { countText } from '../../parts/time-text.ts';
import { Note } from '../../ui/feedback.tsx';
import { Column } from '../../ui/layout.tsx';
import { Code, Text } from '../../ui/text.tsx';

/** Maximum number of projects with a command; further projects are only named. */
const MAX_COMMANDS = 5;

export const NodeWarnings = ({ node }: { node: Node }) => (
  <>
    {node.doubled !== null && (
      <Note tone="warn" title="Another machine registers under this name">
        <Text>
          {node.doubled.host_ip} is refused since <Ago at={node.doubled.since} />.
        </Text>
      </Note>
    )}
    {(node.status === 'offline' || node.failover) && <SilentNote node={node} />}
    {node.address_taken && <AddressTakenNote node={node} takenBy={node.address_taken} />}
    <MovingPortsNote projects={projectsWithMovingPorts(node.containers)} />
    {node.engine?.ok === false && (
      <Note tone="bad" title="The container engine does not answer">
        {node.engine.error}
      </Note>
    )}
  </>
);

const SilentNote = ({ node }: { node: Node }) => (
  <Note tone="bad" title="The node does not report">
    <Column gap="sm">
      <Text>
        {node.role === 'deploy' && `${silentText(node)} `}
        Start the machine or its agent: <Code>systemctl status 'berth-agent*'</Code>.
        {node.role === 'deploy' &&
          ' If it never comes back, delete the node; volumes are lost then.'}
      </Text>
      {node.role === 'deploy' && (node.failover?.waiting ?? 0) > 0 && (
        <>
          <Text>If the machine is gone, this starts on other nodes what only reads:</Text>
          <Command words={['failover', node.hostname, '--now']} />
        </>
      )}
    </Column>
  </Note>
);

type AddressTakenProps = { node: Node; takenBy: NonNullable<Node['address_taken']> };
const AddressTakenNote = ({ node, takenBy }: AddressTakenProps) => (
  <Note tone="warn" title="Another machine has the address of this node">
    <Column gap="sm">
      <Text>
        <NodeLink name={takenBy.node_id}>{takenBy.hostname}</NodeLink> is online at {node.host_ip}.
        A route of this node ends when a container of that one gets its port. If this machine never
        comes back, move the projects that still serve, delete the node, then deploy the others
        again:
      </Text>
      <Command words={['node', 'delete', node.id, '--force']} />
    </Column>
  </Note>
);

function MovingPortsNote({ projects }: { projects: readonly string[] }) {
  if (projects.length === 0) return null;
  return (
    <Note tone="warn" title={`${countText(projects.length, 'project')} without a fixed port`}>
      <Column gap="sm">
        <Text>
          An earlier version of the agent started these containers. When the engine restarts, they
          get other ports, and their hosts may show each other for some seconds. A restart gives a
          project a fixed port:
        </Text>
        {projects.slice(0, MAX_COMMANDS).map((name) => (
          <Command key={name} words={['restart', name]} />
        ))}
        {projects.length > MAX_COMMANDS && (
          <Text>Also {projects.slice(MAX_COMMANDS).join(', ')}</Text>
        )}
      </Column>
    </Note>
  );
}
