/** Follows a deployment to its end on a terminal, in a pipe or as JSON lines. */
import { defined } from '@berth/kit/defined';
import type { Deployment } from '@berth/wire/deployment';
import { isSettled } from '@berth/wire/vocabulary';
import type { Cli } from '../cli.ts';
import { CliError, EXIT, isAway } from '../problem.ts';
import { oneLine } from '../output/text.ts';
import { seconds } from '../output/units.ts';
import { explain, printExplained } from './failure.ts';
import { createRenderer, type Renderer } from './render.ts';
import { type Seen, type Step, stepsOf } from './steps.ts';
import { watchDeployment } from './watch.ts';

/** Maximum time in ms without an answer of the control plane; then the command gives up. */
const AWAY_MS = 120_000;
/**
 * Extra time in ms, after the drain and grace times of the old version, for the agent to report.
 */
const DRAIN_SPARE_MS = 15_000;

export type Followed = {
  id: string;
  generation: number;
  project: string;
  oldId: string | null;
  drainMs: number;
  awayMs?: number;
};

/**
 * Returns when the deployment is running. Throws CliError: refused if the deployment failed,
 * interrupted on Ctrl-C, or unreachable.
 */
export async function follow(cli: Cli, followed: Followed): Promise<Deployment> {
  const { io } = cli;
  const renderer = cli.json ? jsonRenderer(cli, followed.id) : createRenderer(io);
  let seen: Seen | null = null;
  const onChange = (deployment: Deployment): void => {
    seen = { deployment, old: null, drains: false };
    renderer.show(stepsOf(seen));
  };
  try {
    const settled = await watchDeployment(cli, followed.id, {
      onChange,
      isDone: (d) => isSettled(d.status),
      note: (text) => renderer.note(text),
      awayMs: followed.awayMs ?? AWAY_MS,
      signal: io.interrupted,
    });
    if (settled.status !== 'running' && settled.status !== 'retired') {
      renderer.end();
      return await fail(cli, settled, followed.project);
    }
    const last = followed.oldId === null ? settled : await drain(cli, settled, followed, renderer);
    renderer.end();
    return last;
  } catch (error) {
    renderer.end();
    if (!io.interrupted.aborted) throw error;
    throw new CliError(
      EXIT.interrupted,
      'interrupted',
      `you pressed Ctrl-C; deployment ${followed.generation} continues without this command`,
      {
        next:
          `to cancel it: berth cancel ${followed.id}; to follow it again: berth deployment watch ` +
          followed.id,
      },
    );
  }
}

async function fail(cli: Cli, settled: Deployment, project: string): Promise<never> {
  const why = await explain(
    cli,
    settled,
    stepsOf({ deployment: settled, old: null, drains: false }),
    project,
  );
  if (!cli.json) printExplained(cli, settled, why);
  const message =
    `deployment ${settled.generation} ` +
    `${settled.status === 'failed' ? `failed at ${why.step}` : `was ${settled.status}`}: ` +
    why.message;
  throw new CliError(EXIT.refused, why.code, message, { next: why.next, shown: !cli.json });
}

/**
 * Shows how the old version drains. The new version is already live, so the command does not fail
 * if the control plane stops answering.
 */
async function drain(
  cli: Cli,
  live: Deployment,
  followed: Followed,
  renderer: Renderer,
): Promise<Deployment> {
  try {
    return await watchDrain(cli, live, followed, renderer);
  } catch (error) {
    if (!isAway(error)) throw error;
    renderer.note(
      `the control plane does not answer (${(error as Error).message}); the new version is ` +
        'live, and Berth continues',
    );
    return live;
  }
}

async function watchDrain(
  cli: Cli,
  live: Deployment,
  { oldId, drainMs }: Followed,
  renderer: Renderer,
): Promise<Deployment> {
  const { io } = cli;
  const until = io.monotonic() + drainMs + DRAIN_SPARE_MS;
  const old =
    oldId === null ? null : await cli.client().call('getDeployment', { params: { id: oldId } });
  const isElsewhere = old !== null && old.node_id !== live.node_id;
  let seen: Seen = { deployment: live, old: isElsewhere ? old : null, drains: true };
  for (;;) {
    const steps = stepsOf(seen);
    renderer.show(steps);
    if (steps.at(-1)?.state !== 'running') return seen.deployment;
    if (io.monotonic() > until) {
      renderer.note('the new version is live; Berth still removes the old version');
      return seen.deployment;
    }
    await io.sleep(500, io.interrupted);
    io.interrupted.throwIfAborted();
    seen = {
      ...seen,
      deployment: await cli.client().call('getDeployment', { params: { id: live.id } }),
      old:
        isElsewhere && oldId !== null
          ? await cli.client().call('getDeployment', { params: { id: oldId } })
          : null,
    };
  }
}

/** Prints one JSON object for each change of a step. */
function jsonRenderer(cli: Cli, id: string): Renderer {
  const shown = new Map<string, string>();
  const line = (data: object): void => cli.printLine(data, () => '');
  return {
    show(steps: readonly Step[]) {
      for (const { name, state, detail, startedAt, endedAt } of steps) {
        const text = JSON.stringify({ state, detail });
        if (shown.get(name) === text) continue;
        shown.set(name, text);
        line({
          type: 'step',
          deployment_id: id,
          step: name,
          state,
          detail: oneLine(detail),
          ...defined({ seconds: endedAt === null ? undefined : (endedAt - startedAt) / 1000 }),
        });
      }
    },
    note: (text) => line({ type: 'note', deployment_id: id, message: text }),
    end: () => undefined,
  };
}

/** Prints the result of a deployment that is live. */
export function printLive(cli: Cli, d: Deployment): void {
  const took =
    d.finished_at === null
      ? ''
      : ` after ${seconds(Date.parse(d.finished_at) - Date.parse(d.created_at))}`;
  cli.say(`deployment ${d.generation} is live${took}`);
  cli.printLine(
    {
      type: 'result',
      deployment_id: d.id,
      generation: d.generation,
      status: d.status,
      commit: d.commit,
      url: d.url,
    },
    () => d.url,
  );
}
