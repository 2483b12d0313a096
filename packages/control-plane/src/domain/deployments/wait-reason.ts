/**
 * Reasons why a deployment waits, as data. The flow compares reasons with `sameWait`; only
 * `waitText` and `plainWaitText` turn them into English. A reason contains the names that nodes and
 * datasets had at that time. Pure.
 */
import type { DeploymentState, NodeRole } from '@berth/wire/vocabulary';
import {
  type AgentCannot,
  plainRefusalsText,
  type Refusals,
  refusalsText,
  refusalText,
  sameRefusals,
} from '../nodes/refusal.ts';
import { removeByHand } from '../nodes/remove-by-hand.ts';

export type WaitReason =
  | BuildWait
  | NodeWait
  | VolumesWait
  | StopFirstWait
  | RestartWait
  | ProjectStopped
  | LeaveWait
  | RetireFailure;

/** Reasons to wait before the build. */
type BuildWait =
  | { kind: 'older_first'; generation: number; status: DeploymentState }
  | { kind: 'registry_clean_up' }
  /** All eligible builders already run their maximum of builds. */
  | { kind: 'builders_busy'; refusals: Refusals };

/** Reasons to wait before a node is chosen. */
type NodeWait =
  | { kind: 'never_registered'; role: NodeRole }
  /**
   * `engines_down`: the nodes of this role are refused only because their container engines are
   * down.
   */
  | { kind: 'no_node'; role: NodeRole; refusals: Refusals; engines_down: boolean }
  | NoNodeCan
  | { kind: 'still_deploying'; generation: number }
  | { kind: 'release_command'; node: string; seconds: number }
  /** The agent that took the release command stopped reporting. */
  | { kind: 'release_command_silent'; node: string; returnMs: number }
  | { kind: 'dataset_without_version'; dataset: string; problem: string | null }
  | { kind: 'still_removing'; node: string }
  | RoomEnds;

/** Containers of the project that are ending have the memory or the device. */
export type RoomEnds = {
  kind: 'room_ends';
  /** `number`: of the instance, if known. */
  containers: readonly { generation: number; number?: number; node: string }[];
  /** Number of further containers. */
  others: number;
};

/** No deploy node can ever take the work, because each agent lacks a capability. */
export type NoNodeCan = {
  kind: 'no_node_can';
  /** Number of deploy nodes. */
  nodes: number;
  /** Example: one of the nodes, and the capability that its agent lacks. */
  node: string;
  lack: AgentCannot;
};

type VolumesWait =
  | { kind: 'volumes_node_deleted'; volumes: string; project_id: string; copy_id: string }
  | { kind: 'volumes_node_offline'; volumes: string; since: number }
  | { kind: 'volumes_copying'; from: string; to: string }
  /** A command writes to the volumes that must leave the node. */
  | { kind: 'volumes_run'; run: string; node: string }
  /**
   * The source and the new copy are identical, but the node has not confirmed yet that no container
   * wrote meanwhile.
   */
  | { kind: 'volumes_unconfirmed'; node: string };

/** Reasons to wait in stop-first projects, where two versions must never write at once. */
type StopFirstWait =
  | { kind: 'restarting_previous'; node: string }
  | { kind: 'still_works'; node: string }
  | { kind: 'still_runs'; node: string }
  | { kind: 'stop_unconfirmed'; node: string }
  | { kind: 'unmanaged_container'; container: string; node: string }
  | { kind: 'contract_only_agent'; node: string }
  /** `nodes`: the first nodes by name; `others`: number of further nodes. */
  | { kind: 'stopping_containers'; nodes: readonly string[]; others: number };

/** Reasons of a running deployment that must stop, or was stopped, for a newer one. */
type RestartWait =
  | { kind: 'asked_to_stop'; generation: number }
  | { kind: 'stopped_first' }
  | { kind: 'volumes_elsewhere'; node: string }
  | { kind: 'not_restarted'; because: WaitReason }
  /** Its container does not exist any more (flow/creation.ts). */
  | { kind: 'created_again'; node: string }
  | { kind: 'not_created_again'; message: string };

