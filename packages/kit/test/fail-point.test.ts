import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { armFailPoints, FailPointError, failPoint, failPoints } from '@berth/kit/fail-point';

const arm = (text: string): void => armFailPoints(failPoints(text));
afterEach(() => armFailPoints([]));

const isStopped = (pid: number): boolean =>
  / \(.*\) T /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));

/**
 * Starts a process with `points` that passes `run.after` four times and prints each pass that it
 * survives.
 */
async function passing(
  points: string,
): Promise<{ said: string[]; code: number | null; signal: string | null; stderr: string }> {
  const module = fileURLToPath(import.meta.resolve('@berth/kit/fail-point'));
  const program = `import { armFailPoints, failPoint, failPoints } from ${JSON.stringify(module)};
armFailPoints(failPoints(${JSON.stringify(points)}));
for (let i = 1; i <= 4; i++) { await failPoint('run.after'); console.log(i); }`;
  const child = spawn(process.execPath, ['--input-type=module-typescript', '--eval', program], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let out = '';
  let stderr = '';
  child.stdout.on('data', (chunk: Buffer) => (out += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => {
    stderr += chunk.toString();
    // The process prints a line before it stops at the second hit. Later lines come only after
    // SIGCONT.
    if (points.includes('=pause'))
      void vi
        .waitUntil(() => isStopped(child.pid ?? 0), { timeout: 8_000, interval: 5 })
        .then(() => {
          out += 'stopped\n';
          child.kill('SIGCONT');
        });
  });
  const [code, signal] = (await once(child, 'close')) as [number | null, string | null];
  return { said: out.split('\n').filter((line) => line !== ''), code, signal, stderr };
}

describe('armed', () => {
  it('kill: the process dies by SIGKILL at the n-th hit, before any later code, and prints the point', async () => {
    const { said, signal, stderr } = await passing('other=kill,run.after=kill@3');
    expect({ said, signal }).toEqual({ said: ['1', '2'], signal: 'SIGKILL' });
    expect(JSON.parse(stderr)).toMatchObject({ fail_point: 'run.after', action: 'kill', hit: 3 });
  });

  it('pause stops the process until SIGCONT', async () => {
    const { said, code } = await passing('run.after=pause@2');
    expect(code).toBe(0);
    expect(said.toSorted()).toEqual(['1', '2', '3', '4', 'stopped']);
  });

  it('error throws; with @n only at that hit', async () => {
    arm('a=error@2');
    expect(failPoint('a')).toBeUndefined();
    expect(() => failPoint('a')).toThrow(FailPointError);
    expect(failPoint('a')).toBeUndefined();
  });

  it('without @n a point acts at every hit', () => {
    arm('a=error');
    expect(() => failPoint('a')).toThrow('fail point a');
    expect(() => failPoint('a')).toThrow('fail point a');
  });

  it('delay waits', async () => {
    arm('a=delay:80ms');
    const from = performance.now();
    await failPoint('a');
    expect(performance.now() - from).toBeGreaterThanOrEqual(75);
  });

  it('a detail is part of the name', () => {
    arm('a.x=error');
    expect(failPoint('a', () => 'y')).toBeUndefined();
    expect(failPoint('a')).toBeUndefined();
    expect(() => failPoint('a', () => 'x')).toThrow(FailPointError);
  });
});

describe('disabled', () => {
  it('does nothing and does not compute the detail', () => {
    let asked = 0;
    expect(failPoint('a', () => `${asked++}`)).toBeUndefined();
    expect(asked).toBe(0);
  });
});

describe('BERTH_FAIL_POINTS', () => {
  it('accepts several points', () => {
    expect(failPoints('a=kill, b.c=delay:2s@4')).toEqual([
      { name: 'a', action: { kind: 'kill' }, at: null },
      { name: 'b.c', action: { kind: 'delay', ms: 2000 }, at: 4 },
    ]);
  });
  it.each(['a', 'a=', 'a=explode', 'a=kill@0', 'a=kill@x', 'a=delay:5', 'A=kill', '=kill'])(
    'refuses %s',
    (text) => {
      expect(() => failPoints(text)).toThrow(/must be/);
    },
  );
});
