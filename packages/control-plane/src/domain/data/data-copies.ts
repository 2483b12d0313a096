/**
 * Decides which nodes keep the dataset versions of a running deployment (`data_copies` of its
 * project), and which copies are missing. Pure.
 *
 * The nodes are chosen in this order, among those that can take work now:
 *   1. nodes that run the deployment
 *   2. nodes that hold every version, first those that are pinned already
 *   3. pinned nodes whose copy is not complete yet
 *   4. the best others by the score of placement.ts
 *
 * A pinned node that is lost, cordoned or drained is replaced. Its pins stay until another node
 * holds every version. Repeated decisions with the same input choose the same nodes.
 */
import { type COPY_STATES, DATASET_PINS, type DataCopies } from '@berth/wire/data-copies';
import type { DatasetSource } from '@berth/wire/dataset';
import type { DatasetFact } from '../deployments/facts.ts';
import { volumeHome } from './volumes.ts';
import type { VolumeCopy } from './volume-copy.ts';
import { lack, type Need } from '../nodes/build-needs.ts';
import { place, type PlacementContext, QUESTION, refusalOf } from '../nodes/placement.ts';
import { refusalText } from '../nodes/refusal.ts';
import type { NodeRecord, PinnedDataset, TaskRecord } from '../platform/records.ts';

/** A version of a dataset that a node keeps for a project. */
export type DatasetPin = {
  project_id: string;
  node_id: string;
  dataset_id: string;
  version: number;
};

/** A project with its running deployment. */
export type CopiedProject = {
  project_id: string;
  project: string;
  data_copies: number;
  has_volumes: boolean;
  deployment_id: string;
  node_id: string | null;
  /** Nodes of the further instances. Absent: none. */
  others?: readonly string[];
  image_arch: string | null;
  datasets: PinnedDataset[] | null;
};

/** `source` is null if the version cannot be copied; `problem` says why. */
type CopySource = { source: DatasetSource; problem: null } | { source: null; problem: string };
/** A version that the deployment uses. */
export type CopyVersion = { dataset_id: string; name: string; version: number } & CopySource;

type Syncs = readonly TaskRecord<'sync'>[];

export type CopiesQuestion = {
  /** `data_copies` of the project. */
  wanted: number;
  versions: readonly CopyVersion[];
  /** Nodes that run the deployment. */
  runsOn: readonly string[];
  /** Nodes that have a pin of the project. */
  pinned: ReadonlySet<string>;
  arch: string | null;
  /** The node that has the volumes of the project: no other node can take it over. */
  home: string | null;
  /** Sync tasks that are open or ended within RETRY_MS. */
  syncs: Syncs;
};

export const copiesQuestion = (
  project: CopiedProject,
  {
    datasets,
    stored,
    volumes,
    syncs,
  }: {
    datasets: readonly DatasetFact[];
    /** Pins of all projects. */
    stored: readonly DatasetPin[];
    /** Copies of the volumes of the project. */
    volumes: readonly VolumeCopy[];
    syncs: Syncs;
  },
): CopiesQuestion => ({
  wanted: project.data_copies,
  versions: copyVersions(project.datasets, datasets),
  runsOn: [...new Set([project.node_id, ...(project.others ?? [])])].filter((id) => id !== null),
  pinned: new Set(
    stored.filter((p) => p.project_id === project.project_id).map(({ node_id }) => node_id),
  ),
  arch: project.image_arch,
  home: project.has_volumes ? volumeHome(volumes) : null,
  syncs,
});

export type CopiesPlan = {
  /** All versions that nodes must keep for the project. */
  pins: Omit<DatasetPin, 'project_id'>[];
  /** Missing copies, most urgent first. */
  copies: { node_id: string; source: DatasetSource }[];
  view: Pick<DataCopies, 'have' | 'nodes' | 'why'>;
};

/** Time in ms during which other nodes are preferred after a copy to a node failed. */
export const RETRY_MS = 10 * 60_000;
/** Time in ms that a finished copy counts without a report of its node. */
const SETTLE_MS = 60_000;
/** Maximum number of nodes that `why` names. */
const MAX_NAMED = 3;

const KEEPS: Need = { capability: DATASET_PINS, what: 'keep copies of datasets for projects' };

/** Returns the versions of the `dependency` datasets that the deployment mounts. */
export function copyVersions(
  pins: readonly PinnedDataset[] | null,
  datasets: readonly DatasetFact[],
): CopyVersion[] {
  return (pins ?? []).flatMap(({ dataset_id, name, mode, version }) =>
    mode !== 'dependency' || version === null
      ? []
      : [{ dataset_id, name, version, ...sourceOf(dataset_id, name, version, datasets) }],
  );
}

