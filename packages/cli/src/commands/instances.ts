/** Commands for instances: scale, ps. */
import type { DeploymentItem } from '@berth/wire/deployment';
import type { InstanceItem } from '@berth/wire/instance';
import type { ProjectMetrics } from '@berth/wire/metrics';
import {
  isScaledToZero,
  MAX_COUNT,
  type Project,
  restsAtZero,
  restWord,
  type Scale,
} from '@berth/wire/project';
import { sizeText } from '@berth/wire/size-text';
import { defined } from '@berth/kit/defined';
import type { Cli } from '../cli.ts';
import { type Seen, seenBefore, waitForCounts } from '../deploy/scale.ts';
import { type Column, table } from '../output/text.ts';
import { ago } from '../output/units.ts';
import { allPages } from '../project/pages.ts';
import { howToStart } from '../project/rest.ts';
import { projectOrNone } from '../project/select.ts';
import { isAway, usage } from '../problem.ts';
import type { Command } from './command.ts';
import { finish as followDeployment } from './deploy.ts';
import { rowsOf } from './metrics.ts';

/** Age in ms from which a point does not count as present usage. */
const USAGE_MS = 5 * 60_000;
/** Maximum number of instances whose usage is read: each needs a request of its own. */
const MAX_USAGE = 20;

export const INSTANCE_COMMANDS: readonly Command[] = [
  {
    name: 'scale',
    summary: 'Set how many instances of a process run, at once and without a build',
    detail:
      'In a terminal, it waits until as many serve; exit code 1 and the reason if one of them ' +
      'waits for a node or fails. The count stays, and Berth continues to try. web=0 stops all of ' +
      'them: the address answers 503 until a later scale starts the release again. A project that ' +
      'a person stopped stays stopped; `berth start` takes the count.',
    args: [
      {
        name: 'process=count',
        doc: `a process and its count, such as web=3; at most ${MAX_COUNT}`,
        required: true,
        repeats: true,
      },
    ],
    options: [
      { flags: '--wait', doc: 'wait until as many instances serve (default in a terminal)' },
      { flags: '--no-wait', doc: 'do not wait (default elsewhere)' },
    ],
    aboutProject: true,
    routes: ['getProject', 'scaleProject', 'getDeployment', 'projectDeployments'],
    async run(cli, args, { wait }) {
      const counts = countsOf(args);
      const before = await cli.project();
      const waits = (wait as boolean | undefined) ?? cli.io.terminal.out;
      const seen = waits ? await seenBefore(cli, before) : null;
      const project = await cli
        .client()
        .call('scaleProject', { params: { id: before.id }, body: counts });
      await reportScale(cli, { project, before, counts }, seen);
    },
  },
  {
    name: 'ps',
    summary: 'List the instances of a project, or of all projects: node, state, version, usage',
    detail: `CPU, memory and restarts are read for the first ${MAX_USAGE} instances.`,
    args: [{ name: 'project', doc: 'name or id; default: the project of this folder, else all' }],
    options: [{ flags: '--all', doc: 'list the instances of all projects' }],
    aboutProject: true,
    routes: ['listInstances', 'projectMetrics', 'getProject'],
    async run(cli, [named], { all }) {
      const project = all === true ? null : await projectOrNone(cli, named);
      const rows = await allPages<InstanceItem>((cursor) =>
        cli.client().call('listInstances', {
          query: { limit: 200, ...defined({ project_id: project?.id }), ...cursor },
        }),
      );
      const usage = await usageOf(cli, rows);
      const items = rows.map((row) => ({ ...row, usage: usage.get(row.id) ?? null }));
      cli.print({ items }, () => psText(cli, items, project));
    },
  },
];

/** Reads `web=3`. A process that is given twice is an error, because one of the two would win. */
export function countsOf(args: readonly (string | undefined)[]): Scale {
  const counts: Scale = {};
  for (const arg of args.flatMap((given) => given ?? [])) {
    const [, process, number] = /^([^=]+)=(\d+)$/.exec(arg) ?? [];
    if (process === undefined || number === undefined)
      throw usage(`“${arg}” must be a process and its count, such as web=3`);
    if (Object.hasOwn(counts, process)) throw usage(`${process} is given twice`);
    counts[process] = Number(number);
  }
  return counts;
}

type Scaled = { project: Project; before: Project; counts: Scale };

/** `seen`: the instances before the scale; null: do not wait. */
async function reportScale(
  cli: Cli,
  { project, before, counts }: Scaled,
  seen: Seen | null,
): Promise<void> {
  const why = whyNothingStarts(project);
  const start = isScaledToZero(before) ? await startOf(cli, project) : null;
  for (const [process, count] of Object.entries(counts))
    cli.say(`${process}: ${count} (it was ${countIn(before, process)})`);
  if (start !== null) {
    cli.say(`${project.name} starts its release again: deployment ${start.generation}`);
    if (seen !== null) return followDeployment(cli, project, start, false);
  } else if (why !== null) cli.say(`${project.name} ${why}`);
  else if (seen !== null) await waitForCounts(cli, project, counts, seen);
  const hasWaited = seen !== null && why === null;
  cli.printLine(hasWaited ? { type: 'result', project: project.name, counts } : project, () =>
    resultText(project, counts, hasWaited),
  );
}

