/**
 * Finds tasks that other control planes changed and notifies the held requests of their nodes. One
 * query serves all nodes; with 10,000 held requests one query each would overload the database.
 * Also finds deployments that other control planes changed, so that unchanged registrations of
 * their nodes are decided again.
 */
import type { LoopDeps } from './deps.ts';

export const taskWatch = ({
  stores,
  changes,
}: LoopDeps): ((signal: AbortSignal) => Promise<void>) => {
  let before = new Map<string, string>();
  return async () => {
    const present = await stores.tasks.openByNode();
    for (const node of new Set([...before.keys(), ...present.keys()]))
      if (before.get(node) !== present.get(node)) changes.notify(`node:${node}`);
    before = present;
    await stores.flow.watch();
  };
};
