/** Texts of jobs and runs: commands with quotes, schedules in words, times in their zones. */
import { describe, expect, it } from 'vitest';
import { commandReason, draftOf, NEW_JOB, requestOf } from '../src/pages/project/job-draft.ts';
import { commandText, wordsOfCommand } from '../src/parts/command-words.ts';
import { scheduleText, zonedText } from '../src/parts/schedule-text.ts';

describe('commands', () => {
  it.each([
    ['node report.js --to 42', ['node', 'report.js', '--to', '42']],
    ["sh -c 'a | b && c'", ['sh', '-c', 'a | b && c']],
    [String.raw`echo "say \"hi\" \n" a\ b`, ['echo', String.raw`say "hi" \n`, 'a b']],
    ["x ''", ['x', '']],
    ['  ', []],
  ])('%s', (text, words) => {
    expect(wordsOfCommand(text)).toEqual(words);
    expect(wordsOfCommand(commandText(words))).toEqual(words);
  });

  it('a quote without its end is no command, and the form says so', () => {
    expect(wordsOfCommand("sh -c 'a")).toBeNull();
    expect(commandReason("sh -c 'a")).toBe('a quote of the command has no end');
    expect(commandReason('')).toBe('it needs a command');
    expect(commandReason('ls')).toBeNull();
  });
});

describe('schedules', () => {
  it.each([
    ['0 6 * * MON', 'Mondays at 06:00'],
    ['5 6 * * 7', 'Sundays at 06:05'],
    ['30 8 * * 1-5', 'Mondays to Fridays at 08:30'],
    ['0 0 1 * *', 'day 1 of each month at 00:00'],
    ['*/15 * * * *', 'every 15 minutes'],
    ['* * * * *', 'every minute'],
    ['7 * * * *', 'every hour at minute 7'],
    ['@daily', 'every day at 00:00'],
    ['constructor', null],
    // 7 does not divide an hour: the last pause is shorter.
    ['*/7 * * * *', null],
    ['0 6 1 * MON', null],
    ['0 6 * 2 *', null],
    ['0 6,18 * * *', null],
    ['0 6 * * 9', null],
  ])('%s: %s', (schedule, words) => expect(scheduleText(schedule)).toBe(words));

  it('shows a time in the zone of the job', () => {
    expect(zonedText('2026-11-30T06:00:00+01:00')).toBe('2026-11-30 06:00 +01:00');
    expect(zonedText('2026-11-30T06:00:00.000Z')).toBe('2026-11-30 06:00 UTC');
  });
});

it('a job that is opened and saved keeps its settings', () => {
  const job = {
    ...NEW_JOB,
    name: 'report',
    schedule: '@daily',
    command: ['sh', '-c', "echo 'a b'"],
    timeout_seconds: 60,
    retries: 2,
    enabled: true,
    memory_bytes: 67_108_864,
    cpus: 0.5,
    devices: {},
    next_runs: [],
    last_run: null,
    config: null,
    created_by: null,
    created_at: '2026-11-28T00:00:00.000Z',
    updated_at: '2026-11-28T00:00:00.000Z',
  };
  expect(requestOf(draftOf(job))).toEqual({
    name: 'report',
    schedule: '@daily',
    timezone: 'UTC',
    command: ['sh', '-c', "echo 'a b'"],
    overlap: 'skip',
    timeout_seconds: 60,
    retries: 2,
    memory_bytes: 67_108_864,
    cpus: 0.5,
  });
});
