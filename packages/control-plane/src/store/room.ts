/**
 * Reads and writes what Berth's containers hold on the nodes (domain/nodes/room.ts): memory from
 * the deployments, devices from the table `device_leases`.
 */
import { defined } from '@berth/kit/defined';
import { type ExpressionBuilder, sql } from 'kysely';
import type { RetirePayload } from '@berth/wire/task';
import { LABELS } from '@berth/wire/vocabulary';
import type { MemoryTake, Plan } from '../domain/deployments/plan.ts';
import { instanceLabel } from '../domain/deployments/instance.ts';
import { hasEnded } from '../domain/deployments/rest.ts';
import {
  isSameHolder,
  type DeviceLease,
  type DeviceTake,
  type Ending,
  type Holder,
  type Room,
} from '../domain/nodes/room.ts';
import type { NodeRecord } from '../domain/platform/records.ts';
import { ENDED_AT } from './ended-work.ts';
import type { Database } from './engine/database.ts';
import type { Row, Tables, Tx } from './engine/tables.ts';

type LeaseRow = Row<'device_leases'>;

/** The states in which a deployment with a node has a container, or is about to have one. */
const ON_NODE = ['deploying', 'running'] as const;
const isOnNode = (status: string): boolean => (ON_NODE as readonly string[]).includes(status);

export async function roomOf(tx: Tx, nodes: readonly NodeRecord[], leaseMs: number): Promise<Room> {
  const ending = await endingOn(tx, null, []);
  const memory = (await heldMemory(tx, ending, null, [])).map(
    (row) => [row.node_id, row.bytes] as const,
  );
  const rows = await tx.selectFrom('device_leases').selectAll().execute();
  const leases = await leasesOf(tx, rows, nodes, { ending, leaseMs });
  return {
    memory: new Map(memory),
    leases: [...leases, ...(await withoutLease(tx, leases, nodes))],
    ...defined({ ending: ending.length === 0 ? undefined : ending }),
  };
}

/**
 * Returns the sum of the memory limits by node. Includes containers of replaced versions whose
 * removal is not finished. `nodeId` null: all nodes. Ignores the deployments of `without`.
 */
async function heldMemory(
  tx: Tx,
  ending: readonly Ending[],
  nodeId: string | null,
  without: readonly string[],
): Promise<{ node_id: string; bytes: number }[]> {
  const assigned = await tx
    .selectFrom('deployments')
    .select((eb) => ['node_id', eb.fn.sum<number | string>('memory_bytes').as('bytes')])
    .where('status', 'in', [...ON_NODE])
    .where('memory_bytes', 'is not', null)
    // The container of a stopped project has ended (`hasEnded`).
    .where((eb) =>
      eb.or([
        eb('status', '!=', 'running'),
        eb('stopped_first', 'is distinct from', 'stopped'),
        eb('health_status', 'is not', null),
      ]),
    )
    .$if(nodeId === null, (q) => q.where('node_id', 'is not', null))
    .$if(nodeId !== null, (q) => q.where('node_id', '=', nodeId))
    .$if(without.length > 0, (q) => q.where('id', 'not in', [...without]))
    .groupBy('node_id')
    .execute();
  const held = new Map(assigned.map((row) => [row.node_id ?? '', Number(row.bytes)]));
  for (const { node_id, bytes } of await heldByInstances(tx, nodeId, without))
    held.set(node_id, (held.get(node_id) ?? 0) + bytes);
  for (const { node_id, bytes } of await heldByRuns(tx, nodeId))
    held.set(node_id, (held.get(node_id) ?? 0) + bytes);
  for (const { node_id, bytes } of ending) held.set(node_id, (held.get(node_id) ?? 0) + bytes);
  return [...held].map(([node_id, bytes]) => ({ node_id, bytes }));
}

/** Memory limit of a further instance: its own, or that of its deployment. */
const LIMIT_OF_INSTANCE = sql<
  number | null
>`coalesce(instances.memory_bytes, deployments.memory_bytes)`;

