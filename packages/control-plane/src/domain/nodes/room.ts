/**
 * Memory and devices that Berth's containers hold on the nodes: memory by their limits, devices by
 * leases. A device belongs to one container at a time.
 *
 *   a deployment is assigned ──▶ lease (taken)
 *   its node confirms that the container is gone ──▶ (row removed)
 *   stop-first: the new version takes the lease of the old one, which `returns_to` names
 *     the new version goes live ──▶ it keeps the lease
 *     the new version is gone ──▶ the lease returns to the old one
 *
 * A lease whose containers are all gone is free, even if its row is left: the next deployment takes
 * it over. Pure.
 */
import type { Requires } from '@berth/wire/machine';
import type { NodeRecord, ProjectSettings } from '../platform/records.ts';

export type DeviceLease = {
  node_id: string;
  kind: string;
  name: string;
  deployment_id: string;
  /** The older version that stopped for this one and gets the device back if this one ends. */
  returns_to: string | null;
  /**
   * Which of these two deployments can still have a container with the device; empty: the device is
   * free.
   */
  holders: readonly string[];
};

export type Room = {
  /** Sum of the memory limits in bytes by node; a node without an entry has none. */
  memory: ReadonlyMap<string, number>;
  leases: readonly DeviceLease[];
};

export const NO_ROOM_TAKEN: Room = { memory: new Map(), leases: [] };

/** A lease to write. `replaces`: the deployment in the present row; null: there is no row. */
export type DeviceTake = Omit<DeviceLease, 'holders'> & { replaces: string | null };

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

/** A version that is stopped before the new one starts, so that its room is free. */
export type Freed = {
  id: string;
  node_id: string | null;
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
  { own, freed }: { own: string | null; freed: Freed | null },
): MachineNeeds | null {
  if (!needsRoom(settings) && Object.keys(settings.requires).length === 0) return null;
  return {
    requires: settings.requires,
    memory: settings.memory_bytes,
    held: heldBy(memory, heldDevices(leases, [own, freed?.id ?? null]), freed),
  };
}

function heldBy(
  memory: Room['memory'],
  devices: ReadonlyMap<string, ReadonlySet<string>>,
  freed: Freed | null,
): Map<string, Held> {
  const held = new Map<string, Held>();
  for (const [id, bytes] of memory) held.set(id, { ...NOTHING_HELD, memory: bytes });
  for (const [id, names] of devices) held.set(id, { memory: memory.get(id) ?? 0, devices: names });
  const before = held.get(freed?.node_id ?? '');
  if (freed !== null && freed.node_id !== null && before !== undefined) {
    const others = before.memory - (freed.settings.memory_bytes ?? 0);
    held.set(freed.node_id, { ...before, memory: Math.max(0, others) });
  }
  return held;
}

/**
 * Returns the held devices by node. Skips the leases that only the deployments of `except` hold.
 */
function heldDevices(
  leases: readonly DeviceLease[],
  except: readonly (string | null)[],
): Map<string, Set<string>> {
  const held = new Map<string, Set<string>>();
  for (const { node_id, kind, name, holders } of leases) {
    if (holders.every((id) => except.includes(id))) continue;
    const onNode = held.get(node_id) ?? new Set();
    held.set(node_id, onNode.add(`${kind}=${name}`));
  }
  return held;
}

/** Returns the names of the free devices of a kind, in the order of the node. */
export const freeDevices = (
  { devices }: Pick<NodeRecord, 'devices'>,
  kind: string,
  held: Held,
): readonly string[] =>
  (devices[kind] ?? []).filter((name) => !held.devices.has(`${kind}=${name}`));

/**
 * Returns the leases that the deployment takes on a node that placement chose. Prefers the devices
 * of the version that stops first.
 */
export function devicesToTake(
  node: Pick<NodeRecord, 'id' | 'devices'>,
  deploymentId: string,
  needs: MachineNeeds,
  { leases, freed }: { leases: readonly DeviceLease[]; freed: Freed | null },
): DeviceTake[] {
  const rowOf = (kind: string, name: string): DeviceLease | undefined =>
    leases.find((one) => one.node_id === node.id && one.kind === kind && one.name === name);
  const isOfFreed = (row: DeviceLease | undefined): boolean =>
    freed !== null && row !== undefined && row.holders.includes(freed.id);
  return Object.entries(needs.requires.devices ?? {}).flatMap(([kind, count]) =>
    freeDevices(node, kind, needs.held.get(node.id) ?? NOTHING_HELD)
      .map((name) => ({ name, row: rowOf(kind, name) }))
      .toSorted((a, b) => Number(isOfFreed(b.row)) - Number(isOfFreed(a.row)))
      .slice(0, count)
      .map(({ name, row }) => ({
        node_id: node.id,
        kind,
        name,
        deployment_id: deploymentId,
        returns_to: isOfFreed(row) ? (freed?.id ?? null) : null,
        replaces: row?.deployment_id ?? null,
      })),
  );
}

/** Returns the device names in the form that the container engine expects. */
export const deviceIds = (takes: readonly DeviceTake[]): string[] =>
  takes.map(({ kind, name }) => `${kind}=${name}`);
