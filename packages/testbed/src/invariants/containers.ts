/** Checks containers, and the routes that proxies serve to them. */
import { groupBy, type HistoryFacts, LATE_MS, type Of, upsert } from './facts.ts';

type Container = Of<'container'>;

/** State after the events so far. */
type Seen = {
  /** Addresses that agents reported, by project and by deployment. */
  reported: Map<string, Set<string>>;
  /** Routes of each proxy now: project -> addresses. */
  served: Map<string, Record<string, readonly string[]>>;
  /** Projects whose page each proxy shows. */
  pages: Map<string, readonly string[]>;
  /** Every address to which a proxy ever sent requests of a project. */
  everServed: Map<string, Set<string>>;
  /** When a proxy last got a configuration with the page of a stopped project. */
  pagedAt: Map<string, number>;
  /** When an agent first reported an address of a deployment. */
  reportedAt: Map<string, number>;
  /** Projects that can be stopped, since the last request for it. */
  maybeStopped: Map<string, number>;
  /** Projects that can have the count 0 of `web` without a stop: the version has no `web` yet. */
  maybeAtZero: Set<string>;
  /** Start of the last control plane. */
  upSince: number;
  containers: Map<string, Container>;
  /** Containers that got another port from their engine. */
  moved: Set<string>;
  /** The deployments that had each address. */
  users: Map<string, string[]>;
  /** The first cause of each container. */
  causes: Map<string, Container['cause']>;
  /** Projects that people can have made stop-first. */
  maybeSingle: Set<string>;
  /** Deployments that another one replaced. */
  retired: Set<string>;
  /** The first read of each deployment that says that it runs. */
  liveSince: Map<string, Of<'read'>>;
};

/** Facts from the whole history. */
type Overview = {
  starts: ReadonlyMap<string, Container[]>;
  /** Projects that are stop-first from the beginning. */
  single: ReadonlySet<string>;
  /** Deployments that must run alone. */
  alone: ReadonlySet<string>;
  /** Projects that people scaled. */
  scaled: ReadonlySet<string>;
};

export function checkContainersAndRoutes(facts: HistoryFacts): void {
  const { history, all, end } = facts;
  const seen: Seen = {
    reported: new Map(),
    served: new Map(),
    pages: new Map(),
    everServed: new Map(),
    pagedAt: new Map(),
    reportedAt: new Map(),
    maybeStopped: new Map(),
    maybeAtZero: new Set(),
    upSince: 0,
    containers: new Map(),
    moved: new Set(),
    users: new Map(),
    causes: new Map(),
    maybeSingle: new Set(),
    retired: new Set(),
    liveSince: new Map(),
  };
  const overview: Overview = {
    starts: groupBy(
      all('container').filter((e) => e.change === 'started'),
      (e) => e.deployment,
    ),
    single: new Set(all('single_writer').map((e) => e.project)),
    alone: new Set(all('listed').flatMap((e) => (e.alone === true ? [e.deployment] : []))),
    scaled: new Set(all('scaling').map((e) => e.project)),
  };
  for (const e of history) {
    if (e.type === 'container') containerChanged(facts, overview, seen, e);
    else if (e.type === 'routed') routesChanged(facts, seen, e);
    else if (e.type === 'read' && e.state === 'running') deploymentRuns(facts, seen, e);
    else if (e.type === 'served') checkServed(facts, seen, e);
    else remember(seen, e);
  }
  if (end !== null) checkEnd(facts, seen, end.at);
}

