/**
 * Removes what is left of runs that no open task wants: the container of a run whose task ended
 * while this agent was away, its mounts and its mark.
 */
import type { Logger } from '@berth/kit/log';
import type { RefCounts } from '@berth/kit/ref-count';
import type { Task } from '@berth/wire/task';
import { LABELS } from '@berth/wire/vocabulary';
import type { Container, Docker } from '../engine/docker.ts';
import type { NodeIds } from '../engine/node-ids.ts';
import { removeRun, type RunDeps } from './run.ts';

/** Lists the containers of runs of this node, for all ids that the node has had. */
export const listRuns =
  (docker: Pick<Docker, 'list'>, ids: Pick<NodeIds, 'all'>) =>
  async (signal?: AbortSignal): Promise<Container[]> => {
    const own = new Set(ids.all());
    const all = await docker.list({ [LABELS.run]: null }, signal);
    return all.filter(({ labels }) => own.has(labels[LABELS.run_node] ?? ''));
  };

export type SweepRunsDeps = Pick<RunDeps, 'docker' | 'prepare' | 'marks' | 'secretFiles'> & {
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

  function sweepLater(): void {
    again = sweeping !== null;
    sweeping ??= sweep(deps, () => wanted ?? new Set())
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
      await sweeping;
    },
  };
}

async function sweep(deps: SweepRunsDeps, wanted: () => ReadonlySet<string>): Promise<void> {
  const containers = await deps.list();
  const ids = new Set([
    ...containers.map(({ labels }) => labels[LABELS.run] ?? ''),
    ...(await deps.marks.all()),
  ]);
  for (const run_id of ids) {
    // Ask again for each one: a task can have begun meanwhile.
    if (wanted().has(run_id) || deps.inUse.has(run_id)) continue;
    deps.log.info({ run: run_id }, 'removing the container of a run that has ended');
    await removeRun(deps, { payload: { run_id } });
  }
}
