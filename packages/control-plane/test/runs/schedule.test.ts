/** Schedules: what is refused, and the times around daylight saving. */
import { describe, expect, it, test } from 'vitest';
import { nextTimes, type Schedule, scheduleOf, zonedTime } from '@berth/wire/schedule';

const at = (text: string): number => Date.parse(text);
function schedule(text: string, timezone = 'UTC'): Schedule {
  const parsed = scheduleOf(text, timezone);
  if ('problem' in parsed) throw new Error(parsed.problem.message);
  return parsed.schedule;
}
const next = (text: string, timezone: string, from: string, count = 3): string[] =>
  nextTimes(schedule(text, timezone), at(from), count).map((time) => zonedTime(time, timezone));
function problem(text: string, timezone = 'UTC') {
  const parsed = scheduleOf(text, timezone);
  return 'problem' in parsed ? parsed.problem : null;
}

describe('refused', () => {
  test.each([
    ['* * * *', 'cron', 'has 4 fields'],
    ['* * * * * *', 'cron', 'has 6 fields'],
    ['61 * * * *', 'cron', '61'],
    ['0 24 * * *', 'cron', '24'],
    ['0 0 * * FUNDAY', 'cron', 'the day of the week is not a cron field: FUNDAY'],
    ['0 0 L * *', 'cron', 'the day of the month is not a cron field: L'],
    ['0 0 * * 5#2', 'cron', 'day of the week'],
    ['? * * * *', 'cron', 'minute'],
    ['@yearly', 'cron', 'the names are @hourly'],
    ['@reboot', 'cron', 'the names are @hourly'],
    ['0 0 30 2 *', 'never', 'never comes'],
    ['0 0 31 4,6 *', 'never', 'never comes'],
    ['', 'cron', 'has 1 field;'],
    // Words that each object of JavaScript has.
    ['constructor', 'cron', 'has 1 field;'],
    ['__proto__', 'cron', 'has 1 field;'],
  ])('%s: %s, %s', (text, rule, part) => {
    expect(problem(text)).toMatchObject({ field: 'schedule', rule });
    expect(problem(text)?.message).toContain(part);
    expect(problem(text)?.message, 'it shows a right example').toContain('*/15 * * * *');
  });

  test.each(['Mars/Olympus', '', '+02:00', 'Europe/Berlin '])('the time zone %j', (timezone) => {
    expect(problem('@daily', timezone)).toMatchObject({ field: 'timezone', rule: 'timezone' });
    expect(problem('@daily', timezone)?.message).toContain('Europe/Berlin');
  });
});

test.each([
  ['@hourly', '2026-11-28T13:00:00Z'],
  ['@daily', '2026-11-29T00:00:00Z'],
  ['@weekly', '2026-11-29T00:00:00Z'],
  ['@monthly', '2026-12-01T00:00:00Z'],
  ['0 6 * * MON', '2026-11-30T06:00:00Z'],
  ['0 6 * * 7', '2026-11-29T06:00:00Z'],
  ['0 6 * JAN *', '2027-01-01T06:00:00Z'],
  ['0 0 29 2 *', '2028-02-29T00:00:00Z'],
  ['*/20 12 * * *', '2026-11-28T12:40:00Z'],
  ['5-10/5,50 12 * * *', '2026-11-28T12:50:00Z'],
])('%s comes next at %s', (text, expected) => {
  expect(next(text, 'UTC', '2026-11-28T12:30:00Z', 1)).toEqual([expected]);
});

it('with both day fields restricted, either one matches', () => {
  expect(next('0 0 13 * FRI', 'UTC', '2026-12-05T00:00:00Z')).toEqual([
    '2026-12-11T00:00:00Z',
    '2026-12-13T00:00:00Z',
    '2026-12-18T00:00:00Z',
  ]);
});

describe('daylight saving in Berlin', () => {
  it('a time in the gap runs at the first moment after it', () => {
    expect(next('30 2 * * *', 'Europe/Berlin', '2027-03-27T12:00:00Z')).toEqual([
      '2027-03-28T03:00:00+02:00',
      '2027-03-29T02:30:00+02:00',
      '2027-03-30T02:30:00+02:00',
    ]);
  });

  it('several times in the gap run once', () => {
    expect(next('*/20 * * * *', 'Europe/Berlin', '2027-03-28T00:30:00Z')).toEqual([
      '2027-03-28T01:40:00+01:00',
      '2027-03-28T03:00:00+02:00',
      '2027-03-28T03:20:00+02:00',
    ]);
  });

  it('a time that comes twice runs the first time', () => {
    expect(next('30 2 * * *', 'Europe/Berlin', '2026-10-24T12:00:00Z', 2)).toEqual([
      '2026-10-25T02:30:00+02:00',
      '2026-10-26T02:30:00+01:00',
    ]);
    expect(next('0 * * * *', 'Europe/Berlin', '2026-10-24T23:30:00Z')).toEqual([
      '2026-10-25T02:00:00+02:00',
      '2026-10-25T03:00:00+01:00',
      '2026-10-25T04:00:00+01:00',
    ]);
  });

  it('asked in the second hour, it goes on after it', () => {
    expect(next('*/20 * * * *', 'Europe/Berlin', '2026-10-25T01:05:00Z', 1)).toEqual([
      '2026-10-25T03:00:00+01:00',
    ]);
  });
});

it('a zone with half an hour of daylight saving', () => {
  // Lord Howe Island sets its clock back by 30 minutes at 02:00.
  const times = next('*/15 1 * * *', 'Australia/Lord_Howe', '2027-04-03T13:50:00Z', 5);
  expect(new Set(times.map((time) => time.slice(0, 16))).size).toBe(5);
});

it('returns the newest times between two moments, oldest first', () => {
  const times = schedule('*/10 * * * *').between(
    at('2026-11-28T12:00:00Z'),
    at('2026-11-28T13:00:00Z'),
    3,
  );
  expect(times.map((time) => new Date(time).toISOString().slice(11, 16))).toEqual([
    '12:40',
    '12:50',
    '13:00',
  ]);
});
