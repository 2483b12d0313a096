/**
 * What agents see decides where routes point and what is left over. Pure; the handlers of `observed` in flow/deployment.ts.
 * A container is wanted on a node only where its deployment stands; anything else of ours is removed, anything unknown is left alone.
 */
import type { DeploymentRecord } from '../domain/records.ts';
import { type Draft, knowsMoreThanContract } from './draft.ts';
import type { EventOf } from './events.ts';
import { createRetireTask, finalName } from './tasks.ts';

/** Health, port and name of a deployment that is live or about to be. */
export function observed(draft: Draft, d: DeploymentRecord, event: EventOf<'observed'>): void {
  if (event.node_id !== d.node_id) return sweep(draft, d, event);
  // Until it was reported the deploy task speaks for it.
  if (d.host_port === null || d.route_published_at === null) return;
  const { container } = event;
  if (container === null) return setHealth(draft, d, 'unhealthy', 'its container is gone');
  if (container.state !== 'running') return setHealth(draft, d, 'unhealthy', `its container is ${container.state}`);
  if (container.host_port !== null && container.host_port !== d.host_port) movePort(draft, d, container.host_port);
  setHealth(draft, d, 'healthy', null);
  // The name passes on with the retire task; where that one was lost, here.
  const retiring = draft.facts.tasks.some((t) => t.kind === 'retire' && t.node_id === d.node_id);
  if (d.status === 'running' && !retiring && container.name !== finalName(d.settings))
    createRetireTask(draft, draft.node(d.node_id), { of: d, remove: [], keep: d, drain: false });
}

/** A published port changes when a container or the engine restarts (ARCHITECTURE.md): the route follows what was seen. */
function movePort(draft: Draft, d: DeploymentRecord, host_port: number): void {
  draft.set(d, { host_port });
  draft.say(d, 'port_changed', `its container’s port is now ${host_port} (was ${d.host_port}); the route follows`);
  const { route } = draft.facts;
  if (route?.deployment_id === d.id) draft.plan.route = { set: { ...route, host_port } };
}

function setHealth(draft: Draft, d: DeploymentRecord, status: 'healthy' | 'unhealthy', detail: string | null): void {
  if (d.status !== 'running' || (d.health?.status === status && d.health.detail === detail)) return;
  draft.set(d, { health: { status, since: draft.facts.now, detail } });
  draft.say(d, 'health', detail === null ? 'healthy again' : `${status}: ${detail}`);
}

/** Removes a container that is not wanted where it was seen: its deployment is over, or stands elsewhere. */
export function sweep(draft: Draft, d: DeploymentRecord, event: EventOf<'observed'>): void {
  const node = draft.node(event.node_id);
  if (event.container === null || !knowsMoreThanContract(node)) return;
  const busy = draft.facts.tasks.some(
    (t) =>
      t.node_id === event.node_id &&
      ((t.kind === 'deploy' && t.deployment_id === d.id) ||
        (t.kind === 'retire' && 'remove' in t.payload && t.payload.remove.some((r) => r.deployment_id === d.id))),
  );
  if (busy) return;
  createRetireTask(draft, node, {
    of: d,
    remove: [
      { deployment: d, reason: d.node_id === event.node_id ? `its deployment is ${d.status}` : 'its deployment stands on another node' },
    ],
    keep: null,
    drain: false,
  });
}
