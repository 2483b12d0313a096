/** What can happen to a deployment. Everything else a decision needs is in its Facts. */
import type { ObservedContainer } from '@berth/wire/node';
import type { TaskReport } from '@berth/wire/task';
import type { TaskRecord } from '../domain/records.ts';

export type LossReason = 'queue' | 'lease' | 'wall' | 'attempts';

export type FlowEvent =
  /** Time passed, or something it waits for may have changed. */
  | { type: 'tick' }
  | { type: 'task_reported'; task: TaskRecord; report: TaskReport }
  | { type: 'task_lost'; task: TaskRecord; why: LossReason }
  | { type: 'cancel' }
  /** The proxy was seen to serve a configuration that sends this deployment's requests to this address. */
  /** `note`: why it could not be checked that the proxy reaches the node; left out: it was, or need not be. */
  | { type: 'route_confirmed'; host_ip: string; host_port: number; note?: string }
  /** The proxy serves that configuration, and its requests do not reach this address. `proxy`: of PROXY_PROBE_URLS. */
  | { type: 'route_unreachable'; host_ip: string; host_port: number; proxy: string; saw: string }
  /** `reachable`: its agent still works, so what runs there is moved before it ends. */
  | { type: 'node_deleted'; node_id: string; reachable: boolean }
  | { type: 'project_deleted' }
  /** What a node's agent saw of this deployment; null: the node runs no such container. */
  | { type: 'observed'; node_id: string; container: ObservedContainer | null }
  /** Its node has not been seen for longer than the offline limit. */
  | { type: 'node_silent' };

export type EventOf<T extends FlowEvent['type']> = Extract<FlowEvent, { type: T }>;
