/**
 * Named places where a process can be made to die, fail, wait or stand still: how tests prove that it may be killed anywhere.
 * Off, a point is one comparison. Armed by BERTH_FAIL_POINTS at the start of a process and never changed after it:
 *
 *   run.after=kill   run.after=kill@3   run.after=error   run.after=delay:500ms   run.after=pause      (comma-separated)
 *
 * `kill` is SIGKILL to itself, `pause` SIGSTOP (SIGCONT goes on), `error` throws, `delay` waits. With `@n` at the n-th hit
 * alone, else at every one. The points and what is at stake at each: docs/fail-points.md.
 */
import { writeSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { duration, list, type Parser } from './config.ts';

type Action = { kind: 'kill' } | { kind: 'pause' } | { kind: 'error' } | { kind: 'delay'; ms: number };
type Armed = { name: string; action: Action /** null: every hit. */; at: number | null };

export class FailPointError extends Error {
  override name = 'FailPointError';
  constructor(point: string) {
    super(`fail point ${point}`);
  }
}

/** What BERTH_FAIL_POINTS holds. */
export const failPoints: Parser<Armed[]> = (text) =>
  list(text).map((entry) => {
    const match = /^([a-z][a-z0-9_.-]*)=(kill|pause|error|delay:(\w+))(?:@([1-9]\d*))?$/.exec(entry);
    const [, name, action, wait, at] = match ?? [];
    if (name === undefined || action === undefined)
      throw new Error(`must be name=kill, name=kill@3, name=error, name=delay:500ms or name=pause, not "${entry}"`);
    const kind = action.startsWith('delay') ? 'delay' : (action as 'kill' | 'pause' | 'error');
    return { name, action: kind === 'delay' ? { kind, ms: duration(wait ?? '') } : { kind }, at: at === undefined ? null : Number(at) };
  });

let armed: ReadonlyMap<string, Armed> | null = null;
const hits = new Map<string, number>();

/** Once, at the start of a process; nothing given disarms. */
export function armFailPoints(points: readonly Armed[]): void {
  armed = points.length === 0 ? null : new Map(points.map((point) => [point.name, point]));
  hits.clear();
}

/**
 * `await failPoint('name')`. `detail` tells apart what passes one place for different reasons: the name is then `name.detail`.
 * Where nothing can wait (`void failPoint(…)`), kill and pause work all the same.
 */
export function failPoint(name: string, detail?: () => string): Promise<void> | undefined {
  return armed === null ? undefined : reach(armed, detail === undefined ? name : `${name}.${detail()}`);
}

function reach(points: ReadonlyMap<string, Armed>, name: string): Promise<void> | undefined {
  const point = points.get(name);
  if (point === undefined) return undefined;
  const count = (hits.get(name) ?? 0) + 1;
  hits.set(name, count);
  if (point.at !== null && point.at !== count) return undefined;
  // By hand and at once: after a kill nobody flushes a log.
  writeSync(2, `${JSON.stringify({ level: 40, fail_point: name, action: point.action.kind, hit: count })}\n`);
  return act(point.action, name);
}

function act(action: Action, name: string): Promise<void> | undefined {
  switch (action.kind) {
    case 'kill':
      process.kill(process.pid, 'SIGKILL');
      // The kernel may let this thread run on for a moment; nothing of ours may happen in it.
      return void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
    case 'pause':
      return void process.kill(process.pid, 'SIGSTOP');
    case 'delay':
      return sleep(action.ms);
    case 'error':
      throw new FailPointError(name);
  }
}
