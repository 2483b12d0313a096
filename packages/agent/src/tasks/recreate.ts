/**
 * Implements the strategy `recreate` (never two writers): all other containers of the project stop
 * before the new one starts.
 */
import { failPoint } from '@berth/kit/fail-point';
import { LABELS } from '@berth/wire/vocabulary';
import type { Container, Docker } from '../engine/docker.ts';
import type { ListNodeContainers } from '../engine/node-ids.ts';
import type { DeployAttempt, DeployTask } from './deploy-attempt.ts';
import { stopContainer } from './stop-container.ts';

export type RecreateDeps = {
  docker: Pick<Docker, 'stop' | 'inspect'>;
  listContainers: ListNodeContainers;
};

/** Stops the containers, one at a time. */
export async function stopOthers(
  { docker }: Pick<RecreateDeps, 'docker'>,
  { task: { payload }, context }: DeployAttempt,
  others: readonly Container[],
): Promise<void> {
  for (const old of others) {
    context.logStep(
      'deploy',
      `stopping ${old.name} before the new container starts (strategy recreate)` +
        keptNote(old, payload),
    );
    await stopContainer(docker, old, payload.stop_grace_seconds, 'deploy', context);
    await failPoint('recreate.stopped');
  }
}

/** Returns all containers of the project except the new one, newest first. */
export async function otherContainers(
  { listContainers }: Pick<RecreateDeps, 'listContainers'>,
  { task, deployment, context }: DeployAttempt,
): Promise<Container[]> {
  const all = await listContainers({ [LABELS.project]: task.payload.project_id }, context.signal);
  const generation = (c: Container): number => Number(c.labels[LABELS.generation] ?? 0);
  return all
    .filter((c) => c.labels[LABELS.deployment] !== deployment)
    .sort((a, b) => generation(b) - generation(a));
}

/**
 * Returns the containers that served before, else a running one. If `replaces` is unknown and no
 * container runs, returns the newest one. The version that served can have several instances here.
 */
export function containersToRestart(
  others: readonly Container[],
  { replaces }: DeployTask['payload'],
): Container[] {
  const serving = others.filter((c) => c.labels[LABELS.deployment] === replaces);
  if (serving.length > 0) return serving;
  // `replaces` is unknown and no container runs: a previous attempt stopped them and was killed.
  const one =
    others.find((c) => c.state === 'running') ?? (replaces === undefined ? others[0] : undefined);
  return one === undefined ? [] : [one];
}

/** Starts all containers, even if some of them fail. Then throws the first error. */
export async function startAll(
  docker: Pick<Docker, 'start'>,
  containers: readonly Container[],
  log: (name: string) => void,
): Promise<void> {
  const failed: unknown[] = [];
  for (const { id, name } of containers) {
    log(name);
    await docker.start(id).catch((error: unknown) => failed.push(error));
  }
  if (failed.length > 0) throw failed[0];
}

/**
 * Describes a stopped container that did not serve: either a leftover that will be removed, or a
 * container that the control plane does not know.
 */
const keptNote = (old: Container, { replaces }: DeployTask['payload']): string =>
  replaces === undefined || old.labels[LABELS.deployment] === replaces
    ? ''
    : `. It did not serve the live version; it stays stopped (docker start ${old.name} starts it ` +
      'again)';