/** Returns the deployment that starts a project that was scaled to 0; null if there is none. */
async function startOf(cli: Cli, project: Project): Promise<DeploymentItem | null> {
  if (!project.stopped || project.stopped_by_person || isScaledToZero(project)) return null;
  const { items } = await cli.client().call('projectDeployments', {
    params: { id: project.id },
    query: { limit: 1 },
  });
  const [newest] = items;
  return newest === undefined || newest.finished_at !== null ? null : newest;
}

/** Returns why the counts have no effect yet; null if a version serves. */
function whyNothingStarts(project: Project): string | null {
  const { stopped, running_deployment_id } = project;
  if (stopped && restsAtZero(project)) return `is scaled to 0: ${project.url} answers 503`;
  if (stopped) return `is stopped: the counts take effect when it starts: ${howToStart(project)}`;
  return running_deployment_id === null
    ? 'has no running version: the counts take effect with its first deployment'
    : null;
}

const countIn = ({ processes }: Project, process: string): number =>
  processes.find(({ name }) => name === process)?.count ?? 1;

const resultText = ({ name }: Project, counts: Scale, serve: boolean): string =>
  Object.entries(counts)
    .map(([process, count]) => `${name} ${serve ? 'serves with' : 'wants'} ${process}=${count}`)
    .join('\n');

type Usage = { cpu: number | null; memory_bytes: number | null; restarts: number | null };
type Shown = InstanceItem & { usage: Usage | null };

/** Reads the newest usage of the first instances. A missing answer leaves the columns empty. */
export async function usageOf(
  cli: Pick<Cli, 'client'>,
  rows: readonly InstanceItem[],
): Promise<Map<string, Usage>> {
  const usageById = new Map<string, Usage>();
  await Promise.all(
    rows.slice(0, MAX_USAGE).map(async (row) => {
      const { project_id: id, process, number: instance } = row;
      const metrics = await cli
        .client()
        .call('projectMetrics', { params: { id }, query: { process, instance } })
        .catch((error: unknown) => {
          if (isAway(error)) throw error;
          return null;
        });
      const usage = metrics === null ? null : newestOf(metrics, row);
      if (usage !== null) usageById.set(row.id, usage);
    }),
  );
  return usageById;
}

/** Returns the usage of the last minutes; null without a point of that time. */
export function newestOf(
  { points, to }: Pick<ProjectMetrics, 'points' | 'to'>,
  { deployment_id }: Pick<InstanceItem, 'deployment_id'>,
): Usage | null {
  const last = rowsOf(
    points.filter(
      (point) =>
        point.deployment_id === deployment_id && Date.parse(to) - Date.parse(point.at) < USAGE_MS,
    ),
    2,
  ).at(-1);
  if (last === undefined) return null;
  const { memory_bytes, restarts } = last.point;
  return { cpu: last.cpu, memory_bytes, restarts };
}

function psText(cli: Cli, items: readonly Shown[], project: Project | null): string {
  if (items.length === 0)
    return project === null
      ? 'no instances run'
      : `no instance of ${project.name} runs${project.stopped ? `: it is ${restWord(project)}` : ''}`;
  const dash = (value: string | null | undefined): string => value ?? '–';
  const columns: Column<Shown>[] = [
    { head: 'PROCESS', of: (row) => row.process },
    { head: 'NUMBER', of: (row) => String(row.number) },
    { head: 'NODE', of: (row) => dash(row.node_name) },
    { head: 'STATE', of: (row) => row.state },
    { head: 'SINCE', of: (row) => ago(row.since, cli.io.now()) },
    { head: 'VERSION', of: versionText },
    {
      head: 'CPU',
      of: ({ usage }) =>
        typeof usage?.cpu === 'number' ? `${(usage.cpu * 100).toFixed(1)} %` : '–',
    },
    {
      head: 'MEMORY',
      of: ({ usage }) =>
        typeof usage?.memory_bytes === 'number' ? sizeText(usage.memory_bytes) : '–',
    },
    { head: 'RESTARTS', of: ({ usage }) => dash(usage?.restarts?.toString()) },
    { head: 'WHY', of: (row) => row.detail ?? '' },
  ];
  return table(items, [
    ...(project === null ? [{ head: 'PROJECT', of: (row: Shown) => row.project }] : []),
    ...columns.filter(({ head }) => head !== 'WHY' || items.some(({ detail }) => detail !== null)),
  ]);
}

/** Formats the number of the deployment and its commit: `14 (3f2a91c4)`. */
const versionText = ({ generation, commit }: InstanceItem): string =>
  commit === null ? String(generation) : `${generation} (${commit.slice(0, 8)})`;
