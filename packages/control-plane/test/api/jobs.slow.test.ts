/** Jobs through the API and the loop. The clock and the agents are played by the test. */
import { createLogger } from '@berth/kit/log';
import type { Job } from '@berth/wire/job';
import { MAX_OPEN_RUNS } from '@berth/wire/run';
import { afterEach, beforeEach, describe, expect, it, test } from 'vitest';
import type { JobRecord } from '../../src/domain/runs/job-store.ts';
import type { RunRecord } from '../../src/domain/runs/run-store.ts';
import { jobs } from '../../src/loops/jobs.ts';
import { runs } from '../../src/loops/runs.ts';
import { createWorld, type World } from './deployed.ts';
import { type Api, createApi, createProject, register, rulesOf } from './harness.ts';
import { claimRun, exited } from './run-agent.ts';
import { loopParts } from './loop-parts.ts';

let api: Api;
let world: World;
let project: string;
let passed: number;
/** Each control plane keeps its own loop, which remembers the time of its last round. */
let planes: ReturnType<typeof jobs>[];
const CAN = { agent_version: '0.3.0', capabilities: ['runs', 'secrets'] };
const MINUTE = 60_000;

beforeEach(async () => {
  api = await createApi();
  passed = 0;
  world = await createWorld(api);
  await register(api, { hostname: 'node-1', role: 'deploy', ...CAN });
  project = await createProject(api);
  planes = [jobs(parts()), jobs(parts())];
  // Times of a minute job must not depend on the second in which the test starts.
  passTo(MINUTE - (now() % MINUTE) + 100);
});
afterEach(() => api.close());

const now = (): number => Date.now() + passed;
const passTo = (ms: number): void => {
  passed += ms;
  api.pass(ms);
};
const parts = () => loopParts(api, now);
const never = new AbortController().signal;
/** One round of the loops of a control plane, while the node reports. */
const round = async (plane = 0): Promise<void> => {
  await planes[plane]?.(never);
  await offerRuns();
};
async function offerRuns(): Promise<void> {
  await register(api, { hostname: 'node-1', role: 'deploy', ...CAN });
  await runs(parts())(never);
}
/** A control plane that was killed and started again. */
const restart = (plane = 0): void => void (planes[plane] = jobs(parts()));

const create = (body: object, as?: 'viewer') =>
  api.call('createJob', { params: { id: project }, body, ...(as === undefined ? {} : { as }) });
const minutely = async (more: object = {}): Promise<Job> => {
  const body = { name: 'report', schedule: '* * * * *', command: ['node', 'report.js'], ...more };
  const reply = await create(body);
  expect(reply.status, reply.text).toBe(201);
  return reply.json as unknown as Job;
};
const named = (name = 'report') => ({ params: { id: project, name } });
const get = async (): Promise<Job> => (await api.call('getJob', named())).json as unknown as Job;
const settingsOf = ({
  project_id: _project,
  name: _name,
  created_by: _by,
  created_at: _at,
  ...settings
}: Omit<JobRecord, 'next_at'>): Omit<
  JobRecord,
  'project_id' | 'name' | 'created_by' | 'created_at' | 'next_at'
> => settings;
/** All runs of the job, in the order of their times. */
async function all(): Promise<RunRecord[]> {
  const page = { limit: 200, cursor: null };
  const { items } = await api.stores.runs.list(project, { job: 'report' }, page);
  return items.sort((a, b) => (a.scheduled_for ?? 0) - (b.scheduled_for ?? 0));
}
const statuses = async (): Promise<string[]> => (await all()).map(({ status }) => status);
/** The agent of the node executes one run. */
async function work(exit_code = 0): Promise<void> {
  const { report } = await claimRun(api, world.home);
  expect((await report(exited(exit_code))).status).toBe(200);
}

