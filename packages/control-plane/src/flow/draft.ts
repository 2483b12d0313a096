/** A plan in the making: the few verbs that flow/deployment.ts writes its decisions with. Pure. */
import type { DeploymentState } from '@berth/wire/vocabulary';
import { DomainError } from '../domain/errors.ts';
import type { Facts, NodeFact } from '../domain/facts.ts';
import { type DeploymentChange, emptyPlan, type NewTask, type Plan, type TaskChange } from '../domain/plan.ts';
import type { DeploymentRecord, NodeRecord, TaskRecord } from '../domain/records.ts';
import { phasesAfter } from './phases.ts';
import { isTransition } from './transitions.ts';

export type Change = DeploymentChange['set'];

export type Draft = {
  facts: Facts;
  plan: Plan;
  /** The event that this plan decides about; it is the `event` of TRANSITIONS for each move without another one. */
  event: string;
  /** Changes fields, not the state. */
  set(d: DeploymentRecord, set: Change): void;
  /** Changes the state; refuses what is not a row of TRANSITIONS. */
  move(d: DeploymentRecord, to: DeploymentState, set: Change, message: string, event?: string): void;
  say(d: Pick<DeploymentRecord, 'id'>, kind: string, message: string): void;
  task(change: TaskChange): void;
  createTask(task: Omit<NewTask, 'id'>): void;
  /** Open tasks of the deployment that this plan does not end already. */
  openTasks(d: Pick<DeploymentRecord, 'id'>): TaskRecord[];
  node(id: string | null): NodeFact | undefined;
};

export function createDraft(facts: Facts, event: string): Draft {
  const plan = emptyPlan(facts.project, facts.now, facts.uptime.at);
  let used = 0;
  const freshId = (): string => {
    const id = facts.freshIds[used++];
    // A plan that creates more than the caller foresaw is a mistake in the flow, not in the input.
    if (id === undefined) throw new Error(`a plan of project ${facts.project.id} needs more than ${facts.freshIds.length} fresh ids`);
    return id;
  };
  const set = (d: DeploymentRecord, change: Change): void => {
    const there = plan.deployments.find((c) => c.id === d.id);
    if (there === undefined) plan.deployments.push({ id: d.id, from: d.status, set: change });
    else Object.assign(there.set, change);
  };
  const say: Draft['say'] = (d, kind, message) => void plan.events.push({ deployment_id: d.id, kind, message });
  return {
    facts,
    plan,
    event,
    set,
    say,
    move(d, to, change, message, by = event) {
      if (!isTransition(d.status, by, to))
        throw new DomainError('wrong_state', `the event ${by} does not change a ${d.status} deployment to ${to}`);
      const phases = phasesAfter({ phases: change.phases ?? d.phases, status: d.status }, to, facts.now);
      set(d, { ...change, ...(phases === null ? {} : { phases }), status: to, state_since: facts.now, waiting: null, stopped_first: null });
      say(d, to, message);
    },
    task: (change) => void plan.tasks.push(change),
    createTask: (task) => void plan.createTasks.push({ ...task, id: freshId() } as NewTask),
    openTasks: (d) => facts.tasks.filter((t) => t.deployment_id === d.id && !plan.tasks.some((c) => c.id === t.id && 'end' in c)),
    node: (id) => facts.nodes.find((n) => n.id === id),
  };
}

/** Agents that know the contract alone have no `retire` and no cancellation: they replace `svc-{domain_prefix}` themselves. */
export const knowsMoreThanContract = (node: Pick<NodeRecord, 'agent_version'> | undefined): boolean =>
  node !== undefined && node.agent_version !== null;
