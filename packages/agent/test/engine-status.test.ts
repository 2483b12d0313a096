/** The engine and the disks in a registration. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLogger } from '@berth/kit/log';
import { expect, it, onTestFinished } from 'vitest';
import { createDiskUse } from '../src/disk-use.ts';
import { createEngineStatus } from '../src/engine-status.ts';
import { bytesOf } from '../src/tools/engine-use.ts';
import { until } from './fake-control-plane.ts';

const never = new AbortController().signal;

it('the engine’s version is reported while it answers, the error while it does not, and its architecture', async () => {
  let asked = 0;
  let answer: () => Promise<{ version: string; arch: string }> = async () => ({ version: '28.2.2', arch: 'arm64' });
  const engine = createEngineStatus({ version: () => ((asked += 1), answer()) }, 'x64');
  expect(engine.now()).toBeNull();
  expect(engine.arch()).toBe('amd64');
  await engine.ask(never);
  expect(engine.now()).toEqual({ ok: true, version: '28.2.2', error: null });
  expect(engine.arch()).toBe('arm64');
  await engine.answered(never);
  expect(asked).toBe(1);
  engine.failed(new Error('Cannot connect to the Docker daemon'));
  expect(engine.now()).toEqual({ ok: false, version: '28.2.2', error: 'Cannot connect to the Docker daemon' });
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
    version: (signal) => new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error))),
  });
  const asking = engine.ask(stop.signal);
  stop.abort(new Error('stopped'));
  await expect(asking).rejects.toThrow('stopped');
  expect(engine.now()).toBeNull();
});

it('disk use is unknown before the first count; the rest besides datasets, images and build cache is "other"', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'agent-disk-'));
  onTestFinished(() => rm(dir, { recursive: true }));
  let use: () => Promise<{ root: string | null; images: number | null; build_cache: number | null }> = async () => ({
    root: join(dir, 'not-here'),
    images: 2_000,
    build_cache: 300,
  });
  const make = () =>
    createDiskUse({ folders: [dir, dir], datasets: () => 10, engineUse: () => use(), onFirst: () => undefined, log: silentLogger() });
  const disk = make();
  expect(disk.now()).toBeNull();
  const counted = await until('counted', () => disk.now() ?? undefined);
  expect(counted).toMatchObject({ datasets: 10, images: 2_000, build_cache: 300 });
  expect(counted.other).toBe(counted.total - counted.free - 2_310);
  // Without an answer of the engine, its parts are unknown and not zero.
  use = () => Promise.reject(new Error('no engine'));
  const blind = make();
  blind.now();
  const partly = await until('counted', () => blind.now() ?? undefined);
  expect(partly).toMatchObject({ datasets: 10, images: null, build_cache: null, other: null });
  expect(partly.total).toBe(counted.total);
});

it.each([
  ['0B', 0],
  ['1.234GB', 1_234_000_000],
  ['45.6kB', 45_600],
  ['999MB', 999_000_000],
  ['1.2TB', 1.2e12],
  ['', null],
  ['many', null],
])('bytesOf reads the size %s as %s', (text, bytes) => expect(bytesOf(text)).toBe(bytes));