function sourceOf(
  dataset_id: string,
  name: string,
  version: number,
  datasets: readonly DatasetFact[],
): CopySource {
  const fact = datasets.find((d) => d.id === dataset_id);
  if (fact === undefined) return { source: null, problem: `dataset ${name} was deleted` };
  if (fact.version !== version)
    return {
      source: null,
      problem:
        `${name} v${version} cannot be copied any more, because the share has v${fact.version}; ` +
        `the next deployment uses v${fact.version}`,
    };
  if (fact.status !== 'ok')
    return { source: null, problem: `${name} v${version} is ${fact.status} on the share` };
  const { nfs_path, manifest_digest, bytes, files } = fact;
  const source = { dataset_id, name: fact.name, nfs_path, version, manifest_digest, bytes, files };
  return { source, problem: null };
}

const holds = (node: NodeRecord, { dataset_id, version }: CopyVersion): boolean =>
  node.cached.some((c) => c.dataset_id === dataset_id && c.version === version);
const textOf = ({ name, version }: CopyVersion): string => `${name} v${version}`;

/** The input with what several steps use. */
type Planning = {
  question: CopiesQuestion;
  nodes: readonly NodeRecord[];
  context: PlacementContext;
  byId: ReadonlyMap<string, NodeRecord>;
  /** Why the last copy to a node failed, by node. */
  failures: ReadonlyMap<string, string>;
};

const NO_COPIES: CopiesPlan = {
  pins: [],
  copies: [],
  view: {
    have: 0,
    nodes: [],
    why: 'the running deployment mounts no dataset as dependency',
  },
};

export function planCopies(
  question: CopiesQuestion,
  nodes: readonly NodeRecord[],
  context: PlacementContext,
): CopiesPlan {
  if (question.versions.length === 0) return NO_COPIES;
  const planning: Planning = {
    question,
    nodes,
    context,
    byId: new Map(nodes.map((node) => [node.id, node])),
    failures: failuresOf(question, context.now),
  };
  const { versions, wanted, runsOn } = question;
  const chosen = choose(planning);
  const complete = chosen.filter((node) => versions.every((v) => holds(node, v)));
  const have = complete.length;
  const leaving = have >= wanted ? [] : leavingOf(planning, chosen);
  const missing = new Map(chosen.map((n) => [n.id, versions.filter((v) => !holds(n, v))]));
  const view = (node: NodeRecord, isLeaving: boolean): DataCopies['nodes'][number] =>
    nodeView(planning, node, missing.get(node.id) ?? [], isLeaving);
  return {
    pins: [...chosen, ...leaving]
      .filter((node) => lack(node, [KEEPS]) === null)
      .flatMap((node) => pinsOf(node, versions)),
    copies: chosen
      .filter((node) => !runsOn.includes(node.id) && !planning.failures.has(node.id))
      .flatMap((node) =>
        (missing.get(node.id) ?? []).flatMap(({ source }) =>
          source === null || isSettling(question.syncs, node.id, source, context.now)
            ? []
            : [{ node_id: node.id, source }],
        ),
      ),
    view: {
      have,
      nodes: [
        ...chosen.map((node) => view(node, false)),
        ...leaving.map((node) => view(node, true)),
      ],
      why: have >= wanted ? null : whyNotMore(planning, chosen, complete),
    },
  };
}

/** Pins the versions that the node holds, and those that it can get. */
const pinsOf = (node: NodeRecord, versions: readonly CopyVersion[]): CopiesPlan['pins'] =>
  versions
    .filter((v) => v.source !== null || holds(node, v))
    .map(({ dataset_id, version }) => ({ node_id: node.id, dataset_id, version }));

// ── choice ───────────────────────────────────────────────────────────────────────────────────────

function choose(planning: Planning): NodeRecord[] {
  const { question, nodes, byId, failures } = planning;
  const { wanted, versions, runsOn, pinned } = question;
  const chosen: NodeRecord[] = [];
  const add = (candidates: readonly NodeRecord[]): void => {
    for (const node of candidates)
      if (chosen.length < wanted && !chosen.includes(node)) chosen.push(node);
  };
  add(runsOn.flatMap((id) => byId.get(id) ?? []).filter((node) => isUsable(planning, node)));
  if (chosen.length >= wanted) return chosen;
  const canKeep = (node: NodeRecord): boolean => whyNotKeep(planning, node) === null;
  // Look at the data first: of 10,000 nodes, few hold it.
  const holders = nodes
    .filter((node) => versions.every((v) => holds(node, v)) && canKeep(node))
    .toSorted(byName);
  add(holders.filter((node) => pinned.has(node.id)));
  add(holders);
  const isFresh = (node: NodeRecord): boolean =>
    !failures.has(node.id) && versions.every((v) => v.source !== null || holds(node, v));
  const pinnedNodes = Array.from(pinned, (id) => byId.get(id) ?? []).flat();
  add(pinnedNodes.filter((node) => canKeep(node) && isFresh(node)).toSorted(byName));
  if (chosen.length < wanted) add(byScore(planning).filter(isFresh));
  return chosen;
}

