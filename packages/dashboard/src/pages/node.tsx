import type { Node } from '@berth/wire/node';
import { sizeText } from '@berth/wire/size-text';
import { useParams } from '@tanstack/react-router';
import { useState } from 'react';
import { errorOfLast, useApiMutation } from '../api/mutations.ts';
import { useApiList, useApiQuery } from '../api/queries.ts';
import { PageLayout } from '../parts/page-layout.tsx';
import { useReasons } from '../parts/permissions.ts';
import { dialogError, Problem } from '../parts/problem.tsx';
import { QueryBoundary } from '../parts/query-boundary.tsx';
import { NodeStatus } from '../parts/states.tsx';
import { Ago } from '../parts/time.tsx';
import { countText } from '../parts/time-text.ts';
import { Button } from '../ui/controls.tsx';
import { Facts } from '../ui/data.tsx';
import { Columns, Panel } from '../ui/layout.tsx';
import { Confirm } from '../ui/overlay.tsx';
import { Code, PageLink, Text } from '../ui/text.tsx';
import { NodeCommands } from './node/commands.tsx';
import { Containers } from './node/containers.tsx';
import { CachedDatasets, DiskPanel, NodeVolumes } from './node/disk.tsx';
import { DrainPanel } from './node/drain.tsx';
import { NodeInstances } from './node/instances.tsx';
import { NodeLabels } from './node/labels.tsx';
import { ToRemoveByHand } from './node/to-remove.tsx';
import { NodeWarnings } from './node/warnings.tsx';

/** The page of a node, named by id or hostname. Lists the nodes if they share the hostname. */
export const NodePage = () => {
  const { name } = useParams({ strict: false }) as { name: string };
  const namesakes = useApiList('listNodes', { query: { name } });
  const node = useApiQuery(
    'getNode',
    { params: { id: name } },
    { enabled: namesakes.query.data !== undefined && namesakes.items.length < 2 },
  );
  if (namesakes.items.length > 1) return <Namesakes hostname={name} nodes={namesakes.items} />;
  return (
    <QueryBoundary query={node} what="the node" page>
      {(answer) => <LoadedNode key={answer.id} node={answer} />}
    </QueryBoundary>
  );
};

const Namesakes = ({ hostname, nodes }: { hostname: string; nodes: readonly Node[] }) => (
  <PageLayout
    title={hostname}
    lead={
      `${nodes.length} nodes have this hostname: ` +
      'one machine can be a builder and a deploy node.'
    }
  >
    {nodes.map((node) => (
      <PageLink key={node.id} to="/nodes/$name" params={{ name: node.id }}>
        {node.hostname} ({node.role})
      </PageLink>
    ))}
  </PageLayout>
);

function LoadedNode({ node }: { node: Node }) {
  const params = { id: node.id };
  const [isAsking, setIsAsking] = useState(false);
  const drain = useApiMutation('drainNode', () => setIsAsking(false));
  const cordon = useApiMutation('cordonNode');
  const uncordon = useApiMutation('uncordonNode');
  const disk = useApiQuery('nodeDisk', { params });
  const reasonAgainst = useReasons();
  return (
    <PageLayout
      title={node.hostname}
      lead={<NodeLead node={node} />}
      actions={
        <>
          {node.schedulable ? (
            <Button
              reason={reasonAgainst('cordon', node)}
              busy={cordon.busy}
              onClick={() => void cordon.run({ params })}
            >
              Cordon
            </Button>
          ) : (
            <Button
              reason={reasonAgainst('uncordon', node)}
              busy={uncordon.busy}
              onClick={() => void uncordon.run({ params })}
            >
              Uncordon
            </Button>
          )}
          <Button
            look="danger"
            reason={reasonAgainst('drain', node) ?? noDrainText(node)}
            onClick={() => setIsAsking(true)}
          >
            Drain …
          </Button>
        </>
      }
    >
      <Problem error={errorOfLast(cordon, uncordon)} what="The action" />
      <NodeWarnings node={node} />
      <DrainPanel node={node} />
      <ToRemoveByHand node={node} />
      <DiskPanel node={node} disk={disk} />
      {node.role === 'deploy' && <NodeInstances node={node} />}
      <NodeCommands node={node} />
      <Containers node={node} />
      <Columns most={2}>
        <CachedDatasets node={node} />
        <NodeVolumes node={node} disk={disk} />
        <NodeFacts node={node} />
        <NodeLabels node={node} />
      </Columns>
      <Confirm
        open={isAsking}
        onClose={() => {
          setIsAsking(false);
          drain.reset();
        }}
        title={`Drain ${node.hostname}?`}
        action="Drain"
        danger
        busy={drain.busy}
        error={dialogError(drain.error)}
        onConfirm={() => void drain.run({ params })}
      >
        <Text>
          The node gets no new work, and its {countText(node.containers.length, 'container')} move
          to other nodes one by one. No request is lost. “Uncordon” stops the drain.
        </Text>
      </Confirm>
    </PageLayout>
  );
}

const NodeLead = ({ node }: { node: Node }) => (
  <span>
    <NodeStatus node={node} />, last seen <Ago at={node.last_seen_at} />, {node.role} node at{' '}
    {node.host_ip}
  </span>
);

function noDrainText(node: Node): string | null {
  if (node.role === 'builder') return 'a builder has no projects to move';
  return node.drain?.finished_at === null ? 'it drains already; “Uncordon” stops the drain' : null;
}

const NodeFacts = ({ node }: { node: Node }) => (
  <Panel title="Facts" id="facts">
    <Facts
      items={[
        ['Id', <Code key="i">{node.id}</Code>],
        node.agent_version === null ? null : ['Agent', node.agent_version],
        (node.engine?.version ?? null) === null ? null : ['Engine', node.engine?.version],
        node.arch === null ? null : ['Architecture', node.arch],
        node.cpus === null ? null : ['CPUs', String(node.cpus)],
        node.memory_bytes === null ? null : ['Memory', sizeText(node.memory_bytes)],
        ...Object.entries(node.devices).map(([kind, names]): [string, string] => [
          `Devices ${kind}`,
          names.join(', '),
        ]),
        ['Own secret', node.has_secret ? 'yes' : 'no'],
        ['Builds at once', String(node.max_builds)],
      ]}
    />
  </Panel>
);