/** Returns the memory limits of the further instances, by node. */
async function heldByInstances(
  tx: Tx,
  nodeId: string | null,
  without: readonly string[],
): Promise<{ node_id: string; bytes: number }[]> {
  const rows = await tx
    .selectFrom('instances')
    .innerJoin('deployments', 'deployments.id', 'instances.deployment_id')
    .select('instances.node_id')
    .select((eb) => eb.fn.sum<number | string>(LIMIT_OF_INSTANCE).as('bytes'))
    .where(LIMIT_OF_INSTANCE, 'is not', null)
    .where('instances.node_id', 'is not', null)
    .$if(nodeId !== null, (q) => q.where('instances.node_id', '=', nodeId))
    .$if(without.length > 0, (q) => q.where('deployments.id', 'not in', [...without]))
    .groupBy('instances.node_id')
    .execute();
  return rows.map(({ node_id, bytes }) => ({ node_id: node_id ?? '', bytes: Number(bytes) }));
}

/** Returns the memory limits of the commands that nodes have, by node. */
async function heldByRuns(
  tx: Tx,
  nodeId: string | null,
): Promise<{ node_id: string; bytes: number }[]> {
  const rows = await tx
    .selectFrom('runs')
    .select('node_id')
    .select((eb) => eb.fn.sum<number | string>('memory_bytes').as('bytes'))
    .where('ended_at', 'is', null)
    .where('task_id', 'is not', null)
    .where('memory_bytes', 'is not', null)
    .$if(nodeId !== null, (q) => q.where('node_id', '=', nodeId))
    .groupBy('node_id')
    .execute();
  return rows.map(({ node_id, bytes }) => ({ node_id: node_id ?? '', bytes: Number(bytes) }));
}

/** Returns the containers that open tasks remove, with the memory that they still hold. */
async function endingOn(
  tx: Tx,
  nodeId: string | null,
  without: readonly string[],
): Promise<Ending[]> {
  const tasks = await tx
    .selectFrom('tasks')
    .select(['node_id', 'payload'])
    .where('kind', '=', 'retire')
    .where('finished_at', 'is', null)
    .$if(nodeId !== null, (q) => q.where('node_id', '=', nodeId ?? ''))
    .execute();
  const removed = tasks.flatMap(({ node_id, payload }) =>
    removedBy(payload)
      .filter(({ deployment_id }) => !without.includes(deployment_id))
      .map((one) => ({ ...one, node_id })),
  );
  if (removed.length === 0) return [];
  const rows = await tx
    .selectFrom('deployments')
    .select(['id', 'project_id', 'generation', 'status', 'memory_bytes'])
    .where('id', 'in', [...new Set(removed.map(({ deployment_id }) => deployment_id))])
    .execute();
  return removed.flatMap(({ containers = 1, ...one }) => {
    const row = rows.find(({ id }) => id === one.deployment_id);
    if (row === undefined) return [];
    const { project_id, generation, status, memory_bytes } = row;
    // An ended instance has no row any more, although its deployment still runs: count it by its
    // task. All containers of a deployment that runs are counted by their rows.
    const isCounted = one.instance_id !== undefined || !isOnNode(status);
    const bytes = isCounted ? containers * (memory_bytes ?? 0) : 0;
    return [{ ...one, project_id, generation, containers, bytes }];
  });
}

type Removed = Pick<
  RetirePayload['remove'][number],
  'containers' | 'deployment_id' | 'instance_id'
>;
const removedBy = (payload: string): Removed[] =>
  (JSON.parse(payload) as Pick<RetirePayload, 'remove'>).remove.map(
    ({ deployment_id, instance_id, containers }) => ({
      deployment_id,
      ...defined({ instance_id, containers }),
    }),
  );

/**
 * Returns the devices of reported containers that have no lease: their machine has registered as
 * another node, or its node was deleted. One that has ended can start again with its engine, but
 * not the one of a stopped project.
 */
async function withoutLease(
  tx: Tx,
  leases: readonly DeviceLease[],
  nodes: readonly NodeRecord[],
): Promise<DeviceLease[]> {
  const isLeased = (node_id: string, { kind, name }: { kind: string; name: string }): boolean =>
    leases.some((one) => one.node_id === node_id && one.kind === kind && one.name === name);
  const unleased = nodes.flatMap(({ id: node_id, containers }) =>
    containers.flatMap((container) =>
      devicesIn(container)
        .filter((device) => !isLeased(node_id, device))
        .map((device) => ({
          node_id,
          state: container.state,
          device,
          holder: holderIn(container),
          isRun: container.labels[LABELS.run] !== undefined,
        })),
    ),
  );
  if (unleased.length === 0) return [];
  const deployments = await tx
    .selectFrom('deployments')
    .select(['id', 'status', 'stopped_first', 'health_status'])
    .where('id', 'in', [...new Set(unleased.map(({ holder }) => holder.deployment_id))])
    .execute();
  const resting = new Set(deployments.filter(isResting).map(({ id }) => id));
  return unleased
    .filter(({ state, holder }) => state === 'running' || !resting.has(holder.deployment_id))
    .filter(({ state, isRun }) => !isRun || !hasExited(state))
    .map(({ node_id, device, holder }) => {
      const none = { returns_to: null, returns_to_instance: null };
      return { ...device, ...holder, ...none, node_id, holders: [holder] };
    });
}