describe('refused', () => {
  test.each([
    [{ name: 'a', schedule: '* * * *', command: ['x'] }, 'schedule:cron'],
    [{ name: 'a', schedule: '0 0 30 2 *', command: ['x'] }, 'schedule:never'],
    [{ name: 'a', schedule: '@daily', timezone: 'Berlin', command: ['x'] }, 'timezone:timezone'],
    [{ name: 'a', schedule: '@daily' }, 'command:required'],
    [{ name: 'a', schedule: '@daily', command: 'x' }, 'command:type'],
    [{ name: 'A b', schedule: '@daily', command: ['x'] }, 'name:dns_label'],
    [{ name: 'a', schedule: '@daily', command: ['x'], overlap: 'wait' }, 'overlap:enum'],
    [{ name: 'a', schedule: '@daily', command: ['x'], retries: -1 }, 'retries:minimum'],
  ])('%j: %s', async (body, rule) => {
    const reply = await create(body);
    expect(reply.status, reply.text).toBe(422);
    expect(rulesOf(reply)).toEqual([rule]);
  });

  it('a second job with the same name, and a viewer', async () => {
    await minutely();
    const reply = await create({ name: 'report', schedule: '@daily', command: ['x'] });
    expect(reply.status).toBe(409);
    expect(rulesOf(reply)).toEqual(['name:unique']);
    expect((await create({ name: 'b', schedule: '@daily', command: ['x'] }, 'viewer')).status).toBe(
      403,
    );
  });
});

it('has the defaults, and its next three times in its zone', async () => {
  const job = await minutely({ schedule: '0 6 * * MON', timezone: 'Europe/Berlin' });
  expect(job).toMatchObject({
    enabled: true,
    overlap: 'skip',
    timeout_seconds: 3_600,
    retries: 0,
    last_run: null,
  });
  expect(job.next_runs).toHaveLength(3);
  for (const time of job.next_runs) expect(time).toMatch(/T06:00:00\+0[12]:00$/);
  const off = await api.call('patchJob', { ...named(), body: { enabled: false } });
  expect(off.json).toMatchObject({ enabled: false, next_runs: [] });
});

it('runs once at each time, and shows its last run', async () => {
  await world.live(project);
  await minutely();
  await round();
  expect(await statuses(), 'not before its time').toEqual([]);
  for (let i = 0; i < 3; i++) {
    passTo(MINUTE);
    await round(0);
    await round(1);
    await work();
  }
  expect(await statuses()).toEqual(['succeeded', 'succeeded', 'succeeded']);
  const { last_run } = await get();
  expect(last_run).toMatchObject({ job: 'report', trigger: 'schedule', status: 'succeeded' });
  expect(Date.parse(last_run?.scheduled_for ?? '') % MINUTE).toBe(0);
});

describe('a time that cannot run has a record that says why', () => {
  it('before a version serves', async () => {
    await minutely();
    passTo(MINUTE);
    await round();
    expect(await all()).toMatchObject([
      { status: 'missed', reason: 'no version of the project serves' },
    ]);
  });

  it('while the project is stopped', async () => {
    await world.live(project);
    await minutely();
    await api.call('stopProject', { params: { id: project } });
    passTo(MINUTE);
    await round();
    expect(await all()).toMatchObject([{ status: 'missed', reason: 'the project is stopped' }]);
  });

  it('while Berth was away: the newest one runs if it is young', async () => {
    await world.live(project);
    await minutely();
    passTo(4 * MINUTE);
    restart();
    await round();
    expect(await statuses()).toEqual(['missed', 'missed', 'missed', 'pending']);
  });

  it('while Berth was away for long: none runs', async () => {
    await world.live(project);
    await minutely({ schedule: '*/30 * * * *' });
    passTo(70 * MINUTE - (now() % (30 * MINUTE)));
    restart();
    await round();
    expect(new Set(await statuses())).toEqual(new Set(['missed']));
  });
});

