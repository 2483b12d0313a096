/**
 * Runs the release command of a new version: once, on the node of its first instance, before any
 * container of it starts. The deployment stays `built` meanwhile, and the old version serves. Pure.
 *
 *   built ──placed──▶ task `run` ──exit code 0──▶ release_done_at, then the deploy task
 *                       │  └─ another end ──▶ failed (release_failed)
 *                       └─ agent lost: the same node gets the task again (`again`);
 *                          if it does not return ──▶ failed (release_unknown)
 */
import { defined } from '@berth/kit/defined';
import type { DatasetMount } from '@berth/wire/dataset';
import { FAILURES } from '@berth/wire/errors';
import type { RunPayload } from '@berth/wire/run-payload';
import type { TaskReport } from '@berth/wire/task';
import type { VolumeMounts } from '@berth/wire/volume';
import { imageOf } from '../domain/deployments/clean-up.ts';
import type { Facts, NodeFact } from '../domain/deployments/facts.ts';
import type { DeploymentRecord, Failure, TaskRecord } from '../domain/platform/records.ts';
import { runNeed } from '../domain/runs/run-task.ts';
import type { Need } from '../domain/nodes/build-needs.ts';
import { copyMs } from './data.ts';
import { begin, end } from './phases.ts';
import type { Draft } from './plan-draft.ts';
import { deploySecrets } from './secrets.ts';

type Releasing = Pick<DeploymentRecord, 'settings' | 'rollback_of' | 'release_done_at'>;

/** A rollback, a restart and a failover run no release command: their version had its own. */
export const needsRelease = ({ settings, rollback_of, release_done_at }: Releasing): boolean =>
  settings.release_command !== null && rollback_of === null && release_done_at === null;

export const releaseNeeds = (d: Releasing): Need[] => (needsRelease(d) ? [runNeed] : []);

/** Returns the open task of the release command, or undefined. */
export const releaseTask = (
  { tasks }: Pick<Facts, 'tasks'>,
  { id }: Pick<DeploymentRecord, 'id'>,
): TaskRecord | undefined => tasks.find((t) => t.kind === 'run' && t.deployment_id === id);

/** Returns whether the task was offered again, and its node has not come back to take it. */
export const waitsForAgent = ({ status, payload }: TaskRecord): boolean =>
  status === 'pending' && (payload as RunPayload).again === true;

type ReleaseInput = {
  mounts: readonly DatasetMount[];
  missingBytes: number;
  volumes?: VolumeMounts;
};

/** Creates the task on the node that placement chose. */
export function startRelease(
  draft: Draft,
  d: DeploymentRecord,
  node: NodeFact,
  { mounts, missingBytes, volumes }: ReleaseInput,
): void {
  const { facts } = draft;
  const { settings } = d;
  const payload: RunPayload = {
    run_id: `release-${d.id}`,
    project_id: facts.project.id,
    project: facts.project.name,
    image: imageOf(d, facts.platform.registryAddr),
    image_tag: d.image_tag ?? '',
    image_digest: d.image_digest,
    container_name: `release-${facts.project.name}-g${d.generation}`,
    command: settings.release_command ?? [],
    env: settings.env,
    ...deploySecrets(facts.secrets),
    datasets: [...mounts],
    ...defined({ volumes }),
    memory_bytes: settings.memory_bytes,
    cpus: settings.cpus,
    timeout_seconds: settings.release_timeout_seconds,
    stop_grace_seconds: settings.stop_grace_seconds,
  };
  offer(draft, d, node.id, payload, copyMs(missingBytes, node.copy_rate));
  draft.set(d, { phases: begin(d.phases, 'release', facts.now) });
  draft.addLine(d, 'release', `runs the release command on ${node.hostname}`);
}

function offer(
  draft: Draft,
  d: DeploymentRecord,
  nodeId: string,
  payload: RunPayload,
  extraMs: number,
): void {
  const { uptime, limits } = draft.facts;
  const { timeout_seconds, stop_grace_seconds, again } = payload;
  draft.createTask({
    kind: 'run',
    deployment_id: d.id,
    node_id: nodeId,
    queue_deadline_at: uptime.at + (again === true ? limits.returnMs : limits.claimMs),
    wall_deadline_at:
      uptime.at +
      limits.deployMs +
      extraMs +
      (timeout_seconds + stop_grace_seconds) * 1000 +
      (again === true ? limits.returnMs : 0),
    payload,
  });
}

export type ReleaseEnd =
  | 'done'
  /** The task was offered again. */
  | 'waits'
  /** No agent took the task: another node can. */
  | { elsewhere: string }
  | { fails: Failure };

/** Handles the report of the task. */
export function releaseReported(draft: Draft, d: DeploymentRecord, report: TaskReport): ReleaseEnd {
  const { status, result } = report;
  const exitCode = exitCodeOf(result);
  if (status === 'completed' && exitCode === 0) {
    const { now } = draft.facts;
    draft.set(d, { release_done_at: now, phases: end(d.phases, now) });
    draft.addLine(d, 'release', 'the release command succeeded');
    return 'done';
  }
  if (status === 'completed' && exitCode !== null)
    return fails('release_failed', endText(exitCode, isOutOfMemory(result)));
  const error = typeof result === 'object' ? result?.error : undefined;
  if (error?.code === 'run_lost') return fails('release_unknown', error.message);
  if (error?.code === 'command_timeout')
    return fails('release_failed', `it exceeded ${d.settings.release_timeout_seconds} s`);
  return fails('release_failed', error?.message ?? 'the agent reported no result');
}

/** Handles the loss of the task. Only its own node can tell whether the command started. */
export function releaseLost(
  draft: Draft,
  d: DeploymentRecord,
  { task, why }: { task: TaskRecord; why: 'queue' | 'lease' | 'wall' | 'attempts' },
): ReleaseEnd {
  const payload = task.payload as RunPayload;
  const name = draft.node(task.node_id)?.hostname ?? task.node_id;
  if (why === 'queue' && payload.again !== true) return { elsewhere: name };
  if (why !== 'lease') return fails('release_unknown', `${name} did not return in time`);
  offer(draft, d, task.node_id, { ...payload, again: true }, 0);
  draft.addLine(d, 'release', `${name} stopped reporting; Berth waits for it`);
  return 'waits';
}

const fails = (code: 'release_failed' | 'release_unknown', detail: string): ReleaseEnd => ({
  fails: { code, message: `${FAILURES[code]}: ${detail}.`.replace(/\.\.$/, '.') },
});

const exitCodeOf = (result: TaskReport['result']): number | null => {
  const code = (result as { exit_code?: unknown } | null | undefined)?.exit_code;
  return typeof code === 'number' && Number.isSafeInteger(code) ? code : null;
};
const isOutOfMemory = (result: TaskReport['result']): boolean =>
  (result as { out_of_memory?: unknown } | null)?.out_of_memory === true;

const endText = (exitCode: number, outOfMemory: boolean): string =>
  outOfMemory ? 'it exceeded its memory limit' : `exit code ${exitCode}`;
