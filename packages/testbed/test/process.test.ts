import { readFile } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { ProcessFailed, run, startProcess } from '../src/process.ts';
import { GiveUp, WaitTimeout, waitFor } from '../src/wait.ts';

describe('run', () => {
  it('sends input and returns stdout and stderr', async () => {
    expect(await run(['cat'], { input: 'in' })).toMatchObject({
      code: 0,
      stdout: 'in',
      stderr: '',
    });
  });
  it('throws with the last lines of output when the program fails, unless mayFail is set', async () => {
    await expect(run(['ls', '/nowhere'])).rejects.toThrow(ProcessFailed);
    await expect(run(['ls', '/nowhere'])).rejects.toThrow('No such file');
    expect((await run(['ls', '/nowhere'], { mayFail: true })).code).not.toBe(0);
  });
  it('kills a program that misses its deadline', async () => {
    await expect(run(['sleep', '30'], { deadlineMs: 100 })).rejects.toThrow(
      'timed out after 100 ms',
    );
  });
  it('names a program that does not exist', async () => {
    await expect(run(['no-such-program'])).rejects.toThrow('ENOENT');
  });
});

describe('startProcess', () => {
  it('stop() ends even a program that ignores SIGTERM', async () => {
    const stubborn = await startProcess(['env', '--ignore-signal=TERM', 'sleep', '60'], {
      name: 'stubborn',
    });
    await waitFor(
      'the process runs sleep',
      async () => (await readFile(`/proc/${stubborn.pid}/comm`, 'utf8')).trim() === 'sleep',
    );
    await stubborn.stop(50);
    expect(stubborn.exit()).toEqual({ code: null, signal: 'SIGKILL' });
    await stubborn.stop();
  });
});

describe('waitFor', () => {
  it('names the condition and the last error after the deadline', async () => {
    const never = waitFor('the moon is full', () => Promise.reject(new Error('half')), {
      deadlineMs: 60,
      intervalMs: 10,
    });
    await expect(never).rejects.toThrow(
      /timed out after 60 ms: the moon is full; last error: half/,
    );
  });
  it('ends at its deadline although the condition hangs', async () => {
    await expect(
      waitFor('an answer', () => new Promise<boolean>(() => undefined), { deadlineMs: 50 }),
    ).rejects.toThrow(WaitTimeout);
  });
  it('ends at once on GiveUp', async () => {
    const over = waitFor(
      'a ship',
      () => {
        throw new GiveUp('sunk');
      },
      { deadlineMs: 60_000 },
    );
    await expect(over).rejects.toThrow('a ship: sunk');
  });
});
