/**
 * Removes what is left of runs that no open task wants: the container of a run whose task ended
 * while this agent was away, its mounts and its mark. A command that still runs is stopped first,
 * with its grace.
 */
import type { Logger } from '@berth/kit/log';
import type { RefCounts } from '@berth/kit/ref-count';
import { PROJECT_DEFAULTS } from '@berth/wire/project';
import type { Task } from '@berth/wire/task';
import { LABELS } from '@berth/wire/vocabulary';
import type { Container, Docker } from '../engine/docker.ts';
import type { NodeIds } from '../engine/node-ids.ts';
import { Stopped } from '../stopped.ts';
import { removeRun, type RunDeps } from './run.ts';

/** Lists the containers of runs of this node, for all ids that the node has had. */
export const listRuns =
  (docker: Pick<Docker, 'list'>, ids: Pick<NodeIds, 'all'>) =>
  async (signal?: AbortSignal): Promise<Container[]> => {
    const own = new Set(ids.all());
    const all = await docker.list({ [LABELS.run]: null }, signal);
    return all.filter(({ labels }) => own.has(labels[LABELS.run_node] ?? ''));
  };

export type SweepRunsDeps = Pick<
  RunDeps,
  'docker' | 'prepare' | 'marks' | 'secretFiles' | 'onDevicesFree'
> & {
  list: ReturnType<typeof listRuns>;
  inUse: RefCounts;
  log: Logger;
};

export type SweepRuns = {
  /** Call it with each list of open tasks of the node. Works in the background. */
  listed(tasks: readonly Task[]): void;
  /** Resolves when no background work is running. */
  stop(): Promise<void>;
};

export function createSweepRuns(deps: SweepRunsDeps): SweepRuns {
  let wanted: ReadonlySet<string> | null = null;
  let sweeping: Promise<void> | null = null;
  let again = false;
  const life = new AbortController();

  function sweepLater(): void {
    again = sweeping !== null;
    sweeping ??= sweep(deps, () => wanted ?? new Set(), life.signal)
      .catch((err: unknown) => deps.log.warn({ err }, 'removing old commands failed; will retry'))
      .finally(() => {
        sweeping = null;
        if (again) sweepLater();
      });
  }
  return {
    listed(tasks) {
      wanted = new Set(tasks.flatMap((t) => (t.kind === 'run' ? [t.payload.run_id] : [])));
      sweepLater();
    },
    async stop() {
      again = false;
      // The next process stops the commands.
      life.abort(new Stopped('shutdown'));
      await sweeping;
    },
  };
}

async function sweep(
  deps: SweepRunsDeps,
  wanted: () => ReadonlySet<string>,
  signal: AbortSignal,
): Promise<void> {
  const containers = await deps.list();
  const ids = new Set([
    ...containers.map(({ labels }) => labels[LABELS.run] ?? ''),
    ...(await deps.marks.all()),
  ]);
  // Ask again for each one, and after its stop: a task can have begun meanwhile.
  const isWanted = (id: string): boolean => wanted().has(id) || deps.inUse.has(id);
  const removed = await Promise.allSettled(
    [...ids].map(async (run_id) => {
      if (isWanted(run_id)) return;
      const own = containers.filter(({ labels }) => labels[LABELS.run] === run_id);
      await stopAll(deps, own, signal);
      if (isWanted(run_id)) return;
      deps.log.info({ run: run_id }, 'removing the container of a run that has ended');
      await removeRun(deps, { payload: { run_id } });
    }),
  );
  for (const result of removed) if (result.status === 'rejected') throw result.reason;
}

async function stopAll(
  { docker, log }: SweepRunsDeps,
  containers: readonly Container[],
  signal: AbortSignal,
): Promise<void> {
  for (const { id, state, labels } of containers) {
    if (state !== 'running') continue;
    const grace = graceOf(labels[LABELS.run_grace]);
    log.info(
      { run: labels[LABELS.run], grace_seconds: grace },
      'stopping the command of a run that has ended',
    );
    await docker.stop(id, grace, signal);
  }
}

/** A container of an earlier version has no such label. */
function graceOf(label: string | undefined): number {
  const seconds = Number(label);
  const isValid = label !== undefined && Number.isInteger(seconds) && seconds >= 0;
  return isValid ? seconds : PROJECT_DEFAULTS.stop_grace_seconds;
}
