/** Collects the changes of one decision into a plan (domain/deployments/plan.ts). Pure. */
import { defined } from '@berth/kit/defined';
import type { DeploymentState } from '@berth/wire/vocabulary';
import { DomainError } from '../domain/platform/errors.ts';
import { waitingFor } from '../domain/deployments/wait-reason.ts';
import type { Facts, NodeFact } from '../domain/deployments/facts.ts';
import {
  type DeploymentChange,
  emptyPlan,
  type NewTask,
  type Plan,
  type TaskChange,
} from '../domain/deployments/plan.ts';
import type { DeploymentRecord, NodeRecord, TaskRecord } from '../domain/platform/records.ts';
import type { UnmanagedChange } from '../domain/nodes/unmanaged-containers.ts';
import { type InstanceChange, type InstanceRecord, isWeb } from '../domain/deployments/instance.ts';
import type { VolumeCopy } from '../domain/data/volume-copy.ts';
import { phasesAfter } from './phases.ts';
import { isTransition } from './transitions.ts';

export type Change = DeploymentChange['set'];

export type Draft = {
  facts: Facts;
  plan: Plan;
  /**
   * The event that the plan handles. `move` looks it up in TRANSITIONS unless its caller names
   * another event.
   */
  event: string;
  /** Changes fields of a deployment, but not its state. */
  set(d: DeploymentRecord, set: Change): void;
  /** Changes the state of a deployment. Throws if TRANSITIONS has no row for the change. */
  move(
    d: DeploymentRecord,
    to: DeploymentState,
    set: Change,
    message: string,
    event?: string,
  ): void;
  /** Adds a line to the story of the deployment. */
  addLine(d: Pick<DeploymentRecord, 'id'>, kind: string, message: string): void;
  task(change: TaskChange): void;
  createTask(task: Omit<NewTask, 'id'>): void;
  freshId(): string;
  /** Returns the copies of the volumes, with the changes of this plan. */
  volumes(): readonly VolumeCopy[];
  putVolumes(copy: VolumeCopy): void;
  unmanaged(change: UnmanagedChange): void;
  /** Returns the further instances of `web` of the deployment, with the changes of this plan. */
  instances(d: Pick<DeploymentRecord, 'id'>): readonly InstanceRecord[];
  /** Returns the instances of its other processes, with the changes of this plan. */
  workers(d: Pick<DeploymentRecord, 'id'>): readonly InstanceRecord[];
  putInstance(instance: InstanceRecord): void;
  removeInstance(id: string): void;
  /** Returns the deployment's open tasks that this plan does not end. */
  openTasks(d: Pick<DeploymentRecord, 'id'>): TaskRecord[];
  node(id: string | null): NodeFact | undefined;
};

export function createDraft(facts: Facts, event: string): Draft {
  const plan = emptyPlan(facts.project, facts.now, facts.uptime.at);
  let used = 0;
  const freshId = (): string => {
    const id = facts.freshIds[used++];
    // FRESH_IDS is larger than any plan needs, so this is a bug in the flow.
    if (id === undefined)
      throw new Error(
        `a plan of project ${facts.project.id} needs more than ${facts.freshIds.length} new ids`,
      );
    return id;
  };
  const set = (d: DeploymentRecord, change: Change): void => {
    const existing = plan.changeDeployments.find((c) => c.id === d.id);
    if (existing === undefined)
      plan.changeDeployments.push({ id: d.id, from: d.status, set: change });
    else Object.assign(existing.set, change);
  };
  const addLine: Draft['addLine'] = (d, kind, message) =>
    void plan.storyLines.push({ deployment_id: d.id, kind, message });
  return {
    facts,
    plan,
    event,
    set,
    addLine,
    move(d, to, change, message, by = event) {
      if (!isTransition(d.status, by, to))
        throw new DomainError(
          'wrong_state',
          `the event ${by} does not change a ${d.status} deployment to ${to}`,
        );
      const phases = phasesAfter(
        { phases: change.phases ?? d.phases, status: d.status },
        to,
        facts.now,
      );
      set(d, {
        ...change,
        ...defined({ phases: phases ?? undefined }),
        status: to,
        state_since: facts.now,
        ...waitingFor(null),
        stopped_first: null,
      });
      addLine(d, to, message);
    },
    task: (change) => void plan.changeTasks.push(change),
    createTask: (task) => void plan.createTasks.push({ ...task, id: freshId() } as NewTask),
    openTasks: (d) =>
      facts.tasks.filter(
        (t) =>
          t.deployment_id === d.id && !plan.changeTasks.some((c) => c.id === t.id && 'end' in c),
      ),
    freshId,
    volumes: () => [
      ...facts.volumes.filter((c) => !plan.volumes.some((p) => p.id === c.id)),
      ...plan.volumes,
    ],
    putVolumes: (copy) =>
      void (plan.volumes = [...plan.volumes.filter((p) => p.id !== copy.id), copy]),
    instances: (d) =>
      instancesWith(facts, plan).filter((i) => i.deployment_id === d.id && isWeb(i)),
    workers: (d) => instancesWith(facts, plan).filter((i) => i.deployment_id === d.id && !isWeb(i)),
    putInstance: (put) => changeInstance(plan, put.id, { put }),
    removeInstance: (id) => changeInstance(plan, id, { remove: id }),
    unmanaged: (change) => void (plan.unmanaged = [...(plan.unmanaged ?? []), change]),
    node: (id) => facts.nodes.find((n) => n.id === id),
  };
}

function changeInstance(plan: Plan, id: string, change: InstanceChange): void {
  const others = (plan.instances ?? []).filter((c) => ('put' in c ? c.put.id : c.remove) !== id);
  plan.instances = [...others, change];
}

/** Returns all further instances of the project, by number. */
function instancesWith({ instances = [] }: Facts, plan: Plan): readonly InstanceRecord[] {
  const changes = plan.instances ?? [];
  if (changes.length === 0) return instances;
  const changed = new Set(changes.map((c) => ('put' in c ? c.put.id : c.remove)));
  const put = changes.flatMap((c) => ('put' in c ? [c.put] : []));
  return [...instances.filter(({ id }) => !changed.has(id)), ...put].toSorted(
    (a, b) => a.number - b.number,
  );
}

/**
 * Returns whether the agent supports `retire` and cancellation. A contract-only agent replaces
 * `svc-{domain_prefix}` itself.
 */
export const isBerthAgent = (node: Pick<NodeRecord, 'agent_version'> | undefined): boolean =>
  node !== undefined && node.agent_version !== null;
