/**
 * Creates the first container of a running version again after somebody removed it, for example with
 * `docker rm -f`. A further instance without a container starts on any node
 * (flow/observed-instance.ts); the first one starts on its own node, where its data is.
 *
 *   missing in a list ──still missing 10 s later──▶ a deploy task (flow/creation.ts)
 *     it answers ──▶ it serves again; removed again within 10 minutes ──▶ the next try waits longer
 *     it fails ──▶ the next list of the node tries again (flow/retry.ts)
 *
 * While another instance can take over, that one becomes the first instead. Pure.
 */
import { isTerminal, LABELS } from '@berth/wire/vocabulary';
import { currentCopy } from '../domain/data/volumes.ts';
import type { NodeFact } from '../domain/deployments/facts.ts';
import { replacementOf } from '../domain/deployments/instance.ts';
import { plainWaitText } from '../domain/deployments/wait-reason.ts';
import { WEB } from '@berth/wire/project';
import type { DeploymentRecord } from '../domain/platform/records.ts';
import { cannotCreate, createAgain } from './creation.ts';
import type { EventOf } from './events.ts';
import { isFirstLost, presentOf } from './instance-route.ts';
import { isHeldBack } from './instances.ts';
import { isLongMissing } from './observe.ts';
import { type Draft, isBerthAgent } from './plan-draft.ts';
import { isStoppedContainer, observedAt, ofProject } from './reported-containers.ts';
import { mayTry } from './retry.ts';
import { hasOpenWork, whyNotRestart } from './single-writer.ts';
import { isProjectStopped } from './stop.ts';

/** Creates the container again if it has been missing for a while and nothing else replaces it. */
export function createMissing(draft: Draft, d: DeploymentRecord, event: EventOf<'observed'>): void {
  const home = draft.node(d.node_id);
  if (event.container !== null || home === undefined || home.id !== event.node_id) return;
  if (!isLongMissing(draft, d) || !isOurs(draft, d, home) || !mayTry(draft, d)) return;
  const why = whyNot(draft, d, home);
  if (why !== null) return cannotCreate(draft, d, why);
  createAgain(draft, d, home);
}

/** Returns whether this version should have its container on the node, and the list is new. */
function isOurs(draft: Draft, d: DeploymentRecord, home: NodeFact): boolean {
  const { project, live, endedWork } = draft.facts;
  if (project.deleting_at !== null || isProjectStopped(draft)) return false;
  if (!isBerthAgent(home) || isFirstLost(d) || isHeldBack(draft, d)) return false;
  // A newer version is about to go live. If it fails, the next list decides.
  if (live.some(({ status }) => status === 'deploying')) return false;
  if (presentOf(draft, d).node_id !== d.node_id || hasOpenWork(draft, home.id)) return false;
  const first = { id: null, process: WEB, number: d.instance_number };
  if (replacementOf(first, draft.instances(d))?.state === 'starting') return false;
  const claimedAt = endedWork.find(({ node_id }) => node_id === home.id)?.claimed_at ?? null;
  return claimedAt === null || observedAt(draft, home) > claimedAt;
}

/** Returns why the container must not start now, or null. */
function whyNot(draft: Draft, d: DeploymentRecord, home: NodeFact): string | null {
  const data = d.settings.volumes.length === 0 ? null : currentCopy(draft.volumes());
  if (data !== null && data.node_id !== home.id)
    return `its volumes are on ${data.hostname} now; deploy the project again`;
  const other = strangerOf(draft);
  if (other !== null)
    return `${other} belongs to another version of the project; remove it or deploy the project again`;
  const reason = whyNotRestart(draft, { old: d, home }, null);
  return reason === null ? null : plainWaitText(reason);
}

/**
 * Returns a container of the project that runs and belongs to no live version. After a restore of an
 * older database, it can be the version that people want.
 */
function strangerOf({ facts: { nodes, live, project } }: Draft): string | null {
  const ids = new Set<string>(live.filter((o) => !isTerminal(o.status)).map(({ id }) => id));
  for (const node of nodes)
    for (const c of ofProject(node, project.id))
      if (!isStoppedContainer(c) && !ids.has(c.labels[LABELS.deployment] ?? ''))
        return `${c.name} on ${node.hostname}`;
  return null;
}
