/** Formats a node, its disk and its volumes as text. */
import { projectsWithMovingPorts } from '@berth/wire/moving-ports';
import type { Node, NodeCommand, NodeDiskView, NodeFailoverAnswer } from '@berth/wire/node';
import type { NodeVolumes } from '@berth/wire/volume';
import { sizeText } from '@berth/wire/size-text';
import type { Cli } from '../cli.ts';
import { record } from '../output/text.ts';
import { ago } from '../output/units.ts';

export const nodeText = (cli: Cli, node: Node): string =>
  record([
    ['node', `${node.hostname} (${node.role}, ${node.id})`],
    ['status', statusText(cli, node)],
    ['address', node.host_ip],
    ['agent', node.agent_version ?? 'contract-only'],
    ['engine', engineText(node)],
    ['machine', machineText(node)],
    ['labels', labelsText(node)],
    ['devices', devicesText(node)],
    ['storage', `${sizeText(node.free_storage ?? 0)} free of ${sizeText(node.max_storage)}`],
    [
      'datasets',
      listText(
        node.cached,
        (c) => `${c.name ?? c.dataset_id} v${c.version} (${sizeText(c.bytes)})`,
      ),
    ],
    ['containers', String(node.containers.length)],
    ['commands', listText(node.commands, commandText)],
    ['doubled', doubledText(node)],
    ['address taken', addressTakenText(node)],
    ['moving ports', movingPortsText(node)],
    ['quarantined', listText(node.quarantined, (container) => container)],
    ['to remove', listText(node.unmanaged, (c) => `${c.container} (${c.project})`)],
    ['copying', listText(node.copying, (c) => `${c.name} v${c.version}: ${c.status}`)],
    ['failover', silentText(node)],
    ['drain', drainText(node)],
  ]);

/** Returns the items as text, or null if there are none, so that the record leaves out the line. */
const listText = <T>(
  items: readonly T[] | undefined,
  textOf: (item: T) => string,
): string | null =>
  items === undefined || items.length === 0 ? null : items.map(textOf).join(', ');

function statusText(cli: Cli, node: Node): string {
  const cordoned = node.schedulable ? '' : ', cordoned';
  const deleting = node.deleting ? ', being deleted' : '';
  return `${node.status}${cordoned}${deleting}; last seen ${ago(node.last_seen_at, cli.io.now())}`;
}

function engineText({ engine }: Node): string | null {
  if (engine === null) return null;
  return engine.ok ? (engine.version ?? 'answers') : `does not answer: ${engine.error}`;
}

/** `amd64, 16 CPUs, 64 GiB memory`; null if the agent reports none of it. */
function machineText({ arch, cpus, memory_bytes }: Node): string | null {
  const parts = [
    arch,
    cpus === null ? null : `${cpus} CPUs`,
    memory_bytes === null ? null : `${sizeText(memory_bytes)} memory`,
  ].filter((part) => part !== null);
  return parts.length === 0 ? null : parts.join(', ');
}

/** Marks the labels that an admin set. */
export const labelsText = ({ labels, admin_labels }: Node): string | null =>
  listText(
    Object.entries(labels),
    ([key, value]) => `${key}=${value}${Object.hasOwn(admin_labels, key) ? ' (admin)' : ''}`,
  );

const commandText = ({ project, run_id, deployment_id, timeout_seconds }: NodeCommand): string =>
  `${run_id === null ? `release command of deployment ${deployment_id}` : `run ${run_id}`} of ` +
  `${project}, at most ${timeout_seconds} s after its start (a drain waits for it)`;

const devicesText = ({ devices }: Node): string | null =>
  listText(Object.entries(devices), ([kind, names]) => `${kind} (${names.join(', ')})`);

const doubledText = ({ doubled }: Node): string | null =>
  doubled === null ? null : `${doubled.host_ip} registers under this name and is refused`;

const addressTakenText = ({ address_taken }: Node): string | null =>
  address_taken ? `node ${address_taken.hostname} is online at this address` : null;

function movingPortsText({ containers }: Node): string | null {
  const projects = projectsWithMovingPorts(containers);
  if (projects.length === 0) return null;
  return `${projects.length}, until berth restart PROJECT: ${projects.join(', ')}`;
}

function silentText({ failover }: Node): string | null {
  if (!failover) return null;
  const { silent_since, held, waiting } = failover;
  const why = held ? ', held because most nodes are silent' : '';
  return `silent since ${silent_since}${why}; ${waiting} of its instances wait`;
}

function drainText({ drain }: Node): string | null {
  if (drain === null || drain === undefined) return null;
  if (drain.finished_at !== null) return `done: ${drain.moved} moved`;
  const waiting = drain.left.map(({ project, problem }) =>
    problem === null ? project : `${project} (${problem})`,
  );
  return `${drain.moved} moved, ${waiting.length} left: ${waiting.join(', ')}`;
}

/** Returns what a failover moved, and what it leaves with the reason. */
export function failoverText({ node, moved, left }: NodeFailoverAnswer): string {
  const nameOf = ({ project, process, number }: (typeof moved | typeof left)[number]): string =>
    `${project} (${process} ${number})`;
  return [
    ...moved.map((one) =>
      one.to === null
        ? `${nameOf(one)} waits: no node can take it now`
        : `${nameOf(one)} starts on ${one.to}`,
    ),
    ...left.map((one) => `${nameOf(one)} stays on ${node}: ${one.why}`),
  ].join('\n');
}

export const evictedText = ({ kind, name }: { kind: string; name: string }): string =>
  kind === 'build_cache' ? name : `${kind} ${name}`;

type Budget = Pick<NodeDiskView, 'free_bytes' | 'budget_bytes'>;
export const budgetText = ({ free_bytes, budget_bytes }: Budget): string =>
  free_bytes < 0
    ? `${sizeText(-free_bytes)} more than ${sizeText(budget_bytes)} are used`
    : `${sizeText(free_bytes)} free of ${sizeText(budget_bytes)}`;

export const sizeOf = (size: number | null | undefined): string | null =>
  size === null || size === undefined ? null : sizeText(size);

export function volumeText(cli: Cli, volume: NodeDiskView['volumes'][number]): string {
  const { project, name } = volume;
  const kept = volume.kept_of_deleted ? ', kept, project deleted' : '';
  const size = sizeOf(volume.bytes) ?? 'not counted';
  return `${project}/${name} (${size})${kept}${missingText(cli, volume.missing_since)}`;
}

export function volumeStateText(cli: Cli, { state, missing_since }: NodeVolumes): string {
  const word = state === 'kept' ? 'kept, project deleted' : state.replace('_', ' ');
  return `${word}${missingText(cli, missing_since)}`;
}

const missingText = (cli: Cli, since: string | null | undefined): string =>
  (since ?? null) === null ? '' : `, missing (last seen ${ago(since ?? null, cli.io.now())})`;
