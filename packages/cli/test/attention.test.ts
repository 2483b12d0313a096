/**
 * `berth status --all` names hosts without a good certificate, and works with a control plane that
 * does not know about certificates.
 */
import type { Client } from '@berth/wire/client';
import { expect, test } from 'vitest';
import { overview } from '../src/attention.ts';

/** A control plane with these projects and nodes, and nothing else. */
const clientOf = (
  projects: readonly object[],
  nodes: readonly object[] = [],
  running: readonly object[] = [],
): Client => {
  const lists: Record<string, readonly object[]> = {
    listProjects: projects,
    listNodes: nodes,
    listDeployments: running,
  };
  return {
    call: async (name: string) => ({ items: lists[name] ?? [], next_cursor: null }),
  } as unknown as Client;
};
const project = (name: string, rest: object): object => ({
  id: name,
  name,
  running_deployment_id: null,
  ...rest,
});
const certificate = (state: string, problem: string | null): object => ({
  certificate: {
    state,
    issuer: null,
    not_after: null,
    problem,
    checked_at: '2026-11-23T12:00:00.000Z',
  },
});

test('a host without a good certificate needs a person; a new host and an earlier control plane do not', async () => {
  const { needs } = await overview(
    clientOf([
      project('good', certificate('ok', null)),
      project('new', certificate('pending', null)),
      project('unchecked', { certificate: null }),
      project('earlier', {}),
      project('bad', certificate('invalid', 'the proxy has no certificate for bad.berth.test')),
    ]),
  );
  expect(needs).toEqual([
    {
      kind: 'certificate',
      subject: 'bad',
      message: 'the proxy has no certificate for bad.berth.test',
      next: 'search the log of the reverse proxy for this host (journalctl -u berth-proxy)',
    },
  ]);
});

const node = (hostname: string, rest: object = {}): object => ({
  id: `id-${hostname}`,
  hostname,
  role: 'deploy',
  host_ip: '10.0.0.5',
  status: 'online',
  last_seen_at: '2026-11-23T12:00:00.000Z',
  doubled: null,
  engine: null,
  containers: [],
  ...rest,
});
const box = (project: string, rest: object = {}): object => ({
  name: `svc-${project}`,
  state: 'running',
  labels: { 'berth.project_name': project },
  port_fixed: false,
  ...rest,
});

test('a dead node whose address another one has, and containers that change their port, need a person', async () => {
  const { needs } = await overview(
    clientOf(
      [],
      [
        node('old', { status: 'offline', address_taken: { node_id: 'n3', hostname: 'new' } }),
        node('new', {
          address_taken: null,
          containers: [
            box('a', { port_fixed: true }),
            box('b', { state: 'exited' }),
            box('c', { port_fixed: undefined }),
          ],
        }),
        node('upgraded', { containers: [box('shop'), box('blog', { labels: {} })] }),
      ],
    ),
  );
  expect(needs.map(({ kind, subject, message, next }) => [kind, subject, message, next])).toEqual([
    ['node', 'deploy old', expect.stringContaining('offline'), expect.stringContaining('--force')],
    [
      'node',
      'deploy old',
      'offline, and node new has its address 10.0.0.5',
      expect.stringContaining('berth node delete id-old --force'),
    ],
    [
      'ports',
      'deploy upgraded',
      expect.stringMatching(/^2 projects get another port .*: shop, blog$/),
      'berth restart PROJECT for each of them',
    ],
  ]);
});

test('the projects of a silent node move before it is deleted, because the deletion ends their routes', async () => {
  const runs = (project_id: string, generation: number): object => ({
    id: `${project_id}-${generation}`,
    project_id,
    generation,
    status: 'running',
    health: null,
    node_id: 'id-dead',
  });
  const projects = ['a', 'b', 'c', 'd'].map((name) => project(name, {}));
  const dead = node('dead', { status: 'offline' });
  const nextOf = async (running: object[]) =>
    (await overview(clientOf(projects, [dead], running))).needs[0]?.next;
  expect(await nextOf([])).toBe(
    'start its agent; if it never comes back: berth node delete id-dead --force',
  );
  expect(await nextOf([runs('a', 7)])).toBe(
    'start its agent; if it never comes back: berth rollback a --to 7, and then berth node ' +
      'delete id-dead --force',
  );
  expect(await nextOf([runs('a', 7), runs('b', 1), runs('c', 2), runs('d', 3)])).toContain(
    'berth rollback c --to 2, the same for 1 more, and then berth node delete',
  );
});

test('a drift asks for a new build only if the settings changed; a full disk names the command that shows what uses it', async () => {
  const drifted = (project_id: string, cause: string | undefined, rest: object = {}): object => ({
    id: project_id,
    project_id,
    generation: 1,
    status: 'running',
    health: { status: 'drifted', since: '2026-11-23T12:00:00.000Z', detail: 'it differs', cause },
    node_id: 'id-full',
    ...rest,
  });
  const full = node('full', { disk: { free: 5e9, total: 100e9 } });
  const { needs } = await overview(
    clientOf(
      ['a', 'b', 'c', 'd'].map((name) => project(name, {})),
      [full, node('roomy', { disk: { free: 50e9, total: 100e9 } })],
      [
        drifted('a', 'settings_changed'),
        drifted('b', 'container_differs'),
        drifted('c', 'settings_changed', { rolled_back_from: 2 }),
        // A control plane of an earlier version sends no cause.
        drifted('d', undefined),
      ],
    ),
  );
  expect(needs.map(({ kind, next }) => [kind, next])).toEqual([
    ['drifted', 'berth deploy a'],
    ['drifted', 'berth restart b'],
    ['drifted', 'berth status c'],
    ['drifted', 'berth status d'],
    ['disk', 'berth node disk id-full, which shows what uses it'],
  ]);
});

test('a container that only a person can remove needs one, with both commands', async () => {
  const left = [
    {
      node_id: 'id-old',
      node: 'old',
      container: 'svc-shop',
      project_id: 'p',
      project: 'shop',
      since: '2026-11-23T12:00:00.000Z',
    },
  ];
  const { needs } = await overview(
    clientOf(
      [],
      [node('old', { unmanaged: left }), node('new', { unmanaged: [] }), node('earlier')],
    ),
  );
  expect(needs).toEqual([
    {
      kind: 'unmanaged',
      subject: 'deploy old',
      message: 'only a person can remove the container svc-shop of shop',
      next: 'docker rm -f svc-shop on that machine, then berth node removed id-old svc-shop',
    },
  ]);
});

test('a node that the brake holds needs a person, if an instance waits for it', async () => {
  const held = (waiting: number, is = true): object => ({
    failover: {
      silent_since: '2026-11-23T12:00:00.000Z',
      held: is,
      silent_nodes: 2,
      nodes: 3,
      waiting,
    },
  });
  const { needs } = await overview(
    clientOf(
      [],
      [
        node('b', held(1)),
        node('c', held(3)),
        node('idle', held(0)),
        node('moves', held(2, false)),
      ],
    ),
  );
  expect(
    needs
      .filter(({ kind }) => kind === 'failover')
      .map(({ subject, message, next }) => [subject, message, next]),
  ).toEqual([
    [
      'deploy b',
      expect.stringMatching(/2 of 3 nodes.*; 1 instance waits$/),
      expect.stringContaining('berth failover b --now'),
    ],
    [
      'deploy c',
      expect.stringMatching(/2 of 3 nodes.*; 3 instances wait$/),
      expect.stringContaining('berth failover c --now'),
    ],
  ]);
});
