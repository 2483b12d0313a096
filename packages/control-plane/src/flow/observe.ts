/**
 * What agents see decides where routes point and what is left over. Pure; the handlers of `observed` in flow/deployment.ts.
 * A container is wanted on a node only where its deployment stands; anything else of ours is removed, anything unknown is left alone.
 */
import { type HealthState, isTerminal, LABELS } from '@berth/wire/vocabulary';
import type { Facts } from '../domain/facts.ts';
import { isOnline } from '../domain/placement.ts';
import type { DeploymentRecord, NodeRecord, ProjectRecord } from '../domain/records.ts';
import { type Draft, knowsMoreThanContract } from './draft.ts';
import type { EventOf } from './events.ts';
import { undeployedNames } from './release.ts';
import { mayTry } from './retry.ts';
import { isStoppedFirst } from './single-writer.ts';
import { createRetireTask, finalName, removes } from './tasks.ts';

/** Health, port and name of a deployment that is live or about to be. */
export function observed(draft: Draft, d: DeploymentRecord, event: EventOf<'observed'>): void {
  if (event.node_id !== d.node_id) return elsewhere(draft, d, event);
  // Until it was reported the deploy task speaks for it.
  if (d.host_port === null || d.route_published_at === null) return;
  const { container } = event;
  if (container?.state === 'running' && container.host_port !== null && container.host_port !== d.host_port)
    movePort(draft, d, container.host_port);
  // The name passes on with the retire task, until which it is no news.
  const retiring = draft.facts.tasks.some((t) => t.kind === 'retire' && t.node_id === d.node_id);
  const holder = holderOfName(draft.node(d.node_id), d);
  const { status, detail } = judge(d, container, { now: draft.facts.now, retiring, holder });
  if (d.status !== 'running' || (d.health?.status === status && d.health.detail === detail)) return;
  // Nor is it put right before that task has ended.
  if (retiring && status === 'healthy' && d.health?.status === 'drifted') return;
  draft.set(d, { health: { status, since: draft.facts.now, detail } });
  draft.say(d, 'health', detail === null ? 'healthy again: its container runs as it should' : `${status}: ${detail}`);
  // Where that task was lost, or what had the name is gone; not while somebody else has it.
  if (!retiring && container !== null && misnamed(d, container) && holder === null)
    createRetireTask(draft, draft.node(d.node_id), { of: d, remove: [], keep: d, drain: false });
}

/**
 * On a node where the deployment does not stand. Its own container is never a leftover: where its own node has it no more, the machine
 * was renamed, and deployment and route move with it. What was stopped first moves while it stands still: its new node is the one that
 * can start it again. A node with a secret of its own is spoken for by that secret alone.
 */
function elsewhere(draft: Draft, d: DeploymentRecord, event: EventOf<'observed'>): void {
  const { container } = event;
  if (container === null || d.container_id === null || container.id !== d.container_id) return sweep(draft, d, event);
  const [own, node] = [draft.node(d.node_id), draft.node(event.node_id)];
  const isServing = container.state === 'running' && container.host_port !== null;
  if (node === undefined || !(isServing || isStoppedFirst(d))) return;
  if (own !== undefined && (own.has_secret || stillHas(own, d.container_id, draft.facts))) return;
  const host_port = container.host_port ?? d.host_port;
  draft.set(d, { node_id: node.id, host_port });
  // Nobody is there to begin it under the old name.
  for (const t of draft.openTasks(d))
    if (t.node_id === d.node_id && t.attempt === 0) draft.task({ id: t.id, attempt: t.attempt, end: 'cancelled' });
  const { route } = draft.facts;
  if (route?.deployment_id === d.id && host_port !== null)
    draft.plan.route = { set: { ...route, node_id: node.id, host_ip: node.host_ip, host_port } };
  const from = own?.hostname ?? 'a node that is gone';
  draft.say(
    d,
    'node_changed',
    `its container is reported by ${node.hostname} (${node.host_ip}), and by ${from} no more; the route follows`,
  );
}

/** As far as is known: a node that is silent may only be so for a moment. */
const stillHas = (node: NodeRecord, containerId: string, { now, limits }: Facts): boolean =>
  isOnline(node, now, limits) && (node.observed_at === null || node.containers.some((c) => c.id === containerId));

type Container = NonNullable<EventOf<'observed'>['container']>;
type Judgement = { status: HealthState; detail: string | null };
type At = { now: number; retiring: boolean; holder: Container | null };
/** One that was started again a moment ago has not shown yet that it stays: a loop of crashes is not well in between. */
const STEADY_MS = 10_000;

/** What a deployment's container, as its node's agent saw it, says about the deployment's health; `detail` is null when all is well. */
export function judge(d: DeploymentRecord, container: Container | null, at: At): Judgement {
  if (container === null) return { status: 'unhealthy', detail: 'its container is gone from its node; deploy it again' };
  if (container.state !== 'running') return { status: 'unhealthy', detail: isStoppedFirst(d) ? d.waiting : whyDown(container) };
  const age = container.started_at === undefined || container.started_at === null ? null : at.now - Date.parse(container.started_at);
  if (d.health?.status === 'unhealthy' && age !== null && age >= 0 && age < STEADY_MS) return d.health;
  const differing = differences(d, container, at);
  return differing.length === 0 ? { status: 'healthy', detail: null } : { status: 'drifted', detail: differing.join('; ') };
}

