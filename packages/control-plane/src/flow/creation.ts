/**
 * Creates the container of a version again, from its release and on its own node, because it does
 * not exist any more (removed by hand or by the engine). The version was stopped for a newer one
 * that failed (`restartStopped`), or it should serve (`createMissing`).
 *
 *   the node lists no container of it ──▶ a deploy task of the running deployment
 *     it answers ──▶ it serves again
 *     it fails ──▶ the next list of the node tries again (flow/retry.ts)
 *
 * The room of the version is still its own: its row counts as memory, and its devices are leased.
 * Pure.
 */
import { mountsOf } from '../domain/data/mounts.ts';
import type { NodeFact } from '../domain/deployments/facts.ts';
import {
  waitingFor,
  type WaitReason,
  waitsFor,
  waitText,
} from '../domain/deployments/wait-reason.ts';
import { choose } from '../domain/nodes/placement.ts';
import { refusalText } from '../domain/nodes/refusal.ts';
import { deviceIds } from '../domain/nodes/room.ts';
import type { DeploymentRecord, TaskRecord } from '../domain/platform/records.ts';
import { mounted } from './data.ts';
import type { EventOf } from './events.ts';
import { failureOf } from './failure.ts';
import { presentOf, withServers } from './instance-route.ts';
import { instanceOfTask, pinnedMounts } from './instances.ts';
import { questionAgain } from './placement-question.ts';
import type { Draft } from './plan-draft.ts';
import { endRetries, tryLater } from './retry.ts';
import { takeDevicesAgain } from './room.ts';
import { routeTo } from './route.ts';
import { addNotes } from './task-facts.ts';
import { createDeployTask, createRetireTask } from './tasks.ts';
import { mountVolumes, volumesMounted } from './volumes.ts';

/** Returns whether the task creates the container of a running deployment again. */
export const isCreation = (
  task: Pick<TaskRecord, 'kind' | 'payload' | 'deployment_id'>,
  running: Pick<DeploymentRecord, 'id'> | undefined,
): boolean =>
  task.kind === 'deploy' && task.deployment_id === running?.id && instanceOfTask(task) === null;

/** Creates the container on the node of the deployment, or says why that is not possible. */
export function createAgain(draft: Draft, d: DeploymentRecord, home: NodeFact): void {
  const mounts = pinnedMounts(draft, d);
  if (mounts === null) return setWaiting(draft, d, whyNoMounts(draft, d));
  const devices = takeDevicesAgain(draft, d, home);
  if ('kind' in devices) return cannotCreate(draft, d, `${home.hostname} ${refusalText(devices)}`);
  // The new container has no label of an instance.
  const unlabelled = { ...d, instance_id: null };
  draft.set(d, { instance_id: null, container_id: null });
  createDeployTask(draft, d, home, {
    mounts,
    missingBytes: missingOn(draft, d, home),
    devices: deviceIds(devices),
    replace: d.settings.replace,
    ...mountVolumes(draft, unlabelled, home),
  });
  setWaiting(draft, d, { kind: 'created_again', node: home.hostname });
  draft.addLine(
    d,
    'started_again',
    `its container does not exist any more; it is created again on ${home.hostname}`,
  );
}

function missingOn(draft: Draft, d: DeploymentRecord, home: NodeFact): number {
  const question = { ...questionAgain(draft, d, []), machine: null };
  return choose(question, [home], draft.facts).placement.items[0]?.missing_bytes ?? 0;
}

function whyNoMounts({ facts }: Draft, d: DeploymentRecord): WaitReason {
  const mounts = mountsOf(d.settings.datasets, facts.datasets);
  if ('waits' in mounts) return { kind: 'not_restarted', because: mounts.waits };
  const message = 'message' in mounts ? mounts.message : 'its datasets are not there';
  return { kind: 'not_created_again', message };
}

/** Records why the container cannot be created. The next list of the node tries again. */
export const cannotCreate = (draft: Draft, d: DeploymentRecord, message: string): void =>
  setWaiting(draft, d, { kind: 'not_created_again', message });

function setWaiting(draft: Draft, d: DeploymentRecord, reason: WaitReason): void {
  if (waitsFor(d, reason)) return;
  const waiting = waitingFor(reason);
  draft.set(d, waiting);
  if (d.stopped_first === null)
    draft.set(d, {
      health: { status: 'unhealthy', since: draft.facts.now, detail: waiting.waiting },
    });
  if (reason.kind !== 'created_again') draft.addLine(d, 'stopped_first', waitText(reason));
}

/** Handles the end of the task: the version serves again, or its node's next list tries again. */
export function creationEnded(
  draft: Draft,
  d: DeploymentRecord,
  event: EventOf<'task_reported'> | EventOf<'task_lost'>,
): void {
  const node = draft.node(event.task.node_id);
  if (event.type === 'task_reported') addNotes(draft, d, event.report);
  if (node === undefined || node.id !== d.node_id) return;
  const port = event.type === 'task_reported' ? (event.report.host_port ?? null) : null;
  if (event.type === 'task_lost' || event.report.status === 'failed' || port === null) {
    const message =
      event.type === 'task_lost'
        ? 'it did not report the end of the task'
        : failureOf(event.report).message;
    tryLater(draft, d, 'start');
    const reason: WaitReason = {
      kind: 'retire_failed',
      node: node.hostname,
      action: 'create',
      message,
    };
    if (!waitsFor(d, reason)) draft.addLine(d, reason.kind, waitText(reason));
    return draft.set(d, waitingFor(reason));
  }
  volumesMounted(draft, d);
  draft.set(d, {
    stopped_first: null,
    ...waitingFor(null),
    host_port: port,
    container_id: event.report.container_id ?? null,
    datasets: mounted(d, event.report),
    health: { status: 'healthy', since: draft.facts.now, detail: null },
  });
  // If somebody removes it again soon, the next creation waits longer (flow/missing-container.ts).
  if (d.stopped_first === null) tryLater(draft, d, 'start');
  else endRetries(draft, d);
  const { route } = draft.facts;
  const created = presentOf(draft, d);
  if (route === null || route.deployment_id === d.id)
    draft.plan.route = { set: withServers(draft, d, routeTo(draft, created, node, port).set) };
  draft.addLine(
    d,
    'started_again',
    `its container was created again on ${node.hostname} and answers at ${node.host_ip}:${port}`,
  );
  createRetireTask(draft, node, { of: d, remove: [], keep: d, drain: false });
}

/** Ends an open creation, because the deployment ends or its project is stopped. */
export function endCreation(draft: Draft, d: DeploymentRecord): void {
  for (const task of draft.openTasks(d))
    if (d.status === 'running' && isCreation(task, d))
      draft.task({ id: task.id, attempt: task.attempt, end: 'cancelled' });
}
