/**
 * Task `run` of a simulated agent, as packages/agent/src/tasks/run.ts does it: a mark before the
 * start, the container of an earlier attempt, the time limit, and the removal after the accepted
 * report.
 */
import type { TaskReport } from '@berth/wire/task';
import type { TaskRecord } from '../../src/domain/platform/records.ts';
import { EngineError } from './engine-error.ts';
import type { Behaviour, CommandContainer, Commands } from './commands.ts';
import type { Random } from './random.ts';

type Stop = 'lost' | 'cancelled';
type Product = { report: TaskReport; discard: () => void; accepted?: () => void };
type CommandDeps = {
  commands: Commands;
  chance: Random;
  now: () => number;
  sleep: (ms: number) => Promise<void>;
  isOwn: (node: string) => boolean;
};

const POLL_MS = 500;
const ENGINE_AGAIN_MS = 2_000;

const product = (report: TaskReport, accepted?: () => void): Product => ({
  report,
  // Another attempt goes on with the container.
  discard() {},
  ...(accepted === undefined ? {} : { accepted }),
});
const failed = (code: string, accepted?: () => void): Product =>
  product({ status: 'failed', result: { error: { code, message: code } } }, accepted);

/** Most commands end in a few seconds; some fail, and some hang until their time limit. */
function behaviourOf(chance: Random): Behaviour {
  const what = chance.next();
  if (what < 0.1) return { ms: 10 * 60_000, exitCode: 0 };
  const ms = chance.chance(0.3) ? chance.int(8_000, 40_000) : chance.int(50, 6_000);
  return { ms, exitCode: what < 0.25 ? 3 : 0 };
}

export async function runCommand(
  deps: CommandDeps,
  run: { task: TaskRecord; stop: Stop | null },
): Promise<Product> {
  const { commands, chance, now, sleep, isOwn } = deps;
  const { payload, node_id } = run.task as TaskRecord<'run'>;
  const { run_id, timeout_seconds } = payload;
  // A later sweep removes a container that stays while the engine is away.
  const remove = (): void => {
    try {
      removeRun(deps, run_id);
    } catch (error) {
      if (!(error instanceof EngineError)) throw error;
    }
  };
  let id: string | null = null;
  for (const container of commands.list().filter((c) => c.run === run_id && isOwn(c.node))) {
    if (container.startedAt !== null) {
      id = container.id;
      continue;
    }
    commands.remove(container.id);
    commands.marks.delete(run_id);
  }
  if (id === null && commands.marks.has(run_id)) return failed('run_lost');
  if (id === null) {
    // Pulls the image.
    await sleep(chance.int(50, 2_000));
    if (run.stop !== null) return failed('cancelled');
    id = commands.create({
      run: run_id,
      project: payload.project_id,
      node: node_id,
      devices: payload.devices ?? [],
    });
    await sleep(chance.int(1, 100));
    commands.marks.add(run_id);
    await sleep(chance.int(1, 100));
    if (run.stop === 'cancelled') remove();
    if (run.stop !== null) return failed('cancelled');
    commands.start(id, behaviourOf(chance));
  }
  let isLate = false;
  for (;;) {
    if (run.stop === 'lost') return failed('cancelled');
    const container = find(commands, id);
    if (container === null) return failed('run_lost');
    if (container === 'unknown') {
      await sleep(ENGINE_AGAIN_MS);
      continue;
    }
    const { exitCode, startedAt } = container;
    if (exitCode !== null) {
      const isCancelled = (run.stop as Stop | null) === 'cancelled';
      if (isCancelled) remove();
      if (isCancelled) return failed('cancelled');
      if (isLate) return failed('command_timeout', remove);
      const result = { exit_code: exitCode, out_of_memory: false };
      return product({ status: 'completed', result } as unknown as TaskReport, remove);
    }
    const isOver = now() - (startedAt ?? now()) >= timeout_seconds * 1000;
    if (isOver) isLate = true;
    if (isOver || run.stop === 'cancelled') commands.stop(id);
    else await sleep(POLL_MS);
  }
}

function find(commands: Commands, id: string): CommandContainer | 'unknown' | null {
  try {
    return commands.list().find((c) => c.id === id) ?? null;
  } catch (error) {
    if (error instanceof EngineError) return 'unknown';
    throw error;
  }
}

function removeRun(
  { commands, isOwn }: Pick<CommandDeps, 'commands' | 'isOwn'>,
  run: string,
): void {
  for (const c of commands.list()) if (c.run === run && isOwn(c.node)) commands.remove(c.id);
  commands.marks.delete(run);
}

/** Removes what no open task wants (packages/agent/src/tasks/sweep-runs.ts). */
export function sweepRuns(
  deps: Pick<CommandDeps, 'commands' | 'isOwn'>,
  isWanted: (run: string) => boolean,
): void {
  try {
    const own = deps.commands.list().filter((c) => deps.isOwn(c.node));
    for (const run of new Set([...own.map((c) => c.run), ...deps.commands.marks]))
      if (!isWanted(run)) removeRun(deps, run);
  } catch (error) {
    if (!(error instanceof EngineError)) throw error;
  }
}