const byName = (a: NodeRecord, b: NodeRecord): number => compare(a.hostname, b.hostname);
function compare(a: string, b: string): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}

const isUsable = ({ context }: Planning, node: NodeRecord): boolean =>
  refusalOf(node, [], context.now, context.limits) === null;

/** Returns why the node cannot keep copies, apart from room; null if it can. */
function whyNotKeep({ question, context }: Planning, node: NodeRecord): string | null {
  if (node.role !== 'deploy') return 'is a builder';
  const refusal = refusalOf(node, [], context.now, context.limits) ?? lack(node, [KEEPS]) ?? null;
  if (refusal !== null) return refusalText(refusal);
  const { home, arch } = question;
  if (home !== null && node.id !== home) return refusalText({ kind: 'without_volumes' });
  return arch === null || node.arch === null || node.arch === arch
    ? null
    : refusalText({ kind: 'other_arch', arch: node.arch, image: arch });
}

/** Returns the nodes that can take the copies, best first. */
function byScore({ question, nodes, context, byId }: Planning): NodeRecord[] {
  return rowsOf(question, nodes, context)
    .filter(({ eligible }) => eligible)
    .flatMap(({ node_id }) => byId.get(node_id) ?? []);
}

const rowsOf = (
  { versions, arch, home }: CopiesQuestion,
  nodes: readonly NodeRecord[],
  context: PlacementContext,
) =>
  place(
    {
      ...QUESTION,
      arch,
      home,
      needs: [KEEPS],
      wanted: versions.flatMap(({ dataset_id, name, version, source }) =>
        source === null
          ? []
          : [{ id: dataset_id, name, version, bytes: source.bytes, status: 'ok' as const }],
      ),
    },
    nodes,
    context,
  ).items;

/** Returns pinned nodes that are not chosen and hold versions that too few chosen nodes hold. */
const leavingOf = (
  { question: { pinned, versions }, nodes }: Planning,
  chosen: readonly NodeRecord[],
): NodeRecord[] =>
  nodes.filter(
    (node) =>
      pinned.has(node.id) &&
      !chosen.includes(node) &&
      node.deleting_at === null &&
      versions.every((v) => holds(node, v)),
  );

// ── copies in progress ───────────────────────────────────────────────────────────────────────────

const isOf = (
  { node_id, payload: { dataset } }: TaskRecord<'sync'>,
  nodeId: string,
  wanted: Pick<CopyVersion, 'dataset_id'> & { version: number | null },
): boolean =>
  node_id === nodeId &&
  dataset.dataset_id === wanted.dataset_id &&
  dataset.version === wanted.version;

/** Returns whether the node copies the version, or copied it so recently that it reports it soon. */
const isSettling = (
  syncs: Syncs,
  nodeId: string,
  wanted: Pick<CopyVersion, 'dataset_id'> & { version: number | null },
  now: number,
): boolean =>
  syncs.some(
    (task) =>
      isOf(task, nodeId, wanted) &&
      (task.finished_at === null ||
        (task.status === 'completed' && now - task.finished_at < SETTLE_MS)),
  );

function failuresOf({ versions, syncs }: CopiesQuestion, now: number): Map<string, string> {
  const failures = new Map<string, string>();
  for (const task of syncs) {
    if (task.finished_at === null || task.status === 'completed') continue;
    if (now - task.finished_at >= RETRY_MS) continue;
    const version = versions.find((v) => isOf(task, task.node_id, v));
    if (version === undefined) continue;
    failures.set(task.node_id, `the copy of ${textOf(version)} failed: ${reasonOf(task)}`);
  }
  return failures;
}

function reasonOf({ report, status }: TaskRecord<'sync'>): string {
  const result = report?.result;
  if (typeof result === 'string') return result;
  const error = result?.error;
  return error === undefined ? `the task is ${status}` : `${error.code}: ${error.message}`;
}

// ── answers ──────────────────────────────────────────────────────────────────────────────────────

