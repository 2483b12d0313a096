/** Defines the events of a deployment. All other input of a decision is in its Facts. */
import type { ObservedContainer } from '@berth/wire/node';
import type { TaskFacts, TaskReport } from '@berth/wire/task';
import type { TaskRecord } from '../domain/platform/records.ts';

export type LossReason = 'queue' | 'lease' | 'wall' | 'attempts';

export type FlowEvent =
  /** Time passed, or a reason to wait might have changed. */
  | { type: 'tick' }
  | { type: 'task_reported'; task: TaskRecord; report: TaskReport }
  /** The agent of an open task sent facts about the build. */
  | { type: 'task_learned'; task: TaskRecord; facts: TaskFacts }
  | { type: 'task_lost'; task: TaskRecord; why: LossReason }
  | { type: 'cancel' }
  /**
   * The proxy serves a configuration that routes this deployment to this address. `note`: why Berth
   * could not check that the proxy reaches the node; unset if it checked or need not check.
   */
  | {
      type: 'route_confirmed';
      host_ip: string;
      host_port: number;
      entry_points?: number;
      note?: string;
    }
  /**
   * The proxy serves the configuration with the route but cannot reach this address. `proxy`: one
   * of PROXY_PROBE_URLS. `saw`: the answer of that proxy.
   */
  | { type: 'route_unreachable'; host_ip: string; host_port: number; proxy: string; saw: string }
  /**
   * The node was deleted. `reachable`: its agent still works, so running deployments move before
   * they end.
   */
  | { type: 'node_deleted'; node_id: string; reachable: boolean }
  | { type: 'project_deleted' }
  /** A person stops the project (flow/stop.ts). */
  | { type: 'project_stopped' }
  /**
   * The project is stopped, and the node of its volumes is drained or being deleted: the volumes
   * must move (flow/volume-handoff.ts).
   */
  | { type: 'volumes_leave' }
  /**
   * The node's agent reported this container of the deployment, or no container (null).
   * `listed_after`: uptime after which the agent listed its containers; null or unset if unknown.
   */
  | {
      type: 'observed';
      node_id: string;
      container: ObservedContainer | null;
      /** The further instance whose container the node does not report. */
      instance_id?: string;
      listed_after?: number | null;
    }
  /**
   * The container of another deployment has the address of this deployment's route. `holder`: the
   * display name of that container. `isRouted`: a newer route leads to the same address. If false,
   * a node reported the container, and the container of this deployment might still have the
   * address.
   */
  | { type: 'address_taken'; host_ip: string; host_port: number; holder: string; isRouted: boolean }
  /** Another machine has the address of this silent node (`takenAddresses` of the facts). */
  | { type: 'node_replaced'; node_id: string }
  /** The node has not reported for longer than the offline limit. */
  | { type: 'node_silent' }
  /**
   * The agent of the node sent no request for FAILOVER_AFTER, and the brake does not hold the node.
   * `silent`: all nodes that are silent now; no instance starts there. `forced`: a person requested
   * the failover, which overrides the brake. With `machine_is_off`, projects with `on_node_lost:
   * wait` move too, unless they write data.
   */
  | {
      type: 'node_lost';
      node_id: string;
      silent?: readonly string[];
      forced?: { machine_is_off: boolean };
    }
  /**
   * The node is drained or being deleted: the instances on it move, each after its replacement
   * answers.
   */
  | { type: 'node_drained'; node_id: string }
  /** The proxy serves a configuration that no longer contains this draining instance. */
  | { type: 'instance_left'; instance_id: string }
  /** The count of a process changed, or a waiting instance might find a node now. */
  | { type: 'scaled' };

export type EventOf<T extends FlowEvent['type']> = Extract<FlowEvent, { type: T }>;