/** The container of a run never starts again. */
const hasExited = (state: string): boolean => state === 'exited' || state === 'dead';

/**
 * Returns whether the command of a run may still have the device. The end of its task ends that,
 * unless nobody knows whether the command has ended: then its node must have listed its containers
 * without it.
 */
function mayRunHave(row: LeaseRow, nodes: readonly NodeRecord[], leaseMs: number): boolean {
  if (row.task_ended_at === null) return true;
  const node = nodes.find(({ id }) => id === row.node_id);
  if (node === undefined) return false;
  const isListed = node.containers.some(
    ({ labels, state }) => labels[LABELS.run] === row.run_id && !hasExited(state),
  );
  // A lost task can start its command until its agent has noticed the loss.
  return (
    isListed || (node.observed_since ?? Number.NEGATIVE_INFINITY) <= row.task_ended_at + leaseMs
  );
}

type Container = Pick<NodeRecord['containers'][number], 'labels'>;
const holderIn = (container: Container): Holder => ({
  deployment_id: container.labels[LABELS.deployment] ?? container.labels[LABELS.run] ?? '',
  instance_id: instanceLabel(container),
});
/** `vendor.com/gpu=0,vendor.com/gpu=1` */
const devicesIn = ({ labels }: Container): { kind: string; name: string }[] =>
  (labels[LABELS.devices] ?? '').split(',').flatMap((device) => {
    const [kind = '', name] = device.split('=');
    return name === undefined ? [] : [{ kind, name }];
  });

/** Returns the leases with the deployments whose container may have the device. */
async function leasesOf(
  tx: Tx,
  rows: readonly LeaseRow[],
  nodes: readonly NodeRecord[],
  { ending, leaseMs }: { ending: readonly Ending[]; leaseMs: number },
): Promise<DeviceLease[]> {
  if (rows.length === 0) return [];
  const ids = [...new Set(rows.flatMap((row) => [row.deployment_id, row.returns_to ?? []].flat()))];
  const deployments = await tx
    .selectFrom('deployments')
    .select(['id', 'status', 'node_id', 'instance_id', 'stopped_first', 'health_status'])
    .where('id', 'in', ids)
    .execute();
  const instances = await tx
    .selectFrom('instances')
    .select(['id', 'deployment_id', 'node_id', 'labelled'])
    .where('deployment_id', 'in', ids)
    .execute();
  const work = await tx
    .selectFrom('tasks')
    .select((eb) => [
      'deployment_id',
      'node_id',
      eb.fn.max<number>(ENDED_AT).as('ended_at'),
      eb.fn.countAll<number>().filterWhere('finished_at', 'is', null).as('open'),
    ])
    .where('deployment_id', 'in', ids)
    .where('kind', 'in', ['deploy', 'retire'])
    .groupBy(['deployment_id', 'node_id'])
    .execute();
  const mayHave = (holder: Holder, nodeId: string): boolean => {
    const { deployment_id: id, instance_id: label } = holder;
    const d = deployments.find((one) => one.id === id);
    if (d === undefined) return false;
    const isFirst = d.node_id === nodeId && d.instance_id === label;
    if (isFirst && isOnNode(d.status) && !isResting(d)) return true;
    const isOther = (one: (typeof instances)[number]): boolean =>
      one.deployment_id === id &&
      one.node_id === nodeId &&
      (one.labelled === 1 ? one.id : null) === label;
    if (instances.some(isOther)) return true;
    const node = nodes.find((one) => one.id === nodeId);
    if (node === undefined) return false;
    const isAtEnd = (state: string): boolean => isFirst && isResting(d) && state !== 'running';
    const isHere = (one: NodeRecord['containers'][number]): boolean =>
      isSameHolder(holderIn(one), holder) && !isAtEnd(one.state);
    if (node.containers.some(isHere)) return true;
    const isRemoved = (one: Ending): boolean =>
      one.node_id === nodeId &&
      one.deployment_id === id &&
      (one.instance_id === undefined || one.instance_id === label);
    if (ending.some(isRemoved)) return true;
    const last = work.find((one) => one.deployment_id === id && one.node_id === nodeId);
    if (last === undefined) return false;
    // A lost task can start a container until its agent has noticed the loss.
    return (
      last.open > 0 || (node.observed_since ?? Number.NEGATIVE_INFINITY) <= last.ended_at + leaseMs
    );
  };
  return rows.map((row) => {
    const { deployment_id, instance_id, returns_to, returns_to_instance } = row;
    const run = row.run_id === null ? null : { task_id: row.task_id ?? '' };
    const older =
      returns_to === null ? [] : [{ deployment_id: returns_to, instance_id: returns_to_instance }];
    return {
      node_id: row.node_id,
      kind: row.kind,
      name: row.name,
      deployment_id,
      instance_id,
      returns_to,
      returns_to_instance,
      ...defined({ run: run ?? undefined }),
      holders: [{ deployment_id, instance_id }, ...older].filter((one) =>
        run === null ? mayHave(one, row.node_id) : mayRunHave(row, nodes, leaseMs),
      ),
    };
  });
}

