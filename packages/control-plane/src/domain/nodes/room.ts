/**
 * Memory and devices that Berth's containers hold on the nodes: memory by their limits, devices by
 * leases. A device belongs to one container of one instance at a time.
 *
 *   a deployment is assigned ──▶ lease (taken)
 *   its node confirms that the container is gone ──▶ (row removed)
 *   stop-first: the new version takes the lease of the old one, which `returns_to` names
 *     the new version goes live ──▶ it keeps the lease
 *     the new version is gone ──▶ the lease returns to the old one
 *
 *   a run is handed to its node ──▶ lease; the end of its task ends it (store/run-devices.ts)
 *
 * A lease whose containers are all gone is free, even if its row is left: the next deployment takes
 * it over. Pure.
 */
import type { Requires } from '@berth/wire/machine';
import type { NodeRecord, ProjectSettings } from '../platform/records.ts';
import type { NoSpace } from './refusal.ts';

/**
 * A container of a deployment, by its label of an instance; null: it has none. The container of a
 * run has the id of the run in `deployment_id`.
 */
export type Holder = { deployment_id: string; instance_id: string | null };

export type DeviceLease = Holder & {
  node_id: string;
  kind: string;
  name: string;
  /** The task of the run that has the device; absent: a deployment has it. */
  run?: { task_id: string };
  /** The older version that stopped for this one and gets the device back if this one ends. */
  returns_to: string | null;
  /** The label of its container that had the device. */
  returns_to_instance: string | null;
  /** Which of these two containers can still have the device; empty: the device is free. */
  holders: readonly Holder[];
};

export type Room = {
  /** Sum of the memory limits in bytes by node; a node without an entry has none. */
  memory: ReadonlyMap<string, number>;
  leases: readonly DeviceLease[];
  /** Containers that open tasks remove. Their memory and devices still count as held. */
  ending?: readonly Ending[];
};

/** Containers that a node is removing; `instance_id` absent: all those of the deployment. */
export type Ending = {
  project_id: string;
  deployment_id: string;
  generation: number;
  instance_id?: string | null;
  /** The number of its instance, if known. */
  number?: number;
  node_id: string;
  containers: number;
  /** Bytes of memory that they hold. */
  bytes: number;
};

export const NO_ROOM_TAKEN: Room = { memory: new Map(), leases: [] };

/** A lease to write. `replaces`: the holder in the present row; null: there is no row. */
export type DeviceTake = Omit<DeviceLease, 'holders'> & { replaces: Holder | null };

/** The needs of a deployment, and what others hold on the machines. */
export type MachineNeeds = {
  requires: Requires;
  /** Memory limit; null: none. */
  memory: number | null;
  /** By node; a node without an entry holds nothing. */
  held: ReadonlyMap<string, Held>;
};

/** `memory`: sum of limits in bytes. `devices`: held devices as `kind=name`. */
export type Held = { memory: number; devices: ReadonlySet<string> };
export const NOTHING_HELD: Held = { memory: 0, devices: new Set() };

/** A version whose containers on this node stop before the new one starts: their room is free. */
export type Freed = {
  id: string;
  node_id: string | null;
  containers: number;
  settings: Pick<ProjectSettings, 'memory_bytes'>;
};

type Needing = Pick<ProjectSettings, 'memory_bytes' | 'requires'>;

/** Returns whether the project requires devices. */
export const needsDevices = ({ requires }: Pick<ProjectSettings, 'requires'>): boolean =>
  Object.keys(requires.devices ?? {}).length > 0;

/** Returns whether placement must know the memory and devices in use before it decides. */
export const needsRoom = (settings: Needing): boolean =>
  settings.memory_bytes !== null || needsDevices(settings);

/** Returns what the deployment needs of a machine; null if any machine will do. */
export function machineNeeds(
  settings: Needing,
  { memory, leases }: Room,
  { own, freed }: { own: Holder | null; freed: readonly Freed[] },
): MachineNeeds | null {
  if (!needsRoom(settings) && Object.keys(settings.requires).length === 0) return null;
  const isFree = (holder: Holder, nodeId: string): boolean =>
    (own !== null && isSameHolder(holder, own)) || isFreed(freed, holder, nodeId);
  return {
    requires: settings.requires,
    memory: settings.memory_bytes,
    held: heldBy(memory, heldDevices(leases, isFree), freed),
  };
}

