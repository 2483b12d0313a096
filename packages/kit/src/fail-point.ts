/**
 * Named points at which tests make a process die, fail, wait or stop. They prove that a process can
 * be killed at any point. A disabled point costs one comparison. BERTH_FAIL_POINTS enables points
 * at the start of a process:
 *
 *   run.after=kill   run.after=kill@3   run.after=error   run.after=delay:500ms   run.after=pause
 *
 * A comma separates several points. `kill` sends SIGKILL to the process, `pause` sends SIGSTOP
 * (SIGCONT continues), `error` throws, `delay` waits. With `@n` the point acts only on the n-th
 * hit, else on every hit. docs/fail-points.md lists all points and their risks.
 */
import { writeSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { duration, list, type Parser } from './config.ts';

type Action =
  | { kind: 'kill' }
  | { kind: 'pause' }
  | { kind: 'error' }
  | { kind: 'delay'; ms: number };
export type ArmedPoint = {
  name: string;
  action: Action;
  /** Number of the hit on which the point acts; null for every hit. */
  at: number | null;
};

export class FailPointError extends Error {
  override name = 'FailPointError';
  constructor(point: string) {
    super(`fail point ${point}`);
  }
}

/** Parses BERTH_FAIL_POINTS. */
export const failPoints: Parser<ArmedPoint[]> = (text) =>
  list(text).map((entry) => {
    const match = /^([a-z][a-z0-9_.-]*)=(kill|pause|error|delay:(\w+))(?:@([1-9]\d*))?$/.exec(
      entry,
    );
    const [, name, action, wait, at] = match ?? [];
    if (name === undefined || action === undefined)
      throw new Error(
        'must be name=kill, name=kill@3, name=error, name=delay:500ms or name=pause, not ' +
          `"${entry}"`,
      );
    const kind = action.startsWith('delay') ? 'delay' : (action as 'kill' | 'pause' | 'error');
    return {
      name,
      action: kind === 'delay' ? { kind, ms: duration(wait ?? '') } : { kind },
      at: at === undefined ? null : Number(at),
    };
  });

let armed: ReadonlyMap<string, ArmedPoint> | null = null;
const hits = new Map<string, number>();

/** Enables the given points and disables all others. Called once at the start of a process. */
export function armFailPoints(points: readonly ArmedPoint[]): void {
  armed = points.length === 0 ? null : new Map(points.map((point) => [point.name, point]));
  hits.clear();
}

/**
 * Marks a point: `await failPoint('name')`. With `detail`, the name is `name.detail`, to
 * distinguish several reasons for passing the same point. Code that cannot wait uses
 * `void failPoint(…)`; kill and pause still work there.
 */
export function failPoint(name: string, detail?: () => string): Promise<void> | undefined {
  return armed === null
    ? undefined
    : reach(armed, detail === undefined ? name : `${name}.${detail()}`);
}

function reach(points: ReadonlyMap<string, ArmedPoint>, name: string): Promise<void> | undefined {
  const point = points.get(name);
  if (point === undefined) return undefined;
  const count = (hits.get(name) ?? 0) + 1;
  hits.set(name, count);
  if (point.at !== null && point.at !== count) return undefined;
  // Write synchronously, because after a kill no logger flushes its buffer.
  writeSync(
    2,
    `${JSON.stringify({ level: 40, fail_point: name, action: point.action.kind, hit: count })}\n`,
  );
  return act(point.action, name);
}

function act(action: Action, name: string): Promise<void> | undefined {
  switch (action.kind) {
    case 'kill':
      process.kill(process.pid, 'SIGKILL');
      // The kernel can let this thread run for a moment after the kill, so block it.
      return void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
    case 'pause':
      return void process.kill(process.pid, 'SIGSTOP');
    case 'delay':
      return sleep(action.ms);
    case 'error':
      throw new FailPointError(name);
  }
}