it('a stored schedule that is not valid any more gives one log line and one record, and the others run', async () => {
  await world.live(project);
  await minutely();
  await create({ name: 'other', schedule: '* * * * *', command: ['x'] });
  const { next_at, ...job } = await api.stores.jobs.get(project, 'other');
  const broken = { ...settingsOf(job), timezone: 'Mars/Olympus', next_at };
  await api.stores.jobs.change(project, 'other', { ...broken, updated_at: now() });
  const lines: string[] = [];
  const destination = { write: (line: string) => void lines.push(line) };
  const log = createLogger({ name: 'test', level: 'error', format: 'json', destination });
  planes = [jobs({ ...parts(), log })];
  for (let i = 0; i < 3; i++) {
    passTo(MINUTE);
    await round();
    await work();
  }
  expect(await statuses()).toEqual(['succeeded', 'succeeded', 'succeeded']);
  const told = (): unknown[] => lines.map((line): unknown => JSON.parse(line));
  expect(told()).toMatchObject([{ job: 'other', schedule: '* * * * *' }]);
  const shown = await api.call('getJob', named('other'));
  expect(shown.json).toMatchObject({
    next_runs: [],
    last_run: {
      status: 'missed',
      reason: expect.stringMatching(
        /does not run from this time on.*Mars\/Olympus is not valid any more: .*; change/,
      ) as unknown,
    },
  });
  const records = await api.call('projectRuns', {
    params: { id: project },
    query: { job: 'other' },
  });
  expect(records.json['items']).toHaveLength(1);
  // A change that does not mend it is told again.
  await api.stores.jobs.change(project, 'other', { ...broken, updated_at: now() + 1 });
  await round();
  expect(told()).toHaveLength(2);
});

