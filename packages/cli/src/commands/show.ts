/** Formats resources as text for people. */
import type { DataCopies } from '@berth/wire/data-copies';
import type { Deployment } from '@berth/wire/deployment';
import { requiresLines } from '@berth/wire/machine';
import { type Project, PROJECT_DEFAULTS, restWord } from '@berth/wire/project';
import { sizeText } from '@berth/wire/size-text';
import type { Cli } from '../cli.ts';
import { stepsOf } from '../deploy/steps.ts';
import { instancesOf, instanceText } from '../output/instances.ts';
import { oneLine, record } from '../output/text.ts';
import { ago, seconds } from '../output/units.ts';

export function printDeployment(cli: Cli, d: Deployment): string {
  const now = cli.io.now();
  const head = record([
    ['deployment', `${d.generation} (${d.id})`],
    ['status', d.status],
    ['waiting', d.waiting],
    ['error', d.error === null ? null : `${d.error.code}: ${d.error.message}`],
    [
      'health',
      d.health === null
        ? null
        : `${d.health.status}${d.health.detail === null ? '' : `: ${d.health.detail}`}`,
    ],
    ['commit', d.commit === null ? null : `${d.commit} ${d.commit_message?.split('\n')[0] ?? ''}`],
    ['author', d.commit_author ?? null],
    ['branch', d.branch],
    ['rollback of', d.rollback_of],
    [
      'rolled back from',
      (d.rolled_back_from ?? null) === null ? null : `deployment ${d.rolled_back_from}`,
    ],
    [
      'requested',
      `${ago(d.created_at, now)} by ` +
        (d.created_by?.kind === 'hook'
          ? `a push (${d.created_by.name ?? 'hook'})`
          : `${d.created_by?.name ?? 'unknown'} (${d.trigger ?? 'unknown'})`),
    ],
    ['address', d.url],
    ['note', d.note],
    ['from file', configText(d)],
    [
      'data',
      d.datasets.length === 0
        ? null
        : d.datasets
            .map(
              (one) =>
                `${one.name} v${one.version ?? '–'}` +
                (one.moved_on ? ` (newest: v${one.current_version})` : ''),
            )
            .join(', '),
    ],
  ]);
  const steps = stepsOf({ deployment: d, old: null, drains: false }).map(
    (step) =>
      `  ${step.name.padEnd(6)} ${step.state.padEnd(8)} ` +
      `${seconds((step.endedAt ?? now) - step.startedAt).padStart(9)}  ${oneLine(step.detail)}`,
  );
  const instances = instancesOf(d).length < 2 ? [] : instancesOf(d).map(instanceText);
  const story = d.events.map((event) => `  ${event.at}  ${oneLine(event.message)}`);
  return [
    head,
    ...(instances.length === 0 ? [] : ['', 'instances', ...instances.map((text) => `  ${text}`)]),
    ...(steps.length === 0 ? [] : ['', 'steps', ...steps]),
    ...(story.length === 0 ? [] : ['', 'story', ...story]),
  ].join('\n');
}

/** Formats which settings come from berth.toml, or null. */
function configText({ config }: Pick<Deployment, 'config'>): string | null {
  if (config === null || config === undefined) return null;
  const at = config.commit === null ? '' : ` at ${config.commit.slice(0, 7)}`;
  return `${config.keys.join(', ')} (${config.file}${at})`;
}

const listOrNull = (items: readonly string[] | undefined, before = ''): string | null =>
  items === undefined || items.length === 0 ? null : `${before}${items.join(', ')}`;

const copiesText = ({ wanted, have, nodes, why }: DataCopies): string =>
  [
    `${have} of ${wanted}${nodes.length === 0 ? '' : ' on '}` +
      nodes.map(({ node, state }) => `${node} (${state})`).join(', '),
    ...(why === null ? [] : [why]),
  ].join('; ');

/** Formats the counts and how instances are placed; null for one instance as by default. */
function instancesText(project: Project): string | null {
  // A control plane of an earlier version does not send them.
  const { processes, spread, sticky, on_node_lost } = { ...PROJECT_DEFAULTS, ...project };
  const parts = [
    ...processes.filter(({ count = 1 }) => count !== 1).map((p) => `${p.name}=${p.count}`),
    ...(spread === 'nodes' ? [] : [`spread ${spread}`]),
    ...(sticky ? ['sticky'] : []),
    ...(on_node_lost === 'move' ? [] : [`on a lost node: ${on_node_lost}`]),
  ];
  return parts.length === 0 ? null : parts.join(', ');
}

/** Formats a project. Leaves out settings with default values, except the most important ones. */
export const printProject = (project: Project, copies: DataCopies | null = null): string =>
  record([
    ['name', project.name],
    ['id', project.id],
    ['address', project.url],
    ['repository', `${project.git_url} (${project.branch})`],
    ['dockerfile', project.dockerfile_path],
    ['context', project.build_context === '.' ? null : project.build_context],
    ['target', project.build_target],
    ['build args', listOrNull(project.build_arg_names)],
    ['submodules', project.submodules ? null : 'not fetched'],
    ['git lfs', project.git_lfs ? 'fetched' : null],
    [
      'push',
      project.deploy_on_push
        ? listOrNull(project.watch_paths, 'deploys changes of ')
        : 'does not deploy',
    ],
    ['port', String(project.container_port)],
    ['domains', listOrNull(project.domains)],
    ['login', project.auth_required ? 'required' : 'not required'],
    ['cors', listOrNull(project.cors_origins)],
    ['health path', project.health_path],
    ['start', project.start_seconds === null ? null : `${project.start_seconds} s to answer`],
    ['memory', project.memory_bytes === null ? null : sizeText(project.memory_bytes)],
    ['cpus', project.cpus === null ? null : String(project.cpus)],
    ['requires', listOrNull(requiresLines(project.requires))],
    [
      'replace',
      `${project.replace}, drain ${project.drain_seconds} s, stop ${project.stop_grace_seconds} s`,
    ],
    ['instances', instancesText(project)],
    ['from file', configText(project)],
    ['env', project.env_names.length === 0 ? null : project.env_names.join(', ')],
    [
      'volumes',
      project.volumes.length === 0
        ? null
        : project.volumes.map((v) => `${v.name} at ${v.mount_path}`).join(', '),
    ],
    [
      'datasets',
      project.datasets.length === 0
        ? null
        : project.datasets
            .map(
              (use) =>
                `${use.dataset_id} ` +
                `(${use.mode})${use.mount_path === undefined ? '' : ` at ${use.mount_path}`}`,
            )
            .join(', '),
    ],
    ['new data', project.datasets.length === 0 ? null : project.on_dataset_change],
    ['data copies', copies === null ? null : copiesText(copies)],
    ['running', project.stopped ? restWord(project) : (project.running_deployment_id ?? 'nothing')],
    ['deleting', project.deleting ? 'yes' : null],
  ]);
