/**
 * A deployment that lost its node is reassigned. If its old container is being removed on a node,
 * the new task must wait there for the end of the removal. Otherwise the task would adopt a
 * container that is then removed (found by the fault suite).
 */
import { expect, test } from 'vitest';
import { advance } from '../../src/flow/deployment.ts';
import { facts, node, on, stateOf, task } from './fixtures.ts';

const lost = on.built({ losses: [{ node_id: 'n1', at: 1 }] });
const clearing = (over: object = {}) =>
  task('retire', {
    payload: {
      remove: [{ deployment_id: lost.id, reason: 'its deployment is assigned to another node' }],
      keep: null,
    } as never,
    ...over,
  });
const tick = (tasks: ReturnType<typeof task>[], nodes = [node()]) =>
  advance(lost, { type: 'tick' }, facts({ live: [lost], tasks, nodes }));

test('a deployment waits while its node removes the container of an earlier attempt, and says so', () => {
  const plan = tick([clearing()]);
  expect(stateOf(plan, lost.id)).toBeNull();
  expect(plan.createTasks).toEqual([]);
  expect(plan.storyLines.map((e) => e.message)).toEqual([
    expect.stringContaining('still removing the container of an earlier attempt'),
  ]);
});

test.each([
  ['nothing is removed', []],
  ['another deployment’s container is removed there', [task('retire')]],
  ['it is removed from another node', [clearing({ node_id: 'n2' })]],
])('it begins when %s', (_, tasks) => {
  expect(stateOf(tick(tasks), lost.id)).toBe('deploying');
});