function whyDown({ state, exit_code, out_of_memory }: Container): string {
  const ended = exit_code === undefined || exit_code === null ? '' : ` with exit code ${exit_code}`;
  const memory = out_of_memory === true ? ', killed for want of memory' : '';
  if (state === 'restarting') return `its container keeps ending${ended}${memory}; the engine starts it again and again`;
  if (state === 'exited' || state === 'dead') return `its container has ended${ended}${memory}`;
  return `its container is ${state}`;
}

const misnamed = (d: DeploymentRecord, container: Container): boolean => container.name !== finalName(d.settings);

/** What of the container is not what the deployment says. What an agent does not report does not differ. */
function differences(d: DeploymentRecord, container: Container, { retiring, holder }: At): string[] {
  const { image, labels, memory_bytes, cpus } = container;
  const wanted = d.image_digest ?? d.image_tag;
  const found: string[] = [];
  if (image !== undefined && wanted !== null && !image.endsWith(wanted) && image !== d.image_tag)
    found.push(`it runs the image ${image} instead of ${wanted}`);
  for (const [label, want] of [
    [LABELS.project, d.project_id],
    [LABELS.generation, String(d.generation)],
  ] as const)
    if (labels[label] !== undefined && labels[label] !== want) found.push(`its label ${label} is ${labels[label]} instead of ${want}`);
  if (memory_bytes !== undefined && memory_bytes !== d.settings.memory_bytes)
    found.push(`its memory limit is ${limit(memory_bytes, ' bytes')} instead of ${limit(d.settings.memory_bytes, ' bytes')}`);
  if (cpus !== undefined && Math.abs((cpus ?? 0) - (d.settings.cpus ?? 0)) > 1e-6)
    found.push(`its CPU limit is ${limit(cpus, '')} instead of ${limit(d.settings.cpus, '')}`);
  if (!retiring && misnamed(d, container)) {
    const taken = holder === null ? '' : `, the name of a container of deployment ${holder.labels[LABELS.deployment]}`;
    found.push(`its container is named ${container.name} instead of ${finalName(d.settings)}${taken}`);
  }
  return found;
}

/** Who else has the name `svc-{domain_prefix}` on the node, as far as its agent reports it; often one in quarantine. */
export const holderOfName = (node: Pick<NodeRecord, 'containers'> | undefined, d: DeploymentRecord): Container | null =>
  node?.containers.find((c) => c.name === finalName(d.settings) && c.labels[LABELS.deployment] !== d.id) ?? null;

const limit = (value: number | null, unit: string): string => (value === null ? 'none' : `${value}${unit}`);

/**
 * Stop-first, before its deploy task is given out: what runs there of the project and is of no deployment that is live (left
 * over, or in quarantine) is stopped too. Two writers at once are worse than a stop, and a stop is no deletion.
 */
export function sayStopped(draft: Draft, d: DeploymentRecord, node: Pick<NodeRecord, 'hostname' | 'containers'>): void {
  const { project, live } = draft.facts;
  const ids = new Set<string | undefined>(live.map((o) => o.id));
  const strangers = node.containers.filter(
    (c) => c.labels[LABELS.project] === project.id && c.state === 'running' && !ids.has(c.labels[LABELS.deployment]),
  );
  if (strangers.length === 0) return;
  const names = strangers.map((c) => c.name).join(', ');
  draft.say(d, 'stopped_first', `${names} on ${node.hostname}, of no deployment that is live, is stopped before this one starts, and kept`);
}

/** Settings of the project that were changed after the deployment was requested: what runs is not what is set. null: none. */
export function undeployedSettings(d: DeploymentRecord, project: ProjectRecord): string | null {
  const names = undeployedNames(d, project);
  return names.length === 0 ? null : `the project’s ${names.join(', ')} changed since; deploy it to make it so`;
}

/** A published port changes when a container or the engine restarts (ARCHITECTURE.md): the route follows what was seen. */
function movePort(draft: Draft, d: DeploymentRecord, host_port: number): void {
  draft.set(d, { host_port });
  draft.say(d, 'port_changed', `its container’s port is now ${host_port} (was ${d.host_port}); the route follows`);
  const { route } = draft.facts;
  if (route?.deployment_id === d.id) draft.plan.route = { set: { ...route, host_port } };
}

/** Removes a container that is not wanted where it was seen: its deployment is over, or stands elsewhere. */
export function sweep(draft: Draft, d: DeploymentRecord, event: EventOf<'observed'>): void {
  const node = draft.node(event.node_id);
  if (event.container === null || !knowsMoreThanContract(node) || !mayTry(draft, d)) return;
  const busy = draft.facts.tasks.some(
    (t) => t.node_id === event.node_id && ((t.kind === 'deploy' && t.deployment_id === d.id) || removes(t, d)),
  );
  if (busy) return;
  createRetireTask(draft, node, {
    of: d,
    remove: [
      {
        deployment: d,
        reason:
          d.node_id === event.node_id || isTerminal(d.status) ? `its deployment is ${d.status}` : 'its deployment stands on another node',
      },
    ],
    keep: null,
    drain: false,
  });
}