/** Takes note of an event that violates nothing by itself. */
function remember(seen: Seen, e: HistoryFacts['history'][number]): void {
  switch (e.type) {
    case 'reporting':
    case 'observing':
      if (e.address === null) return;
      upsert(seen.reported, e.project).add(e.address);
      upsert(seen.reported, e.deployment).add(e.address);
      if (!seen.reportedAt.has(e.deployment)) seen.reportedAt.set(e.deployment, e.at);
      return;
    case 'moved':
      if (e.to === 'retired') seen.retired.add(e.deployment);
      return;
    case 'serving':
      seen.upSince = e.at;
      return;
    case 'stopping':
      seen.maybeStopped.set(e.project, e.at);
      if (e.at_zero === true) seen.maybeAtZero.add(e.project);
      return;
    case 'changing':
      if (e.replace === 'recreate') seen.maybeSingle.add(e.project);
      return;
    case 'project': {
      const since = Math.max(seen.maybeStopped.get(e.project) ?? 0, seen.upSince);
      if (e.stopped || e.sent <= since + LATE_MS || seen.maybeAtZero.has(e.project)) return;
      seen.maybeStopped.delete(e.project);
      return;
    }
    default:
  }
}

function routesChanged({ broken }: HistoryFacts, seen: Seen, e: Of<'routed'>): void {
  const routes = addressesOf(e);
  for (const [project, address] of Object.entries(routes).flatMap(([id, all]) =>
    all.map((one) => [id, one] as const),
  )) {
    if (seen.reported.get(project)?.has(address) !== true)
      broken(
        'route-observed',
        e.at,
        `project ${project} is routed to ${address}, which no agent reported for it`,
      );
    upsert(seen.everServed, project).add(address);
  }
  seen.served.set(e.proxy, routes);
  seen.pages.set(e.proxy, e.pages ?? []);
  for (const project of e.pages ?? []) seen.pagedAt.set(project, e.at);
}

const addressesOf = ({ routes, servers }: Of<'routed'>): Record<string, readonly string[]> => ({
  ...Object.fromEntries(Object.entries(routes).map(([project, address]) => [project, [address]])),
  ...servers,
});

function deploymentRuns({ broken }: HistoryFacts, seen: Seen, e: Of<'read'>): void {
  if (!seen.liveSince.has(e.deployment)) seen.liveSince.set(e.deployment, e);
  // Its host has a page: see `page-without-web`.
  if (e.without_web !== undefined) return;
  const addresses = seen.reported.get(e.deployment) ?? new Set();
  const routed = seen.everServed.get(e.project) ?? new Set();
  // Scaled to 0 during the switch: its host shows the page instead.
  const isPaged =
    (seen.pagedAt.get(e.project) ?? -Infinity) >= (seen.reportedAt.get(e.deployment) ?? Infinity);
  if (!isPaged && ![...addresses].some((address) => routed.has(address)))
    broken(
      'running-is-routed',
      e.at,
      `deployment ${e.deployment} is running, but no proxy served it`,
    );
}

function checkServed({ accepted, broken }: HistoryFacts, seen: Seen, e: Of<'served'>): void {
  /** The order of acceptance stands for the generation. */
  const generationOf = (deployment: string): number => accepted.get(deployment)?.at ?? 0;
  const newer = [...seen.liveSince.values()].find(
    (r) =>
      r.project === e.project &&
      r.at < e.sent &&
      generationOf(r.deployment) > generationOf(e.deployment),
  );
  if (newer !== undefined)
    broken(
      'one-serving',
      e.at,
      `project ${e.project}: ${e.deployment} answered after ${newer.deployment} was running`,
    );
}

function containerChanged(facts: HistoryFacts, overview: Overview, seen: Seen, e: Container): void {
  const isAlone =
    e.alone === true || overview.alone.has(e.deployment) || overview.single.has(e.project);
  if (e.change === 'started' && isAlone) startedAlone(facts, overview, seen, e);
  if (isDown(e) && !isDownOnRequest(facts, overview, seen, e)) {
    checkRoutesTo(facts, overview, seen, e);
    checkStillNeeded(facts, overview, seen, e);
  }
  if (e.change === 'moved') seen.moved.add(e.container);
  if (isDown(e)) {
    seen.containers.delete(e.container);
    return;
  }
  if (e.address !== null)
    seen.users.set(e.address, [...(seen.users.get(e.address) ?? []), e.deployment]);
  // A restart by the engine does not change which actor started the container.
  const cause = e.change === 'moved' ? (seen.causes.get(e.container) ?? e.cause) : e.cause;
  seen.causes.set(e.container, cause);
  seen.containers.set(e.container, { ...e, cause });
}

