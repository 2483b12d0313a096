/**
 * Warns about containers whose host port the engine chooses again at each start because an older
 * agent started them; the present agent would choose a fixed port. An agent that does not send
 * `port_fixed` gets no warning.
 */
import { createRecentNodes, countOf, type NodeNotes } from './node-notes.ts';

export function createNodePorts(clock: { now: () => number; offlineMs: number }): NodeNotes {
  const nodes = createRecentNodes<{ hostname: string; count: number }>(clock);
  return {
    kind: 'other',
    registered({ id, hostname }, { containers }) {
      if (containers === undefined) return;
      const { length: count } = containers.filter(
        (c) => c.port_fixed === false && c.state === 'running',
      );
      if (count === 0) nodes.delete(id);
      else nodes.set(id, { hostname, count });
    },
    notes() {
      const all = nodes.all();
      const count = all.reduce((sum, node) => sum + node.count, 0);
      return count === 0
        ? []
        : [
            `${count} container${count === 1 ? '' : 's'} on ${countOf(all)} will get another ` +
              'port when the engine restarts, so requests may reach another project for some ' +
              'seconds: berth status --all names them, and berth restart PROJECT gives each a ' +
              'fixed port',
          ];
    },
  };
}
