/** The probe of `health_path` while a container runs. */
import { silentLogger } from '@berth/kit/log';
import { LABELS } from '@berth/wire/vocabulary';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { Container, Docker } from '../../src/engine/docker.ts';
import type { ProbeAnswer, ProbeTarget } from '../../src/engine/probe.ts';
import {
  createRunningProbe,
  probeLabel,
  type RunningProbe,
} from '../../src/engine/running-probe.ts';
import { container } from '../fake-engine.ts';

const OK: ProbeAnswer = { kind: 'status', status: 200 };
const LATE: ProbeAnswer = { kind: 'late', message: 'no answer in time' };
const UNSENT: ProbeAnswer = { kind: 'no_http', message: 'connect EMFILE', isUnsent: true };
const STARTED = '2026-11-27T10:00:00.000Z';
/** When this agent started: the container has used its time for the first answer long before. */
const NOW = '2026-11-27T12:00:00.000Z';

const labels = (seconds = 60): Record<string, string> =>
  probeLabel({ health_path: '/healthz', url: 'https://app.example.com', probe_seconds: seconds });
const app = (over: Partial<Container> = {}): Container =>
  container({
    id: 'c1',
    state: 'running',
    hostPort: 32_001,
    startedAt: STARTED,
    labels: labels(),
    ...over,
  });

