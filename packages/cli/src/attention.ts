/**
 * Lists problems that need a person, the most urgent first: failed and unhealthy projects,
 * certificates, nodes, datasets.
 */
import type { Client } from '@berth/wire/client';
import type { Dataset } from '@berth/wire/dataset';
import type { DeploymentItem } from '@berth/wire/deployment';
import { errorSentence } from '@berth/wire/error-sentence';
import { projectsWithMovingPorts } from '@berth/wire/moving-ports';
import type { Node } from '@berth/wire/node';
import type { Project } from '@berth/wire/project';
import { sizeText } from '@berth/wire/size-text';
import { allPages } from './project/pages.ts';

export type Attention = {
  kind:
    | 'failed'
    | 'unhealthy'
    | 'drifted'
    | 'degraded'
    | 'unknown'
    | 'certificate'
    | 'node'
    | 'failover'
    | 'ports'
    | 'unmanaged'
    | 'engine'
    | 'disk'
    | 'quarantine'
    | 'dataset';
  subject: string;
  message: string;
  /** The command or action that solves the problem. */
  next: string;
};
export type Overview = {
  needs: Attention[];
  in_progress: { project: string; deployment_id: string; status: string; waiting: string | null }[];
  projects: number;
  live: number;
};

/** Number of the platform's newest deployments that are searched for failures. */
const RECENT = 1_000;
/** Share of a disk below which its free space needs attention. */
const DISK_FULL = 0.1;
/** Maximum number of projects with a command on an offline node; the others are counted. */
const MAX_COMMANDS = 3;

const IN_PROGRESS: readonly string[] = ['pending', 'building', 'built', 'deploying'];

export async function overview(client: Client): Promise<Overview> {
  const platform = await readPlatform(client);
  const { projects, newest, nameOf } = platform;
  return {
    needs: needsOf(platform),
    in_progress: newest
      .filter(({ status }) => IN_PROGRESS.includes(status))
      .map((deployment) => ({
        project: nameOf(deployment),
        deployment_id: deployment.id,
        status: deployment.status,
        waiting: deployment.waiting,
      })),
    projects: projects.length,
    live: projects.filter((p) => p.running_deployment_id !== null && !p.stopped).length,
  };
}

type Platform = {
  projects: readonly Project[];
  nodes: readonly Node[];
  datasets: readonly Dataset[];
  running: readonly DeploymentItem[];
  /** The newest deployment of each project. */
  newest: readonly DeploymentItem[];
  /** Returns the name of a deployment's project. */
  nameOf: (deployment: DeploymentItem) => string;
};

async function readPlatform(client: Client): Promise<Platform> {
  const page = { limit: 200 };
  const [projects, recent, running, nodes, datasets] = await Promise.all([
    allPages((cursor) => client.call('listProjects', { query: { ...page, ...cursor } })),
    allPages<DeploymentItem>(
      (cursor) => client.call('listDeployments', { query: { ...page, ...cursor } }),
      RECENT,
    ),
    allPages<DeploymentItem>((cursor) =>
      client.call('listDeployments', { query: { ...page, status: 'running', ...cursor } }),
    ),
    allPages((cursor) => client.call('listNodes', { query: { ...page, ...cursor } })),
    allPages((cursor) => client.call('listDatasets', { query: { ...page, ...cursor } })),
  ]);
  const names = new Map(projects.map(({ id, name }) => [id, name]));
  const newest = new Map<string, DeploymentItem>();
  for (const deployment of recent)
    if (names.has(deployment.project_id) && !newest.has(deployment.project_id))
      newest.set(deployment.project_id, deployment);
  return {
    projects,
    nodes,
    datasets,
    running,
    newest: [...newest.values()],
    nameOf: ({ project_id }) => names.get(project_id) ?? project_id,
  };
}