export type ProjectStopped =
  | { kind: 'project_stopped' }
  | { kind: 'scaled_to_zero' }
  /** `at_zero`: the project is scaled to 0. */
  | { kind: 'project_stopped_but_runs'; node: string; at_zero?: true }
  /** The project's volumes must leave their node but are still there; `because` says why. */
  | { kind: 'project_stopped_and'; because: WaitReason; at_zero?: true };

/** Reasons why the volumes of a stopped project have not left their node yet. */
type LeaveWait =
  | { kind: 'agent_cannot_move'; node: string }
  | { kind: 'container_still_runs' }
  /** `tried_again_by`: request that an admin must repeat so that Berth retries full nodes. */
  | {
      kind: 'no_node_for_volumes';
      refusals: Refusals;
      tried_again_by: { request: 'drain' | 'deletion'; node: string } | null;
    }
  | { kind: 'move_failed'; message: string };

/** Failures of work on the container of a settled deployment. */
export type RetireFailure =
  | { kind: 'retire_lost'; node: string }
  | { kind: 'retire_failed'; node: string; action: RetireAction; message: string };
export type RetireAction = 'restart' | 'create' | 'stop' | 'retire';

/** Returns whether both reasons are the same, ignoring their figures. */
export function sameWait(a: WaitReason | null, b: WaitReason | null): boolean {
  if (a === null || b === null) return a === b;
  if (a.kind !== b.kind) return false;
  if ('because' in a && 'because' in b && !sameWait(a.because, b.because)) return false;
  if ('refusals' in a && 'refusals' in b && !sameRefusals(a.refusals, b.refusals)) return false;
  return JSON.stringify(ownFields(a)) === JSON.stringify(ownFields(b));
}

/**
 * Returns the fields sorted by name, without times and the parts that `sameWait` compares itself.
 */
const ownFields = (reason: WaitReason): [string, unknown][] =>
  Object.entries(reason)
    .filter(([field]) => !['because', 'refusals', 'since'].includes(field))
    .sort(([a], [b]) => (a < b ? -1 : 1));

/** Returns whether the deployment waits for its container, which does not exist any more. */
export function awaitsContainer(d: Waiting): boolean {
  const reason = waitReasonOf(d);
  if (reason?.kind === 'retire_failed') return reason.action === 'create';
  return reason?.kind === 'created_again' || reason?.kind === 'not_created_again';
}

type Waiting = { waiting: string | null; waiting_reason: WaitReason | null };

/**
 * Returns the reason of a deployment. An older version of Berth writes only the text `waiting`;
 * then the stored `waiting_reason` is outdated and ignored. A stopped project is recognized by its
 * text.
 */
export function waitReasonOf({ waiting, waiting_reason }: Waiting): WaitReason | null {
  if (waiting_reason !== null && plainWaitText(waiting_reason) === waiting) return waiting_reason;
  return waiting === PROJECT_STOPPED ? { kind: 'project_stopped' } : null;
}

/**
 * Returns whether the deployment already waits for this reason. For a row that an older version
 * wrote, compares the whole text.
 */
export const waitsFor = (d: Waiting, reason: WaitReason): boolean =>
  sameWait(waitReasonOf(d), reason) || d.waiting === plainWaitText(reason);

/** Returns the fields of a deployment that waits for this reason; null: it does not wait. */
export const waitingFor = (reason: WaitReason | null): Waiting => ({
  waiting: reason === null ? null : plainWaitText(reason),
  waiting_reason: reason,
});

// ── English ──────────────────────────────────────────────────────────────────────────────────────