describe('the probe of health_path', () => {
  let answers: (target: ProbeTarget) => Promise<ProbeAnswer>;
  let asked: ProbeTarget[];
  let changes: number;
  let lookUps: number;
  let clock: number;
  let probe: RunningProbe;
  beforeEach(() => {
    vi.useFakeTimers({ now: Date.parse(NOW) });
    [asked, changes, lookUps, clock] = [[], 0, 0, 0];
    answers = async () => OK;
    probe = createRunningProbe({
      host: async () => {
        lookUps += 1;
        return '10.0.0.1';
      },
      onChange: () => (changes += 1),
      log: silentLogger(),
      now: () => clock,
      send: (target) => {
        asked.push(target);
        return answers(target);
      },
    });
  });
  afterEach(() => {
    probe.stop();
    vi.useRealTimers();
  });
  /** Lets the time of `n` periods pass. */
  async function periods(n: number): Promise<void> {
    for (let i = 0; i < n; i += 1) {
      clock += 5_000;
      await vi.advanceTimersByTimeAsync(5_000);
    }
  }

  it('asks as the start check does, and reports the third failure in a row', async () => {
    probe.seen([app()]);
    expect(probe.resultOf(app())).toEqual({ status: 'starting' });
    await periods(1);
    expect(asked).toEqual([
      {
        host: '10.0.0.1',
        port: 32_001,
        healthPath: '/healthz',
        visitorUrl: 'https://app.example.com',
      },
    ]);
    expect(probe.resultOf(app())).toEqual({ status: 'healthy' });
    answers = async () => ({ kind: 'status', status: 503 });
    await periods(2);
    answers = async () => OK;
    await periods(1);
    answers = async () => ({ kind: 'status', status: 503 });
    await periods(2);
    expect(probe.resultOf(app()), 'two failures, twice').toEqual({ status: 'healthy' });
    await periods(1);
    expect(probe.resultOf(app())).toEqual({
      status: 'unhealthy',
      output: 'GET /healthz answered with status 503, 3 times in a row',
    });
    expect(changes).toBe(2);
    answers = async () => ({ kind: 'status', status: 302 });
    await periods(1);
    expect(probe.resultOf(app()), 'a redirect is an answer').toEqual({ status: 'healthy' });
    expect(changes).toBe(3);
  });
  it('a container that started again has its time limit for the first answer', async () => {
    probe.seen([app({ labels: labels(30) })]);
    await periods(1);
    const again = app({ labels: labels(30), startedAt: '2026-11-27T12:00:05.000Z' });
    answers = async () => LATE;
    probe.seen([again]);
    await periods(5);
    expect(probe.resultOf(again)).toEqual({ status: 'starting' });
    await periods(1);
    expect(probe.resultOf(again)).toMatchObject({ status: 'unhealthy' });
    expect(probe.resultOf(app()), 'the earlier run').toBeUndefined();
  });
  it('a request during which this process slept does not count', async () => {
    probe.seen([app()]);
    await periods(1);
    answers = async () => {
      clock += 60_000;
      return LATE;
    };
    await periods(5);
    expect(probe.resultOf(app())).toEqual({ status: 'healthy' });
  });
  it('a request that this machine could not send does not count', async () => {
    probe.seen([app()]);
    await periods(1);
    answers = async () => UNSENT;
    await periods(5);
    expect(probe.resultOf(app())).toEqual({ status: 'healthy' });
  });
  it('finds one that hangs in 15 s also if the agent has just started', async () => {
    probe.seen([app()]);
    answers = async () => LATE;
    await periods(3);
    expect(probe.resultOf(app())).toMatchObject({ status: 'unhealthy' });
  });
  it('asks the port and the path of the last start', async () => {
    probe.seen([app()]);
    await periods(1);
    const again = app({ startedAt: NOW, hostPort: 32_009 });
    const path = probeLabel({ health_path: '/up', probe_seconds: 60 });
    probe.seen([again, app({ id: 'next', hostPort: 32_010, labels: path })]);
    await periods(1);
    expect(asked.slice(1).map(({ port, healthPath }) => [port, healthPath])).toEqual([
      [32_009, '/healthz'],
      [32_010, '/up'],
    ]);
  });
  it.each([
    ['ended', []],
    ['started again', [app({ startedAt: NOW })]],
  ])('an answer from before the container %s changes nothing', async (_, after) => {
    probe.seen([app()]);
    await periods(1);
    answers = async () => LATE;
    await periods(2);
    let fail = (_answer: ProbeAnswer): void => undefined;
    answers = () => new Promise((resolve) => (fail = resolve));
    await periods(1);
    probe.seen(after);
    fail(LATE);
    await vi.advanceTimersByTimeAsync(0);
    expect(changes, 'only the first answer').toBe(1);
  });
  it('asks for the address of this machine once, and again after no answer', async () => {
    probe.seen([app(), app({ id: 'c2', hostPort: 32_002 })]);
    await periods(3);
    expect(lookUps).toBe(1);
    answers = async () => LATE;
    await periods(1);
    answers = async () => OK;
    await periods(3);
    expect(lookUps).toBe(2);
  });
  it('asks nothing during the start check', async () => {
    const release = probe.hold('c1');
    probe.seen([app()]);
    await periods(3);
    expect(asked).toEqual([]);
    expect(probe.resultOf(app())).toEqual({ status: 'starting' });
    release();
    await periods(1);
    expect(probe.resultOf(app())).toEqual({ status: 'healthy' });
  });
  it('asks nothing while a task stops the container, and after that', async () => {
    let end = (): void => undefined;
    const stop = vi.fn(() => new Promise<void>((resolve) => (end = resolve)));
    const docker = probe.around({ stop } as Partial<Docker> as Docker);
    probe.seen([app()]);
    await periods(1);
    answers = async () => LATE;
    const stopped = docker.stop('c1', 60);
    await periods(6);
    probe.seen([app()]);
    expect(probe.resultOf(app()), 'as before the stop').toEqual({ status: 'healthy' });
    end();
    await stopped;
    await periods(6);
    expect([asked.length, changes]).toEqual([1, 1]);
    expect(stop).toHaveBeenCalledWith('c1', 60, undefined);
  });
  it('goes on if the engine could not stop it, and forgets one that was removed by name', async () => {
    const docker = probe.around({
      stop: () => Promise.reject(new Error('the engine is away')),
      remove: () => Promise.resolve(),
    } as Partial<Docker> as Docker);
    probe.seen([app({ name: 'svc-shop' })]);
    await expect(docker.stop('c1', 1)).rejects.toThrow('the engine is away');
    await periods(1);
    expect(asked).toHaveLength(1);
    await docker.remove('svc-shop');
    await periods(1);
    expect(asked).toHaveLength(1);
  });
  it('asks a container once at a time, and one that hangs delays no other', async () => {
    answers = ({ port }) => (port === 32_001 ? new Promise(() => undefined) : Promise.resolve(OK));
    const other = app({ id: 'c2', hostPort: 32_002 });
    probe.seen([app(), other]);
    await periods(3);
    expect(asked.map(({ port }) => port)).toEqual([32_001, 32_002, 32_002, 32_002]);
    expect(probe.resultOf(other)).toEqual({ status: 'healthy' });
  });
  it.each([
    ['stopped', app({ state: 'exited' })],
    ['paused', app({ state: 'paused' })],
    ['without a port', app({ hostPort: null })],
    ['of a project without health_path', app({ labels: {} })],
    ['with a label of another version', app({ labels: { [LABELS.probe]: '{"path": 7}' } })],
    ['with a label that is no JSON', app({ labels: { [LABELS.probe]: 'x' } })],
  ])('does not ask one that is %s', async (_, one) => {
    probe.seen([app()]);
    probe.seen([one]);
    await periods(2);
    expect(asked).toEqual([]);
    expect(probe.resultOf(one)).toBeUndefined();
  });
  it('a project without health_path sets no label', () => {
    expect(probeLabel({ health_path: null, probe_seconds: 60 })).toEqual({});
  });
});
