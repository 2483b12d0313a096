/** Waits until as many instances serve as a scale asked for, and prints each change. */
import type { Deployment } from '@berth/wire/deployment';
import type { PlacedInstance } from '@berth/wire/instance';
import type { Project, Scale } from '@berth/wire/project';
import type { Cli } from '../cli.ts';
import { instanceText, isUp } from '../output/instances.ts';
import { CliError, EXIT, refused } from '../problem.ts';
import { watchDeployment } from './watch.ts';

/** Maximum time in ms without an answer of the control plane; then the command gives up. */
const AWAY_MS = 120_000;

/** Texts of instances by id, to print only changes. */
export type Seen = Map<string, string>;

/** Reads the instances before a scale. */
export async function seenBefore(cli: Cli, { running_deployment_id: id }: Project): Promise<Seen> {
  if (id === null) return new Map();
  const { instances } = await cli.client().call('getDeployment', { params: { id } });
  return new Map(instances.map((one) => [one.id, instanceText(one)]));
}

/**
 * Returns when the processes have as many serving instances as `counts` says. Throws CliError:
 * refused if an instance waits or fails, interrupted on Ctrl-C, or unreachable.
 */
export async function waitForCounts(
  cli: Cli,
  project: Project,
  counts: Scale,
  seen: Seen,
): Promise<void> {
  const { io } = cli;
  const note = (text: string): void =>
    cli.json ? cli.printLine({ type: 'note', message: text }, () => '') : cli.say(text);
  try {
    for (let id = project.running_deployment_id; id !== null; ) {
      const last = await watchDeployment(cli, id, {
        onChange: ({ instances }) => printChanges(cli, instances, seen),
        isDone: (d) => d.status !== 'running' || isSettled(d, counts),
        note,
        awayMs: AWAY_MS,
        signal: io.interrupted,
      });
      if (last.status === 'running') return throwIfMissing(last, counts, project.name);
      // A new version took over meanwhile. Watch it, because it has the same counts.
      const { running_deployment_id } = await cli
        .client()
        .call('getProject', { params: { id: project.id } });
      id = running_deployment_id === id ? null : running_deployment_id;
      seen.clear();
    }
    note('the project has no running version any more; its next deployment uses the counts');
  } catch (error) {
    if (!io.interrupted.aborted) throw error;
    throw new CliError(
      EXIT.interrupted,
      'interrupted',
      'you pressed Ctrl-C; Berth continues without this command',
      { next: `to look again: berth ps ${project.name}` },
    );
  }
}

const ofProcess = (instances: readonly PlacedInstance[], process: string): PlacedInstance[] =>
  instances.filter((one) => one.process === process && one.state !== 'draining');

const serving = (instances: readonly PlacedInstance[]): number => instances.filter(isUp).length;

/**
 * Returns the instances that do not serve. Leaves out a lost one that has a replacement, which has
 * the same number.
 */
const notServing = (instances: readonly PlacedInstance[]): PlacedInstance[] =>
  instances.filter(
    (one) =>
      !isUp(one) &&
      !(
        one.state === 'lost' &&
        instances.some((other) => other !== one && other.number === one.number)
      ),
  );

/**
 * Returns whether waiting longer can change nothing: all instances serve, or the others wait for a
 * node, are unhealthy or lost.
 */
function isSettled({ instances }: Deployment, counts: Scale): boolean {
  return Object.entries(counts).every(([process, count]) => {
    const own = ofProcess(instances, process);
    if (own.some(({ state }) => state === 'starting')) return false;
    const missing = notServing(own);
    return serving(own) + missing.length >= count && (missing.length > 0 || serving(own) === count);
  });
}

function throwIfMissing({ instances }: Deployment, counts: Scale, project: string): void {
  for (const [process, count] of Object.entries(counts)) {
    const own = ofProcess(instances, process);
    if (serving(own) >= count) continue;
    const reasons = notServing(own).map(instanceText);
    throw refused(
      'instances_missing',
      `${serving(own)} of ${count} instances of ${process} serve: ${reasons.join('; ')}`,
      `the count stays, and Berth continues to try; to see why: berth placement ${project} ` +
        '--instances',
    );
  }
}

function printChanges(cli: Cli, instances: readonly PlacedInstance[], seen: Seen): void {
  const present = new Set<string>();
  for (const one of instances) {
    const text = instanceText(one);
    present.add(one.id);
    if (seen.get(one.id) === text) continue;
    seen.set(one.id, text);
    printChange(cli, one, text);
  }
  for (const [id, text] of seen)
    if (!present.has(id)) {
      seen.delete(id);
      const [process, number] = text.split(' ');
      const gone = { process: process ?? '', number: Number(number), state: 'ended' as const };
      printChange(cli, { ...gone, node_name: null, detail: null }, `${process} ${number} ended`);
    }
}

type Change = Pick<PlacedInstance, 'process' | 'number' | 'state' | 'node_name' | 'detail'>;
function printChange(cli: Cli, change: Change, text: string): void {
  if (!cli.json) return cli.say(text);
  const { process, number, state, node_name, detail } = change;
  cli.printLine({ type: 'instance', process, number, state, node: node_name, detail }, () => '');
}
