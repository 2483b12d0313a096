/**
 * Decides where the volumes of a project are, for flow/deployment.ts (domain/volumes.ts has the states of a copy). Pure.
 */
import type { FailureCode } from '@berth/wire/errors';
import type { VolumeMounts } from '@berth/wire/volume';
import type { NodeFact } from '../domain/facts.ts';
import { isOnline } from '../domain/placement.ts';
import type { DeploymentRecord } from '../domain/records.ts';
import { bytesText } from '../domain/sizes.ts';
import type { VolumeCopy } from '../domain/volume-copy.ts';
import { copyText, currentCopy, volumeMounts } from '../domain/volumes.ts';
import type { Draft } from './draft.ts';

/** Returns the copy that must be where the deployment runs, or null if its volumes may begin on any node. */
export function pinOf(draft: Draft, { settings }: Pick<DeploymentRecord, 'settings'>): VolumeCopy | null {
  if (settings.volumes.length === 0) return null;
  const current = currentCopy(draft.volumes());
  // Without a name, no deployment has ever reported a container with this copy.
  return current === null || current.names.length === 0 ? null : current;
}

/** Returns why no node can take the deployment now, because of its volumes; null if their node can. */
export function volumesAway(draft: Draft, pin: VolumeCopy | null): { code: FailureCode; why: string; plain: string } | null {
  if (pin === null) return null;
  const { now, limits } = draft.facts;
  const what = copyText(pin, bytesText);
  const node = draft.node(pin.node_id);
  if (node === undefined) {
    const why = `${what}: that node was deleted. Berth starts the project with its data only: add the machine with its disk as a node again`;
    return { code: 'volume_unreachable', why, plain: why };
  }
  if (isOnline(node, now, limits)) return null;
  const plain = `${what}: that node is offline. The project waits for it, because it must not start with an empty volume`;
  return { code: 'volume_unreachable', why: `${plain} (offline since ${new Date(node.last_seen_at).toISOString()})`, plain };
}

/** Returns the volumes of a deploy task, and records the copy that a first deployment begins. */
export function mountVolumes(draft: Draft, d: DeploymentRecord, node: NodeFact): { volumes?: VolumeMounts } {
  const { project, now } = draft.facts;
  if (d.settings.volumes.length === 0) return {};
  const pin = pinOf(draft, d);
  if (pin !== null) return { volumes: volumeMounts(d.settings, pin) };
  const begun = currentCopy(draft.volumes());
  if (begun?.node_id === node.id) return { volumes: volumeMounts(d.settings, begun) };
  if (begun !== null) draft.putVolumes({ ...begun, state: 'left', changed_at: now });
  const copy: VolumeCopy = {
    id: draft.freshId(),
    project_id: project.id,
    project: project.name,
    node_id: node.id,
    hostname: node.hostname,
    state: 'current',
    names: [],
    bytes: null,
    source: null,
    created_at: now,
    changed_at: now,
  };
  draft.putVolumes(copy);
  return { volumes: volumeMounts(d.settings, copy) };
}

/** Records that a container with the volumes answered: from now on these volumes exist, and may never be created again. */
export function volumesMounted(draft: Draft, d: DeploymentRecord): void {
  const copy = currentCopy(draft.volumes());
  if (copy === null || copy.node_id !== d.node_id) return;
  const names = [...new Set([...copy.names, ...d.settings.volumes.map((v) => v.name)])];
  if (names.length > copy.names.length) draft.putVolumes({ ...copy, names, changed_at: draft.facts.now });
}
