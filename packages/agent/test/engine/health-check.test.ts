/** The HEALTHCHECK of an image: before a container goes live, and as the agent reports it. */
import { silentLogger } from '@berth/kit/log';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { createShownHealth, untilChecked } from '../../src/engine/health-check.ts';
import { createRedact } from '../../src/secrets/redaction.ts';
import type { Container } from '../../src/engine/docker.ts';
import { container } from '../fake-engine.ts';

const CHECK = { command: ['check'], timeoutMs: 5_000 };
type Health = Container['health'];

/**
 * `runs`: whether each run of the agent passes; the last one repeats. `isLate`: runs that do not
 * pass have no result.
 */
function engineWith(health: Health, runs: readonly boolean[], isLate = false) {
  const timeouts: number[] = [];
  let run = 0;
  return {
    timeouts,
    inspect: async () => container({ health }),
    runInside: async (
      _id: string,
      _command: readonly string[],
      { timeoutMs }: { timeoutMs: number },
    ) => {
      timeouts.push(timeoutMs);
      const ok = runs[Math.min(run, runs.length - 1)] === true;
      run += 1;
      return { ok, output: 'no route\n  to the database \n', isLate: isLate && !ok };
    },
  };
}
const signal = new AbortController().signal;

it('a check that passes admits the container at once, whatever its interval is', async () => {
  const engine = engineWith({ status: 'starting', output: '' }, [true]);
  expect(await untilChecked(engine, 'c', CHECK, performance.now() + 60_000, signal)).toBeNull();
  expect(engine.timeouts).toEqual([5_000]);
});
describe('a check that does not pass at once', () => {
  beforeEach(
    () => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] }),
  );
  afterEach(() => void vi.useRealTimers());

  it('is tried again while the container starts', async () => {
    const engine = engineWith({ status: 'starting', output: '' }, [false, true]);
    const failure = untilChecked(engine, 'c', CHECK, performance.now() + 60_000, signal);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(await failure).toBeNull();
    expect(engine.timeouts).toHaveLength(2);
  });
  it('and has no result is not started again and again: it stays in the container', async () => {
    const engine = engineWith({ status: 'starting', output: '' }, [false], true);
    const failure = untilChecked(engine, 'c', CHECK, performance.now() + 60_000, signal);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(await failure).toMatchObject({ isFinal: false });
    expect(engine.timeouts).toHaveLength(3);
  });
});
it('the engine may have run it meanwhile', async () => {
  const engine = engineWith({ status: 'healthy', output: '' }, [false]);
  expect(await untilChecked(engine, 'c', CHECK, performance.now() + 60_000, signal)).toBeNull();
});
it('an unhealthy container fails at once, with the output of the check on one line', async () => {
  const engine = engineWith({ status: 'unhealthy', output: 'older' }, [false]);
  const failure = await untilChecked(engine, 'c', CHECK, performance.now() + 60_000, signal);
  expect(failure).toEqual({ output: 'no route · to the database', isFinal: true });
});
it('a check that does not pass in time fails, and it gets at least one run', async () => {
  const engine = engineWith({ status: 'starting', output: '' }, [false]);
  expect(await untilChecked(engine, 'c', CHECK, performance.now() - 1, signal)).toMatchObject({
    isFinal: false,
  });
  expect(engine.timeouts).toEqual([1_000]);
});

it('only unhealthy containers report output, without secrets and bounded; the values are read once', async () => {
  let reads = 0;
  const shown = createShownHealth(async () => {
    reads += 1;
    return createRedact(['s3cret-value']);
  }, silentLogger());
  const unhealthy = (output: string) =>
    container({ id: 'bad', health: { status: 'unhealthy', output } });
  const all = [
    container({ id: 'none' }),
    container({ id: 'starting', health: { status: 'starting', output: 'x' } }),
    container({ id: 'good', health: { status: 'healthy', output: 'x' } }),
    container({ id: 'ended', state: 'exited', health: { status: 'unhealthy', output: 'x' } }),
  ];
  const found = await shown([...all, unhealthy('login s3cret-value\nrefused\u001b[2J')]);
  expect(Object.fromEntries(found)).toEqual({
    starting: { status: 'starting' },
    good: { status: 'healthy' },
    bad: { status: 'unhealthy', output: 'login *** · refused' },
  });
  expect((await shown([unhealthy('another text each time')])).get('bad')?.output).toBe(
    'login *** · refused',
  );
  expect(reads).toBe(1);
  await shown([container({ id: 'bad', health: { status: 'healthy', output: '' } })]);
  const long = await shown([unhealthy(`${'x'.repeat(475)}s3cret-value${'y'.repeat(4_000)}`)]);
  expect(long.get('bad')?.output?.length).toBeLessThanOrEqual(500);
  expect(long.get('bad')?.output).not.toContain('s3cret');
  expect(reads).toBe(2);
});
it('health is reported without output while the secrets of the container cannot be read', async () => {
  const shown = createShownHealth(
    () => Promise.reject(new Error('no such container')),
    silentLogger(),
  );
  const found = await shown([
    container({ id: 'bad', health: { status: 'unhealthy', output: 's3cret-value' } }),
  ]);
  expect(Object.fromEntries(found)).toEqual({ bad: { status: 'unhealthy' } });
});
