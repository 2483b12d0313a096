/** Empties nodes that are being drained (flow/drain.ts). Two control planes may do it at once: a step counts only where the record stands as it was read. */
import { DomainError } from '../domain/errors.ts';
import type { DrainRecord, NodeRecord } from '../domain/records.ts';
import { drainStep, notAsked } from '../flow/drain.ts';
import { leftOn } from '../flow/left-on.ts';
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
  const { left, arriving } = await leftOn(stores, id, drain);
  const step = drainStep(drain, left, arriving, now(), driver.newId());
  if (JSON.stringify(step.drain) === JSON.stringify(drain) || signal.aborted) return;
  if ((await stores.nodes.setDrain(id, step.drain, drain)) === null) return;
  if (step.drain.finished_at !== null) log.info({ node: hostname, moved: step.drain.moved }, 'the node is drained');
  if (step.move === null) return;
  try {
    await driver.again(step.move.running.id, { id: step.move.id, note: `node ${hostname} is drained`, trigger: 'drain' });
  } catch (error) {
    log.warn({ err: error, node: hostname, deployment_id: step.move.running.id }, 'a deployment could not be moved');
    const why = error instanceof DomainError ? error.message : 'the control plane failed; its log says how';
    const problem = `it could not be deployed once more: ${why}`;
    // Where the record has moved on meanwhile, people have said something newer.
    await stores.nodes.setDrain(id, notAsked(step.drain, step.move.running.project_id, problem), step.drain);
  }
}