const isResting = (
  row: Pick<Row<'deployments'>, 'status' | 'stopped_first' | 'health_status'>,
): boolean => hasEnded(row, row.health_status);

/** Returns whether the memory that the plan takes is still free. */
export async function isMemoryFree(
  db: Pick<Database, 'capabilities'>,
  tx: Tx,
  { node_id, bytes, most, without }: MemoryTake,
): Promise<boolean> {
  // Two plans of different projects must not take the same memory.
  await db.capabilities.lockName(tx, `memory:${node_id}`);
  const ending = await endingOn(tx, node_id, without);
  const [held] = await heldMemory(tx, ending, node_id, without);
  return (held?.bytes ?? 0) + bytes <= most;
}

/** Writes the leases. Returns false if another container has taken one of the devices. */
export async function takeDevices(
  tx: Tx,
  takes: readonly DeviceTake[],
  now: number,
): Promise<boolean> {
  // Release the devices that an earlier attempt of this instance leased on the node.
  const holders = new Map(takes.map((one) => [`${one.node_id} ${idOf(one)}`, one]));
  for (const { node_id, deployment_id, instance_id } of holders.values())
    await releaseDevices(tx, node_id, [{ deployment_id, instance_id }]);
  for (const take of takes) if (!(await takeDevice(tx, take, now))) return false;
  return true;
}

const idOf = ({ deployment_id, instance_id }: Holder): string =>
  `${deployment_id} ${instance_id ?? ''}`;

async function takeDevice(
  tx: Tx,
  { replaces, run, ...lease }: DeviceTake,
  now: number,
): Promise<boolean> {
  const { node_id, kind, name, deployment_id, instance_id, returns_to, returns_to_instance } =
    lease;
  const ofRun = {
    run_id: run === undefined ? null : deployment_id,
    task_id: run?.task_id ?? null,
    task_ended_at: null,
  };
  const inserted = await tx
    .insertInto('device_leases')
    .values({ ...lease, ...ofRun, since: now })
    .onConflict((oc) => oc.columns(['node_id', 'kind', 'name']).doNothing())
    .returning('name')
    .executeTakeFirst();
  if (inserted !== undefined) return true;
  const before: Holder[] = replaces === null ? [] : [replaces];
  if (returns_to !== null)
    before.push({ deployment_id: returns_to, instance_id: returns_to_instance });
  if (before.length === 0) return false;
  const changed = await tx
    .updateTable('device_leases')
    .set({ deployment_id, instance_id, returns_to, returns_to_instance, ...ofRun, since: now })
    .where('node_id', '=', node_id)
    .where('kind', '=', kind)
    .where('name', '=', name)
    .where((eb) =>
      eb.or(
        before.map((holder) =>
          eb.and([
            eb('deployment_id', '=', holder.deployment_id),
            eb('instance_id', 'is not distinct from', holder.instance_id),
          ]),
        ),
      ),
    )
    .returning('name')
    .executeTakeFirst();
  return changed !== undefined;
}

/** Containers that are gone. `instance_id` absent: all containers of the deployment. */
type Gone = { deployment_id: string; instance_id?: string | null };

/**
 * Releases the devices of containers that are gone from the node. A device returns to the version that
 * stopped for such a container, if that version still runs.
 */
