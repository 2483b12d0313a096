/**
 * The lock between processes: a living process holds it, a killed one releases it, and its commits
 * survive.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { NOW, open, tempDir } from './fixtures.ts';

const PROGRAM = fileURLToPath(new URL('hold-database.ts', import.meta.url));

function hold(
  path: string,
  errors: 'inherit' | 'ignore' = 'inherit',
): {
  child: ChildProcess;
  acknowledged: () => number;
  atLeast: (count: number) => Promise<void>;
  kill: () => Promise<void>;
} {
  const child = spawn(process.execPath, [PROGRAM, path], { stdio: ['ignore', 'pipe', errors] });
  onTestFinished(() => void child.kill('SIGKILL'));
  let count = 0;
  const lines = createInterface({ input: child.stdout as NodeJS.ReadableStream }).on(
    'line',
    (line) => (count = Number(line)),
  );
  const ended = once(lines, 'close');
  return {
    child,
    acknowledged: () => count,
    async atLeast(wanted) {
      while (count < wanted) {
        const over = await Promise.race([
          once(lines, 'line').then(() => false),
          ended.then(() => true),
        ]);
        if (over && count < wanted) throw new Error('the holder ended by itself');
      }
    },
    /** Resolves when all of its output has arrived. */
    async kill() {
      child.kill('SIGKILL');
      await ended;
    },
  };
}

test('a killed control plane releases the lock, and its commits survive', async () => {
  const path = join(tempDir(), 'berth.db');
  for (let round = 1; round <= 3; round++) {
    const { child, acknowledged, atLeast, kill } = hold(path);
    await atLeast(round * 100);
    const refused = await open(path).catch((error: unknown) => error);
    expect(refused).toMatchObject({
      code: 'held',
      message: expect.stringContaining(`pid ${child.pid} on `),
    });
    await kill();
    expect(JSON.parse(readFileSync(`${path}.lock.json`, 'utf8'))).toMatchObject({ pid: child.pid });
    const stores = await open(path, () => NOW + round);
    for (let i = 0; i < acknowledged(); i++) expect(await stores.meta.get(`key ${i}`)).toBe('x');
    expect(JSON.parse(readFileSync(`${path}.lock.json`, 'utf8'))).toMatchObject({
      pid: process.pid,
      since: new Date(NOW + round).toISOString(),
    });
    await stores.close();
  }
});

test('exactly one of several control planes that start together gets the file', async () => {
  const path = join(tempDir(), 'berth.db');
  const starters = Array.from({ length: 4 }, () => hold(path, 'ignore'));
  const outcomes = await Promise.all(
    starters.map(({ atLeast }) =>
      atLeast(1).then(
        () => 'holds',
        () => 'refused',
      ),
    ),
  );
  expect(outcomes.sort()).toEqual(['holds', 'refused', 'refused', 'refused']);
});
