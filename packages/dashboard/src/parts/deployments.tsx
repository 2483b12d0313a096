/** The table of deployments. */
import type { DeploymentItem } from '@berth/wire/deployment';
import { Table, type Cell } from '../ui/data.tsx';
import { Button } from '../ui/controls.tsx';
import { Row } from '../ui/layout.tsx';
import { PageLink, Text } from '../ui/text.tsx';
import { Empty } from './command.tsx';
import { useNodeNames, useProjectNames } from './names.ts';
import { DeploymentStatus, HealthStatus } from './states.tsx';
import { Ago } from './time.tsx';
import { durationText } from './time-text.ts';

/** First line of the commit message, else the short commit. */
export function commitText({ commit, commit_message, branch }: Pick<DeploymentItem, 'commit' | 'commit_message' | 'branch'>): string {
  const short = commit?.slice(0, 8) ?? branch ?? 'no commit yet';
  const message = commit_message?.split('\n')[0] ?? '';
  return message === '' ? short : `${short} ${message.length > 72 ? `${message.slice(0, 71)}…` : message}`;
}

/** A usual name stays on one line; a long host name may break. */
const NodeName = ({ name }: { name: string }) => <span style={name.length <= 24 ? { whiteSpace: 'nowrap' } : {}}>{name}</span>;

type DeploymentsProps = {
  items: readonly DeploymentItem[];
  more: (() => void) | null;
  withProject?: boolean;
  label: string;
  empty: readonly string[];
};
export function Deployments({ items, more, withProject = false, label, empty }: DeploymentsProps) {
  const projectName = useProjectNames(withProject ? items.map(({ project_id }) => project_id) : []);
  const nodeName = useNodeNames();
  if (items.length === 0) return <Empty words={empty}>No deployments yet. Start the first one:</Empty>;
  const cells: Cell<DeploymentItem>[] = [
    {
      head: 'Deployment',
      rowHead: true,
      cell: (item) => (
        <PageLink to="/deployments/$id" params={{ id: item.id }} size="sm">
          {withProject ? `${projectName(item.project_id)} ` : ''}#{item.generation}
        </PageLink>
      ),
    },
    { head: 'State', cell: (item) => <DeploymentStatus status={item.status} /> },
    {
      head: 'Commit',
      cell: (item) => (
        <>
          <Text>{commitText(item)}</Text>
          {item.error !== null && (
            <Text tone="bad" size="xs">
              {item.error.message}
            </Text>
          )}
          {item.waiting !== null && (
            <Text tone="quiet" size="xs">
              waits: {item.waiting}
            </Text>
          )}
        </>
      ),
    },
    { head: 'Health', wide: true, cell: (item) => (item.health === null ? null : <HealthStatus health={item.health} />) },
    { head: 'Node', wide: true, cell: (item) => (item.node_id === null ? null : <NodeName name={nodeName(item.node_id)} />) },
    { head: 'By', wide: true, cell: (item) => item.created_by?.name ?? item.trigger ?? '' },
    {
      head: 'Took',
      number: true,
      wide: true,
      cell: (item) => (item.finished_at === null ? '' : durationText(Date.parse(item.finished_at) - Date.parse(item.created_at))),
    },
    { head: 'Started', cell: (item) => <Ago at={item.created_at} /> },
  ];
  return (
    <>
      <Table label={label} rows={items} cells={cells} id={(item) => item.id} />
      {more !== null && (
        <Row justify="end">
          <Button onClick={more}>Show older ones</Button>
        </Row>
      )}
    </>
  );
}