/** Returns the reason with its figures, for the story and for failures. */
export function waitText(reason: WaitReason): string {
  switch (reason.kind) {
    case 'no_node':
      return noNodeText(reason, refusalsText(reason.refusals));
    case 'volumes_node_offline':
      return `${plainWaitText(reason)} (offline since ${new Date(reason.since).toISOString()})`;
    default:
      return plainWaitText(reason);
  }
}

/** Like `waitText`, but without changing figures. This text is stored and shown. */
export function plainWaitText(reason: WaitReason): string {
  switch (reason.kind) {
    case 'older_first':
      return `deployment ${reason.generation} goes first; it is ${reason.status}`;
    case 'release_command':
      return `the release command runs on ${reason.node}, at most ${reason.seconds} s; its output: berth logs --build`;
    case 'release_command_silent':
      return (
        `${reason.node} stopped reporting while the release command ran there; Berth waits ` +
        `${reason.returnMs / 60_000} minutes for it`
      );
    case 'registry_clean_up':
      return 'waits until the clean-up of the registry ends';
    case 'builders_busy':
      return refusalsText(reason.refusals);
    case 'never_registered':
      return reason.role === 'builder'
        ? 'no builder node has ever registered'
        : 'no deploy node has ever registered';
    case 'no_node':
      return noNodeText(reason, plainRefusalsText(reason.refusals));
    case 'no_node_can':
      return noNodeCanText(reason);
    case 'still_deploying':
      return `deployment ${reason.generation} is still deploying`;
    case 'dataset_without_version':
      return withDetail(`dataset ${reason.dataset} has no version yet`, reason.problem);
    case 'still_removing':
      return `${reason.node} is still removing the container of an earlier attempt`;
    case 'room_ends':
      return roomEndsText(reason);
    case 'volumes_node_deleted':
    case 'volumes_node_offline':
    case 'volumes_copying':
    case 'volumes_run':
    case 'volumes_unconfirmed':
      return volumesText(reason);
    case 'restarting_previous':
    case 'still_works':
    case 'still_runs':
    case 'stop_unconfirmed':
    case 'unmanaged_container':
    case 'contract_only_agent':
    case 'stopping_containers':
      return stopFirstText(reason);
    case 'asked_to_stop':
      return `asked to stop for deployment ${reason.generation}`;
    case 'stopped_first':
      return 'stopped for a newer version; it restarts if that version fails';
    case 'volumes_elsewhere':
      return `stays stopped: its volumes are on ${reason.node} now; deploy the project again`;
    case 'not_restarted':
      return 'stopped for a newer version and not restarted yet: ' + plainWaitText(reason.because);
    case 'created_again':
      return `its container does not exist any more on ${reason.node}; it is created again`;
    case 'not_created_again':
      return (
        'its container does not exist any more, and cannot be created again: ' + reason.message
      );
    case 'project_stopped':
      return PROJECT_STOPPED;
    case 'scaled_to_zero':
      return SCALED_TO_ZERO;
    case 'project_stopped_but_runs':
      return `${whyAtRest(reason)}. ${cannotStopText(reason.node)}`;
    case 'project_stopped_and':
      return `${whyAtRest(reason)}; ${plainWaitText(reason.because)}`;
    case 'agent_cannot_move':
    case 'container_still_runs':
    case 'no_node_for_volumes':
    case 'move_failed':
      return leaveText(reason);
    case 'retire_lost':
      return `${reason.node} did not finish the retire task; Berth retries at its next report`;
    case 'retire_failed':
      return `${reason.node} could not ${reason.action} the container: ${reason.message}`;
  }
}

const SCALED_TO_ZERO = 'the project is scaled to 0; scale it up to serve again';
const PROJECT_STOPPED = 'the project is stopped; start it to serve again';

const whyAtRest = ({ at_zero }: { at_zero?: true }): string =>
  at_zero === true ? SCALED_TO_ZERO : PROJECT_STOPPED;

const withDetail = (text: string, detail: string | null): string =>
  detail === null ? text : `${text}: ${detail}`;

