/** Observes the current state of each kind of problem, with the types of domain/notifications. */
import type { CertificateWatch } from '../domain/routes/configuration.ts';
import type { DatasetStore } from '../domain/data/dataset-stores.ts';
import type { VolumeStore } from '../domain/data/volume-store.ts';
import type { Limits } from '../domain/deployments/facts.ts';
import type { FailoverWatch } from '../domain/nodes/failover-watch.ts';
import type { NodeStore } from '../domain/nodes/node-store.ts';
import { isOnline } from '../domain/nodes/placement.ts';
import {
  isBrake,
  isOwnDisk,
  isRegistry,
  isVolumes,
  jobSubject,
  nodeOfVolumes,
  ofBrake,
  ofCertificate,
  ofDataset,
  ofJob,
  ofLostNode,
  ofNobody,
  ofNode,
  ofProject,
  ofVolumes,
} from '../domain/notifications/problem-texts.ts';
import {
  type Observation,
  problemKey,
  type ProblemRecord,
  type ProblemStore,
} from '../domain/notifications/problems.ts';
import type { NodeRecord } from '../domain/platform/records.ts';
import type { JobStore } from '../domain/runs/job-store.ts';

/** Open problems by their key. */
export type OpenProblems = ReadonlyMap<string, ProblemRecord>;

/** Observes projects. `changed`: ids of the projects to check; null: all projects. */
export async function observeProjects(
  problems: Pick<ProblemStore, 'projects'>,
  changed: Set<string> | null,
  open: OpenProblems,
): Promise<Observation[]> {
  const isOfProject = ({ kind }: ProblemRecord): boolean =>
    kind === 'failed' || kind === 'unhealthy';
  const ofProjects = [...open.values()].filter(isOfProject);
  for (const { subject, gone_since } of ofProjects) if (gone_since !== null) changed?.add(subject);
  if (changed?.size === 0) return [];
  const standings = await problems.projects(changed === null ? null : [...changed]);
  const existingIds = new Set(standings.map(({ id }) => id));
  const deleted = ofProjects.filter(
    ({ subject }) => (changed === null || changed.has(subject)) && !existingIds.has(subject),
  );
  return [...standings.flatMap(ofProject), ...deleted.map(endOf)];
}

/**
 * Observes nodes. `servedLongEnough`: the control plane has run long enough for each node to
 * report.
 */
export async function observeNodes(
  deps: {
    nodes: Pick<NodeStore, 'all'>;
    volumes: Pick<VolumeStore, 'missing'>;
    problems: Pick<ProblemStore, 'onNodes'>;
    limits: Pick<Limits, 'offlineMs'>;
    now: () => number;
  },
  servedLongEnough: boolean,
  open: OpenProblems,
): Promise<Observation[]> {
  const nodes = await deps.nodes.all();
  const isNodeOnline = (node: NodeRecord): boolean | null => {
    if (isOnline(node, deps.now(), deps.limits)) return true;
    return servedLongEnough ? false : null;
  };
  const states = nodes.map((node) => ({ node, online: isNodeOnline(node) }));
  // Read the names of projects only for a new problem, because they cost a query.
  const newIds = states
    .flatMap(({ node, online }) => ofNode(node, online, []))
    .filter((observation) => isNew(observation, open))
    .map(({ subject }) => subject);
  const projectsOf =
    newIds.length === 0
      ? new Map<string, never[]>()
      : await deps.problems.onNodes([...new Set(newIds)]);
  const missing = await deps.volumes.missing();
  const volumes = nodes
    .map((node) => ofVolumes(node, missing.get(node.id) ?? []))
    .filter((observation) => observation.isProblem || open.has(problemKey(observation)));
  const existingIds = new Set(nodes.map(({ id }) => id));
  const ended = [...open.values()].filter(
    (problem) => isOfNode(problem) && !existingIds.has(nodeOf(problem)),
  );
  return withProjects(
    [
      ...states.flatMap(({ node, online }) => ofNode(node, online, projectsOf.get(node.id) ?? [])),
      ...volumes,
      ...ended.map(endOf),
    ],
    open,
  );
}

