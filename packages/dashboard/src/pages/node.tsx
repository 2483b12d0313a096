import { projectsWithMovingPorts } from '@berth/wire/moving-ports';
import type { Drain, Node } from '@berth/wire/node';
import { useParams } from '@tanstack/react-router';
import { useState } from 'react';
import { PageLayout } from '../parts/page-layout.tsx';
import { useReasons } from '../parts/permissions.ts';
import { useApiQuery, useApiList } from '../api/queries.ts';
import { errorOfLast, useApiMutation } from '../api/mutations.ts';
import { QueryBoundary } from '../parts/query-boundary.tsx';
import { Command, Empty } from '../parts/command.tsx';
import { DiskBar } from '../parts/disk.tsx';
import { dialogError, Problem } from '../parts/problem.tsx';
import { NodeStatus } from '../parts/states.tsx';
import { Ago } from '../parts/time.tsx';
import { bytesText, countText } from '../parts/time-text.ts';
import { Button } from '../ui/controls.tsx';
import { Facts, Table } from '../ui/data.tsx';
import { Note, Progress } from '../ui/feedback.tsx';
import { Column, Columns, Panel } from '../ui/layout.tsx';
import { Confirm } from '../ui/overlay.tsx';
import { Status } from '../ui/status.tsx';
import { Code, PageLink, Text } from '../ui/text.tsx';

const COMMANDS_AT_ONCE = 5;

/**
 * The address has an id or a hostname. Two nodes can share a hostname, then the page lists both.
 */
export const NodePage = () => {
  const { name } = useParams({ strict: false }) as { name: string };
  const same = useApiList('listNodes', { query: { name } });
  const one = useApiQuery(
    'getNode',
    { params: { id: name } },
    { enabled: same.query.data !== undefined && same.items.length < 2 },
  );
  if (same.items.length > 1)
    return (
      <PageLayout
        title={name}
        lead={
          `${same.items.length} nodes have this hostname: one machine can be a builder and a ` +
          'deploy node.'
        }
      >
        {same.items.map((node) => (
          <PageLink key={node.id} to="/nodes/$name" params={{ name: node.id }}>
            {node.hostname} ({node.role})
          </PageLink>
        ))}
      </PageLayout>
    );
  return (
    <QueryBoundary query={one} what="the node" page>
      {(node) => <Loaded key={node.id} node={node} />}
    </QueryBoundary>
  );
};

