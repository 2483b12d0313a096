/** Checks pushes from forges and the commit statuses that go back to them. */
import { groupBy, type HistoryFacts, type Of } from './facts.ts';

/** A request to a forge takes at most this long. */
const SENDING_MS = 10_000;

export function checkPushes({ all, broken, isGone, end }: HistoryFacts): void {
  for (const [id, seen] of groupBy(all('delivery'), (e) => e.id)) {
    let firstVerdict: Of<'delivery'> | null = null;
    for (const e of seen) {
      if (
        firstVerdict !== null &&
        e.sent > firstVerdict.at &&
        (e.verdict !== firstVerdict.verdict || e.deployment !== firstVerdict.deployment)
      )
        broken(
          'one-verdict',
          e.at,
          `delivery ${id} was ${firstVerdict.verdict}, then ${e.verdict ?? 'waits'}`,
        );
      if (firstVerdict === null && e.verdict !== null) firstVerdict = e;
    }
    const last = seen.at(-1);
    if (
      end !== null &&
      firstVerdict === null &&
      last !== undefined &&
      !isGone(last.project, Infinity)
    )
      broken('one-verdict', end.at, `delivery ${id} has no verdict at the end`);
  }
  for (const [push, caused] of groupBy(all('caused'), (e) => e.push)) {
    const deployments = [...new Set(caused.map((e) => e.deployment))];
    if (deployments.length > 1)
      broken('push-once', caused.at(-1)?.at ?? 0, `${push} caused ${deployments.join(' and ')}`);
  }
  for (const e of all('tip'))
    if (!e.deployed)
      broken(
        'last-push',
        e.at,
        `project ${e.project}: commit ${e.commit} was pushed last, and is not live`,
      );
}

export function checkStatuses({ all, broken }: HistoryFacts): void {
  const byCommit = groupBy(all('status'), (e) => e.commit);
  for (const due of all('status_due')) {
    const last = byCommit.get(due.commit)?.at(-1);
    const shown = last === undefined ? 'no status' : `${last.state} of ${last.deployment}`;
    if (last === undefined || last.deployment !== due.deployment || last.state !== due.state)
      broken(
        'last-status',
        due.at,
        `commit ${due.commit}: the forge has ${shown} instead of ` +
          `${due.state} of ${due.deployment}`,
      );
  }
  // After a kill, a stall or a lost answer nobody knows whether a status has arrived.
  const doubts = [...all('serving').filter((e) => !e.up), ...all('cut')].map((e) => e.at);
  for (const [what, sent] of groupBy(
    all('status'),
    (e) => `${e.state} (${e.text}) of commit ${e.commit} and deployment ${e.deployment}`,
  ))
    for (const [i, e] of sent.entries()) {
      const before = sent[i - 1];
      if (
        before?.heard === true &&
        !doubts.some((at) => before.at - SENDING_MS <= at && at <= e.at)
      )
        broken('status-once', e.at, `the forge got ${what} twice`);
    }
}