const isDown = (e: Container): boolean => e.change === 'stopped' || e.change === 'removed';

/**
 * Whether the container could end without a fault: a stop-first project stops its live container,
 * and starts it again if the new version fails. A stop of a project ends its containers on request.
 */
function isDownOnRequest(
  { isGone }: HistoryFacts,
  overview: Overview,
  seen: Seen,
  e: Container,
): boolean {
  return (
    e.cause !== 'task' ||
    overview.single.has(e.project) ||
    (e.for_next === true && seen.maybeSingle.has(e.project)) ||
    seen.maybeStopped.has(e.project) ||
    isGone(e.project, e.at) ||
    isGone(e.node, e.at)
  );
}

/** Finds proxies that still send requests to the container that ended. */
function checkRoutesTo(
  { reads, broken }: HistoryFacts,
  { scaled }: Overview,
  seen: Seen,
  e: Container,
): void {
  // An instance of the version that serves does not wait for a proxy that is cut off: see
  // `scale-serves`.
  if (scaled.has(e.project) && !seen.retired.has(e.deployment)) return;
  // A version that never ran is withdrawn even while an unreachable proxy can still have its route.
  const wasLive = reads.get(e.deployment)?.some((r) => r.state === 'running') === true;
  // An engine that restarts gives the port of one version to another one: the route still means the
  // first one.
  const isLent =
    seen.moved.has(e.container) &&
    (seen.users.get(e.address ?? '') ?? []).some((deployment) => deployment !== e.deployment);
  if (!wasLive || isLent || e.address === null) return;
  for (const [proxy, routes] of seen.served)
    if (routes[e.project]?.includes(e.address) === true)
      broken(
        'old-serves',
        e.at,
        `project ${e.project}: ${e.change} ${e.address}, where ${proxy} still sends requests`,
      );
}

/** Time in ms in which a list shows what a person did, with the drain of another instance. */
const UNSEEN_MS = 30_000;

/** Finds a deployment that still runs afterwards without another container. */
function checkStillNeeded(
  { all, reads, broken }: HistoryFacts,
  overview: Overview,
  seen: Seen,
  e: Container,
): void {
  // Berth counted on another container, which a person removed and no list has shown as gone yet.
  const isUnseen = all('container').some(
    (c) =>
      c.cause === 'hand' &&
      c.deployment === e.deployment &&
      c.container !== e.container &&
      c.change === 'stopped' &&
      c.at <= e.at &&
      e.at - c.at < UNSEEN_MS,
  );
  if (isUnseen) return;
  // A container that is removed because its report came too late, and then starts again, is no
  // loss.
  const again = overview.starts.get(e.deployment)?.find((s) => s.at > e.at)?.at ?? Infinity;
  const alive = reads
    .get(e.deployment)
    ?.find((r) => r.sent > e.at && r.at < again && r.state === 'running' && r.node === e.node);
  // Two agents with one identity can each start a container: the losing attempt removes its own,
  // and the other one serves. Of several instances, another one can be on any node.
  const hasOther = [...seen.containers.values()].some(
    (c) =>
      c.deployment === e.deployment &&
      (c.node === e.node || overview.scaled.has(e.project)) &&
      c.container !== e.container,
  );
  if (alive !== undefined && !hasOther)
    broken(
      'nothing-destroyed',
      e.at,
      `deployment ${e.deployment} is running, and its container was ${e.change} by a task`,
    );
}

