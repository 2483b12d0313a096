/**
 * Reasons why a node cannot take work now, as data. Decisions compare reasons with `sameReason`;
 * only `refusalText` and `plainRefusalText` turn them into English. Pure.
 */
import type { DatasetState } from '@berth/wire/dataset';
import { decimalSizeText } from '@berth/wire/size-text';

export type Refusal =
  | { kind: 'builder' }
  | { kind: 'being_deleted' }
  | { kind: 'draining' }
  | { kind: 'cordoned' }
  | { kind: 'offline'; since: number }
  | { kind: 'engine_down'; error: string | null }
  /** Its agent is silent for FAILOVER_AFTER, and another node can take the deployment. */
  | { kind: 'overdue' }
  /** The network of the project on the node has no addresses for more instances. */
  | { kind: 'full_network'; instances: number }
  /**
   * The node reported that it could not do the work of this deployment (engine down, disk full).
   */
  | { kind: 'failed_itself' }
  /** The node was lost during this deployment and has not reported since. */
  | { kind: 'still_silent' }
  | { kind: 'without_volumes' }
  | { kind: 'other_arch'; arch: string; image: string }
  /** `value`: the node's value of the label; null: it has no such label. */
  | { kind: 'other_label'; label: string; required: string; value: string | null }
  /** `arch`: null if the agent does not report it. */
  | { kind: 'not_required_arch'; arch: string | null; required: string }
  | NoSpace
  | AgentCannot
  | { kind: 'without_dataset'; dataset: string; status: DatasetState }
  | { kind: 'no_room'; missing: number; free: number; evictable: number }
  | { kind: 'builds_full'; running: number; max: number };

/** Sizes in bytes, and numbers of devices. */
export type NoSpace =
  | { kind: 'no_memory'; needed: number; free: number }
  | { kind: 'no_device'; device: string; needed: number; free: number };

export type AgentCannot = {
  kind: 'agent_cannot';
  /** Each text completes the sentence “its agent cannot …”. */
  needs: readonly string[];
  /** Completes the sentence “it …”. */
  because: string;
};

/**
 * Fields that `sameReason` compares. Excludes times and sizes, which change while the reason stays.
 */
const REASON_FIELDS: { [K in Refusal['kind']]: readonly (keyof Extract<Refusal, { kind: K }>)[] } =
  {
    builder: [],
    being_deleted: [],
    draining: [],
    cordoned: [],
    offline: [],
    engine_down: [],
    overdue: [],
    full_network: [],
    failed_itself: [],
    still_silent: [],
    without_volumes: [],
    other_arch: ['arch', 'image'],
    other_label: ['label', 'required', 'value'],
    not_required_arch: ['arch', 'required'],
    no_memory: [],
    no_device: ['device'],
    agent_cannot: ['needs', 'because'],
    without_dataset: ['dataset', 'status'],
    no_room: [],
    builds_full: ['running', 'max'],
  };

/** Returns whether both refusals have the same reason, ignoring their figures. */
export function sameReason(a: Refusal, b: Refusal): boolean {
  if (a.kind !== b.kind) return false;
  const fields = REASON_FIELDS[a.kind] as readonly (keyof Refusal)[];
  return fields.every((field) => isSame(a[field], b[field]));
}

/** Compares plain values first: a choice compares the refusals of 10,000 nodes. */
const isSame = (a: unknown, b: unknown): boolean =>
  a === b || (typeof a === 'object' && JSON.stringify(a) === JSON.stringify(b));

/** Returns the reason in English; completes a sentence that begins with the node. */
export function refusalText(refusal: Refusal): string {
  const plain = plainRefusalText(refusal);
  switch (refusal.kind) {
    case 'offline':
      return `${plain} since ${new Date(refusal.since).toISOString()}`;
    case 'engine_down':
      return refusal.error === null ? plain : `${plain}: ${refusal.error}`;
    case 'no_room':
      return (
        `${plain}: ${decimalSizeText(refusal.missing)} missing, ${decimalSizeText(refusal.free)} free, ` +
        `${decimalSizeText(refusal.evictable)} more after eviction`
      );
    case 'no_memory':
      return `${plain}: ${refusal.needed} bytes needed, ${refusal.free} bytes free`;
    case 'no_device':
      return `${plain}: ${refusal.needed} needed, ${refusal.free} free`;
    default:
      return plain;
  }
}

/**
 * Like `refusalText`, but without the figures that change, so that nodes with the same reason get
 * the same text.
 */
