/** The request of a run, for tests that write one to the store. */
import type { NewRun } from '../src/domain/runs/run-store.ts';

/** A run of a person with the command `true`. */
export const newRun = (
  given: Pick<NewRun, 'id' | 'project_id' | 'queue_deadline_at'> & Partial<NewRun>,
): NewRun => ({
  job: null,
  trigger: 'person',
  command: ['true'],
  env: {},
  scheduled_for: null,
  timeout_seconds: 60,
  memory_bytes: null,
  cpus: null,
  devices: null,
  stdin: false,
  retries: 0,
  created_by: null,
  ...given,
});
