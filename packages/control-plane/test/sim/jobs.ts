/**
 * People who use jobs, runs and release commands while everything else happens, and agents that die
 * while a command runs. Only some runs have them. A source of chance of its own leaves the other
 * decisions of the seed as they are.
 */
import type { History } from '@berth/testbed/history';
import type { Job, JobPatch } from '@berth/wire/job';
import { DomainError } from '../../src/domain/platform/errors.ts';
import type { Agent } from './agent.ts';
import { type ControlPlaneProcess, type Endpoints, LIMITS } from './control-plane.ts';
import { DEVICE } from './engine.ts';
import type { ControlPlane } from './front.ts';
import type { Random } from './random.ts';
import type { Life, World } from './world.ts';

export type Jobs = {
  prepare(): Promise<void>;
  begin(forMs: number): void;
  end(): void;
  /** Disables all jobs, until that has worked. */
  rest(): Promise<void>;
};

/** A zone that changes its clock, and moments at which it does. */
const ZONES = [
  { timezone: 'Europe/Berlin', changes: ['2026-10-25T01:00Z', '2027-03-28T01:00Z'] },
  { timezone: 'America/New_York', changes: ['2026-11-01T06:00Z', '2027-03-14T07:00Z'] },
  { timezone: 'Australia/Lord_Howe', changes: ['2026-10-03T15:30Z', '2027-04-03T15:00Z'] },
] as const;
type Zone = (typeof ZONES)[number];
export const zoneOf = (chance: Random): Zone => chance.pick(ZONES);

const SCHEDULES = ['* * * * *', '* * * * *', '*/2 * * * *', '*/5 * * * *', '0 * * * *'] as const;
/** Times near the change of a clock. */
const ZONED = ['30 2 * * *', '*/20 1-3 * * *', '*/15 * * * *', '5,35 2 * * *'] as const;
const OVERLAPS = ['skip', 'queue', 'cancel'] as const;
const MAX_JOBS_OF_PROJECT = 2;
/** A message can arrive this late, and twice, so people leave a job alone for this long. */
const LATE_MS = 10_000;