export function plainRefusalText(refusal: Refusal): string {
  switch (refusal.kind) {
    case 'builder':
      return 'is a builder';
    case 'being_deleted':
      return 'is being deleted';
    case 'draining':
      return 'is being drained';
    case 'cordoned':
      return 'is cordoned';
    case 'offline':
      return 'is offline';
    case 'engine_down':
      return 'has a container engine that does not respond';
    case 'overdue':
      return 'does not answer now, and other nodes can take it';
    case 'full_network':
      return (
        `has ${refusal.instances} instances of the project: its network there has no addresses for ` +
        'more and a new version beside them'
      );
    case 'failed_itself':
      return 'reported a failure of its own for this deployment';
    case 'still_silent':
      return 'stopped reporting during this deployment and is still silent';
    case 'without_volumes':
      return 'does not have the volumes of the project';
    case 'other_arch':
      return `runs ${refusal.arch}, but the image is for ${refusal.image}`;
    case 'other_label':
      return refusal.value === null
        ? `has no label ${refusal.label}, but the project requires ${refusal.label}=${refusal.required}`
        : `has the label ${refusal.label}=${refusal.value}, but the project requires ` +
            refusal.required;
    case 'not_required_arch':
      return refusal.arch === null
        ? `does not report its architecture, but the project requires ${refusal.required}`
        : `runs ${refusal.arch}, but the project requires ${refusal.required}`;
    case 'no_memory':
      return 'has too little free memory for the memory limit of the project';
    case 'no_device':
      return `has too few free devices ${refusal.device}`;
    case 'agent_cannot':
      return `its agent cannot ${refusal.needs.join(' or ')}: it ${refusal.because}`;
    case 'without_dataset':
      return (
        `does not have the newest version of dataset ${refusal.dataset}, which is ` +
        `${refusal.status} and cannot be copied now`
      );
    case 'no_room':
      return 'has too little storage for its missing datasets';
    case 'builds_full':
      return `already runs ${refusal.running} of ${refusal.max} builds`;
  }
}

/** Reasons why no node is eligible: some nodes by name, the others counted by reason. */
export type Refusals = {
  named: readonly { hostname: string; refusal: Refusal }[];
  others: readonly RefusalCount[];
};
export type RefusalCount = { refusal: Refusal; count: number };

/** Counts equal reasons, in the order of their first occurrence. */
export function countReasons(refusals: Iterable<Refusal>): RefusalCount[] {
  const counts: RefusalCount[] = [];
  for (const refusal of refusals) {
    const same = counts.find((one) => one.refusal === refusal || sameReason(one.refusal, refusal));
    if (same === undefined) counts.push({ refusal, count: 1 });
    else same.count += 1;
  }
  return counts;
}

/** Maximum number of nodes that a text names. */
export const MAX_NAMED = 20;

/** Names the first nodes, and counts the reasons of the others. */
export const nameFirst = (nodes: Refusals['named']): Refusals => ({
  named: nodes.slice(0, MAX_NAMED),
  others: countReasons(nodes.slice(MAX_NAMED).map(({ refusal }) => refusal)),
});

/** Returns all reasons in one sentence, which stays short even with 10,000 nodes. */
export const refusalsText = (refusals: Refusals): string => joined(refusals, refusalText);

/** Like `refusalsText`, but without changing figures. */
export const plainRefusalsText = (refusals: Refusals): string => joined(refusals, plainRefusalText);

const joined = ({ named, others }: Refusals, text: (refusal: Refusal) => string): string =>
  [
    ...named.map(({ hostname, refusal }) => `${hostname} ${text(refusal)}`),
    ...others.map(({ refusal, count }) => `${count} more: ${plainRefusalText(refusal)}`),
  ].join('; ');

/** Returns whether the same nodes are refused for the same reasons, ignoring figures. */
export const sameRefusals = (a: Refusals, b: Refusals): boolean =>
  a.named.length === b.named.length &&
  a.others.length === b.others.length &&
  a.named.every(({ hostname, refusal }, i) => {
    const other = b.named[i];
    return other?.hostname === hostname && sameReason(refusal, other.refusal);
  }) &&
  a.others.every(({ refusal, count }, i) => {
    const other = b.others[i];
    return other?.count === count && sameReason(refusal, other.refusal);
  });

export const isNoSpace = (refusal: Refusal): refusal is NoSpace =>
  refusal.kind === 'no_memory' || refusal.kind === 'no_device';

/** Returns the failure code if a dataset was the reason of a refusal, else null. */
export function dataRefusal({ named, others }: Refusals): 'no_room' | 'dataset_unreachable' | null {
  const kinds = new Set([...named, ...others].map(({ refusal }) => refusal.kind));
  if (kinds.has('no_room')) return 'no_room';
  return kinds.has('without_dataset') ? 'dataset_unreachable' : null;
}
