/** The table of deployments. */
import type { DeploymentItem } from '@berth/wire/deployment';
import { errorSentence } from '@berth/wire/error-sentence';
import { Table, type Cell } from '../ui/data.tsx';
import { clean, isShort } from '../ui/foreign.ts';
import { Button } from '../ui/controls.tsx';
import { Row } from '../ui/layout.tsx';
import { Status } from '../ui/status.tsx';
import { PageLink, Text } from '../ui/text.tsx';
import { Empty } from './command.tsx';
import { useProjectNames } from './names.ts';
import { DeploymentStatus, HealthStatus } from './states.tsx';
import { Ago } from './time.tsx';
import { durationText } from './time-text.ts';
import { requesterText } from './words.ts';

/** Returns the first line of the commit message, or the short commit if there is no message. */
export function commitText({
  commit,
  commit_message,
  branch,
}: Pick<DeploymentItem, 'commit' | 'commit_message' | 'branch'>): string {
  const short = commit?.slice(0, 8) ?? branch ?? 'no commit yet';
  const message = commit_message?.split('\n')[0] ?? '';
  return clean(
    message === ''
      ? short
      : `${short} ${message.length > 72 ? `${message.slice(0, 71)}…` : message}`,
  );
}

/**
 * Names the version that a rollback replaced. The next deployment from source builds the newest
 * commit and so brings that version back.
 */
export const rolledBackText = ({
  rolled_back_from: from,
}: Pick<DeploymentItem, 'rolled_back_from'>): string =>
  (from ?? null) === null ? '' : `, rolled back from #${from}`;

type LiveStatusProps = {
  item: Pick<DeploymentItem, 'status' | 'health' | 'rests'>;
  stopped?: boolean;
  strong?: boolean;
};
/** Shows whether a running version works: an unhealthy or stopped container must not look healthy. */
export function LiveStatus({
  item: { status, health, rests = null },
  stopped = false,
  strong = false,
}: LiveStatusProps) {
  if (status === 'running' && (stopped || rests !== null))
    return (
      <Status mark="off" strong={strong}>
        {rests === 'scaled_to_zero' ? 'scaled to 0' : 'stopped'}
      </Status>
    );
  if (health === null || health.status === 'healthy')
    return <DeploymentStatus status={status} strong={strong} />;
  return (
    <span style={{ whiteSpace: 'nowrap' }}>
      {status}, <HealthStatus health={health} />
    </span>
  );
}

const NodeName = ({ name }: { name: string }) => (
  <span style={isShort(name) ? { whiteSpace: 'nowrap' } : {}}>{name}</span>
);

type DeploymentsProps = {
  items: readonly DeploymentItem[];
  more: (() => void) | null;
  withProject?: boolean;
  /** True if the project is stopped. */
  stopped?: boolean;
  label: string;
  empty: readonly string[];
};
export function Deployments({
  items,
  more,
  withProject = false,
  stopped = false,
  label,
  empty,
}: DeploymentsProps) {
  const projectName = useProjectNames(withProject ? items.map(({ project_id }) => project_id) : []);
  if (items.length === 0)
    return <Empty words={empty}>No deployments yet. Start the first one:</Empty>;
  const cells: Cell<DeploymentItem>[] = [
    {
      head: 'Deployment',
      rowHead: true,
      cell: (item) => (
        <PageLink to="/deployments/$id" params={{ id: item.id }} size="sm">
          {withProject ? `${projectName(item.project_id)}\u00A0` : ''}#{item.generation}
        </PageLink>
      ),
    },
    { head: 'State', cell: (item) => <LiveStatus item={item} stopped={stopped} /> },
    {
      head: 'Commit',
      cell: (item) => (
        <>
          <Text>{commitText(item)}</Text>
          {item.error !== null && (
            <Text tone="bad" size="xs" clamp>
              {errorSentence(item.error.message)}
            </Text>
          )}
          {item.waiting !== null && (
            <Text tone="quiet" size="xs">
              {item.status === 'running' ? item.waiting : `waits: ${item.waiting}`}
            </Text>
          )}
        </>
      ),
    },
    {
      head: 'Node',
      wide: true,
      cell: (item) =>
        item.node_id === null ? null : <NodeName name={item.node_name ?? item.node_id} />,
    },
    { head: 'By', wide: true, cell: (item) => requesterText(item) },
    {
      head: 'Took',
      number: true,
      wide: true,
      cell: (item) =>
        item.finished_at === null
          ? ''
          : durationText(Date.parse(item.finished_at) - Date.parse(item.created_at)),
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