export function createJobs(deps: {
  world: World;
  history: History;
  controlPlane: ControlPlane;
  controlPlanes: readonly Pick<ControlPlaneProcess, 'jump'>[];
  agents: readonly Agent[];
  projects: ReadonlyMap<string, string>;
  zone: Zone;
  random: Random;
  /** Decides which jobs ask for devices; null: none does. */
  devices: Random | null;
  deploy: (project: string) => Promise<void>;
  /** Whether no fault may keep an agent silent for long. */
  isGentle: boolean;
}): Jobs {
  const { world, history, controlPlane, agents, projects, zone, random } = deps;
  const life: Life = { name: 'people with jobs', alive: true };
  const heal: (() => void)[] = [];
  /** The jobs that people know, with the time until which nobody changes them. */
  const known = new Map<string, { project: string; name: string; until: number }>();
  const ask = <T>(what: (api: Endpoints) => T | Promise<T>): Promise<T> =>
    controlPlane.ask(life, what);

  /** Records a change that moves the times of a job, and what is known afterwards. */
  async function set(
    { project, name }: { project: string; name: string },
    change: 'added' | 'changed' | 'deleted',
    send: (api: Endpoints) => Promise<Job | void>,
  ): Promise<void> {
    history.record({ type: 'job_setting', project, job: name });
    const key = `${project} ${name}`;
    const until = world.now() + 2 * LATE_MS;
    known.set(key, { project, name, until });
    const job = await ask(send);
    if (change === 'deleted') known.delete(key);
    history.record({
      type: 'job_set',
      project,
      job: name,
      change,
      schedule: job?.schedule ?? '',
      timezone: job?.timezone ?? '',
      enabled: job?.enabled === true,
      next: job?.next_runs[0] === undefined ? null : Date.parse(job.next_runs[0]),
    });
  }

  const times = (): { schedule: string; timezone: string } =>
    random.chance(0.5)
      ? { schedule: random.pick(SCHEDULES), timezone: 'UTC' }
      : { schedule: random.pick(ZONED), timezone: zone.timezone };
  const how = () => ({
    overlap: random.pick(OVERLAPS),
    retries: random.chance(0.3) ? random.int(1, 2) : 0,
    timeout_seconds: random.int(5, 30),
  });

  function add(project: string): Promise<void> | null {
    const own = [...known.values()].filter((job) => job.project === project);
    if (own.length >= MAX_JOBS_OF_PROJECT) return null;
    const name = `job-${random.int(1, 9)}`;
    if (known.has(`${project} ${name}`)) return null;
    const devices = deps.devices?.chance(0.9) === true ? { [DEVICE]: 1 } : {};
    const body = { name, command: ['node', 'report.js'], devices, ...times(), ...how() };
    return set({ project, name }, 'added', ({ jobs }) => jobs.create(project, body));
  }

  const release = (project: string): Promise<unknown> =>
    ask(({ stores }) =>
      stores.projects.patch(
        project,
        {
          release_command: random.chance(0.25) ? null : ['node', 'migrate.js'],
          release_timeout_seconds: random.int(5, 40),
        },
        world.now(),
      ),
    );

  function changeJob(what: number): Promise<unknown> | null {
    const job = random.maybe([...known.values()].filter(({ until }) => until <= world.now()));
    if (job === undefined || !projects.has(job.project)) return null;
    const { project, name } = job;
    const patch = (body: JobPatch): Promise<void> =>
      set(job, 'changed', ({ jobs }) => jobs.patch(project, name, body));
    if (what < 0.25) return ask(({ jobs }) => jobs.patch(project, name, how()));
    if (what < 0.35) return patch(times());
    if (what < 0.42) return patch({ enabled: false });
    if (what < 0.55) return patch({ enabled: true });
    if (what < 0.6) return set(job, 'deleted', ({ jobs }) => jobs.delete(project, name));
    return ask(({ jobs }) => jobs.run(project, name));
  }

  const cancel = (project: string): Promise<unknown> =>
    ask(async ({ stores, changes }) => {
      const open = (await stores.runs.open()).filter((run) => run.project_id === project);
      const run = random.maybe(open);
      if (run === undefined) return;
      await stores.runs.cancel(run.id, 'cancelled by a person', world.now());
      changes.notify('work', ...(run.node_id === null ? [] : [`node:${run.node_id}` as const]));
    });

  function forAWhile(ms: number, undo: () => void): void {
    let isOver = false;
    const once = (): void => {
      if (isOver) return;
      isOver = true;
      undo();
    };
    heal.push(once);
    world.after(ms, life, once);
  }

  /** An agent dies in the middle of a command, and sometimes somebody removes its container. */
  function killAgent(): void {
    const busy = agents.filter(
      ({ engine }) =>
        engine.up &&
        engine.commands.list().some((c) => c.startedAt !== null && c.exitCode === null),
    );
    const agent = random.maybe(busy);
    if (agent === undefined) return;
    const { commands } = agent.engine;
    if (random.chance(0.15) && !deps.isGentle) {
      agent.engine.cutPower();
      agent.kill();
      return forAWhile(random.int(500, 15_000), () => {
        agent.engine.powerOn();
        agent.start();
      });
    }
    agent.kill();
    if (random.chance(0.25)) for (const { id } of commands.list()) commands.remove(id);
    const isLong = !deps.isGentle && random.chance(0.3);
    const ms = isLong ? LIMITS.leaseMs + LIMITS.returnMs + random.int(-4_000, 20_000) : 0;
    forAWhile(Math.max(ms, random.int(100, 8_000)), () => agent.start());
  }

  /** Most jumps are forward, so that many times of jobs pass in a short run. */
  function jump(): void {
    const { controlPlanes } = deps;
    const ms = random.int(5_000, 70_000) * (random.chance(0.8) ? 1 : -1);
    const jumping = random.chance(0.7) ? controlPlanes : [random.pick(controlPlanes)];
    for (const one of jumping) one.jump(ms);
  }

  function act(): void {
    const project = random.maybe([...projects.keys()]);
    if (project === undefined) return;
    const what = random.next();
    const doing = ((): Promise<unknown> | null => {
      if (what < 0.12) return add(project);
      if (what < 0.42) return changeJob(random.next());
      if (what < 0.47) return cancel(project);
      if (what < 0.53) return release(project);
      if (what < 0.58) return deps.deploy(project);
      if (what < 0.85) jump();
      else killAgent();
      return null;
    })();
    doing?.catch(ignoreErrors);
  }

  return {
    async prepare() {
      for (const project of projects.keys()) {
        if (random.chance(0.6)) await release(project).catch(ignoreErrors);
        void deps.deploy(project).catch(ignoreErrors);
        if (random.chance(0.9)) await add(project)?.catch(ignoreErrors);
      }
    },
    begin(forMs) {
      for (let t = random.int(0, 3_000); t < forMs; t += random.int(500, 3_000))
        world.after(t, life, act);
    },
    end() {
      life.alive = false;
      for (const undo of heal) undo();
    },
    async rest() {
      const resting: Life = { name: 'people who disable jobs', alive: true };
      for (;;)
        try {
          await controlPlane.ask(resting, async ({ stores, jobs }) => {
            for (const { project_id: project, name } of await stores.jobs.enabled()) {
              history.record({ type: 'job_setting', project, job: name });
              await jobs.patch(project, name, { enabled: false });
            }
          });
          return;
        } catch (error) {
          ignoreErrors(error);
          await world.sleep(500, resting);
        }
    },
  };
}

/** Refused changes and lost answers. */
function ignoreErrors(error: unknown): void {
  if (!(error instanceof Error || error instanceof DomainError)) throw error;
}