function nodeView(
  { question, context, failures }: Planning,
  node: NodeRecord,
  missing: readonly CopyVersion[],
  isLeaving: boolean,
): DataCopies['nodes'][number] {
  const isCopying = missing.some((v) => isSettling(question.syncs, node.id, v, context.now));
  const runs = question.runsOn.includes(node.id);
  const problem = failures.get(node.id) ?? missing.find((v) => v.problem !== null)?.problem ?? null;
  const leaves = refusalOf(node, [], context.now, context.limits);
  return {
    node_id: node.id,
    node: node.hostname,
    state: isLeaving ? 'leaving' : stateOf(runs, missing.length, isCopying),
    missing: missing.map(textOf),
    detail: isLeaving && leaves !== null ? refusalText(leaves) : problem,
  };
}

function stateOf(runs: boolean, missing: number, isCopying: boolean): (typeof COPY_STATES)[number] {
  if (runs) return 'serving';
  if (missing === 0) return 'complete';
  return isCopying ? 'copying' : 'waiting';
}

/** Says why there are fewer complete copies than wanted. */
function whyNotMore(
  planning: Planning,
  chosen: readonly NodeRecord[],
  complete: readonly NodeRecord[],
): string {
  const { question, failures } = planning;
  const { wanted, versions } = question;
  const parts: string[] = [];
  const incomplete = chosen.filter((node) => !complete.includes(node));
  if (incomplete.length > 0) parts.push(`the copy on ${listOf(incomplete)} is not complete`);
  if (chosen.length < wanted) {
    const gone = versions.flatMap(({ problem }) => problem ?? []);
    const others = reasons(planning, chosen);
    parts.push(
      others.length === 0
        ? 'the platform has no further deploy node'
        : `no further node can keep a copy: ${listed(others)}`,
      ...gone,
    );
  }
  for (const node of incomplete) {
    const failure = failures.get(node.id);
    if (failure !== undefined) parts.push(failure);
  }
  return parts.join('; ');
}

const listOf = (nodes: readonly NodeRecord[]): string =>
  nodes.map(({ hostname }) => hostname).join(', ');

const listed = (all: readonly string[]): string =>
  all.length > MAX_NAMED
    ? `${all.slice(0, MAX_NAMED).join('; ')}; and ${all.length - MAX_NAMED} more`
    : all.join('; ');

/** Returns why each other deploy node is not chosen. */
function reasons(planning: Planning, chosen: readonly NodeRecord[]): string[] {
  const { question, nodes, context, failures } = planning;
  const rows = new Map(rowsOf(question, nodes, context).map((row) => [row.node_id, row.reason]));
  return nodes
    .filter((node) => node.role === 'deploy' && !chosen.includes(node))
    .toSorted(byName)
    .map((node) => {
      const lacking = question.versions.find((v) => v.source === null && !holds(node, v));
      const why =
        whyNotKeep(planning, node) ??
        failures.get(node.id) ??
        (lacking === undefined ? null : `lacks ${textOf(lacking)}`) ??
        rows.get(node.id) ??
        'is not needed';
      return `${node.hostname} ${why}`;
    });
}

// ── over all projects ────────────────────────────────────────────────────────────────────────────

/** Maximum number of copies at the same time, over all nodes: they share the network of the share. */
export const MAX_BACKGROUND_COPIES = 2;

/**
 * Returns the copies to start now. A node makes one copy at a time, and none while it works on a
 * deployment, because the copy would slow it down.
 */
export function copiesToStart<C extends { node_id: string }>(
  missing: readonly C[],
  syncs: Syncs,
  deploying: ReadonlySet<string>,
): C[] {
  const open = syncs.filter((t) => t.finished_at === null && t.payload.background === true);
  const busy = new Set([...open.map((t) => t.node_id), ...deploying]);
  let free = MAX_BACKGROUND_COPIES - open.length;
  const start: C[] = [];
  for (const copy of missing) {
    if (free <= 0) break;
    if (busy.has(copy.node_id)) continue;
    busy.add(copy.node_id);
    start.push(copy);
    free -= 1;
  }
  return start;
}

const keyOf = ({ project_id, node_id, dataset_id, version }: DatasetPin): string =>
  `${project_id} ${node_id} ${dataset_id} ${version}`;

/** Returns how the stored pins must change. */
export function changedPins(
  stored: readonly DatasetPin[],
  wanted: readonly DatasetPin[],
): { add: DatasetPin[]; remove: DatasetPin[] } {
  const [before, after] = [new Set(stored.map(keyOf)), new Set(wanted.map(keyOf))];
  return {
    add: wanted.filter((pin) => !before.has(keyOf(pin))),
    remove: stored.filter((pin) => !after.has(keyOf(pin))),
  };
}
