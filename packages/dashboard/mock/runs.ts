/** Jobs and runs of the mock. */
import type { LogLine } from '@berth/wire/deployment';
import type { Job } from '@berth/wire/job';
import type { Run, RunState } from '@berth/wire/run';
import { ago, inFuture } from './rows.ts';

const run = (id: string, project: string, status: RunState, given: Partial<Run> = {}): Run => ({
  id,
  project_id: project,
  job: null,
  trigger: 'person',
  command: ['node', 'migrate.js', '--to', '42'],
  env_names: [],
  status,
  reason: null,
  scheduled_for: null,
  created_at: ago(600),
  started_at: ago(590),
  ended_at: status === 'running' ? null : ago(500),
  exit_code: status === 'succeeded' ? 0 : null,
  deployment_id: null,
  node_id: 'node-b',
  node_name: 'node-b',
  attempt: 1,
  timeout_seconds: 3_600,
  memory_bytes: null,
  cpus: null,
  devices: {},
  cancel_requested: false,
  error: null,
  created_by: 'grace@example.org',
  ...given,
});
const ofReport: Partial<Run> = {
  job: 'report',
  trigger: 'schedule',
  command: ['sh', '-c', 'node report.js | gzip > /data/report.gz'],
  created_by: null,
};
const notRun = { started_at: null, node_id: null, node_name: null, attempt: 0 };

export const runsOf = (project: string): Run[] => [
  run('run-1', project, 'running', {
    deployment_id: 'dep-explorer-14',
    devices: { 'nvidia.com/gpu': 1 },
  }),
  run('run-2', project, 'failed', {
    exit_code: 3,
    error: { code: 'command_failed', message: 'the command ended with exit code 3' },
  }),
  run('run-3', project, 'missed', {
    ...ofReport,
    ...notRun,
    reason: 'the project is stopped',
    scheduled_for: ago(86_400),
  }),
  run('run-4', project, 'succeeded', { ...ofReport, scheduled_for: ago(172_800) }),
];
export const jobsOf = (project: string): Job[] => {
  const job: Job = {
    name: 'report',
    schedule: '0 6 * * MON',
    timezone: 'Europe/Berlin',
    command: ofReport.command ?? [],
    enabled: true,
    overlap: 'skip',
    timeout_seconds: 3_600,
    memory_bytes: null,
    cpus: null,
    devices: { 'nvidia.com/gpu': 2 },
    retries: 0,
    next_runs: [inFuture(86_400), inFuture(691_200), inFuture(1_296_000)],
    last_run: runsOf(project)[2] ?? null,
    config: null,
    created_by: 'grace@example.org',
    created_at: ago(9e5),
    updated_at: ago(9e5),
  };
  const off = { enabled: false, next_runs: [], last_run: null };
  const config = { file: 'berth.toml', commit: '3f2a91c0'.padEnd(40, '0') };
  return [{ ...job, name: 'clean', schedule: '*/7 * * * *', timezone: 'UTC', ...off, config }, job];
};

export const RUN_LINES: readonly LogLine[] = [
  { seq: 1, at: ago(589), stream: 'stdout', step: null, text: 'adding column customers.email' },
  {
    seq: 2,
    at: ago(520),
    stream: 'stderr',
    step: null,
    text: 'error: column "email" exists already',
  },
];
