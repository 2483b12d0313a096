/** Steps of a drain. */
import { describe, expect, it } from 'vitest';
import {
  AT_ONCE,
  drainStep,
  inTurn,
  type MovingInstances,
  type Remaining,
  type Rest,
  newDrain,
  TRIED_AT_ONCE,
  withFreshTries,
  TRIES,
} from '../../src/flow/drain.ts';
import { redeploy } from '../../src/flow/redeploy.ts';
import { facts, NOW, old, on } from './fixtures.ts';

const left = (project: string, over: Partial<Remaining> = {}): Remaining => ({
  running: old({ id: `d-${project}`, project_id: project }),
  inProgress: null,
  tried: null,
  rest: null,
  instances: null,
  ...over,
});
const moving = (project: string): Remaining =>
  left(project, { inProgress: on.building({ id: `m-${project}`, project_id: project }) });
const failed = (project: string): Remaining =>
  left(project, {
    tried: on.ended('failed', {
      id: `f-${project}`,
      error: { code: 'no_room', message: 'no room anywhere' },
    }),
  });
const tried = (count: number, deployment_id: string | null = null) => ({
  count,
  deployment_id,
  problem: null,
  at: NOW,
});

it('starts with one move, whose deployment id is in the record before the request', () => {
  const { drain, move } = drainStep(newDrain(NOW), [left('a'), left('b')], false, NOW, 'x1');
  expect(move).toMatchObject({ id: 'x1', running: { id: 'd-a' } });
  expect(drain).toMatchObject({
    finished_at: null,
    moved: 0,
    tries: { a: { count: 1, deployment_id: 'x1' } },
  });
});
it(`moves at most ${AT_ONCE} projects at once, whoever requested the deployments`, () => {
  expect(
    drainStep(newDrain(NOW), [moving('a'), left('b'), left('c')], false, NOW, 'x').move,
  ).not.toBeNull();
  expect(
    drainStep(newDrain(NOW), [moving('a'), moving('b'), left('c')], false, NOW, 'x').move,
  ).toBeNull();
});
it('a failed move is retried after the untried ones, and the record keeps its reason', () => {
  const before = { ...newDrain(NOW), tries: { a: tried(1, 'f-a') } };
  const { drain, move } = drainStep(before, [failed('a'), left('b')], false, NOW, 'x');
  expect(move?.running.project_id).toBe('b');
  expect(drain.tries['a']).toMatchObject({ count: 1, problem: 'no room anywhere' });
  expect(drainStep(drain, [failed('a')], false, NOW, 'y')).toMatchObject({
    move: { id: 'y' },
    drain: { moved: 1, tries: { a: { count: 2 } } },
  });
});
it(`a deployment stays on the node after ${TRIES} tries, and the drain does not end`, () => {
  const before = { ...newDrain(NOW), tries: { a: tried(TRIES, 'f-a') } };
  const step = drainStep(before, [failed('a')], false, NOW, 'x');
  expect(step).toMatchObject({
    move: null,
    drain: { finished_at: null, tries: { a: { count: TRIES, problem: 'no room anywhere' } } },
  });
  expect(drainStep(step.drain, [failed('a')], false, NOW + 1, 'x').drain).toEqual(step.drain);
  expect(
    drainStep(withFreshTries(step.drain, NOW), [failed('a')], false, NOW, 'x').move,
  ).not.toBeNull();
});
it('ends when no deployment runs on the node and none arrives', () => {
  const before = { ...newDrain(NOW), moved: 1, tries: { a: tried(1) } };
  expect(drainStep(before, [], true, NOW, 'x').drain).toMatchObject({
    finished_at: null,
    moved: 2,
    tries: {},
  });
  expect(drainStep(before, [], false, NOW, 'x').drain).toMatchObject({
    finished_at: NOW,
    moved: 2,
  });
});

it('a running deployment is redeployed with the same image and without a build, unless another one is in progress', () => {
  const running = old();
  const given = (live: ReturnType<typeof old>[]) =>
    redeploy({ id: 'd9', note: 'node x is drained', trigger: 'drain' }, running, facts({ live }));
  expect(given([running])?.createDeployment).toMatchObject({
    id: 'd9',
    rollback_of: 'd1',
    image_tag: running.image_tag,
    note: 'node x is drained',
  });
  expect(given([running])?.storyLines[0]?.message).toBe(
    'requested: deployment 1 again; node x is drained',
  );
  expect(given([running, on.pending()])).toBeNull();
  expect(given([on.running()])).toBeNull();
});

