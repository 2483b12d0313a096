/**
 * Lists what needs a person, in the order of urgency: failed and unhealthy projects, certificates,
 * nodes, datasets.
 */
import type { DeploymentItem } from '@berth/wire/deployment';
import type { Client } from '@berth/wire/client';
import { errorSentence } from '@berth/wire/error-sentence';
import { projectsWithMovingPorts } from '@berth/wire/moving-ports';
import { bytes } from './output/units.ts';
import { allPages } from './project/pages.ts';

export type Attention = {
  kind:
    | 'failed'
    | 'unhealthy'
    | 'drifted'
    | 'unknown'
    | 'certificate'
    | 'node'
    | 'ports'
    | 'unmanaged'
    | 'engine'
    | 'disk'
    | 'quarantine'
    | 'dataset';
  subject: string;
  message: string;
  next: string;
};
export type Overview = {
  needs: Attention[];
  in_progress: { project: string; deployment_id: string; status: string; waiting: string | null }[];
  projects: number;
  live: number;
};

/**
 * A project whose newest deployment is older than this many deployments of the platform is not
 * searched for failures.
 */
const RECENT = 1_000;
/** Part of a disk that is free when it needs attention. */
const DISK_FULL = 0.1;
/** Projects of a silent node that are named. */
const NAMED = 3;

/**
 * A deployment builds the newest commit, so only changed settings ask for one. Another drift ends
 * with a new container of the same release.
 */
function nextOf({ health, rolled_back_from }: DeploymentItem, name: string): string {
  if (health?.status !== 'drifted') return `berth status ${name}`;
  const isOfSettings = health.detail?.includes(' changed since ') === true;
  if (!isOfSettings) return `berth restart ${name}`;
  return (rolled_back_from ?? null) === null ? `berth deploy ${name}` : `berth status ${name}`;
}

export async function overview(client: Client): Promise<Overview> {
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
  const nameOf = new Map(projects.map((p) => [p.id, p.name]));
  const name = (d: DeploymentItem): string => nameOf.get(d.project_id) ?? d.project_id;
  const newest = new Map<string, DeploymentItem>();
  for (const d of recent)
    if (nameOf.has(d.project_id) && !newest.has(d.project_id)) newest.set(d.project_id, d);

  /** Deletion with `--force` ends the routes at once, so the projects move first. */
  const movesFrom = (nodeId: string): string => {
    const here = running.filter((d) => d.node_id === nodeId);
    const commands = here
      .slice(0, NAMED)
      .map((d) => `berth rollback ${name(d)} --to ${d.generation}`);
    const more = here.length > NAMED ? `, the same for ${here.length - NAMED} more` : '';
    return here.length === 0 ? '' : `${commands.join(', ')}${more}, and then `;
  };

  const needs: Attention[] = [];
  const add = (kind: Attention['kind'], subject: string, message: string, next: string): void =>
    void needs.push({ kind, subject, message, next });
  for (const d of newest.values())
    if (d.status === 'failed')
      add(
        'failed',
        name(d),
        `deployment ${d.generation} failed: ${d.error?.code}: ` +
          errorSentence(d.error?.message ?? ''),
        `berth logs ${d.id} --build`,
      );
  for (const d of running) {
    const { health } = d;
    if (health !== null && health.status !== 'healthy')
      add(
        health.status,
        name(d),
        `${health.status}${health.detail === null ? '' : `: ${health.detail}`}`,
        nextOf(d, name(d)),
      );
  }
  for (const project of projects) {
    // A control plane of the previous version sends no certificate.
    const problem = project.certificate?.problem ?? null;
    if (problem !== null)
      add(
        'certificate',
        project.name,
        problem,
        'search the log of the reverse proxy for this host (journalctl -u berth-proxy)',
      );
  }
  for (const node of nodes) {
    const subject = `${node.role} ${node.hostname}`;
    if (node.status === 'offline')
      add(
        'node',
        subject,
        `offline; last seen ${node.last_seen_at}`,
        `start its agent; if it never comes back: ${movesFrom(node.id)}berth node delete ` +
          `${node.id} --force`,
      );
    if (node.doubled !== null)
      add(
        'node',
        subject,
        `another machine (${node.doubled.host_ip}) registers under its name and is refused`,
        'give one of the two another NODE_NAME; if the new machine replaces a dead one: berth ' +
          `node reset-secret ${node.id}`,
      );
    if (node.address_taken)
      add(
        'node',
        subject,
        `offline, and node ${node.address_taken.hostname} has its address ${node.host_ip}`,
        `if the machine of ${node.hostname} is gone: berth node delete ${node.id} --force, ` +
          'then deploy its projects again',
      );
    const moving = projectsWithMovingPorts(node.containers);
    if (moving.length > 0)
      add(
        'ports',
        subject,
        `${moving.length === 1 ? '1 project gets' : `${moving.length} projects get`} another ` +
          'port when the engine restarts, and their hosts may show each other for some seconds: ' +
          moving.join(', '),
        moving.length === 1
          ? `berth restart ${moving[0]}`
          : 'berth restart PROJECT for each of them',
      );
    for (const { container, project } of node.unmanaged ?? [])
      add(
        'unmanaged',
        subject,
        `only a person can remove the container ${container} of ${project}`,
        `docker rm -f ${container} on that machine, then berth node removed ${node.id} ` +
          container,
      );
    if (node.engine?.ok === false)
      add(
        'engine',
        subject,
        `the container engine does not answer: ${node.engine.error}`,
        'on that machine: journalctl -u docker -n 50, then systemctl restart docker',
      );
    const disk = node.status === 'online' ? (node.disk ?? null) : null;
    if (disk !== null && disk.total > 0 && disk.free / disk.total < DISK_FULL)
      add(
        'disk',
        subject,
        `its disk is nearly full: ${bytes(disk.free)} of ${bytes(disk.total)} are free`,
        `berth node disk ${node.id}, which shows what uses it`,
      );
    if ((node.quarantined ?? []).length > 0)
      add(
        'quarantine',
        subject,
        `containers of unknown deployments: ${node.quarantined?.join(', ')}`,
        'if nothing needs them, on that machine: docker rm -f CONTAINER for each',
      );
  }
  for (const dataset of datasets)
    if (dataset.status === 'suspicious' || dataset.status === 'unreachable')
      add(
        'dataset',
        dataset.name,
        `${dataset.status}: ${dataset.problem}`,
        dataset.status === 'suspicious'
          ? `bring the files back, or berth dataset scan ${dataset.name} --accept-loss`
          : 'mount the share again on the control plane and the nodes, then berth dataset scan ' +
              dataset.name,
      );
  return {
    needs,
    in_progress: [...newest.values()]
      .filter((d) => ['pending', 'building', 'built', 'deploying'].includes(d.status))
      .map((d) => ({
        project: name(d),
        deployment_id: d.id,
        status: d.status,
        waiting: d.waiting,
      })),
    projects: projects.length,
    live: projects.filter((p) => p.running_deployment_id !== null && !p.stopped).length,
  };
}
