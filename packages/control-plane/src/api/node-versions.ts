/**
 * Warns about agents that are older than this control plane. Contract-only agents send no version.
 */
import { BERTH_VERSION, isOlderVersion } from '@berth/wire/version';
import { createRecentNodes, countOf, type NodeNotes } from './node-notes.ts';

export function createNodeVersions(
  clock: { now: () => number; offlineMs: number },
  version = BERTH_VERSION,
): NodeNotes {
  const nodes = createRecentNodes<{ hostname: string }>(clock);
  return {
    kind: 'older_agents',
    registered({ id, hostname }, { agent_version }) {
      if (agent_version !== undefined && isOlderVersion(agent_version, version))
        nodes.set(id, { hostname });
      else nodes.delete(id);
    },
    notes() {
      const all = nodes.all();
      return all.length === 0
        ? []
        : [
            `the agents of ${countOf(all)} are older than this control plane (${version}): ` +
              'berth node list shows them; install its package there',
          ];
    },
  };
}
