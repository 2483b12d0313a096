/** Checks that a host is never answered by another project’s container. */
import { groupBy, type HistoryFacts, type Of, upsert } from './facts.ts';

/**
 * Some time after a report was answered, its effect is in the configuration. With several control
 * planes: 10 s later (docs/adr/0008).
 */
const TOLD_MS = 5_000;

/** Each address with its project. */
type Routes = readonly (readonly [project: string, address: string])[];
const routesOf = ({ routes, servers = {} }: Of<'routed'>): Routes => [
  ...Object.entries(routes).filter(([project]) => servers[project] === undefined),
  ...Object.entries(servers).flatMap(([project, all]) =>
    all.map((address) => [project, address] as const),
  ),
];

/**
 * Compares every route with the container that has its address at that moment. A port that an agent
 * chose must always lead to its own project. A port that the engine chose, and an address that
 * another machine had before, can lead to another project until the control plane has got a report
 * of the container there.
 */
export function checkHosts({ history, all, broken }: HistoryFacts): void {
  const present = new Map<string, Of<'container'>>();
  const machines = new Map<string, Set<string>>();
  const served = new Map<string, Routes>();
  /** Address, and the time since which the control plane knows whose container is there. */
  const told = new Map<string, number>();
  const sending = new Map<string, Of<'reporting'>>();
  const toldMs = new Set(all('serving').map((e) => e.name)).size > 1 ? TOLD_MS + 10_000 : TOLD_MS;
  const leave = (container: string): void => {
    for (const [address, c] of present)
      if (c.container === container) {
        present.delete(address);
        told.delete(address);
      }
  };
  const tell = (project: string, address: string, at: number): void => {
    if (present.get(address)?.project === project && !told.has(address)) told.set(address, at);
  };
  const isOwn = ({ address, keeps_port }: Of<'container'>): boolean =>
    keeps_port === true &&
    (machines.get(address?.slice(0, address.lastIndexOf(':')) ?? '')?.size ?? 1) < 2;
  const compare = (at: number, toldBefore: number, asking: string | null = null): void => {
    for (const [proxy, routes] of served)
      for (const [project, address] of routes) {
        const other = present.get(address);
        if (other === undefined || other.project === project) continue;
        // A proxy that is cut off can still have the configuration from before.
        const isKnown =
          (asking === null || proxy === asking) && (told.get(address) ?? Infinity) <= toldBefore;
        if (isOwn(other) || isKnown)
          broken(
            'own-host',
            at,
            `project ${project}: ${proxy} sends its requests to ${address}, where ` +
              `${other.project} answers`,
          );
      }
  };
  for (const e of history)
    if (e.type === 'addressed') upsert(machines, e.host).add(e.machine);
    else if (e.type === 'container') {
      leave(e.container);
      if ((e.change === 'started' || e.change === 'moved') && e.address !== null) {
        present.set(e.address, e);
        told.delete(e.address);
      }
      compare(e.at, -Infinity);
    } else if (e.type === 'told') tell(e.project, e.address, e.at);
    else if (e.type === 'reporting') sending.set(e.task, e);
    else if (e.type === 'reported') {
      const { project, address } = sending.get(e.task) ?? { project: '', address: null };
      if (address !== null) tell(project, address, e.at);
    } else if (e.type === 'routed') {
      const owners = groupBy(routesOf(e), ([, address]) => address);
      for (const [address, projects] of owners)
        if (new Set(projects.map(([id]) => id)).size > 1)
          broken(
            'own-host',
            e.at,
            `${e.proxy} has one address, ${address}, for the projects ` +
              projects.map(([id]) => id).join(' and '),
          );
      served.set(e.proxy, routesOf(e));
      compare(e.at, (e.asked ?? e.at) - toldMs, e.proxy);
    } else if (e.type === 'shown' && e.by !== e.project)
      broken('own-host', e.at, `the host of project ${e.project} was answered by ${e.by}`);
    else if (e.type === 'ended') compare(e.at, e.at);
}
