/**
 * Finds problems and their ends, for notifications. It compares the present state with the problems
 * that are open, so a restart loses nothing. Events only say which projects to look at; after a
 * start and after a gap it looks at all of them.
 */
import { isOnline } from '../domain/nodes/placement.ts';
import {
  isOwnDisk,
  isRegistry,
  isVolumes,
  nodeOfVolumes,
  ofCertificate,
  ofDataset,
  ofNobody,
  ofNode,
  ofProject,
  ofRegistry,
  ofVolumes,
} from '../domain/notifications/problem-texts.ts';
import {
  type Observation,
  problemKey,
  type ProblemRecord,
} from '../domain/notifications/problems.ts';
import type { LoopDeps } from './deps.ts';

const EVENTS_AT_ONCE = 1_000;
/** A problem that only one control plane observes is confirmed this often. */
const CONFIRMED_MS = 60_000;

export const problems = ({
  stores,
  limits,
  certificates,
  ownDisk,
  now,
  uptime,
  changes,
}: LoopDeps) => {
  /** The last event whose project was judged; null: judge all projects. */
  let after: number | null = null;

  return async (signal: AbortSignal): Promise<void> => {
    const { at, since } = await uptime.now();
    const open = await stores.problems.open();
    const read = await changedProjects();
    const observations: Observation[] = [
      ...(await ofProjects(read.ids, open)),
      ...(await ofNodes(at - since >= limits.offlineMs, open)),
      ...(await ofDatasets(open)),
      ...ofCertificates(open),
      ...ofRegistry(await stores.cleanUps.last()),
      ...(await (ownDisk?.() ?? Promise.resolve([]))),
    ];
    if (signal.aborted) return;
    const news = observations.filter((observation) =>
      isNews(observation, open.get(problemKey(observation))),
    );
    const written =
      news.length === 0 ? 0 : await stores.problems.observe(news, { now: now(), uptime: at });
    // Only now: a failure above reads the same events again.
    after = read.newest;
    if (written > 0) changes.notify('work');
  };

  async function changedProjects(): Promise<{ ids: Set<string> | null; newest: number }> {
    if (after === null) return { ids: null, newest: (await stores.events.read(null, 1)).newest };
    const ids = new Set<string>();
    for (let from = after; ; ) {
      const page = await stores.events.read(from, EVENTS_AT_ONCE);
      if (page.gap) return { ids: null, newest: page.newest };
      for (const { project_id } of page.items) if (project_id !== null) ids.add(project_id);
      const last = page.items.at(-1);
      if (last === undefined || page.items.length < EVENTS_AT_ONCE)
        return { ids, newest: last?.seq ?? from };
      from = last.seq;
    }
  }

  async function ofProjects(
    changed: Set<string> | null,
    open: Map<string, ProblemRecord>,
  ): Promise<Observation[]> {
    const isOurs = ({ kind }: ProblemRecord): boolean => kind === 'failed' || kind === 'unhealthy';
    const ours = [...open.values()].filter(isOurs);
    for (const { subject, gone_since } of ours) if (gone_since !== null) changed?.add(subject);
    if (changed?.size === 0) return [];
    const standings = await stores.problems.projects(changed === null ? null : [...changed]);
    const present = new Set(standings.map(({ id }) => id));
    const deleted = ours.filter(
      ({ subject }) => (changed === null || changed.has(subject)) && !present.has(subject),
    );
    return [
      ...standings.flatMap(ofProject),
      ...deleted.map(({ kind, subject }) => ofNobody(kind, subject)),
    ];
  }

  async function ofNodes(
    servedLongEnough: boolean,
    open: Map<string, ProblemRecord>,
  ): Promise<Observation[]> {
    const nodes = await stores.nodes.all();
    const states = nodes.map((node) => ({
      node,
      online: isOnline(node, now(), limits) ? true : servedLongEnough ? false : null,
    }));
    const bare = states.flatMap(({ node, online }) => ofNode(node, online, []));
    // The names of projects cost a query, which only a new problem needs.
    const bad = bare
      .filter((one) => one.isProblem && !open.has(problemKey(one)))
      .map(({ subject }) => subject);
    const projectsOf =
      bad.length === 0
        ? new Map<string, never[]>()
        : await stores.problems.onNodes([...new Set(bad)]);
    const found = states.flatMap(({ node, online }) =>
      ofNode(node, online, projectsOf.get(node.id) ?? []),
    );
    const missing = await stores.volumes.missing();
    found.push(
      ...nodes.flatMap((node) => {
        const one = ofVolumes(node, missing.get(node.id) ?? []);
        return one.isProblem || open.has(problemKey(one)) ? [one] : [];
      }),
    );
    const present = new Set(nodes.map(({ id }) => id));
    const isOfNode = ({ kind, subject }: ProblemRecord): boolean =>
      kind === 'node_offline' || (kind === 'disk' && !isOwnDisk(subject) && !isRegistry(subject));
    const nodeOf = ({ subject }: ProblemRecord): string =>
      isVolumes(subject) ? nodeOfVolumes(subject) : subject;
    const gone = [...open.values()].filter(
      (problem) => isOfNode(problem) && !present.has(nodeOf(problem)),
    );
    return [...found, ...gone.map(({ kind, subject }) => ofNobody(kind, subject))].map((one) =>
      keepProjects(one, open),
    );
  }

  async function ofDatasets(open: Map<string, ProblemRecord>): Promise<Observation[]> {
    const facts = await stores.datasets.facts();
    const bad = facts
      .flatMap((fact) => ofDataset(fact, []))
      .filter((one) => one.isProblem && !open.has(problemKey(one)));
    const users =
      bad.length === 0 ? null : await stores.problems.onDatasets(bad.map(({ subject }) => subject));
    const found = facts.flatMap((fact) => ofDataset(fact, users?.get(fact.id) ?? []));
    const present = new Set(facts.map(({ id }) => id));
    const gone = [...open.values()].filter(
      ({ kind, subject }) => kind === 'dataset' && !present.has(subject),
    );
    return [...found, ...gone.map(({ kind, subject }) => ofNobody(kind, subject))].map((one) =>
      keepProjects(one, open),
    );
  }

  function ofCertificates(open: Map<string, ProblemRecord>): Observation[] {
    if (certificates === undefined) return [];
    const watched = certificates.watched();
    // Before the first check of this process nothing is known.
    if (watched.length === 0) return [];
    const found = watched.flatMap(({ host, project_id, last }) =>
      ofCertificate(host, project_id, last),
    );
    const hosts = new Set(watched.map(({ host }) => host));
    const gone = [...open.values()].filter(
      ({ kind, subject }) => kind === 'certificate' && !hosts.has(subject),
    );
    return [...found, ...gone.map(({ kind, subject }) => ofNobody(kind, subject))].map((one) =>
      keepProjects(one, open),
    );
  }
};

/** The end of a problem concerns the projects that its beginning concerned. */
function keepProjects(observation: Observation, open: Map<string, ProblemRecord>): Observation {
  const before = open.get(problemKey(observation));
  if (before === undefined || observation.isProblem) return observation;
  return { ...observation, seen: { ...observation.seen, project_ids: before.seen.project_ids } };
}

/**
 * Returns whether the observation can change something, so that a state that stays costs no
 * transaction.
 */
function isNews({ isProblem, at }: Observation, before: ProblemRecord | undefined): boolean {
  if (at !== null && before !== undefined && at < before.observed_at) return false;
  if (!isProblem) return before !== undefined;
  return (
    before === undefined ||
    before.gone_since !== null ||
    (at !== null && at > before.observed_at + CONFIRMED_MS)
  );
}
