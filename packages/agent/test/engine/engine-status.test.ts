/** The engine in a registration. */
import { expect, it } from 'vitest';
import { createEngineStatus } from '../../src/engine/engine-status.ts';

const never = new AbortController().signal;

it('the engine’s version is reported while it answers, the error while it does not, and its architecture', async () => {
  let asked = 0;
  let answer: () => Promise<{ version: string; arch: string }> = async () => ({
    version: '28.2.2',
    arch: 'arm64',
  });
  const engine = createEngineStatus({ version: () => ((asked += 1), answer()) }, 'x64');
  expect(engine.now()).toBeNull();
  expect(engine.arch()).toBe('amd64');
  await engine.ask(never);
  expect(engine.now()).toEqual({ ok: true, version: '28.2.2', error: null });
  expect(engine.arch()).toBe('arm64');
  await engine.answered(never);
  expect(asked).toBe(1);
  engine.failed(new Error('Cannot connect to the Docker daemon'));
  expect(engine.now()).toEqual({
    ok: false,
    version: '28.2.2',
    error: 'Cannot connect to the Docker daemon',
  });
  // A restart of the engine may be an upgrade.
  answer = async () => ({ version: '28.3.0', arch: 'arm64' });
  await engine.answered(never);
  expect(engine.now()).toEqual({ ok: true, version: '28.3.0', error: null });
  answer = () => Promise.reject(new Error('x'.repeat(10_000)));
  await engine.ask(never);
  expect(engine.now()?.error).toHaveLength(300);
});

it('a stop of the agent does not count as a failure of the engine', async () => {
  const stop = new AbortController();
  const engine = createEngineStatus({
    version: (signal) =>
      new Promise((_, reject) =>
        signal.addEventListener('abort', () => reject(signal.reason as Error)),
      ),
  });
  const asking = engine.ask(stop.signal);
  stop.abort(new Error('stopped'));
  await expect(asking).rejects.toThrow('stopped');
  expect(engine.now()).toBeNull();
});