describe('an earlier run that has not ended', () => {
  const start = async (overlap: string): Promise<void> => {
    await world.live(project);
    await minutely({ overlap });
    for (let i = 0; i < 3; i++) {
      passTo(MINUTE);
      await round();
    }
  };

  it('skip: the times are recorded as skipped', async () => {
    await start('skip');
    expect(await statuses()).toEqual(['pending', 'skipped', 'skipped']);
    expect((await all())[1]?.reason).toContain('has not ended (overlap: skip)');
    const reply = await api.call('runJob', named());
    expect(reply.status).toBe(409);
  });

  it('queue: one waits, another one is skipped', async () => {
    await start('queue');
    expect(await statuses()).toEqual(['pending', 'pending', 'skipped']);
    expect((await all()).map(({ attempt }) => attempt)).toEqual([1, 0, 0]);
    expect((await all())[1]?.reason).toContain('the earlier run of its job');
    await work();
    await round();
    expect((await all()).map(({ attempt }) => attempt)).toEqual([1, 1, 0]);
  });

  it('cancel: the earlier one ends', async () => {
    await start('cancel');
    expect(await statuses()).toEqual(['cancelled', 'cancelled', 'pending']);
    expect((await all())[0]?.reason).toContain('overlap: cancel');
  });

  it('cancel: the earlier one ends, also if the control plane dies when it has started the next one', async () => {
    await world.live(project);
    await minutely({ overlap: 'cancel' });
    passTo(MINUTE);
    await round();
    const { jobs: store } = api.stores;
    planes[0] = jobs({
      ...parts(),
      jobs: {
        ...store,
        async due(...due) {
          await store.due(...due);
          throw new Error('killed');
        },
      },
    });
    passTo(MINUTE);
    await round();
    restart();
    await round();
    expect(await statuses()).toEqual(['cancelled', 'pending']);
  });

  it('skip: of two people who start the job at once, one gets the run', async () => {
    await world.live(project);
    await minutely({ overlap: 'skip' });
    const replies = await Promise.all([api.call('runJob', named()), api.call('runJob', named())]);
    expect(replies.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([201, 409]);
    expect(await statuses()).toEqual(['pending']);
  });

  it('skip: of a person and a time at the same moment, one begins', async () => {
    await world.live(project);
    await minutely({ overlap: 'skip' });
    const { jobs: store } = api.stores;
    let isFirst = true;
    planes[0] = jobs({
      ...parts(),
      jobs: {
        ...store,
        async openRuns(...of) {
          const open = await store.openRuns(...of);
          if (isFirst) expect((await api.call('runJob', named())).status).toBe(201);
          isFirst = false;
          return open;
        },
      },
    });
    passTo(MINUTE);
    await round();
    expect(await statuses()).toEqual(['pending']);
    await round();
    expect((await statuses()).sort()).toEqual(['pending', 'skipped']);
  });

  it('cancel: a person who starts the job ends the earlier run', async () => {
    await start('cancel');
    expect((await api.call('runJob', named())).status).toBe(201);
    expect((await statuses()).sort()).toEqual(['cancelled', 'cancelled', 'cancelled', 'pending']);
  });

  it('cancel: the earlier run goes on if the project has too many runs for the next one', async () => {
    await world.live(project);
    await minutely({ overlap: 'cancel' });
    passTo(MINUTE);
    await round();
    const [earlier] = await all();
    await api.call('agentStart', { params: { id: earlier?.task_id ?? '' } });
    for (let i = 1; i < MAX_OPEN_RUNS; i++)
      await api.call('createRun', { params: { id: project }, body: { command: ['x'] } });
    expect((await api.call('runJob', named())).status).toBe(429);
    expect(await all()).toMatchObject([{ status: 'running', cancel_requested_at: null }]);
  });

  it('cancel: goes on when its own time comes again, because the clock was set back', async () => {
    await world.live(project);
    await minutely({ overlap: 'cancel' });
    passTo(MINUTE);
    await round();
    passTo(-MINUTE);
    restart();
    await round();
    passTo(MINUTE);
    await round();
    expect(await statuses()).toEqual(['pending']);
  });
});

it('a person starts a run now', async () => {
  await minutely({ schedule: '@monthly' });
  expect((await api.call('runJob', named())).status, 'nothing serves').toBe(409);
  await world.live(project);
  const reply = await api.call('runJob', named());
  expect(reply.status, reply.text).toBe(201);
  expect(reply.json).toMatchObject({ job: 'report', trigger: 'person', scheduled_for: null });
});

describe('a change', () => {
  it('of the schedule takes effect at once, and no time runs twice', async () => {
    await world.live(project);
    await minutely();
    passTo(MINUTE);
    await round();
    await work();
    await api.call('patchJob', { ...named(), body: { schedule: '*/2 * * * *' } });
    await api.call('patchJob', { ...named(), body: { schedule: '* * * * *' } });
    await round();
    expect(await statuses()).toEqual(['succeeded']);
  });

  it('of another field does not lose the time that is due', async () => {
    await world.live(project);
    await minutely();
    passTo(MINUTE);
    await api.call('patchJob', { ...named(), body: { timeout_seconds: 5 } });
    await round();
    expect(await all()).toMatchObject([{ status: 'pending', timeout_seconds: 5 }]);
  });

  it('deleted: its runs stay', async () => {
    await world.live(project);
    await minutely();
    passTo(MINUTE);
    await round();
    expect((await api.call('deleteJob', named())).status).toBe(204);
    passTo(MINUTE);
    await round();
    expect(await statuses()).toEqual(['pending']);
    expect((await api.call('getJob', named())).status).toBe(404);
  });
});

it('a clock that is set back makes no gap and repeats no time', async () => {
  await world.live(project);
  await minutely();
  for (let i = 0; i < 3; i++) {
    passTo(MINUTE);
    await round();
    await work();
  }
  passTo(-2 * MINUTE);
  const times = async (): Promise<number> =>
    new Set((await all()).map((r) => r.scheduled_for)).size;
  for (let i = 0; i < 4; i++) {
    await round();
    passTo(MINUTE);
  }
  await round();
  expect(await times()).toBe((await all()).length);
  expect(await times()).toBeGreaterThanOrEqual(4);
});

it('a minute job for 200 minutes, with both control planes killed in turn: no gap, nothing twice', {
  timeout: 120_000,
}, async () => {
  await world.live(project);
  await minutely({ overlap: 'queue' });
  const begin = now();
  let alive = [true, true];
  for (let minute = 0; minute < 200; minute++) {
    passTo(MINUTE);
    if (minute % 7 === 0) alive = [minute % 14 === 0, minute % 14 !== 0];
    if (minute % 21 === 0) alive = [false, false];
    for (const plane of [0, 1])
      if (alive[plane] === true) await planes[plane]?.(never);
      else restart(plane);
    await offerRuns();
    await work().catch(() => undefined);
  }
  restart();
  await round();
  const times = (await all()).map((run) => run.scheduled_for ?? 0);
  // The last 100 minutes: Berth keeps 100 ended runs of a job.
  const expected = Array.from(
    { length: 90 },
    (_, i) => Math.floor((begin + 200 * MINUTE) / MINUTE) * MINUTE - i * MINUTE,
  );
  for (const time of expected) expect(times.filter((t) => t === time)).toHaveLength(1);
  expect(new Set(times).size).toBe(times.length);
});
