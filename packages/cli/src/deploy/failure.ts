/**
 * Explains a failed deployment: step, error code, sentence, last log lines, the version that still
 * serves, and the next command.
 */
import type { Cli } from '../cli.ts';
import type { Deployment } from '@berth/wire/deployment';
import { ApiError } from '@berth/wire/client';
import { type FailureCode, isFailureCode, NEXT_STEPS } from '@berth/wire/errors';
import { isAway } from '../problem.ts';
import { oneLine, safe } from '../output/text.ts';
import type { Step } from './steps.ts';
import { tailOf } from './log.ts';

const LINES = 20;

export type Explained = {
  step: string;
  code: string;
  message: string;
  lines: string[];
  serves: string;
  next: string;
};

/** Reads the log and the project. Leaves out a part that cannot be read. */
export async function explain(
  cli: Cli,
  d: Deployment,
  steps: readonly Step[],
  project: string,
): Promise<Explained> {
  const step =
    steps.findLast((one) => one.state === 'failed' || one.state === 'stopped')?.name ?? 'build';
  const [lines, serves] = await Promise.all([
    tailOf(cli, d.id, LINES).then(
      ({ lines }) => lines.map((line) => safe(line.text)),
      (error: unknown) => unreadable(error, []),
    ),
    whatServes(cli, d).catch((error: unknown) =>
      unreadable(error, 'the command could not find out which version serves requests'),
    ),
  ]);
  const message = d.error?.message ?? sentenceOf(d);
  return {
    step,
    code: d.error?.code ?? d.status,
    message,
    lines: withoutEnd(lines, message),
    serves,
    next: nextFor(d, project),
  };
}

/** Removes the failure message from the end of the log, because it is shown separately. */
function withoutEnd(lines: string[], message: string): string[] {
  const told = safe(message).split('\n');
  return lines.slice(-told.length).join('\n') === told.join('\n')
    ? lines.slice(0, -told.length)
    : lines;
}

function unreadable<T>(error: unknown, instead: T): T {
  if (isAway(error) || error instanceof ApiError) return instead;
  throw error;
}

const sentenceOf = (d: Deployment): string =>
  d.events.findLast((event) => event.kind === d.status)?.message ??
  `the deployment was ${d.status}`;

async function whatServes(cli: Cli, d: Deployment): Promise<string> {
  const project = await cli.client().call('getProject', { params: { id: d.project_id } });
  if (project.running_deployment_id === null)
    return 'nothing serves: no deployment of this project has gone live yet';
  const old = await cli
    .client()
    .call('getDeployment', { params: { id: project.running_deployment_id } });
  return (
    `deployment ${old.generation} (${old.commit?.slice(0, 8) ?? 'unknown commit'}) still ` +
    'serves at ' +
    old.url
  );
}

/** Error codes of failures that a new commit fixes. */
const IN_REPOSITORY = [
  'config_invalid',
  'dockerfile_missing',
  'dockerfile_outside',
  'build_step_failed',
  'build_failed',
  'build_frontend_refused',
  'build_image_refused',
  'container_exited',
  'container_not_listening',
  'container_wrong_port',
  'container_loopback_only',
  'health_check_failed',
  'image_health_check_failed',
  'probe_timeout',
] as const satisfies readonly FailureCode[];

function nextFor(d: Deployment, project: string): string {
  const code = d.error?.code ?? '';
  if (d.status === 'superseded') return 'berth status, to see the deployment that replaced it';
  if (d.status === 'cancelled') return 'berth status, to see what serves';
  if (code === 'container_wrong_port')
    return (
      `berth project edit ${project} --container-port PORT, or change the port in the ` +
      'application; then berth deploy'
    );
  if (code === 'git_unknown_branch')
    return `push the branch, or berth project edit ${project} --branch BRANCH; then berth deploy`;
  if ((IN_REPOSITORY as readonly string[]).includes(code))
    return 'correct it in the repository, push, then berth deploy';
  const step = isFailureCode(code)
    ? NEXT_STEPS[code]
    : `the action for “${code}” in docs/troubleshooting.md`;
  return `${step} (berth logs ${d.id} --build)`;
}

export function printExplained(cli: Cli, d: Deployment, why: Explained): void {
  const { paintErr: paint } = cli;
  const head =
    d.status === 'failed'
      ? `deployment ${d.generation} failed at ${why.step}: ${why.code}`
      : `deployment ${d.generation} was ${d.status}`;
  cli.tell(`\n${paint('red', head)}\n  ${oneLine(why.message)}`);
  if (why.lines.length > 0)
    cli.tell(
      `\n${paint('dim', `last ${why.lines.length} lines of the log:`)}\n` +
        why.lines.map((line) => `  ${line}`).join('\n'),
    );
  cli.tell(`\nserves: ${why.serves}\nnext:   ${why.next}`);
}
