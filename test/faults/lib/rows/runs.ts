/** Faults while a command runs: of a job, of a person, or before a new version starts. */
import { expect } from 'vitest';
import type { Project } from '@berth/wire/project';
import { isOpenRun, type Run } from '@berth/wire/run';
import { waitFor } from '@berth/testbed/wait';
import { pageApp } from '../../../e2e/world.ts';
import { loadText, underLoad } from '../host-load.ts';
import type { Row } from '../row.ts';
import type { Stage } from '../stage.ts';

/** The command prints a line when it begins. */
const begins = (then: string): string[] => ['sh', '-c', `echo begins; ${then}`];

const linesOf = async ({ berth }: Stage, run: Pick<Run, 'id'>): Promise<string[]> =>
  (await berth.api.call('runLogs', { params: run, query: {} })).lines.map(({ text }) => text);

/** Starts a command that runs for minutes, and waits until it has begun. */
async function longRun(stage: Stage, { id }: Pick<Project, 'id'> = stage.project): Promise<Run> {
  const { api } = stage.berth;
  const run = await api.call('createRun', {
    params: { id },
    body: { command: begins('sleep 600'), timeout_seconds: 900 },
  });
  await waitFor(
    'the command has begun',
    async () => (await linesOf(stage, run)).includes('begins'),
    { deadlineMs: 60_000 },
  );
  return run;
}

const ended = (stage: Stage, run: Pick<Run, 'id'>): Promise<Run> =>
  waitFor(
    'the run has ended',
    async () => {
      const now = await stage.berth.api.call('getRun', { params: run });
      return !isOpenRun(now.status) && now;
    },
    { deadlineMs: 120_000 },
  );

/** The command began once, and no container of it is left. */
async function expectOnce(stage: Stage, run: Run): Promise<void> {
  expect((await linesOf(stage, run)).filter((line) => line === 'begins')).toHaveLength(1);
  expect(await stage.berth.api.call('getRun', { params: run })).toMatchObject({ attempt: 1 });
  // The agent reports the end before it removes the container.
  await untilStates(stage, run, '');
}

/** The states of the containers of a run, with a line end between two. */
async function statesOf({ engines }: Stage, { id }: Pick<Run, 'id'>): Promise<string> {
  const { stdout } = await engines.node.docker([
    ...['ps', '-a', '--filter', `label=berth.run=${id}`, '--format', '{{.State}}'],
  ]);
  return stdout.trim();
}

const untilStates = (stage: Stage, run: Pick<Run, 'id'>, states: string): Promise<unknown> =>
  waitFor(
    `the containers of the run are: ${states}`,
    async () => (await statesOf(stage, run)) === states,
    { deadlineMs: 90_000 },
  );

/** Deploys a second project on node-1. */
async function otherProject({ berth, git }: Stage): Promise<Project> {
  const name = 'deleted';
  const { url } = await git.createRepo(name, pageApp(1));
  const project = await berth.createProject({
    name,
    git_url: url,
    domain_prefix: name,
    drain_seconds: 0,
    stop_grace_seconds: 1,
  });
  const deployed = await berth.settled(await berth.deploy(project), 90_000);
  expect(deployed.status, deployed.error?.message).toBe('running');
  return project;
}

const MINUTE_MS = 60_000;

