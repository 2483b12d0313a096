/** The texts of the form of a job, and the request that they make. */
import type { Job, JobCreate, Overlap } from '@berth/wire/job';
import { commandText, wordsOfCommand } from '../../parts/command-words.ts';

export const DEFAULT_SECONDS = 3_600;
export type JobDraft = {
  name: string;
  schedule: string;
  timezone: string;
  command: string;
  overlap: Overlap;
  seconds: number | null;
  retries: number | null;
  /** Bytes; null: the limit of the project. */
  memory_bytes: number | null;
  cpus: number | null;
};
export const NEW_JOB: JobDraft = {
  name: '',
  schedule: '',
  timezone: 'UTC',
  command: '',
  overlap: 'skip',
  seconds: DEFAULT_SECONDS,
  retries: 0,
  memory_bytes: null,
  cpus: null,
};
export const draftOf = (job: Job): JobDraft => ({
  name: job.name,
  schedule: job.schedule,
  timezone: job.timezone,
  command: commandText(job.command),
  overlap: job.overlap,
  seconds: job.timeout_seconds,
  retries: job.retries,
  memory_bytes: job.memory_bytes,
  cpus: job.cpus,
});

/** Says why a command cannot run, as the end of a sentence; null: it can. */
export function commandReason(text: string): string | null {
  const words = wordsOfCommand(text);
  if (words === null) return 'a quote of the command has no end';
  return words.length === 0 ? 'it needs a command' : null;
}
export function draftReason({ name, schedule, command }: JobDraft): string | null {
  if (name === '') return 'it needs a name';
  return schedule.trim() === '' ? 'it needs a schedule' : commandReason(command);
}

export const requestOf = (draft: JobDraft): JobCreate => ({
  name: draft.name,
  schedule: draft.schedule.trim(),
  timezone: draft.timezone.trim(),
  command: wordsOfCommand(draft.command) ?? [],
  overlap: draft.overlap,
  timeout_seconds: draft.seconds ?? DEFAULT_SECONDS,
  retries: draft.retries ?? 0,
  memory_bytes: draft.memory_bytes,
  cpus: draft.cpus,
});
