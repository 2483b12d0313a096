/**
 * What this process knows to call for nothing, so that an agent that says nothing new costs no query: nodes without an open task
 * (idle), and nodes on which every container was seen to be as its deployment wants it (settled).
 *
 * Where one control plane serves the database, every change of tasks and deployments passes `committed`, and the knowledge is exact.
 * Where several do, idle is not kept at all, and settled ends within WATCH_MS of what another one committed (`watch`: each commit
 * raises its project's flow_version). A register that came in between is made good by the node's next one, and where nobody
 * watches nothing is known: not the wrong thing for longer, but a query.
 */
import type { NodeRecord } from '../../domain/records.ts';
import type { Plan } from '../../domain/plan.ts';
import type { Database } from '../engine/database.ts';
import { createKnown } from './known.ts';
import { LIVE_STATES } from '../states.ts';

/** How old the last look at what others committed may be. */
const WATCH_MS = 10_000;

/** `containers`: as they were reported; the very array, so that another report is another thing. Ids of what they belong to. */
type Settled = { containers: NodeRecord['containers']; deployments: string[]; projects: Set<string> };
type Owned = { id: string; project_id: string };

export type Calm = {
  isIdle(nodeId: string): boolean;
  /** Call before looking at the node's tasks; what it gives says that there was none. */
  idleIf(nodeId: string): () => void;
  isSettled(node: NodeRecord): boolean;
  settledIf(node: NodeRecord): (of: readonly Owned[]) => void;
  /** After a plan was written, or may have been. `nodes`: where the deployments that it changed stand now. */
  committed(plan: Plan, nodes: readonly string[]): void;
  /** The node said something new, or is gone. */
  forget(nodeId: string): void;
  /** Finds what other control planes committed; nothing to do where there are none. */
  watch(): Promise<void>;
};

export function createCalm(db: Database): Calm {
  const shared = db.capabilities.sharedByControlPlanes;
  const idle = createKnown<true>();
  const settled = new Map<string, Settled>();
  /** Rises with each commit: a look at deployments that was under way during one is not kept, whatever it was about. */
  let commits = 0;
  /** Deployment -> the settled node that has its container. */
  const nodeOf = new Map<string, string>();
  let versions = new Map<string, number>();
  let watchedAt = Number.NEGATIVE_INFINITY;

  function unsettle(nodeId: string): void {
    for (const id of settled.get(nodeId)?.deployments ?? []) if (nodeOf.get(id) === nodeId) nodeOf.delete(id);
    settled.delete(nodeId);
  }

  async function look(): Promise<void> {
    const rows = await db.kysely.selectFrom('projects').select(['id', 'flow_version']).execute();
    const present = new Map(rows.map((row) => [row.id, row.flow_version]));
    const moved = new Set([...present.keys(), ...versions.keys()].filter((id) => present.get(id) !== versions.get(id)));
    if (moved.size > 0) {
      commits++;
      for (const [nodeId, { projects }] of [...settled]) if ([...projects].some((id) => moved.has(id))) unsettle(nodeId);
      const placed = await db.kysely
        .selectFrom('deployments')
        .select('node_id')
        .distinct()
        .where('project_id', 'in', [...moved])
        .where('status', 'in', [...LIVE_STATES])
        .where('node_id', 'is not', null)
        .execute();
      for (const { node_id } of placed) unsettle(node_id ?? '');
    }
    versions = present;
  }

  return {
    isIdle: (nodeId) => idle.get(nodeId) === true,
    idleIf(nodeId) {
      if (shared) return () => {};
      const found = idle.look(nodeId);
      return () => found(true);
    },
    isSettled(node) {
      if (shared && performance.now() - watchedAt > WATCH_MS) return false;
      return settled.get(node.id)?.containers === node.containers;
    },
    settledIf(node) {
      const before = commits;
      return (of) => {
        if (commits !== before) return;
        unsettle(node.id);
        settled.set(node.id, {
          containers: node.containers,
          deployments: of.map((d) => d.id),
          projects: new Set(of.map((d) => d.project_id)),
        });
        for (const { id } of of) nodeOf.set(id, node.id);
      };
    },
    committed(plan, nodes) {
      commits++;
      for (const task of plan.createTasks) idle.end(task.node_id);
      for (const { id } of plan.deployments) unsettle(nodeOf.get(id) ?? '');
      for (const id of nodes) unsettle(id);
      unsettle(plan.createDeployment?.node_id ?? '');
    },
    forget(nodeId) {
      idle.end(nodeId);
      unsettle(nodeId);
    },
    async watch() {
      if (!shared) return;
      try {
        const began = performance.now();
        await look();
        watchedAt = began;
      } catch (error) {
        commits++;
        settled.clear();
        nodeOf.clear();
        throw error;
      }
    },
  };
}