export const RUN_ROWS: readonly Row[] = [
  {
    fault: 'engine restarted while a command runs',
    answer: 'the command ends with its container, the run says so, and it is not repeated',
    invariants: ['settles', 'nothing-destroyed'],
    stage: 'main',
    outage: true,
    lastsMs: 120_000,
    async run(stage) {
      const run = await longRun(stage);
      await stage.recorder.fromOutside(async () =>
        stage.engines.node.faults?.restartDaemon('SIGTERM'),
      );
      expect(['failed', 'lost']).toContain((await ended(stage, run)).status);
      await expectOnce(stage, run);
      await stage.serves(stage.version(), 60_000);
    },
  },
  {
    fault: 'power cut of the node while a command runs',
    answer: 'the run is `lost` or `failed` when the agent is back, and it is not repeated',
    invariants: ['settles', 'nothing-destroyed'],
    stage: 'main',
    outage: true,
    lastsMs: 120_000,
    async run(stage) {
      const run = await longRun(stage);
      const agent = stage.agent('node-1');
      await agent.crash();
      await stage.recorder.fromOutside(async () =>
        stage.engines.node.faults?.restartDaemon('power-cut'),
      );
      await agent.start();
      expect(['failed', 'lost']).toContain((await ended(stage, run)).status);
      await expectOnce(stage, run);
      await stage.serves(stage.version(), 60_000);
    },
  },
  {
    fault: 'agent killed between creation and start of a command, which is cancelled meanwhile',
    answer:
      'the run is `cancelled`, the command never runs, and the restarted agent removes its container',
    invariants: ['settles', 'nothing-destroyed'],
    stage: 'main',
    lastsMs: 120_000,
    async run(stage) {
      const { api } = stage.berth;
      const agent = stage.agent('node-1');
      await agent.stop();
      await agent.start({ BERTH_FAIL_POINTS: 'command.created=kill' });
      const run = await api.call('createRun', {
        params: { id: stage.project.id },
        body: { command: begins('sleep 600') },
      });
      await waitFor('the agent dies', () => agent.process().exit(), { deadlineMs: 60_000 });
      expect(await statesOf(stage, run)).toBe('created');
      await api.call('cancelRun', { params: run });
      await agent.start();
      expect(await ended(stage, run)).toMatchObject({ status: 'cancelled', exit_code: null });
      await untilStates(stage, run, '');
      expect(await linesOf(stage, run)).not.toContain('begins');
    },
  },
  {
    fault: 'agent killed while a command runs, and its project is deleted meanwhile',
    answer: 'the restarted agent stops the command and removes its container; the project is gone',
    invariants: ['settles', 'nothing-destroyed'],
    stage: 'main',
    lastsMs: 180_000,
    async run(stage) {
      const { api } = stage.berth;
      const project = await otherProject(stage);
      const run = await longRun(stage, project);
      const agent = stage.agent('node-1');
      await agent.crash();
      await api.call('deleteProject', { params: { id: project.id } });
      expect(await statesOf(stage, run)).toBe('running');
      await agent.start();
      await untilStates(stage, run, '');
      await waitFor(
        'the project is deleted',
        async () => (await api.call('listProjects', { query: {} })).items.length === 1,
        { deadlineMs: 60_000 },
      );
    },
  },
  {
    fault: 'control plane killed at the time of a job',
    answer: 'each minute of the job has one run, or one record that says why not',
    invariants: ['settles', 'nothing-destroyed'],
    stage: 'main',
    lastsMs: 4 * MINUTE_MS,
    async run(stage) {
      const { api } = stage.berth;
      const params = { id: stage.project.id };
      const job = await api.call('createJob', {
        params,
        body: { name: 'minute', schedule: '* * * * *', command: begins('true') },
      });
      const first = Date.parse(job.next_runs[0] ?? '');
      await waitFor('one second is left', async () => Date.now() > first - 1_000, {
        deadlineMs: 2 * MINUTE_MS,
      });
      await stage.berth.controlPlane.crash();
      await waitFor('the time has passed', async () => Date.now() > first + 2_000, {
        deadlineMs: MINUTE_MS,
      });
      await stage.berth.controlPlane.start();
      const times = [first, first + MINUTE_MS].map((ms) => new Date(ms).toISOString());
      const recorded = async (): Promise<Run[]> =>
        (await api.call('projectRuns', { params, query: { job: 'minute', limit: 100 } })).items;
      const runs = await waitFor(
        'both times have an end',
        async () => {
          const all = await recorded();
          const own = times.map((at) => all.filter((run) => run.scheduled_for === at));
          return own.every(([run]) => run !== undefined && !isOpenRun(run.status)) && own;
        },
        { deadlineMs: 3 * MINUTE_MS },
      );
      await api.call('deleteJob', { params: { ...params, name: 'minute' } });
      expect(runs.map((one) => one.length)).toEqual([1, 1]);
      for (const run of runs.flat())
        if (run.status !== 'succeeded') expect(run.reason ?? run.error?.message).not.toBeFalsy();
    },
  },
  {
    fault: 'a release command that fails, under 50 requests a second',
    answer: 'the deployment ends `release_failed`, no request fails, and the command ran once',
    invariants: ['settles', 'old-serves', 'nothing-destroyed'],
    stage: 'relay',
    async run(stage) {
      const { api } = stage.berth;
      const params = { id: stage.project.id };
      const release = (command: string[] | null): Promise<unknown> =>
        api.call('patchProject', { params, body: { release_command: command } });
      await release(begins('sleep 5; exit 3'));
      const hosts = {
        pages: new Map([['app', new RegExp(`^version ${stage.version()}$`)]]),
        get: (prefix: string) => stage.askHost(prefix),
      };
      const load = await underLoad(
        hosts,
        async () => {
          const asked = await stage.releaseBroken({ 'www/next.html': 'next' });
          await stage.ends(asked, 'failed', 'release_failed');
          const lines = await stage.berth.logs(asked);
          expect(lines.filter((line) => line === 'begins')).toHaveLength(1);
        },
        { perSecond: 50 },
      );
      await release(null);
      console.log(`release command that fails: ${loadText(load)}`);
      expect({ none: load.none, wrong: load.wrong }).toEqual({ none: 0, wrong: [] });
      expect(load.sent).toBeGreaterThan(100);
    },
  },
];
