/** Checks projects with several instances: their number, their routes, and changes of the number. */
import { groupBy, type HistoryFacts, type Of, upsert } from './facts.ts';

type Container = Of<'container'>;

/** Time in which a committed route reaches the configuration of every control plane. */
const PUBLISHED_MS = 2_000;

/** A node lists its containers at least this often, in ms. */
const REPORT_MS = 10_000;

/** An agent lists its containers more often. */
const LISTED_MS = 30_000;

type Seen = {
  containers: Map<string, Container>;
  /** When an agent last listed the container of a node at an address. */
  listed: Map<string, number>;
  /** The deployments that agents reported at each address of a project. */
  reported: Map<string, Set<string>>;
  /** Servers of each project at each proxy now. */
  served: Map<string, Record<string, readonly string[]>>;
  /** When each proxy last asked for a configuration that contained an address of a project. */
  askedWith: Map<string, Map<string, number>>;
  /** Projects that people scaled, with the time in which their containers drain. */
  drains: Map<string, number>;
  retired: Set<string>;
  /** Projects that people asked to stop. */
  maybeStopped: Set<string>;
};

export function checkInstances(facts: HistoryFacts): void {
  const { history, end } = facts;
  const seen: Seen = {
    containers: new Map(),
    listed: new Map(),
    reported: new Map(),
    served: new Map(),
    askedWith: new Map(),
    drains: new Map(),
    retired: new Set(),
    maybeStopped: new Set(),
  };
  for (const e of history) {
    if (e.type === 'container') containerChanged(facts, seen, e);
    else if (e.type === 'routed') routesChanged(facts, seen, e);
    else if (e.type === 'failover') checkBrake(facts, e);
    else remember(seen, e);
  }
  if (end !== null) checkCounts(facts, seen, end.at);
}

function remember(seen: Seen, e: HistoryFacts['history'][number]): void {
  switch (e.type) {
    case 'reporting':
    case 'observing':
      if (e.address !== null) upsert(seen.reported, `${e.project} ${e.address}`).add(e.deployment);
      if (e.type === 'observing') seen.listed.set(`${e.node} ${e.address}`, e.at);
      return;
    case 'polled':
      stampServed(seen, e.proxy, e.asked);
      return;
    case 'scaling':
      seen.drains.set(e.project, e.drain_ms);
      return;
    case 'stopping':
      seen.maybeStopped.add(e.project);
      return;
    case 'moved':
      if (e.to === 'retired') seen.retired.add(e.deployment);
      return;
    default:
  }
}

function stampServed(seen: Seen, proxy: string, asked: number): void {
  const times = seen.askedWith.get(proxy) ?? new Map<string, number>();
  seen.askedWith.set(proxy, times);
  for (const [project, addresses] of Object.entries(seen.served.get(proxy) ?? {}))
    for (const address of addresses) times.set(`${project} ${address}`, asked);
}

/** The servers of a project are instances of one version, each with its own address. */
function routesChanged({ broken }: HistoryFacts, seen: Seen, e: Of<'routed'>): void {
  const single = Object.entries(e.routes).map(([project, address]) => [project, [address]]);
  seen.served.set(e.proxy, { ...Object.fromEntries(single), ...e.servers });
  // A proxy that stopped sends no requests.
  if (e.asked === undefined) seen.askedWith.delete(e.proxy);
  else stampServed(seen, e.proxy, e.asked);
  for (const [project, addresses] of Object.entries(e.servers ?? {})) {
    if (new Set(addresses).size < addresses.length)
      broken(
        'one-version',
        e.at,
        `project ${project}: ${e.proxy} has one address twice: ${addresses.join(', ')}`,
      );
    const [first = new Set<string>(), ...others] = addresses.map(
      (address) => seen.reported.get(`${project} ${address}`) ?? new Set<string>(),
    );
    const isOne = [...first].some((deployment) => others.every((at) => at.has(deployment)));
    if (!isOne)
      broken(
        'one-version',
        e.at,
        `project ${project}: no version was reported at each of ${addresses.join(', ')}`,
      );
  }
}

function containerChanged(facts: HistoryFacts, seen: Seen, e: Container): void {
  if (e.change === 'started' || e.change === 'moved') {
    seen.containers.set(e.container, e);
    return;
  }
  const before = seen.containers.get(e.container);
  seen.containers.delete(e.container);
  // Its engine has just restarted, and no report says yet that it has this address.
  if (before?.change === 'moved' && e.at - before.at < REPORT_MS) return;
  checkDrained(facts, seen, e);
}

/**
 * A container of the version that serves ends only after the drain time, counted from the moment
 * when its address left the configuration: requests that a proxy sent before are still in flight. A
 * proxy that has not asked since then counts as cut off: it finds the dead server by its own health
 * check.
 */
function checkDrained({ isGone, broken }: HistoryFacts, seen: Seen, e: Container): void {
  const drainMs = seen.drains.get(e.project);
  const isAsked =
    e.cause !== 'task' ||
    e.for_next === true ||
    seen.maybeStopped.has(e.project) ||
    seen.retired.has(e.deployment) ||
    isGone(e.project, e.at) ||
    isGone(e.node, e.at);
  if (drainMs === undefined || isAsked || e.address === null) return;
  for (const [proxy, times] of seen.askedWith) {
    const asked = times.get(`${e.project} ${e.address}`);
    times.delete(`${e.project} ${e.address}`);
    if (asked !== undefined && e.at - asked < drainMs - PUBLISHED_MS)
      broken(
        'scale-serves',
        e.at,
        `project ${e.project}: ${e.change} ${e.address}, which was in a configuration that ` +
          `${proxy} got ${e.at - asked} ms before`,
      );
  }
}

function checkBrake({ broken }: HistoryFacts, e: Of<'failover'>): void {
  if (e.silent >= 2 && e.silent * 2 > e.nodes)
    broken(
      'brake',
      e.at,
      `the instances of ${e.node} move while ${e.silent} of ${e.nodes} nodes are silent`,
    );
}

function checkCounts({ all, broken, isGone }: HistoryFacts, seen: Seen, at: number): void {
  const running = groupBy([...seen.containers.values()], (c) => c.deployment);
  for (const { project, deployment, count, isAble } of all('wants')) {
    if (isGone(project, at)) continue;
    // A renamed machine has another node, and its containers keep the one that started them.
    const there = (running.get(deployment) ?? []).filter(
      (c) =>
        !isGone(c.node, at) || at - (seen.listed.get(`${c.node} ${c.address}`) ?? 0) < LISTED_MS,
    );
    // Only a person removes what a contract-only agent started on a node that was lost.
    const removable = there.filter(({ cause }) => cause !== 'contract').length;
    if (removable > count || (isAble && there.length < count))
      broken(
        'count-kept',
        at,
        `project ${project} wants ${count} instances of ${deployment}, and ${there.length} run: ` +
          there
            .map((c) => `${c.address}${c.instance === undefined ? '' : ` ${c.instance}`}`)
            .join(', '),
      );
  }
}