function startedAlone(
  { isGone, broken }: HistoryFacts,
  { alone, scaled, single }: Overview,
  seen: Seen,
  e: Container,
): void {
  // The node was deleted by force: its agent could not be informed in time.
  if (isGone(e.node, e.at)) return;
  const present = [...seen.containers.values()].filter(
    (c) => c.project === e.project && c.container !== e.container && !isGone(c.node, e.at),
  );
  // A project without data of its own may run several instances of one version, and a further one
  // may start where a version that need not be alone has started beside it.
  const isOneOfMany = scaled.has(e.project) && !single.has(e.project);
  const runsAlready = isOneOfMany && present.some((c) => c.deployment === e.deployment);
  const other = present.find(
    (c) =>
      !(isOneOfMany && c.deployment === e.deployment) &&
      !(runsAlready && c.alone !== true && !alone.has(c.deployment)),
  );
  const free: readonly string[] = ['contract', 'hand'];
  if (other !== undefined && !free.includes(e.cause) && !free.includes(other.cause))
    broken(
      'one-writer',
      e.at,
      `project ${e.project}: ${e.deployment} started on ${e.node} while ` +
        `${other.deployment} runs on ${other.node}`,
    );
}

function checkEnd(facts: HistoryFacts, seen: Seen, at: number): void {
  const remaining = [...seen.containers.values()].filter(
    (c) => c.cause !== 'contract' && !facts.isGone(c.node, at),
  );
  checkStopped(facts, seen, at, remaining);
  for (const [project, containers] of groupBy(remaining, (c) => c.project)) {
    const wanted = facts.all('wants').find((e) => e.project === project)?.count ?? 1;
    if (containers.length > wanted)
      facts.broken(
        'one-serving',
        at,
        `project ${project} has ${containers.length} containers at the end: ` +
          containers.map((c) => c.deployment).join(', '),
      );
    for (const container of containers) checkRemaining(facts, seen, at, container);
  }
}

/** A container at the end belongs to a running deployment, and every proxy serves it. */
function checkRemaining(
  { reads, broken }: HistoryFacts,
  { served }: Seen,
  at: number,
  { deployment, project, address }: Container,
): void {
  const state = reads.get(deployment)?.at(-1)?.state;
  const routes = [...served.values()].map((ofProxy) => ofProxy[project]);
  if (state !== 'running')
    broken(
      'one-serving',
      at,
      `a container of deployment ${deployment} is left, which is ${state ?? 'unknown'}`,
    );
  else if (address === null || !routes.every((route) => route?.includes(address) === true))
    broken(
      'running-is-routed',
      at,
      `deployment ${deployment} runs at ${address}, and a proxy sends requests to ` +
        routes.map((route) => route?.join(' ') ?? 'nobody').join(', '),
    );
}

function checkStopped(
  facts: HistoryFacts,
  seen: Seen,
  at: number,
  remaining: readonly Container[],
): void {
  const { all, broken, isGone } = facts;
  const stopped = new Map(all('project').map((e) => [e.project, e.stopped]));
  for (const [project, isStopped] of stopped) {
    if (isGone(project, Infinity)) continue;
    checkStopAtProxies(facts, seen, at, { project, isStopped });
    const running = remaining.find((c) => c.project === project);
    if (isStopped && running !== undefined)
      broken(
        'stop-rests',
        at,
        `project ${project} is stopped, and a container of ${running.deployment} runs on ` +
          running.node,
      );
  }
}

/** A stopped project has its page at every proxy and no route; a running one has no page. */
function checkStopAtProxies(
  { reads, broken }: HistoryFacts,
  { served, pages }: Seen,
  at: number,
  { project, isStopped }: { project: string; isStopped: boolean },
): void {
  const running = [...reads.values()].flatMap((ofDeployment) => {
    const last = ofDeployment.at(-1);
    return last?.state === 'running' && last.project === project ? [last] : [];
  });
  const runs = running.length > 0;
  // A version without `web` has a page too.
  if (!isStopped && running.some((e) => e.without_web !== undefined)) return;
  for (const [proxy, routes] of served) {
    const hasPage = pages.get(proxy)?.includes(project) === true;
    if (isStopped && routes[project] !== undefined)
      broken(
        'stop-rests',
        at,
        `project ${project} is stopped, and ${proxy} sends requests to ${routes[project].join(', ')}`,
      );
    if (hasPage !== isStopped && (hasPage || runs))
      broken(
        'stop-rests',
        at,
        `project ${project} is ${isStopped ? 'stopped without' : 'not stopped, with'} ` +
          `its page at ${proxy}`,
      );
  }
}