const needsOf = (platform: Platform): Attention[] => [
  ...platform.newest.flatMap((deployment) => failureNeeds(deployment, platform)),
  ...platform.running.flatMap((deployment) => healthNeeds(deployment, platform)),
  ...platform.projects.flatMap(certificateNeeds),
  ...platform.nodes.flatMap((node) => nodeNeeds(node, platform)),
  ...platform.datasets.flatMap(datasetNeeds),
];

function failureNeeds(deployment: DeploymentItem, { nameOf }: Platform): Attention[] {
  const { id, status, generation, error } = deployment;
  if (status !== 'failed') return [];
  const reason = `${error?.code}: ${errorSentence(error?.message ?? '')}`;
  return [
    {
      kind: 'failed',
      subject: nameOf(deployment),
      message: `deployment ${generation} failed: ${reason}`,
      next: `berth logs ${id} --build`,
    },
  ];
}

function healthNeeds(deployment: DeploymentItem, { nameOf }: Platform): Attention[] {
  const { health } = deployment;
  if (health === null || health.status === 'healthy') return [];
  const name = nameOf(deployment);
  return [
    {
      kind: health.status,
      subject: name,
      message: health.detail === null ? health.status : `${health.status}: ${health.detail}`,
      next: nextOfHealth(deployment, name),
    },
  ];
}

/**
 * Returns the next command for an unhealthy deployment. A new deployment builds the newest commit,
 * so only changed settings suggest one. For other drift, a restart replaces the container with one
 * of the same release.
 */
function nextOfHealth({ health, rolled_back_from }: DeploymentItem, name: string): string {
  const see = `berth status ${name}`;
  if (health?.status !== 'drifted') return see;
  if (health.cause === 'container_differs') return `berth restart ${name}`;
  // A control plane of an earlier version sends no cause.
  if (health.cause !== 'settings_changed') return see;
  return (rolled_back_from ?? null) === null ? `berth deploy ${name}` : see;
}

/** A control plane of the previous version does not send `certificate`. */
function certificateNeeds({ name, certificate }: Project): Attention[] {
  const problem = certificate?.problem ?? null;
  if (problem === null) return [];
  return [
    {
      kind: 'certificate',
      subject: name,
      message: problem,
      next: 'search the log of the reverse proxy for this host (journalctl -u berth-proxy)',
    },
  ];
}

/** One problem of a node, or undefined if the node does not have this problem. */
type NodeNeed = Omit<Attention, 'subject'> | undefined;

function nodeNeeds(node: Node, platform: Platform): Attention[] {
  const needs: NodeNeed[] = [
    failoverNeed(node),
    offlineNeed(node, platform),
    doubledNeed(node),
    addressTakenNeed(node),
    movingPortsNeed(node),
    ...(node.unmanaged ?? []).map((container) => unmanagedNeed(node, container)),
    engineNeed(node),
    diskNeed(node),
    quarantineNeed(node),
  ];
  const subject = `${node.role} ${node.hostname}`;
  return needs
    .filter((need) => need !== undefined)
    .map(({ kind, message, next }) => ({ kind, subject, message, next }));
}

function offlineNeed(node: Node, platform: Platform): NodeNeed {
  if (node.status !== 'offline') return undefined;
  const remove = `${movesFrom(node, platform)}berth node delete ${node.id} --force`;
  return {
    kind: 'node',
    message: `offline; last seen ${node.last_seen_at}`,
    next: `start its agent; if it never comes back: ${remove}`,
  };
}

/**
 * Returns the commands that move the projects off a node. Deletion with `--force` removes the
 * routes at once, so the projects must move first.
 */
function movesFrom(node: Node, { running, nameOf }: Platform): string {
  const here = running.filter(({ node_id }) => node_id === node.id);
  if (here.length === 0) return '';
  const commands = here
    .slice(0, MAX_COMMANDS)
    .map((deployment) => `berth rollback ${nameOf(deployment)} --to ${deployment.generation}`);
  const uncounted = here.length - MAX_COMMANDS;
  const more = uncounted > 0 ? `, the same for ${uncounted} more` : '';
  return `${commands.join(', ')}${more}, and then `;
}