export async function releaseDevices(tx: Tx, nodeId: string, all: readonly Gone[]): Promise<void> {
  for (const gone of all) {
    await tx
      .updateTable('device_leases')
      .set({ returns_to: null, returns_to_instance: null })
      .where((eb) => names(eb, nodeId, gone, ['returns_to', 'returns_to_instance']))
      .execute();
    await tx
      .updateTable('device_leases')
      .set((eb) => ({
        deployment_id: eb.ref('returns_to').$castTo<string>(),
        instance_id: eb.ref('returns_to_instance'),
        returns_to: null,
        returns_to_instance: null,
      }))
      .where((eb) => names(eb, nodeId, gone, HOLDER))
      .where('returns_to', 'in', (eb) =>
        eb.selectFrom('deployments').select('id').where('status', '=', 'running'),
      )
      .execute();
    await tx
      .deleteFrom('device_leases')
      .where((eb) => names(eb, nodeId, gone, HOLDER))
      .execute();
  }
}

type HolderColumns = readonly [
  'deployment_id' | 'returns_to',
  'instance_id' | 'returns_to_instance',
];
const HOLDER: HolderColumns = ['deployment_id', 'instance_id'];

/** Returns whether these two columns of a lease on the node name the container. */
function names(
  eb: ExpressionBuilder<Tables, 'device_leases'>,
  nodeId: string,
  { deployment_id, instance_id }: Gone,
  [deployment, instance]: HolderColumns,
) {
  const isDeployment = [eb('node_id', '=', nodeId), eb(deployment, '=', deployment_id)];
  return eb.and(
    instance_id === undefined
      ? isDeployment
      : [...isDeployment, eb(instance, 'is not distinct from', instance_id)],
  );
}

/** Releases the devices of the containers that a retire task has removed. */
export const releaseRemoved = (tx: Tx, nodeId: string, payload: string): Promise<void> =>
  releaseDevices(tx, nodeId, removedBy(payload));

/** Moves the leases of a deployment to another node record, after its machine was renamed. */
export async function moveDevices(
  tx: Tx,
  { deployment_id, from, to }: NonNullable<Plan['moveDevices']>,
): Promise<void> {
  const rows = await tx
    .deleteFrom('device_leases')
    .where('node_id', '=', from)
    .where('deployment_id', '=', deployment_id)
    .returningAll()
    .execute();
  for (const row of rows)
    await tx
      .insertInto('device_leases')
      .values({ ...row, node_id: to })
      .onConflict((oc) => oc.columns(['node_id', 'kind', 'name']).doNothing())
      .execute();
}

/** Removes the leases of a node or of a project that is being removed. */
export const removeLeases = (
  tx: Tx,
  where: { node: string } | { project: string },
): Promise<unknown> => {
  const rows = tx.deleteFrom('device_leases');
  return 'node' in where
    ? rows.where('node_id', '=', where.node).execute()
    : rows
        .where('deployment_id', 'in', (eb) =>
          eb.selectFrom('deployments').select('id').where('project_id', '=', where.project),
        )
        .execute();
};

/**
 * Returns the number of instances without a memory limit on nodes that report their memory:
 * placement counts 0 bytes for each of them. 0 if no deployment has a limit, because then placement
 * compares no memory.
 */
export async function countUnlimited({ kysely }: Pick<Database, 'kysely'>): Promise<number> {
  const first = await kysely
    .selectFrom('deployments')
    .innerJoin('nodes', 'nodes.id', 'deployments.node_id')
    .select((eb) => [
      eb.fn.countAll<number>().as('all'),
      eb.fn.count<number>('deployments.memory_bytes').as('limited'),
    ])
    .where('deployments.status', 'in', [...ON_NODE])
    .where('nodes.memory_bytes', 'is not', null)
    .executeTakeFirstOrThrow();
  const others = await kysely
    .selectFrom('instances')
    .innerJoin('deployments', 'deployments.id', 'instances.deployment_id')
    .innerJoin('nodes', 'nodes.id', 'instances.node_id')
    .select((eb) => [
      eb.fn.countAll<number>().as('all'),
      eb.fn.count<number>(sql`nullif(${LIMIT_OF_INSTANCE}, 0)`).as('limited'),
    ])
    .where('nodes.memory_bytes', 'is not', null)
    .executeTakeFirstOrThrow();
  const [all, limited] = [first.all + others.all, first.limited + others.limited];
  return limited === 0 ? 0 : all - limited;
}