/** Returns the room when these containers are gone. */
export function withoutEnding(
  { memory, leases }: Room,
  ending: readonly Pick<Ending, 'node_id' | 'deployment_id' | 'instance_id' | 'bytes'>[],
): Room {
  if (ending.length === 0) return { memory, leases };
  const remaining = new Map(memory);
  for (const { node_id, bytes } of ending)
    remaining.set(node_id, Math.max(0, (remaining.get(node_id) ?? 0) - bytes));
  const ends = (holder: Holder, nodeId: string): boolean =>
    ending.some(
      (one) =>
        one.node_id === nodeId &&
        one.deployment_id === holder.deployment_id &&
        (one.instance_id === undefined || one.instance_id === holder.instance_id),
    );
  return {
    memory: remaining,
    leases: leases.map((lease) => ({
      ...lease,
      holders: lease.holders.filter((holder) => !ends(holder, lease.node_id)),
    })),
  };
}

export const isSameHolder = (a: Holder, b: Holder): boolean =>
  a.deployment_id === b.deployment_id && a.instance_id === b.instance_id;
const isFreed = (freed: readonly Freed[], holder: Holder, nodeId: string): boolean =>
  freed.some(({ id, node_id }) => id === holder.deployment_id && node_id === nodeId);

function heldBy(
  memory: Room['memory'],
  devices: ReadonlyMap<string, ReadonlySet<string>>,
  freed: readonly Freed[],
): Map<string, Held> {
  const held = new Map<string, Held>();
  for (const [id, bytes] of memory) held.set(id, { ...NOTHING_HELD, memory: bytes });
  for (const [id, names] of devices) held.set(id, { memory: memory.get(id) ?? 0, devices: names });
  for (const { node_id, containers, settings } of freed) {
    const before = held.get(node_id ?? '');
    if (node_id === null || before === undefined) continue;
    const others = before.memory - containers * (settings.memory_bytes ?? 0);
    held.set(node_id, { ...before, memory: Math.max(0, others) });
  }
  return held;
}

/** Returns the held devices by node. Skips the leases whose holders are all free. */
function heldDevices(
  leases: readonly DeviceLease[],
  isFree: (holder: Holder, nodeId: string) => boolean,
): Map<string, Set<string>> {
  const held = new Map<string, Set<string>>();
  for (const { node_id, kind, name, holders } of leases) {
    if (holders.every((holder) => isFree(holder, node_id))) continue;
    const onNode = held.get(node_id) ?? new Set();
    held.set(node_id, onNode.add(`${kind}=${name}`));
  }
  return held;
}

/**
 * Returns the names of the free devices of a kind, in the order of the node. A node that has never
 * listed its containers has none: a machine that registers as a new node can have containers.
 */
export const freeDevices = (
  { devices, observed_at }: Pick<NodeRecord, 'devices' | 'observed_at'>,
  kind: string,
  held: Held,
): readonly string[] =>
  observed_at === null
    ? []
    : (devices[kind] ?? []).filter((name) => !held.devices.has(`${kind}=${name}`));

export type NoDevice = Extract<NoSpace, { kind: 'no_device' }>;

/**
 * Returns the leases that a container takes on a node, or the refusal if the node has too few free
 * devices. Prefers the devices of the version that stops first, and those that the deployment has.
 */
export function devicesToTake(
  node: Pick<NodeRecord, 'id' | 'devices' | 'observed_at'>,
  holder: Holder,
  needs: MachineNeeds,
  { leases, freed }: { leases: readonly DeviceLease[]; freed: readonly Freed[] },
): DeviceTake[] | NoDevice {
  const rowOf = (kind: string, name: string): DeviceLease | undefined =>
    leases.find((one) => one.node_id === node.id && one.kind === kind && one.name === name);
  const freedHolder = (row: DeviceLease | undefined): Holder | undefined =>
    row?.holders.find((one) => isFreed(freed, one, node.id));
  const takes: DeviceTake[] = [];
  for (const [kind, needed] of Object.entries(needs.requires.devices ?? {})) {
    const free = freeDevices(node, kind, needs.held.get(node.id) ?? NOTHING_HELD);
    if (free.length < needed) return { kind: 'no_device', device: kind, needed, free: free.length };
    const devices = free.map((name) => {
      const row = rowOf(kind, name);
      const old = freedHolder(row);
      const isPreferred = old !== undefined || row?.deployment_id === holder.deployment_id;
      return { name, row, old, isPreferred };
    });
    const chosen = devices
      .toSorted((a, b) => Number(b.isPreferred) - Number(a.isPreferred))
      .slice(0, needed);
    for (const { name, row, old } of chosen)
      takes.push({
        ...holder,
        node_id: node.id,
        kind,
        name,
        returns_to: old?.deployment_id ?? null,
        returns_to_instance: old?.instance_id ?? null,
        replaces:
          row === undefined
            ? null
            : { deployment_id: row.deployment_id, instance_id: row.instance_id },
      });
  }
  return takes;
}

/** Returns the device names in the form that the container engine expects. */
export const deviceIds = (takes: readonly DeviceTake[]): string[] =>
  takes.map(({ kind, name }) => `${kind}=${name}`);
