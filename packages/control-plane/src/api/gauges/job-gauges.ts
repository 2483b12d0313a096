/** Gauges of jobs and runs. */
import { isOpenRun, RUN_STATES } from '@berth/wire/run';
import type { JobStore } from '../../domain/runs/job-store.ts';
import type { RunStore } from '../../domain/runs/run-store.ts';
import type { GaugeRow } from './gauge-row.ts';

export type Deps = {
  jobs: Pick<JobStore, 'enabled' | 'failing'>;
  runs: Pick<RunStore, 'open'>;
  now: () => number;
};

export const jobGauges = ({ jobs, runs, now }: Deps): GaugeRow[] => [
  {
    name: 'berth_job_late_seconds',
    help: 'How long ago the oldest time of a job passed that nobody has handled; 0 if none',
    labels: [],
    async read() {
      const [first] = await jobs.enabled();
      const late =
        first === undefined || first.next_at === null
          ? 0
          : Math.max(0, now() - first.next_at) / 1000;
      return [{ labels: {}, value: late }];
    },
  },
  {
    name: 'berth_jobs_failing',
    help: 'Jobs whose newest run failed or was lost',
    labels: [],
    read: async () => [{ labels: {}, value: (await jobs.failing()).length }],
  },
  {
    name: 'berth_runs_open',
    help: 'Runs that wait or work, by status',
    labels: ['status'],
    async read() {
      const open = await runs.open();
      return RUN_STATES.filter(isOpenRun).map((status) => ({
        labels: { status },
        value: open.filter((run) => run.status === status).length,
      }));
    },
  },
];
