/** The text of the brake on "needs attention", the list of nodes and the page of a node. */
import { expect, test } from 'vitest';
import { brakeText, silentText } from '../src/parts/node-notes.ts';

const silent = (waiting: number, held = true) => ({
  hostname: 'node-b',
  failover: {
    silent_since: '2026-11-27T12:00:00.000Z',
    held,
    silent_nodes: 2,
    nodes: 3,
    waiting,
  },
});

test.each([
  [1, '1 instance waits for it'],
  [4, '4 instances wait for it'],
])('with %d waiting instances it says why, and the command for this node', (waiting, text) =>
  expect(brakeText(silent(waiting))).toBe(
    `most nodes are silent (2 of 3): is the network down? ${text}; if the machine is gone: ` +
      'berth failover node-b --now',
  ),
);

test('a node that nothing waits for, that moves, or that is heard has no text', () => {
  expect(brakeText(silent(0))).toBeNull();
  expect(brakeText(silent(1, false))).toBeNull();
  expect(brakeText({ hostname: 'node-b', failover: null })).toBeNull();
  expect(brakeText({ hostname: 'node-b' })).toBeNull();
});

test('the page of a silent node says whether its instances move', () => {
  expect(silentText(silent(2))).toMatch(
    /^Most nodes .*nothing moves.*2 instances wait for this node/,
  );
  expect(silentText(silent(1, false))).toMatch(/by themselves\. 1 instance waits for this node\.$/);
  expect(silentText({ failover: null })).toMatch(/no instance moves by itself/);
});