const noNodeText = (
  { role, engines_down }: Extract<WaitReason, { kind: 'no_node' }>,
  refusals: string,
): string =>
  engines_down ? `no ${role} node has a working container engine: ${refusals}` : refusals;

function noNodeCanText({ nodes, node, lack }: NoNodeCan): string {
  const who = nodes === 1 ? node : `each of the ${nodes} deploy nodes, for example ${node}`;
  return `${who}: ${refusalText(lack)}`;
}

function roomEndsText({ containers, others }: RoomEnds): string {
  const names = containers.map(({ generation, number, node }) => {
    const which = number === undefined ? 'the container' : `instance ${number}`;
    return `${which} of deployment ${generation} on ${node}`;
  });
  const all = others === 0 ? names : [...names, `${others} more`];
  const verb = containers.length + others === 1 ? 'is' : 'are';
  return `waits for the room of ${all.join(' and ')}, which ${verb} ending`;
}

function volumesText(reason: VolumesWait): string {
  switch (reason.kind) {
    case 'volumes_node_deleted':
      return (
        `${reason.volumes}: that node was deleted. Berth starts the project with its data only: ` +
        'add the machine with its disk as a node again, or put the folders from a backup on ' +
        'another node (docs/disasters.md, “A node is gone”; project ' +
        `${reason.project_id}, copy ${reason.copy_id})`
      );
    case 'volumes_node_offline':
      return (
        `${reason.volumes}: that node is offline. The project waits for it, because it must not ` +
        'start with an empty volume'
      );
    case 'volumes_copying':
      return (
        `its volumes are being copied from ${reason.from} to ${reason.to}; the project is ` +
        'stopped meanwhile'
      );
    case 'volumes_run':
      return (
        `run ${reason.run} uses its volumes on ${reason.node}; they move when it has ended: wait, ` +
        `or berth runs cancel ${reason.run}`
      );
    case 'volumes_unconfirmed':
      return (
        `its volumes are copied; ${reason.node} has not listed its containers since then, so ` +
        'one may have written there'
      );
  }
}

function stopFirstText(reason: StopFirstWait): string {
  switch (reason.kind) {
    case 'restarting_previous':
      return `the previous version is being restarted on ${reason.node}`;
    case 'still_works':
      return `${reason.node} still works on a task of it`;
    case 'still_runs':
      return `${reason.node} still runs a container of the project`;
    case 'stop_unconfirmed':
      return (
        `${reason.node} has not confirmed that it stopped, so it may still be writing there; ` +
        'bring the node back or delete it with force'
      );
    case 'unmanaged_container':
      return (
        `${reason.container} on ${reason.node} may still write, and the agent there can neither ` +
        `report nor stop it; ${removeByHand(reason.container, reason.node)}`
      );
    case 'contract_only_agent':
      return (
        `${reason.node} may still run it, and the agent there can neither report nor stop ` +
        'containers; delete the node to continue'
      );
    case 'stopping_containers': {
      const names = reason.nodes.join(', ');
      const where = reason.others === 0 ? names : `${names} and ${reason.others} more`;
      return `its containers on ${where} are stopped first: two versions must never write at once`;
    }
  }
}

function leaveText(reason: LeaveWait): string {
  switch (reason.kind) {
    case 'agent_cannot_move':
      return `the agent of ${reason.node} cannot move volumes, because it is of an earlier version`;
    case 'container_still_runs':
      return 'its volumes move when its container has stopped';
    case 'no_node_for_volumes': {
      const none = `no node can take its volumes: ${plainRefusalsText(reason.refusals)}`;
      const again = reason.tried_again_by;
      if (again === null) return none;
      return (
        `${none}; a node that was full is tried when the ${again.request} of ${again.node} is ` +
        'requested again'
      );
    }
    case 'move_failed':
      return `its volumes were not moved: ${reason.message}`;
  }
}

const cannotStopText = (node: string): string =>
  `The agent of ${node} cannot stop containers: this one runs on without requests`;
