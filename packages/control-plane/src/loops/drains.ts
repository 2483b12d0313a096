/** Carries out drains (flow/drain.ts). Several control planes may run it: a step counts only if the record has not changed since. */
import { DomainError } from '../domain/errors.ts';
import type { DrainRecord, NodeRecord } from '../domain/records.ts';
import { drainStep, type DrainStep, withProblem } from '../flow/drain.ts';
import { readDrainState } from '../flow/drain-state.ts';
import type { LoopDeps } from './deps.ts';

export const drains =
  (deps: LoopDeps) =>
  async (signal: AbortSignal): Promise<void> => {
    for (const node of await deps.stores.nodes.listDraining()) {
      if (signal.aborted) return;
      if (node.drain?.finished_at === null) await drainOne(deps, node.drain, node, signal);
    }
  };

async function drainOne(
  { stores, driver, now, log }: LoopDeps,
  drain: DrainRecord,
  { id, hostname }: NodeRecord,
  signal: AbortSignal,
): Promise<void> {
  const { remaining, arriving } = await readDrainState(stores, id, drain);
  const step = drainStep(drain, remaining, arriving, now(), driver.newId());
  await leave(step, driver, log);
  if (JSON.stringify(step.drain) === JSON.stringify(drain) || signal.aborted) return;
  if ((await stores.nodes.setDrain(id, step.drain, drain)) === null) return;
  if (step.drain.finished_at !== null) log.info({ node: hostname, moved: step.drain.moved }, 'drain finished');
  if (step.move === null) return;
  try {
    await driver.redeploy(step.move.running.id, { id: step.move.id, note: `node ${hostname} is drained`, trigger: 'drain' });
  } catch (error) {
    log.warn({ err: error, node: hostname, deployment_id: step.move.running.id }, 'drain: redeploy failed');
    const why = error instanceof DomainError ? error.message : 'internal error; see the log of the control plane';
    const problem = `it could not be deployed again: ${why}`;
    // If the record changed in between, a newer request decides, and this problem is dropped.
    await stores.nodes.setDrain(id, withProblem(step.drain, step.move.running.project_id, problem), step.drain);
  }
}

/** Repeats the request until the move can begin: the deployment says what it waits for. */
async function leave({ leave: waiting, room }: DrainStep, driver: LoopDeps['driver'], log: LoopDeps['log']): Promise<void> {
  let left = room;
  for (const d of waiting) {
    if (left <= 0) return;
    try {
      if (await driver.moveVolumes(d.id)) left -= 1;
    } catch (error) {
      log.warn({ err: error, deployment_id: d.id }, 'drain: moving the volumes of a stopped project failed');
    }
  }
}
