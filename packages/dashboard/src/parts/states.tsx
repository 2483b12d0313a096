/** Words and shapes for the states of the API. The words are those of the glossary. */
import type { Certificate } from '@berth/wire/certificate';
import type { DatasetState } from '@berth/wire/dataset';
import type { Health } from '@berth/wire/deployment';
import type { Node } from '@berth/wire/node';
import type { DeploymentState, InstanceState } from '@berth/wire/vocabulary';
import { type Mark, Status } from '../ui/status.tsx';

const DEPLOYMENT: Record<DeploymentState, Mark> = {
  pending: 'busy',
  building: 'busy',
  built: 'busy',
  deploying: 'busy',
  running: 'ok',
  retired: 'ended',
  failed: 'bad',
  cancelled: 'off',
  superseded: 'off',
};
export const DeploymentStatus = ({
  status,
  strong = false,
}: {
  status: DeploymentState;
  strong?: boolean;
}) => (
  <Status mark={DEPLOYMENT[status]} strong={strong}>
    {status}
  </Status>
);

const HEALTH: Record<Health['status'], Mark> = {
  healthy: 'ok',
  unhealthy: 'bad',
  unknown: 'off',
  drifted: 'warn',
  degraded: 'warn',
};
export const HealthStatus = ({ health }: { health: Health }) => (
  <Status mark={HEALTH[health.status]}>{health.status}</Status>
);

export const INSTANCE_MARKS: Record<InstanceState, Mark> = {
  waiting: 'warn',
  starting: 'busy',
  serving: 'ok',
  up: 'ok',
  unhealthy: 'bad',
  lost: 'bad',
  draining: 'busy',
  ended: 'ended',
};
export const INSTANCE_WORDS: Record<InstanceState, string> = {
  waiting: 'waiting for a node',
  starting: 'starting',
  serving: 'serving',
  up: 'running',
  unhealthy: 'not answering',
  lost: 'lost with its node',
  draining: 'draining',
  ended: 'ended',
};

export function NodeStatus({
  node,
}: {
  node: Pick<Node, 'status' | 'schedulable' | 'deleting' | 'drain' | 'failover'>;
}) {
  if (node.status === 'offline') return <Status mark="bad">offline</Status>;
  // Silent for FAILOVER_AFTER: its instances start elsewhere before it counts as offline.
  if (node.failover) return <Status mark="bad">silent</Status>;
  if (node.deleting) return <Status mark="busy">being deleted</Status>;
  if (node.drain !== undefined && node.drain !== null && node.drain.finished_at === null)
    return <Status mark="busy">draining</Status>;
  return node.schedulable ? (
    <Status mark="ok">online</Status>
  ) : (
    <Status mark="off">cordoned</Status>
  );
}

const DATASET: Record<DatasetState, Mark> = {
  new: 'busy',
  ok: 'ok',
  unreachable: 'bad',
  suspicious: 'warn',
};
export const DatasetStatus = ({ status }: { status: DatasetState }) => (
  <Status mark={DATASET[status]}>{status}</Status>
);

const CERTIFICATE: Record<Certificate['state'], [Mark, string]> = {
  pending: ['busy', 'pending'],
  ok: ['ok', 'ok'],
  expires_soon: ['warn', 'expires soon'],
  invalid: ['bad', 'invalid'],
};
export function CertificateStatus({ certificate }: { certificate: Certificate }) {
  const [mark, word] = CERTIFICATE[certificate.state];
  return <Status mark={mark}>{word}</Status>;
}
