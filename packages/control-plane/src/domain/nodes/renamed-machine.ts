/**
 * Recognizes a machine that returned as another node, because its hostname changed. The old node
 * never reports again; the reports of the new node (the heir) describe the machine. The proof is a
 * container id: an agent lists only containers that it started, and a container never moves to
 * another engine.
 *
 * The proof is valid only for the process that last registered as the old node, because another
 * machine can get the old name and address. A node with its own secret has no heir, because a
 * renamed machine would register with that secret. Pure.
 */
import type { ObservedContainer } from '@berth/wire/node';
import { LABELS } from '@berth/wire/vocabulary';
import type { EarlierNode, NodeRecord } from '../platform/records.ts';

/** Maximum number of previous nodes of a machine to keep; the oldest are dropped. */
const MOST_EARLIER = 16;

type Listed = Pick<NodeRecord, 'id' | 'boot_id' | 'containers'>;

/** Returns the node ids in the labels of these containers, except the id of this node. */
export function labelledNodes(
  nodeId: string | null,
  containers: readonly ObservedContainer[],
): string[] {
  const ids = new Set(containers.flatMap((c) => c.labels[LABELS.node] ?? []));
  if (nodeId !== null) ids.delete(nodeId);
  return [...ids].slice(0, MOST_EARLIER);
}

/** Adds the nodes of `others` whose last report shares a container with `containers`. */
export function withEarlier(
  known: readonly EarlierNode[],
  containers: readonly ObservedContainer[],
  others: readonly Listed[],
): readonly EarlierNode[] {
  const ids = new Set(containers.flatMap((c) => c.id ?? []));
  const successors = others.flatMap(({ id, boot_id, containers: listed }) => {
    const container = listed.find((c) => c.id !== undefined && ids.has(c.id))?.id;
    return container === undefined ? [] : [{ id, boot_id, container }];
  });
  const isNew = successors.some(
    (f) => !known.some((k) => k.id === f.id && k.boot_id === f.boot_id),
  );
  return isNew
    ? [...known.filter((k) => !successors.some((f) => f.id === k.id)), ...successors].slice(
        -MOST_EARLIER,
      )
    : known;
}

/**
 * Returns the node under which the machine reports now: `node` itself, unless `node` is silent and
 * its machine returned as another node. `offlineMs`: a node is silent after this time without a
 * report.
 */
export function presentNode<N extends NodeRecord>(
  node: N,
  nodes: readonly N[],
  offlineMs: number,
): N {
  const heir = heirOf(node, nodes, offlineMs);
  // The recursion ends, because the report of an heir is always newer.
  return heir === undefined ? node : presentNode(heir, nodes, offlineMs);
}

function heirOf<N extends NodeRecord>(
  node: NodeRecord,
  nodes: readonly N[],
  offlineMs: number,
): N | undefined {
  if (node.has_secret || node.agent_version === null) return undefined;
  const heirs = nodes.filter(
    (n) =>
      n.role === node.role &&
      n.agent_version !== null &&
      isSilentSince(node, n, offlineMs) &&
      proves(n, node),
  );
  return heirs.reduce<N | undefined>(
    (newest, n) => ((n.observed_at ?? 0) > (newest?.observed_at ?? 0) ? n : newest),
    undefined,
  );
}

const proves = (heir: NodeRecord, { id, boot_id, containers }: Listed): boolean =>
  heir.earlier_nodes.some(
    (e) => e.id === id && e.boot_id === boot_id && containers.some((c) => c.id === e.container),
  );

/** Compares both clocks, so that a jump of the machine's clock does not make a node silent. */
const isSilentSince = (node: NodeRecord, heir: NodeRecord, offlineMs: number): boolean =>
  heir.observed_at !== null &&
  heir.observed_at - (node.observed_at ?? 0) > offlineMs &&
  Math.abs(heir.last_seen_at - node.last_seen_at) > offlineMs &&
  Math.abs(heir.last_seen_at - (node.last_polled_at ?? 0)) > offlineMs;