const isOfNode = ({ kind, subject }: ProblemRecord): boolean =>
  kind === 'node_offline' || (kind === 'disk' && !isOwnDisk(subject) && !isRegistry(subject));

const nodeOf = ({ subject }: ProblemRecord): string =>
  isVolumes(subject) ? nodeOfVolumes(subject) : subject;

/** Observes the nodes with lost instances, and the brake. */
export async function observeFailover(
  deps: { problems: Pick<ProblemStore, 'lostNodes'>; failover: FailoverWatch },
  open: OpenProblems,
): Promise<Observation[]> {
  const lost = await deps.problems.lostNodes();
  const lostIds = new Set(lost.map(({ id }) => id));
  const held = (await deps.failover.silent()).filter(({ brake }) => brake !== null);
  const ended = [...open.values()].filter(
    ({ kind, subject }) => kind === 'failover' && !isBrake(subject) && !lostIds.has(subject),
  );
  return withProjects([...lost.map(ofLostNode), ofBrake(held), ...ended.map(endOf)], open);
}

/** Observes the jobs whose newest run failed. The problem ends with the next success. */
export async function observeJobs(
  jobs: Pick<JobStore, 'failing'>,
  open: OpenProblems,
): Promise<Observation[]> {
  const failing = await jobs.failing();
  const subjects = new Set(failing.map(jobSubject));
  const ended = [...open.values()].filter(
    ({ kind, subject }) => kind === 'job_failed' && !subjects.has(subject),
  );
  return withProjects([...failing.map(ofJob), ...ended.map(endOf)], open);
}

export async function observeDatasets(
  deps: {
    datasets: Pick<DatasetStore, 'facts'>;
    problems: Pick<ProblemStore, 'onDatasets'>;
  },
  open: OpenProblems,
): Promise<Observation[]> {
  const facts = await deps.datasets.facts();
  const newProblems = facts
    .flatMap((fact) => ofDataset(fact, []))
    .filter((observation) => isNew(observation, open));
  const users =
    newProblems.length === 0
      ? null
      : await deps.problems.onDatasets(newProblems.map(({ subject }) => subject));
  const existingIds = new Set(facts.map(({ id }) => id));
  const ended = [...open.values()].filter(
    ({ kind, subject }) => kind === 'dataset' && !existingIds.has(subject),
  );
  return withProjects(
    [...facts.flatMap((fact) => ofDataset(fact, users?.get(fact.id) ?? [])), ...ended.map(endOf)],
    open,
  );
}

export function observeCertificates(
  certificates: Pick<CertificateWatch, 'watched'> | undefined,
  open: OpenProblems,
): Observation[] {
  const watched = certificates?.watched() ?? [];
  // Return no observations before the first check of this process.
  if (watched.length === 0) return [];
  const hosts = new Set(watched.map(({ host }) => host));
  const ended = [...open.values()].filter(
    ({ kind, subject }) => kind === 'certificate' && !hosts.has(subject),
  );
  return withProjects(
    [
      ...watched.flatMap(({ host, project_id, last }) => ofCertificate(host, project_id, last)),
      ...ended.map(endOf),
    ],
    open,
  );
}

const isNew = (observation: Observation, open: OpenProblems): boolean =>
  observation.isProblem && !open.has(problemKey(observation));

const endOf = ({ kind, subject }: ProblemRecord): Observation => ofNobody(kind, subject);

/** Gives the end of a problem the same projects as its beginning. */
const withProjects = (observations: readonly Observation[], open: OpenProblems): Observation[] =>
  observations.map((observation) => {
    const begun = open.get(problemKey(observation));
    if (begun === undefined || observation.isProblem) return observation;
    return { ...observation, seen: { ...observation.seen, project_ids: begun.seen.project_ids } };
  });