function Loaded({ node }: { node: Node }) {
  const reasonAgainst = useReasons();
  const [asking, setAsking] = useState(false);
  const params = { id: node.id };
  const drain = useApiMutation('drainNode', () => setAsking(false));
  const cordon = useApiMutation('cordonNode');
  const uncordon = useApiMutation('uncordonNode');
  /** The container of which an admin says that it is gone. */
  const [gone, setGone] = useState<string | null>(null);
  const removed = useApiMutation('confirmRemoved', () => setGone(null));
  const disk = useApiQuery('nodeDisk', { params });
  const left = node.unmanaged ?? [];
  const moving = projectsWithMovingPorts(node.containers);
  const error = errorOfLast(cordon, uncordon);
  return (
    <PageLayout
      title={node.hostname}
      lead={
        <span>
          <NodeStatus node={node} />, last seen <Ago at={node.last_seen_at} />, {node.role} node at{' '}
          {node.host_ip}
        </span>
      }
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
            reason={
              reasonAgainst('drain', node) ??
              (node.role === 'builder' ? 'a builder has no projects to move' : null) ??
              (node.drain?.finished_at === null
                ? 'it drains already; “Uncordon” stops the drain'
                : null)
            }
            onClick={() => setAsking(true)}
          >
            Drain …
          </Button>
        </>
      }
    >
      <Problem error={error} what="The action" />
      {node.doubled !== null && (
        <Note tone="warn" title="Another machine registers under this name">
          <Text>
            {node.doubled.host_ip} is refused since <Ago at={node.doubled.since} />.
          </Text>
        </Note>
      )}
      {node.status === 'offline' && (
        <Note tone="bad" title="The node does not report">
          <Text>
            Nothing moves by itself, and its routes stay, because a silent machine may still serve.
            Start the machine or its agent: <Code>systemctl status 'berth-agent*'</Code>.
            {node.role === 'deploy' &&
              ' If it never comes back, first restart each of its projects, which starts it on ' +
                'another node. Volumes stay on its disk. Then delete the node.'}
          </Text>
        </Note>
      )}
      {node.address_taken && (
        <Note tone="warn" title="Another machine has the address of this node">
          <Column gap="sm">
            <Text>
              <PageLink to="/nodes/$name" params={{ name: node.address_taken.node_id }} size="sm">
                {node.address_taken.hostname}
              </PageLink>{' '}
              is online at {node.host_ip}. A route of this node ends when a container of that one
              gets its port. If this machine never comes back, move the projects that still serve,
              delete the node, then deploy the others again:
            </Text>
            <Command words={['node', 'delete', node.id, '--force']} />
          </Column>
        </Note>
      )}
      {moving.length > 0 && (
        <Note tone="warn" title={`${countText(moving.length, 'project')} without a fixed port`}>
          <Column gap="sm">
            <Text>
              An earlier version of the agent started these containers. When the engine restarts,
              they get other ports, and their hosts may show each other for some seconds. A restart
              gives a project a fixed port:
            </Text>
            {moving.slice(0, COMMANDS_AT_ONCE).map((name) => (
              <Command key={name} words={['restart', name]} />
            ))}
            {moving.length > COMMANDS_AT_ONCE && (
              <Text>Also {moving.slice(COMMANDS_AT_ONCE).join(', ')}</Text>
            )}
          </Column>
        </Note>
      )}
      {node.engine?.ok === false && (
        <Note tone="bad" title="The container engine does not answer">
          {node.engine.error}
        </Note>
      )}
      {node.drain !== undefined && node.drain !== null && (
        <Panel title="Drain" id="drain">
          <Column gap="sm">
            <Text>
              {countText(node.drain.moved, 'project')} moved, {node.drain.left.length} left, begun{' '}
              <Ago at={node.drain.started_at} />
              {node.drain.finished_at !== null && ', done'}
            </Text>
            <Progress
              label="Drain"
              value={
                (node.drain.moved / Math.max(1, node.drain.moved + node.drain.left.length)) * 100
              }
            />
            {node.drain.left.map((row) => (
              <DrainRow
                key={`${row.deployment_id} ${row.problem ?? ''}`}
                row={row}
                unmanaged={left}
              />
            ))}
          </Column>
        </Panel>
      )}
      {left.length > 0 && (
        <Panel flush title="To remove by hand" id="unmanaged">
          <div style={{ padding: '0 16px 16px' }}>
            <Text>
              An agent that implements only the contract started these containers, and no deployment
              uses them any more. Berth cannot see or remove them. Remove each one on the machine,
              then confirm it. Until then a drain waits for it, and so does the next version of a
              project that never runs two versions at once.
            </Text>
          </div>
          <Table
            label="Containers to remove by hand"
            rows={left}
            id={(row) => `${row.container} ${row.project_id}`}
            cells={[
              { head: 'Container', rowHead: true, cell: (row) => <Code>{row.container}</Code> },
              // No link: the project may be deleted.
              { head: 'Project', cell: (row) => row.project },
              { head: 'Started', cell: (row) => <Ago at={row.since} /> },
              {
                head: 'On the machine',
                cell: (row) => <Code>{`docker rm -f ${row.container}`}</Code>,
              },
              {
                head: 'Then',
                cell: (row) => (
                  <Command words={['node', 'removed', node.hostname, row.container]} />
                ),
              },
              {
                head: 'Change',
                cell: (row) => (
                  <Button
                    size="xs"
                    label={`Confirm that ${row.container} is removed`}
                    reason={reasonAgainst('confirm_removed', node)}
                    onClick={() => setGone(row.container)}
                  >
                    Confirm removed …
                  </Button>
                ),
              },
            ]}
          />
        </Panel>
      )}
      <Panel title="Disk" id="disk" actions={<Command words={['node', 'disk', node.hostname]} />}>
        <Column gap="sm">
          {node.disk === null ? (
            <Text tone="quiet">The agent has not reported its disk</Text>
          ) : (
            <DiskBar disk={node.disk} />
          )}
          <QueryBoundary query={disk} what="the preview of evictions">
            {(view) => (
              <>
                <Text>
                  Budget of datasets, images and build cache: {bytesText(view.budget_bytes)},{' '}
                  {view.free_bytes < 0
                    ? `exceeded by ${bytesText(-view.free_bytes)}`
                    : `${bytesText(view.free_bytes)} of it free`}
                  .
                </Text>
                {view.unavailable !== undefined && <Text tone="quiet">{view.unavailable}</Text>}
                {view.evict.length > 0 && (
                  <Table
                    label="What would be evicted, in order"
                    rows={view.evict}
                    id={(row) => `${row.kind} ${row.name} ${row.bytes}`}
                    cells={[
                      { head: 'Evicted next', rowHead: true, cell: (row) => row.name },
                      { head: 'Kind', cell: (row) => row.kind.replace('_', ' ') },
                      { head: 'Size', number: true, cell: (row) => bytesText(row.bytes) },
                      { head: 'Why', cell: (row) => row.why },
                    ]}
                  />
                )}
              </>
            )}
          </QueryBoundary>
        </Column>
      </Panel>
      <Panel flush title="Containers" id="containers">
        {node.containers.length === 0 ? (
          <Empty>No containers of Berth run here.</Empty>
        ) : (
          <Table
            label="Containers"
            rows={node.containers}
            id={(row) => row.name}
            cells={[
              { head: 'Container', rowHead: true, cell: (row) => <Code>{row.name}</Code> },
              {
                head: 'State',
                cell: (row) =>
                  node.quarantined?.includes(row.name) === true
                    ? `${row.state}, in quarantine: its deployment is unknown`
                    : row.port_fixed === false && row.state === 'running'
                      ? `${row.state}, its port is not fixed`
                      : row.state,
              },
              {
                head: 'Project',
                cell: (row) => <ProjectLink name={row.labels['berth.project_name']} />,
              },
              { head: 'Port', number: true, wide: true, cell: (row) => row.host_port ?? '' },
            ]}
          />
        )}
      </Panel>
      <Columns most={2}>
        <Panel flush title="Datasets on its disk" id="cached">
          {node.cached.length === 0 ? (
            <Empty>None.</Empty>
          ) : (
            <Table
              label="Datasets on its disk"
              rows={node.cached}
              id={(row) => `${row.dataset_id} ${row.version}`}
              cells={[
                {
                  head: 'Dataset',
                  rowHead: true,
                  cell: (row) => (
                    <PageLink
                      to="/datasets/$name"
                      params={{ name: row.name ?? row.dataset_id }}
                      size="sm"
                    >
                      {row.name ?? row.dataset_id}
                    </PageLink>
                  ),
                },
                { head: 'Version', number: true, cell: (row) => row.version },
                { head: 'Size', number: true, cell: (row) => bytesText(row.bytes) },
                { head: 'In use', cell: (row) => (row.pinned === true ? 'yes' : 'no') },
              ]}
            />
          )}
        </Panel>
        <Panel
          flush
          title="Volumes on its disk"
          id="volumes"
          actions={<Command words={['node', 'volumes', node.hostname]} />}
        >
          <QueryBoundary query={disk} what="the volumes">
            {({ volumes }) =>
              volumes.length === 0 ? (
                <Empty>None.</Empty>
              ) : (
                <Table
                  label="Volumes on its disk"
                  rows={volumes}
                  id={(row) => `${row.project} ${row.name} ${row.kept_of_deleted}`}
                  cells={[
                    { head: 'Volume', rowHead: true, cell: (row) => row.name },
                    {
                      head: 'Project',
                      cell: (row) =>
                        row.kept_of_deleted ? (
                          `${row.project} (deleted)`
                        ) : (
                          <ProjectLink name={row.project} />
                        ),
                    },
                    {
                      head: 'Size',
                      number: true,
                      cell: (row) => (row.bytes === null ? 'not counted' : bytesText(row.bytes)),
                    },
                    {
                      head: 'State',
                      cell: (row) =>
                        (row.missing_since ?? null) === null ? (
                          <Status mark="ok">on the disk</Status>
                        ) : (
                          <Status mark="bad">
                            missing, last seen <Ago at={row.missing_since ?? ''} />
                          </Status>
                        ),
                    },
                  ]}
                />
              )
            }
          </QueryBoundary>
        </Panel>
        <Panel title="Facts" id="facts">
          <Facts
            items={[
              ['Id', <Code key="i">{node.id}</Code>],
              node.agent_version === null ? null : ['Agent', node.agent_version],
              (node.engine?.version ?? null) === null ? null : ['Engine', node.engine?.version],
              node.arch === null ? null : ['Architecture', node.arch],
              ['Own secret', node.has_secret ? 'yes' : 'no'],
              ['Builds at once', String(node.max_builds)],
            ]}
          />
        </Panel>
      </Columns>
      <Confirm
        open={asking}
        onClose={() => {
          setAsking(false);
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
      <Confirm
        open={gone !== null}
        onClose={() => {
          setGone(null);
          removed.reset();
        }}
        title={`Is ${gone ?? ''} gone from ${node.hostname}?`}
        action="It is removed"
        danger
        busy={removed.busy}
        error={dialogError(removed.error)}
        onConfirm={() =>
          void (gone !== null && removed.run({ params: { ...params, container: gone } }))
        }
      >
        <Text>
          Berth cannot check it, and starts other versions as if the container was gone. If it still
          runs, two versions may write the same data.
        </Text>
      </Confirm>
    </PageLayout>
  );
}

type DrainRowProps = { row: Drain['left'][number]; unmanaged: NonNullable<Node['unmanaged']> };
/**
 * A container that a person must remove has its project, which may be deleted, and its commands in
 * the panel below.
 */
function DrainRow({ row, unmanaged }: DrainRowProps) {
  const byHand = unmanaged.find(
    (one) =>
      one.project_id === row.project_id && row.problem?.startsWith(`${one.container} `) === true,
  );
  if (byHand !== undefined)
    return (
      <Text>{`${byHand.container} of ${row.project}: waits until it is removed by hand`}</Text>
    );
  return (
    <Text>
      <PageLink to="/projects/$name" params={{ name: row.project }} size="sm">
        {row.project}
      </PageLink>
      {row.problem !== null ? `: ${row.problem}` : row.moving_to === null ? ': waits' : ': moving'}
    </Text>
  );
}

/** A container of an earlier agent has no name of its project. */
const ProjectLink = ({ name }: { name: string | undefined }) =>
  name === undefined ? null : (
    <PageLink to="/projects/$name" params={{ name }} size="sm">
      {name}
    </PageLink>
  );
