/** The probe of `health_path` while a container runs. */
import { silentLogger } from '@berth/kit/log';
import { LABELS } from '@berth/wire/vocabulary';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { Container } from '../../src/engine/docker.ts';
import type { ProbeAnswer, ProbeTarget } from '../../src/engine/probe.ts';
import {
  createRunningProbe,
  probeLabel,
  type RunningProbe,
} from '../../src/engine/running-probe.ts';
import { container } from '../fake-engine.ts';

const OK: ProbeAnswer = { kind: 'status', status: 200 };
const LATE: ProbeAnswer = { kind: 'late', message: 'no answer in time' };
const STARTED = '2026-11-27T10:00:00.000Z';

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
  let clock: number;
  let probe: RunningProbe;
  beforeEach(() => {
    vi.useFakeTimers();
    [asked, changes, clock] = [[], 0, 0];
    answers = async () => OK;
    probe = createRunningProbe({
      host: async () => '10.0.0.1',
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
    const again = app({ labels: labels(30), startedAt: '2026-11-27T11:00:00.000Z' });
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
