/** Reasons to wait are compared as data; texts of earlier versions stay readable. */
import { describe, expect, it, test } from 'vitest';
import { restOf } from '../../src/domain/deployments/rest.ts';
import type { Refusals } from '../../src/domain/nodes/refusal.ts';
import {
  plainWaitText,
  sameWait,
  waitingFor,
  type WaitReason,
  waitReasonOf,
  waitsFor,
  waitText,
} from '../../src/domain/deployments/wait-reason.ts';
import { on } from './fixtures.ts';

const refused = (since: number, hostname = 'a'): Refusals => ({
  named: [{ hostname, refusal: { kind: 'offline', since } }],
  others: [{ refusal: { kind: 'cordoned' }, count: 2 }],
});
const noNode = (refusals: Refusals): WaitReason => ({
  kind: 'no_node',
  role: 'deploy',
  refusals,
  engines_down: false,
});
const still: WaitReason = { kind: 'still_works', node: 'a' };

describe('the same reason', () => {
  it.each<[string, boolean, WaitReason, WaitReason]>([
    ['another time', true, noNode(refused(1)), noNode(refused(2))],
    ['another node', false, noNode(refused(1)), noNode(refused(1, 'b'))],
    [
      'another number of nodes',
      false,
      noNode(refused(1)),
      noNode({ ...refused(1), others: [{ refusal: { kind: 'cordoned' }, count: 3 }] }),
    ],
    ['another kind', false, still, { kind: 'still_runs', node: 'a' }],
    ['another field', false, still, { kind: 'still_works', node: 'b' }],
    [
      'the same reason inside',
      true,
      { kind: 'project_stopped_and', because: noNode(refused(1)) },
      { kind: 'project_stopped_and', because: noNode(refused(2)) },
    ],
    [
      'another reason inside',
      false,
      { kind: 'project_stopped_and', because: still },
      { kind: 'project_stopped_and', because: noNode(refused(2)) },
    ],
  ])('%s: %s', (_, isSame, a, b) => {
    expect(sameWait(a, b)).toBe(isSame);
  });

  it('a stored reason equals the one that was stored', () => {
    const reason: WaitReason = { kind: 'not_restarted', because: noNode(refused(1)) };
    expect(sameWait(JSON.parse(JSON.stringify(reason)) as WaitReason, reason)).toBe(true);
  });
});

test('the stored text has no figures, that of the story has them', () => {
  const reason = noNode(refused(0));
  expect(plainWaitText(reason)).toBe('a is offline; 2 more: is cordoned');
  expect(waitText(reason)).toBe('a is offline since 1970-01-01T00:00:00.000Z; 2 more: is cordoned');
});

describe('a row of an earlier version', () => {
  const text = plainWaitText(still);
  it('has only the text, which still counts', () => {
    const row = { waiting: text, waiting_reason: null };
    expect(waitReasonOf(row)).toBeNull();
    expect(waitsFor(row, still)).toBe(true);
    expect(waitsFor(row, { kind: 'registry_clean_up' })).toBe(false);
  });
  it('of a project at rest has a reason', () => {
    const row = { ...waitingFor({ kind: 'project_stopped' }), waiting_reason: null };
    expect(waitReasonOf(row)).toEqual({ kind: 'project_stopped' });
  });
  it('whose text is newer than its reason: the text counts', () => {
    const row = { ...waitingFor(still), waiting: 'written by an earlier version' };
    expect(waitReasonOf(row)).toBeNull();
    expect(waitsFor(row, still)).toBe(false);
  });
});

describe('why a running version is stopped, as data', () => {
  const rests = (over: Parameters<typeof on.running>[0]) => restOf(on.running(over));
  const asked = { stopped_first: 'asked' as const, health: null };
  it.each<[string, ReturnType<typeof restOf>, Parameters<typeof on.running>[0]]>([
    ['it is not', null, {}],
    ['it only waits', null, waitingFor({ kind: 'retire_lost', node: 'a' })],
    ['its project is stopped', 'stopped', { ...asked, ...waitingFor({ kind: 'project_stopped' }) }],
    [
      'its project is scaled to 0',
      'scaled_to_zero',
      { ...asked, ...waitingFor({ kind: 'scaled_to_zero' }) },
    ],
    [
      'the same, and its agent cannot stop it',
      'scaled_to_zero',
      {
        ...asked,
        ...waitingFor({ kind: 'project_stopped_but_runs', node: 'a', at_zero: true }),
      },
    ],
    [
      'the same, and its volumes must leave their node',
      'scaled_to_zero',
      {
        ...asked,
        ...waitingFor({ kind: 'project_stopped_and', because: still, at_zero: true }),
      },
    ],
    ['it stopped for a newer version', 'newer_version', { stopped_first: 'stopped' }],
  ])('%s', (_, expected, over) => expect(rests(over)).toBe(expected));
});
