/**
 * Agents hold a request until their list of tasks changes. This process tells them what it changes itself; what another control
 * plane changed is found here by one look for all of them: ten thousand held requests that each looked would be a storm. So it is
 * with deployments: what is known of them from earlier registers ends when another control plane moves them on.
 */
import type { LoopDeps } from './deps.ts';

export const taskWatch = ({ stores, changes }: LoopDeps): ((signal: AbortSignal) => Promise<void>) => {
  let before = new Map<string, string>();
  return async () => {
    const present = await stores.tasks.openByNode();
    for (const node of new Set([...before.keys(), ...present.keys()]))
      if (before.get(node) !== present.get(node)) changes.notify(`node:${node}`);
    before = present;
    await stores.flow.watch();
  };
};
