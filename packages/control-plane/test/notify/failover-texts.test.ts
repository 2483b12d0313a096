/** Notifications about lost nodes: one message for each machine, and one for the brake. */
import { expect, test } from 'vitest';
import { ofBrake, ofLostNode } from '../../src/domain/notifications/problem-texts.ts';

test('a lost node is one message with its projects and what to do', () => {
  const { kind, subject, isProblem, seen } = ofLostNode({
    id: 'n1',
    hostname: 'node-1',
    projects: [
      { id: 'p1', name: 'shop' },
      { id: 'p2', name: 'wiki' },
    ],
  });
  expect([kind, subject, isProblem]).toEqual(['failover', 'n1', true]);
  expect(seen).toMatchObject({
    title: 'Node node-1 is lost: its instances start on other nodes',
    project_ids: ['p1', 'p2'],
    path: '/nodes/n1',
    runs_text: 'Projects',
  });
  expect(seen?.advice).toContain('Projects that write wait for it');
});

test('a lost node that was deleted meanwhile is named by its id', () => {
  const { seen } = ofLostNode({ id: 'n1', hostname: null, projects: [] });
  expect(seen?.title).toBe('Node n1 is lost: its instances start on other nodes');
});

test('the brake asks whether the network is down, names its nodes and says the command', () => {
  const nodes = Array.from({ length: 7 }, (_, i) => ({ hostname: `node-${i + 1}` }));
  const { subject, isProblem, seen } = ofBrake(nodes);
  expect([subject, isProblem]).toEqual(['brake', true]);
  expect(seen).toMatchObject({
    title: 'Most nodes are silent: is the network down?',
    detail: 'Nothing moves from node-1, node-2, node-3, node-4, node-5 and 2 more.',
  });
  expect(seen?.advice).toContain('berth failover NODE --now');
  expect(ofBrake(nodes.slice(0, 2)).seen?.detail).toBe('Nothing moves from node-1, node-2.');
});

test('the brake ends when nodes are heard again', () => {
  expect(ofBrake([])).toMatchObject({ subject: 'brake', isProblem: false });
});
