/**
 * Finds tasks that other control planes changed and notifies the held requests of their nodes. One
 * query serves all nodes: with 10,000 held requests, one query each would overload the database.
 * Also finds deployments that other control planes changed, so that unchanged registrations of
 * their nodes are evaluated again.
 */
import type { FlowStore } from '../domain/deployments/flow-store.ts';
import type { TaskStore } from '../domain/deployments/task-store.ts';
import type { Changes } from '../domain/platform/changes.ts';

export type Deps = {
  tasks: Pick<TaskStore, 'openByNode'>;
  flow: Pick<FlowStore, 'watch'>;
  changes: Pick<Changes, 'notify'>;
};

export const taskWatch = ({
  tasks,
  flow,
  changes,
}: Deps): ((signal: AbortSignal) => Promise<void>) => {
  let before = new Map<string, string>();
  return async () => {
    const present = await tasks.openByNode();
    for (const node of new Set([...before.keys(), ...present.keys()]))
      if (before.get(node) !== present.get(node)) changes.notify(`node:${node}`);
    before = present;
    await flow.watch();
  };
};
