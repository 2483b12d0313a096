/**
 * Carries out drains (flow/drain.ts). A finished drain continues when the node again has something
 * to move: a machine that returns under the node's name brings its volumes along. Several control
 * planes can run this loop: a step counts only if the record has not changed since.
 */
import { DomainError } from '../domain/platform/errors.ts';
import type { DrainRecord, NodeRecord } from '../domain/platform/records.ts';
import { drainStep, type DrainStep, inTurn, withProblem } from '../flow/drain.ts';
import { type DrainStores, readDrainState } from '../flow/drain-state.ts';
import type { NodeStore } from '../domain/nodes/node-store.ts';
import type { UnmanagedStore } from '../domain/nodes/unmanaged-store.ts';
import type { Driver } from '../flow/driver.ts';
import type { Logger } from '@berth/kit/log';

/** The last stopped project whose volumes each drain tried to move, by node. */
type LastTried = Map<string, string>;

export type Deps = DrainStores & {
  nodes: Pick<NodeStore, 'listDraining' | 'setDrain'>;
  unmanaged: Pick<UnmanagedStore, 'left'>;
  driver: Pick<Driver, 'advance' | 'moveVolumes' | 'newId' | 'redeploy' | 'reviewMoves'>;
  log: Logger;
  now: () => number;
};

export function drains(deps: Deps): (signal: AbortSignal) => Promise<void> {
  const last: LastTried = new Map();
  return async (signal) => {
    const nodes = await deps.nodes.listDraining();
    const ids = new Set(nodes.map(({ id }) => id));
    for (const id of last.keys()) if (!ids.has(id)) last.delete(id);
    for (const node of nodes) {
      if (signal.aborted) return;
      if (node.drain !== null) await drainOne(deps, node.drain, node, last, signal);
    }
    await deps.driver.reviewMoves();
  };
}

async function drainOne(
  deps: Deps,
  drain: DrainRecord,
  { id, hostname, deleting_at }: NodeRecord,
  last: LastTried,
  signal: AbortSignal,
): Promise<void> {
  const { unmanaged, nodes, driver, now, log } = deps;
  const { remaining, arriving, dropped, runs } = await readDrainState(
    deps,
    { id, deleting_at },
    drain,
  );
  const isUsed =
    arriving ||
    runs.length > 0 ||
    (remaining.length === 0 && (await unmanaged.left({ nodes: [id] })).length > 0);
  const step = drainStep(drain, remaining, isUsed, now(), driver.newId());
  for (const project of await leave(step, last.get(id) ?? null, { driver, log, signal }))
    last.set(id, project);
  if (JSON.stringify(step.drain) === JSON.stringify(drain) || signal.aborted) return;
  if ((await nodes.setDrain(id, step.drain, drain)) === null) return;
  if (step.drain.finished_at !== null)
    log.info(
      { node: hostname, moved: step.drain.moved, unused_volumes_of: dropped },
      'drain finished',
    );
  else if (drain.finished_at !== null)
    log.info({ node: hostname }, 'drain continues: something that must leave has come to the node');
  if (step.move === null) return;
  try {
    if (step.move.ofInstances)
      await driver.advance(step.move.running.id, { type: 'node_drained', node_id: id });
    else
      await driver.redeploy(step.move.running.id, {
        id: step.move.id,
        note: `node ${hostname} is drained`,
        trigger: 'drain',
      });
  } catch (error) {
    log.warn(
      { err: error, node: hostname, deployment_id: step.move.running.id },
      'drain: the move of a deployment failed',
    );
    const why =
      error instanceof DomainError
        ? error.message
        : 'internal error; see the log of the control plane';
    const what = step.move.ofInstances
      ? 'its instances could not move'
      : 'it could not be deployed again';
    const problem = `${what}: ${why}`;
    // If the record changed in between, a newer request decides, and this problem is dropped.
    await nodes.setDrain(
      id,
      withProblem(step.drain, step.move.running.project_id, problem),
      step.drain,
    );
  }
}

/**
 * Repeats the requests until the moves can begin; the deployment says why it waits. Returns the
 * projects that it tried, in this order.
 */
async function leave(
  { leave: waiting, room }: DrainStep,
  lastProject: string | null,
  { driver, log, signal }: Pick<Deps, 'driver' | 'log'> & { signal: AbortSignal },
): Promise<string[]> {
  const tried: string[] = [];
  let free = room;
  for (const d of inTurn(waiting, lastProject)) {
    if (free <= 0 || signal.aborted) break;
    tried.push(d.project_id);
    try {
      if (await driver.moveVolumes(d.id)) free -= 1;
    } catch (error) {
      log.warn(
        { err: error, deployment_id: d.id },
        'drain: moving the volumes of a stopped project failed',
      );
    }
  }
  return tried;
}