/** The brake holds the node: most nodes are silent, so nothing moves by itself. */
function failoverNeed({ hostname, failover }: Node): NodeNeed {
  if (!failover?.held || failover.waiting === 0) return undefined;
  const { silent_nodes, nodes, waiting } = failover;
  return {
    kind: 'failover',
    message:
      `silent, with ${silent_nodes} of ${nodes} nodes: is the network down? Nothing moves; ` +
      `${waiting} ${waiting === 1 ? 'instance waits' : 'instances wait'}`,
    next: `check the network; if the machine is gone: berth failover ${hostname} --now`,
  };
}

function doubledNeed({ id, doubled }: Node): NodeNeed {
  if (doubled === null) return undefined;
  return {
    kind: 'node',
    message: `another machine (${doubled.host_ip}) registers under its name and is refused`,
    next:
      'give one of the two another NODE_NAME; ' +
      `if the new machine replaces a dead one: berth node reset-secret ${id}`,
  };
}

function addressTakenNeed({ id, hostname, host_ip, address_taken }: Node): NodeNeed {
  if (!address_taken) return undefined;
  return {
    kind: 'node',
    message: `offline, and node ${address_taken.hostname} has its address ${host_ip}`,
    next:
      `if the machine of ${hostname} is gone: berth node delete ${id} --force, ` +
      'then deploy its projects again',
  };
}

function movingPortsNeed({ containers }: Node): NodeNeed {
  const moving = projectsWithMovingPorts(containers);
  if (moving.length === 0) return undefined;
  const who = moving.length === 1 ? '1 project gets' : `${moving.length} projects get`;
  return {
    kind: 'ports',
    message:
      `${who} another port when the engine restarts, ` +
      `and their hosts may show each other for some seconds: ${moving.join(', ')}`,
    next:
      moving.length === 1 ? `berth restart ${moving[0]}` : 'berth restart PROJECT for each of them',
  };
}

function unmanagedNeed(
  node: Node,
  { container, project }: NonNullable<Node['unmanaged']>[number],
): NodeNeed {
  return {
    kind: 'unmanaged',
    message: `only a person can remove the container ${container} of ${project}`,
    next:
      `docker rm -f ${container} on that machine, ` +
      `then berth node removed ${node.id} ${container}`,
  };
}

function engineNeed({ engine }: Node): NodeNeed {
  if (engine?.ok !== false) return undefined;
  return {
    kind: 'engine',
    message: `the container engine does not answer: ${engine.error}`,
    next: 'on that machine: journalctl -u docker -n 50, then systemctl restart docker',
  };
}

function diskNeed({ id, status, disk }: Node): NodeNeed {
  if (status !== 'online' || !disk || disk.total <= 0) return undefined;
  if (disk.free / disk.total >= DISK_FULL) return undefined;
  return {
    kind: 'disk',
    message: `its disk is nearly full: ${sizeText(disk.free)} of ${sizeText(disk.total)} are free`,
    next: `berth node disk ${id}, which shows what uses it`,
  };
}

function quarantineNeed({ quarantined = [] }: Node): NodeNeed {
  if (quarantined.length === 0) return undefined;
  return {
    kind: 'quarantine',
    message: `containers of unknown deployments: ${quarantined.join(', ')}`,
    next: 'if nothing needs them, on that machine: docker rm -f CONTAINER for each',
  };
}

function datasetNeeds({ name, status, problem }: Dataset): Attention[] {
  if (status !== 'suspicious' && status !== 'unreachable') return [];
  const scan = `berth dataset scan ${name}`;
  return [
    {
      kind: 'dataset',
      subject: name,
      message: `${status}: ${problem}`,
      next:
        status === 'suspicious'
          ? `bring the files back, or ${scan} --accept-loss`
          : `mount the share again on the control plane and the nodes, then ${scan}`,
    },
  ];
}
