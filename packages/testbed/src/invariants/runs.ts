/** Checks runs, the times of jobs, and release commands. */
import { timesOf } from './cron-times.ts';
import { groupBy, type HistoryFacts, LATE_MS, type Of } from './facts.ts';

const RELEASE = 'release-';
/** Berth records so many missed times at once, and keeps so many runs of a job. */
const KEPT = 100;

export function checkRuns(facts: HistoryFacts): void {
  checkStarts(facts);
  checkReleases(facts);
  const { all, end, broken, isGone } = facts;
  if (end === null) return;
  for (const { run, project, status } of all('run_listed'))
    if (['pending', 'running'].includes(status) && !isGone(project, end.at))
      broken('settles', end.at, `run ${run} is still ${status}`);
  const jobs = groupBy(all('job_set'), jobOf);
  for (const [key, sets] of jobs)
    if (sets[0] !== undefined && !isGone(sets[0].project, end.at)) checkTimes(facts, key, sets);
}

const jobOf = ({ project, job }: { project: string; job: string | null }): string =>
  `${project} ${job ?? ''}`;
const isStart = (e: Of<'command'>): boolean => e.change === 'started';

function checkStarts({ all, broken }: HistoryFacts): void {
  const starts = groupBy(all('command').filter(isStart), (e) => e.run);
  const planned = new Map(all('run_planned').map((e) => [e.run, e]));
  const timed = new Map<string, string>();
  for (const [run, events] of starts) {
    const plan = planned.get(run);
    const most = 1 + (plan?.retries ?? 0);
    const last = events.at(-1);
    if (last === undefined) continue;
    if (events.length > most)
      broken('runs-once', last.at, `run ${run} started ${events.length} times, at most ${most}`);
    if (plan === undefined && !run.startsWith(RELEASE))
      broken('runs-once', last.at, `run ${run} started, and nobody asked for it`);
    if (plan === undefined || plan.scheduled_for === null) continue;
    const time = `${jobOf(plan)} ${plan.scheduled_for}`;
    const other = timed.get(time);
    timed.set(time, run);
    if (other !== undefined)
      broken('runs-once', last.at, `runs ${other} and ${run} started for one time of ${time}`);
  }
}

/** From its beginning to its end, the new version does not start and the old one does not stop. */
function checkReleases({ all, broken }: HistoryFacts): void {
  const commands = all('command');
  const containers = all('container');
  const stops = all('stopping');
  const scales = all('scaling');
  const ends = all('moved').filter(({ to }) => to === 'retired');
  for (const start of commands.filter((e) => isStart(e) && e.run.startsWith(RELEASE))) {
    const deployment = start.run.slice(RELEASE.length);
    const ended = commands.find((e) => e.container === start.container && e.change === 'ended');
    const until = ended?.at ?? Number.POSITIVE_INFINITY;
    const fresh = containers.find(
      (e) =>
        e.deployment === deployment &&
        e.change === 'started' &&
        (e.at < until || ended?.code !== 0),
    );
    if (fresh !== undefined)
      broken(
        'release-serves',
        fresh.at,
        `${fresh.container} of ${deployment} started although its release command ` +
          (fresh.at < until ? 'had not ended' : `ended with ${ended?.code}`),
      );
    const stopped = containers.find(
      (e) =>
        e.project === start.project &&
        e.change === 'stopped' &&
        e.for_next === true &&
        e.at > start.at &&
        e.at < until &&
        // A version that another one replaced before the command began can end later.
        !ends.some((m) => m.deployment === e.deployment && m.at <= start.at) &&
        // At count 0 a version proves that it answers, and is stopped.
        scales.findLast((s) => s.project === e.project && s.at <= e.at)?.count !== 0 &&
        // A person who stops the project ends its release command too.
        !stops.some((s) => s.project === e.project && s.at <= e.at && s.at > start.at - LATE_MS),
    );
    if (stopped !== undefined)
      broken(
        'release-serves',
        stopped.at,
        `${stopped.container} of ${stopped.deployment} was stopped for another version during ` +
          `the release command of ${deployment}`,
      );
  }
}

/** Checks the times of a job, from each change of its schedule to the next one. */
function checkTimes(
  { all, broken, end }: HistoryFacts,
  key: string,
  sets: readonly Of<'job_set'>[],
): void {
  const plans = all('run_planned').filter((e) => e.scheduled_for !== null && jobOf(e) === key);
  // Some of them have no record.
  if (new Set(plans.map((e) => e.scheduled_for)).size >= KEPT) return;
  const listed = groupBy(
    all('run_listed').filter((e) => jobOf(e) === key && e.scheduled_for !== null),
    (e) => `${e.scheduled_for}`,
  );
  for (const [time, runs] of listed)
    if (runs.length > 1)
      broken('no-silent-gap', end?.at ?? 0, `${key} has ${runs.length} runs for ${time}`);
  const settings = all('job_setting').filter((e) => jobOf(e) === key);
  for (const set of sets) {
    if (!set.enabled || set.change === 'deleted') continue;
    const next = settings.find((e) => e.at > set.at)?.at ?? Number.POSITIVE_INFINITY;
    const own = plans
      .filter((e) => e.at > set.at + LATE_MS && e.at < next && listed.has(`${e.scheduled_for}`))
      .map((e) => e.scheduled_for ?? 0);
    const clock = all('job_clock').find((e) => e.at > set.at && e.at < next)?.clock;
    // A change that arrives again moves the next time once more.
    const isFirst = own.length === 0 && set.change === 'added';
    const isDue = set.next !== null && set.next <= (clock ?? 0);
    const begun = isFirst && isDue ? [set.next ?? 0] : own;
    const spans = spansOf(begun);
    const last = spans.at(-1);
    if (last !== undefined) last.to = Math.max(last.to, clock ?? 0);
    const due = spans.flatMap(({ from, to }) => timesOf(set, from, to));
    const missing = [...new Set(due)].filter((time) => !listed.has(`${time}`));
    if (missing.length > 0)
      broken(
        'no-silent-gap',
        end?.at ?? 0,
        `job ${key} (${set.schedule} ${set.timezone}) has neither a run nor a record for ` +
          missing.map((time) => new Date(time).toISOString()).join(', '),
      );
  }
}

/** Returns the spans of time that a clock passed, which begins again when the clock is set back. */
function spansOf(times: readonly number[]): { from: number; to: number }[] {
  const spans: { from: number; to: number }[] = [];
  for (const time of times) {
    const last = spans.at(-1);
    if (last === undefined || time < last.to) spans.push({ from: time, to: time });
    else last.to = time;
  }
  return spans;
}