describe('a deployment with several instances', () => {
  const moves = (over: Partial<MovingInstances> = {}): Partial<Remaining> => ({
    instances: { unasked: 0, isMoving: false, problem: null, ...over },
  });
  const step = (remaining: Remaining[], before = newDrain(NOW)) =>
    drainStep(before, remaining, false, NOW, 'x');

  it('moves its instances without a deployment', () => {
    const given = step([left('a', moves({ unasked: 1 }))]);
    expect(given).toMatchObject({
      move: { running: { id: 'd-a' }, ofInstances: true },
      drain: { tries: { a: { count: 1, deployment_id: null } } },
    });
    expect(step([left('a')]).move).toMatchObject({ id: 'x', ofInstances: false });
  });
  it('is asked once, takes its share of the room, and ends the drain when it has left', () => {
    const under = left('a', moves({ isMoving: true }));
    const before = { ...newDrain(NOW), tries: { a: { ...tried(1), problem: 'full' } } };
    const given = step([under, left('b'), left('c')], before);
    expect(given.move).toMatchObject({ running: { id: 'd-b' } });
    expect(given.room).toBe(0);
    expect(given.drain.tries['a']).toMatchObject({ count: 1, problem: null });
    expect(step([under, moving('b'), left('c')], before).move).toBeNull();
    expect(step([], before).drain).toMatchObject({ finished_at: NOW, moved: 1 });
  });
  it('that no node can take stays without a limit of tries, and the drain says why', () => {
    const waiting = left('a', moves({ problem: 'no node has room' }));
    const before = { ...newDrain(NOW), tries: { a: tried(1) } };
    expect(step([waiting], before)).toMatchObject({
      move: null,
      drain: { finished_at: null, tries: { a: { problem: 'no node has room' } } },
    });
  });
});

describe('stopped projects with volumes', () => {
  const rest = (project: string, over: Partial<Rest> = {}, losses: number[] = []): Remaining =>
    left(project, {
      running: old({
        id: `d-${project}`,
        project_id: project,
        losses: losses.map((at) => ({ node_id: 'n2', at })),
      }),
      rest: { isAlone: true, isMoving: false, problem: null, ...over },
    });
  const step = (remaining: Remaining[], before = newDrain(NOW)) =>
    drainStep(before, remaining, false, NOW, 'x');
  const names = (given: ReturnType<typeof drainStep>): string[] =>
    given.leave.map((d) => d.project_id);

  it('leave without a deployment, and the drain does not end before', () => {
    const given = step([rest('a')]);
    expect([given.move, names(given), given.drain.finished_at]).toEqual([null, ['a'], null]);
    const moving = step([rest('a', { isMoving: true })], given.drain);
    expect([names(moving), moving.drain.finished_at]).toEqual([[], null]);
    expect(step([], moving.drain).drain).toMatchObject({ finished_at: NOW, moved: 1 });
  });
  it('share the room with projects that run', () => {
    expect(step([rest('a', { isMoving: true }), moving('b'), rest('c'), left('d')])).toMatchObject({
      move: null,
      room: 0,
    });
    expect(step([rest('a', { isMoving: true }), rest('c'), left('d')])).toMatchObject({
      move: { id: 'x' },
      room: 0,
    });
  });
  it(`stay after ${TRIES} failed moves since the drain began, and the record says why`, () => {
    const before = step([rest('a')]).drain;
    const losses = [NOW - 9, NOW + 1, NOW + 2];
    expect(names(step([rest('a', {}, losses)], before))).toEqual(['a']);
    const ended = step(
      [rest('a', { problem: 'the files differ' }, [...losses.slice(1), NOW + 3])],
      before,
    );
    expect([names(ended), ended.drain.tries['a']]).toEqual([
      [],
      { count: 3, deployment_id: null, problem: 'the files differ', at: NOW },
    ]);
    const fresh = withFreshTries(ended.drain, NOW + 4);
    const again = drainStep(
      fresh,
      [rest('a', {}, [NOW + 1, NOW + 2, NOW + 3])],
      false,
      NOW + 4,
      'x',
    );
    expect([names(again), again.drain.finished_at]).toEqual([['a'], null]);
  });
  it('get all tries again with each request of the drain, and the others only after the last try', () => {
    const before = {
      ...newDrain(NOW),
      tries: { a: { ...tried(1), problem: 'full' }, b: tried(1, 'f-b'), c: tried(TRIES, 'f-c') },
    };
    expect(withFreshTries(before, NOW + 5).tries).toEqual({
      a: { count: 0, deployment_id: null, problem: 'full', at: NOW + 5 },
      b: tried(1, 'f-b'),
    });
    const same = { ...newDrain(NOW), tries: { b: tried(1, 'f-b') } };
    expect(withFreshTries(same, NOW + 5)).toBe(same);
  });
  it('are tried a few at a time, each in its turn', () => {
    const waiting = Array.from({ length: TRIED_AT_ONCE * 2 + 1 }, (_, i) => rest(`p${i}`).running);
    const seen: string[] = [];
    for (let i = 0; i < 3; i++) {
      const turn = inTurn(waiting, seen.at(-1) ?? null);
      expect(turn).toHaveLength(TRIED_AT_ONCE);
      seen.push(...turn.map((d) => d.project_id));
    }
    expect(new Set(seen)).toEqual(new Set(waiting.map((d) => d.project_id)));
    expect(inTurn(waiting, 'gone')[0]).toBe(waiting[0]);
    expect(inTurn(waiting.slice(0, 1), 'p0')).toEqual(waiting.slice(0, 1));
  });
  it('without a version that could take the volumes along, the drain waits and says so', () => {
    const given = step([rest('a', { isAlone: false, problem: 'deploy it' })]);
    expect([names(given), given.move, given.drain]).toMatchObject([
      [],
      null,
      { finished_at: null, tries: { a: { problem: 'deploy it' } } },
    ]);
  });
});
