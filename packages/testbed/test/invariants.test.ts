/**
 * The checker alone: the smallest history that breaks each invariant, and docs/invariants.md, which
 * must list the same.
 */
import { mkdtempSync, readFileSync, rmSync, appendFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { type Happening, historyFile, type HistoryEvent, readHistory } from '../src/history.ts';
import { check, type InvariantId, INVARIANTS } from '../src/invariants.ts';

const accepted = { type: 'accepted', project: 'p', deployment: 'd', key: 'k', sent: 0 } as const;
const read = (state: string, sent: number, deployment = 'd') =>
  ({ type: 'read', project: 'p', deployment, state, node: 'n', sent }) as const;
const claim = (attempt: number, lease: string, sent: number) =>
  ({ type: 'claimed', task: 't', attempt, lease, sent }) as const;
const report = (lease: string | null, content: string, sent: number, status = 'completed') =>
  ({
    type: 'reported',
    task: 't',
    kind: 'build',
    deployment: 'd',
    lease,
    status,
    content,
    sent,
  }) as const;
const container = (change: 'started' | 'moved' | 'stopped', deployment = 'd', id = 'c') =>
  ({
    type: 'container',
    change,
    cause: 'task',
    node: 'n',
    container: id,
    project: 'p',
    deployment,
    address: 'h:1',
  }) as const;
const observing = {
  type: 'observing',
  node: 'n',
  project: 'p',
  deployment: 'd',
  address: 'h:1',
} as const;
const routed = (routes: Record<string, string>) =>
  ({ type: 'routed', proxy: 'x', routes }) as const;
const delivery = (verdict: string | null, sent: number) =>
  ({
    type: 'delivery',
    project: 'p',
    id: 'x',
    push: 'push-1',
    verdict,
    deployment: null,
    sent,
  }) as const;
const status = (state: string) =>
  ({ type: 'status', deployment: 'd', commit: 'c', state, text: '', heard: true }) as const;
const stopped = { type: 'stop_accepted', project: 'p', sent: 0 } as const;
const readProject = (isStopped: boolean, sent: number) =>
  ({ type: 'project', project: 'p', stopped: isStopped, sent }) as const;
const listed = (generation: number, state: string, trigger: string, of: string | null = null) =>
  ({
    type: 'listed',
    project: 'p',
    deployment: `d${generation}`,
    generation,
    state,
    trigger,
    of,
    image: of ?? `d${generation}`,
  }) as const;
/** From the second to the first release. */
const rolledBack = [
  read('running', 0, 'd2'),
  { ...accepted, deployment: 'd3', key: null, sent: 3 },
  read('running', 3, 'd3'),
  { ...accepted, deployment: 'd4', key: null, sent: 5 },
  listed(1, 'retired', 'api'),
  listed(2, 'retired', 'api'),
  listed(3, 'retired', 'older', 'd1'),
] as const;
/** The container of a worker of a deployment. */
const worker = (deployment: string, change: 'started' | 'removed'): Happening => ({
  type: 'worker',
  change,
  node: 'n',
  container: `k-${deployment}`,
  project: 'p',
  deployment,
  process: 'worker',
});
const command = (run: string, change: 'started' | 'ended'): Happening => ({
  type: 'command',
  change,
  machine: 'n',
  container: `c-${run}`,
  project: 'p',
  run,
  code: change === 'ended' ? 0 : null,
});
/** A version without `web` runs. */
const withoutWeb = (sent: number) =>
  ({ ...read('running', sent), without_web: { bot: 'rolling' } }) as const;
const reporting = (status: string) =>
  ({
    type: 'reporting',
    task: 't',
    kind: 'deploy',
    project: 'p',
    deployment: 'd',
    lease: 'a',
    status,
    address: null,
    process: 'bot',
  }) as const;
const MINUTE = 60_000;
const live = [accepted, container('started'), observing, routed({ p: 'h:1' }), read('running', 4)];

const BREACHES: Record<InvariantId, Happening[]> = {
  settles: [accepted, read('building', 2), { type: 'ended' }],
  'one-lease': [claim(1, 'a', 0), claim(2, 'b', 1), report('a', 'x', 5)],
  'one-serving': [...live, container('started', 'd0', 'c0'), { type: 'ended' }],
  'one-writer': [
    { type: 'single_writer', project: 'p' },
    container('started'),
    { ...container('started', 'e', 'c2'), node: 'm' },
  ],
  'volume-stays': [
    { type: 'mounted', project: 'p', deployment: 'd', copy: 'v', entries: [], counts: {} },
    read('running', 1),
    { type: 'mounted', project: 'p', deployment: 'e', copy: 'v', entries: [], counts: {} },
  ],
  'newest-data': [
    { type: 'mounted', project: 'p', deployment: 'd', copy: 'v', entries: [], counts: {} },
    { type: 'moved', deployment: 'd', to: 'published', code: null },
    { type: 'wrote', project: 'p', deployment: 'd', copy: 'v', count: 1 },
    { type: 'mounted', project: 'p', deployment: 'e', copy: 'w', entries: ['d'], counts: {} },
    { type: 'moved', deployment: 'e', to: 'published', code: null },
  ],
  'volume-kept': [
    { type: 'mounted', project: 'p', deployment: 'd', copy: 'v', entries: [], counts: {} },
    read('running', 1),
    { type: 'kept', project: 'p', copy: 'v', entries: ['e'], counts: {} },
  ],
  'drain-empties': [{ type: 'drained', node: 'n', left: ['p'] }],
  'stop-ends': [accepted, { ...stopped, sent: 2 }, read('building', 3)],
  'stop-stays': [stopped, readProject(false, 2)],
  'stop-rests': [...live, readProject(true, 5), { type: 'ended' }],
  'same-release': [
    listed(1, 'retired', 'api'),
    listed(2, 'running', 'api'),
    listed(3, 'cancelled', 'start', 'd1'),
  ],
  'rollback-goes-back': [...rolledBack, listed(4, 'retired', 'older', 'd3')],
  'old-serves': [...live, container('stopped')],
  'route-observed': [routed({ p: 'h:9' })],
  'own-host': [
    { ...container('started'), keeps_port: true },
    { ...container('started', 'e', 'c2'), project: 'q', address: 'h:2', keeps_port: true },
    observing,
    routed({ p: 'h:1' }),
    container('stopped'),
    container('stopped', 'e', 'c2'),
    { ...container('started', 'e', 'c2'), project: 'q', keeps_port: true },
  ],
  'count-kept': [
    ...live,
    { type: 'wants', project: 'p', deployment: 'd', count: 2, isAble: true },
    { type: 'ended' },
  ],
  'workers-kept': [
    worker('d', 'started'),
    worker('c', 'started'),
    {
      type: 'wants_workers',
      project: 'p',
      deployment: 'd',
      process: 'worker',
      count: 1,
      isAble: true,
    },
    { type: 'ended' },
  ],
  'page-without-web': [
    reporting('completed'),
    withoutWeb(2),
    routed({ p: 'h:1' }),
    { type: 'ended' },
  ],
  'started-first': [reporting('failed'), withoutWeb(2)],
  'runs-once': [
    {
      type: 'run_planned',
      run: 'r',
      project: 'p',
      job: null,
      scheduled_for: null,
      retries: 0,
      not: null,
    },
    command('r', 'started'),
    command('r', 'ended'),
    command('r', 'started'),
  ],
  'no-silent-gap': [
    {
      type: 'job_set',
      project: 'p',
      job: 'j',
      change: 'added',
      schedule: '*/5 * * * *',
      timezone: 'Europe/Berlin',
      enabled: true,
      next: MINUTE * 5,
    },
    { type: 'job_clock', clock: MINUTE * 9 },
    { type: 'ended' },
  ],
  'release-serves': [
    command('release-d', 'started'),
    container('started'),
    command('release-d', 'ended'),
  ],
  'one-version': [
    observing,
    { ...observing, deployment: 'e', address: 'h:2' },
    { ...routed({ p: 'h:1' }), servers: { p: ['h:1', 'h:2'] } },
  ],
  'scale-serves': [
    { type: 'scaling', project: 'p', count: 2, drain_ms: 5_000 },
    observing,
    { ...observing, address: 'h:2' },
    { ...routed({ p: 'h:1' }), servers: { p: ['h:1', 'h:2'] }, asked: 3 },
    { ...container('stopped'), address: 'h:2', instance: 'i' },
  ],
  'one-device-user': [
    { ...container('started'), devices: ['m/gpu=0'] },
    { ...container('started', 'e', 'c2'), devices: ['m/gpu=0'] },
  ],
  brake: [{ type: 'failover', node: 'n', silent: 2, nodes: 3 }],
  'running-is-routed': [accepted, observing, read('running', 3)],
  'terminal-stays': [accepted, read('failed', 2), read('running', 4)],
  'acknowledged-stays': [accepted, read('missing', 2)],
  'report-once': [claim(1, 'a', 0), report('a', 'x', 2), report('a', 'y', 3)],
  'nothing-destroyed': [...live, container('stopped'), read('running', 7)],
  bounded: [{ type: 'gauge', name: 'lines', value: 3, bound: 2 }],
  'own-clock': [
    { type: 'began', lease_ms: 100 },
    claim(1, 'a', 1),
    { type: 'taken_away', task: 't', lease: 'a', why: 'lease' },
  ],
  uptime: [
    {
      type: 'began',
      lease_ms: 4,
      deadlines: { queue: 4, route: 4, build: 4, deploy: 4, slack: 0 },
    },
    { type: 'serving', name: 'a', up: true },
    { type: 'moved', deployment: 'd', to: 'pending', code: null },
    { type: 'serving', name: 'a', up: false },
    read('pending', 4),
    read('pending', 5),
    { type: 'serving', name: 'a', up: true },
    { type: 'moved', deployment: 'd', to: 'failed', code: 'no_builder' },
  ],
  'one-verdict': [delivery('skipped', 1), delivery('deployed', 3)],
  'push-once': [
    { type: 'caused', push: 'push-1', deployment: 'd' },
    { type: 'caused', push: 'push-1', deployment: 'e' },
  ],
  'own-branch': [
    { type: 'pushed', commit: 'c', place: 'git main' },
    { ...listed(1, 'running', 'api'), commit: 'c', place: 'git release' },
  ],
  'last-push': [{ type: 'tip', project: 'p', commit: 'c', deployed: false }],
  'last-status': [
    status('success'),
    status('pending'),
    { type: 'status_due', deployment: 'd', commit: 'c', state: 'success' },
  ],
  'status-once': [status('success'), status('success')],
  'no-surprise': [{ type: 'internal_error', message: 'boom' }],
};
/** Returns the events at intervals of 1 ms. */
const at = (happenings: readonly Happening[]) => happenings.map((h, i) => ({ ...h, at: i + 1 }));

describe('the checker finds a breach of', () => {
  it.each(Object.entries(BREACHES))('%s', (id, happenings) => {
    expect(check(at(happenings)).map((v) => v.invariant)).toContain(id);
  });
});

it('a deployment that goes live, is replaced and ends breaks no invariant', () => {
  const next = { ...observing, deployment: 'e', address: 'h:2' };
  const history: Happening[] = [
    { type: 'began', lease_ms: 3 },
    ...live,
    { ...accepted, deployment: 'e', key: 'l', sent: 6 },
    { ...container('started', 'e', 'c2'), address: 'h:2' },
    next,
    routed({ p: 'h:2' }),
    read('running', 10, 'e'),
    container('stopped'),
    read('retired', 12),
    { type: 'ended' },
  ];
  expect(check(at(history))).toEqual([]);
});

it('the losing one of two attempts at a deployment may remove its container, but not both attempts', () => {
  const lost = { ...container('started', 'd', 'c2'), address: 'h:2' };
  const thrown = { ...container('stopped', 'd', 'c2'), address: 'h:2' };
  expect(check(at([accepted, lost, ...live.slice(1), thrown, read('running', 8)]))).toEqual([]);
  const both: Happening[] = [
    accepted,
    lost,
    ...live.slice(1),
    thrown,
    routed({}),
    container('stopped'),
    read('running', 10),
  ];
  expect(check(at(both)).map((v) => v.invariant)).toEqual(['nothing-destroyed']);
});

it('a request that was sent before another answer arrived is not later than that answer', () => {
  expect(
    check(at([accepted, read('failed', 2), read('building', 1)])).map((v) => v.invariant),
  ).toEqual([]);
  expect(check(at([claim(1, 'a', 0), claim(2, 'b', 1), report('a', 'x', 1)]))).toEqual([]);
});

it('a lease may end sooner by the difference of two control planes’ clocks, and only where there are two', () => {
  const deadlines = { queue: 0, route: 0, build: 0, deploy: 0, slack: 10 };
  const early = (names: string[], lease_ms: number): InvariantId[] => {
    const serving = names.map((name) => ({ type: 'serving', name, up: true }) as const);
    const taken = { type: 'taken_away', task: 't', lease: 'a', why: 'lease' } as const;
    return check(
      at([{ type: 'began', lease_ms, deadlines }, ...serving, claim(1, 'a', 3), taken]),
    ).map((v) => v.invariant);
  };
  expect([early(['a'], 10), early(['a', 'b'], 10)]).toEqual([['own-clock'], []]);
  expect(early(['a', 'b'], 40)).toContain('own-clock');
});

it('a deployment that is missing at the end breaks an invariant, unless its project was deleted', () => {
  const history: Happening[] = [accepted, read('missing', 0), { type: 'ended' }];
  expect(check(at(history)).map((v) => v.invariant)).toEqual(['settles']);
  expect(check(at([{ type: 'deleting', what: 'project', id: 'p' }, ...history]))).toEqual([]);
});

it('a delivery without a verdict breaks an invariant at the end, unless its project was deleted', () => {
  const history: Happening[] = [delivery(null, 1), { type: 'ended' }];
  expect(check(at(history)).map((v) => v.invariant)).toEqual(['one-verdict']);
  expect(check(at([{ type: 'deleting', what: 'project', id: 'p' }, ...history]))).toEqual([]);
});

const broken = (history: readonly Happening[]): InvariantId[] =>
  check(at(history)).map((v) => v.invariant);

it('a stopped project may lose its container and its requests, until a person starts it', () => {
  const page = { type: 'routed', proxy: 'x', routes: {}, pages: ['p'] } satisfies Happening;
  const rest: Happening[] = [
    { type: 'stopping', project: 'p' },
    { ...stopped, sent: 6 },
    container('stopped'),
    page,
    read('running', 9),
  ];
  expect(broken([...live, ...rest, readProject(true, 10), { type: 'ended' }])).toEqual([]);
  expect(
    broken([...live, ...rest.slice(0, 2), page, readProject(true, 10), { type: 'ended' }]),
  ).toEqual(['stop-rests', 'running-is-routed']);
  expect(broken([...live, ...rest, readProject(false, 10), { type: 'ended' }])).toEqual([
    'stop-stays',
    'stop-rests',
  ]);
});

it('a version counts as live behind the page of its project, if the page came during its switch', () => {
  const page = { ...routed({}), pages: ['p'] };
  expect(broken([accepted, observing, page, read('running', 3)])).toEqual([]);
  expect(broken([accepted, page, observing, read('running', 3)])).toEqual(['running-is-routed']);
});

it('a container that a contract-only agent left on a lost node does not count', () => {
  const wants = { type: 'wants', project: 'p', deployment: 'd', count: 1, isAble: true } as const;
  const second = { ...container('started', 'd', 'c2'), address: 'h:2' };
  const counted = (cause: 'contract' | 'task') =>
    broken([...live, { ...second, cause }, wants, { type: 'ended' }]).includes('count-kept');
  expect([counted('contract'), counted('task')]).toEqual([false, true]);
});

it('a project that nobody asked to stop keeps its container', () => {
  const other: Happening[] = [
    { type: 'stopping', project: 'q' },
    { type: 'stop_accepted', project: 'q', sent: 6 },
  ];
  expect(broken([...live, ...other, container('stopped'), read('running', 9)])).toEqual([
    'old-serves',
    'nothing-destroyed',
  ]);
});

it('an older version that an engine gave the port of the present one can be stopped', () => {
  const next = { ...container('started', 'e', 'c2'), address: 'h:2' };
  const old = { ...container('stopped'), address: 'h:2' };
  const moves = [
    { ...container('moved'), address: 'h:2' },
    { ...container('moved', 'e', 'c2'), address: 'h:3' },
  ];
  const both = [
    ...live,
    next,
    { ...observing, deployment: 'e', address: 'h:2' },
    routed({ p: 'h:2' }),
    read('running', 9, 'e'),
  ];
  const ended = [old, read('retired', 14)];
  expect(broken([...both, ...moves, ...ended])).toEqual([]);
  expect(
    broken([
      ...live,
      { ...container('moved'), address: 'h:2' },
      { ...observing, address: 'h:2' },
      routed({ p: 'h:2' }),
      ...ended,
    ]),
  ).toEqual(['old-serves']);
});

it('a scale up does not start a project that a person stopped', () => {
  const up = { type: 'scaling', project: 'p', count: 2, drain_ms: 1 } as const;
  expect(broken([{ ...stopped, sent: 0 }, up, readProject(true, 3)])).toEqual([]);
  expect(broken([{ ...stopped, sent: 0 }, up, readProject(false, 3)])).toEqual(['stop-stays']);
});

it('a request that was open during a stop may start the project later', () => {
  const wanted = { type: 'wanted', project: 'p', request: 'r' } as const;
  const answered = { type: 'answered', project: 'p', request: 'r', isOnce: true } as const;
  expect(broken([wanted, { ...stopped, sent: 2 }, answered, readProject(false, 5)])).toEqual([]);
  expect(broken([{ ...stopped, sent: 0 }, wanted, readProject(false, 3)])).toEqual([]);
  expect(broken([wanted, answered, { ...stopped, sent: 3 }, readProject(false, 5)])).toEqual([
    'stop-stays',
  ]);
  // It may arrive again, after the stop.
  expect(
    broken([
      wanted,
      { ...answered, isOnce: false },
      { ...stopped, sent: 3 },
      readProject(false, 5),
    ]),
  ).toEqual([]);
});

it('a deployment that was requested after a stop is not ended by it', () => {
  expect(
    broken([
      { ...accepted, sent: 1 },
      { ...stopped, sent: 0 },
      read('building', 3),
      read('running', 9),
    ]),
  ).not.toContain('stop-ends');
});

it('rollbacks without a target may go further back, and overlapping ones are not compared', () => {
  expect(
    broken([listed(0, 'retired', 'api'), ...rolledBack, listed(4, 'running', 'older', 'd0')]),
  ).not.toContain('rollback-goes-back');
  const early = rolledBack.filter((e) => e.type !== 'read');
  expect(broken([...early, listed(4, 'retired', 'older', 'd3')])).not.toContain(
    'rollback-goes-back',
  );
});

it('a status may arrive twice if the first answer was lost, or a control plane was killed meanwhile', () => {
  expect(check(at([{ ...status('success'), heard: false }, status('success')]))).toEqual([]);
  expect(
    check(at([status('success'), { type: 'serving', name: 'a', up: false }, status('success')])),
  ).toEqual([]);
});

it('histories of several recorders are merged without a line that a kill cut off', () => {
  const dir = mkdtempSync(path.join(tmpdir(), 'berth-history-'));
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
  const [one, two] = [path.join(dir, 'one'), path.join(dir, 'two')];
  historyFile(one, () => 2).record(accepted);
  historyFile(two, () => 1).record({ type: 'began', lease_ms: 1 });
  appendFileSync(two, '{"at":3,"type":"rea');
  expect(readHistory([one, two])).toEqual([
    { at: 1, type: 'began', lease_ms: 1 },
    { at: 2, ...accepted },
  ]);
});

it('docs/invariants.md has a row for each invariant, in the same order and words', () => {
  const text = readFileSync(new URL('../../../docs/invariants.md', import.meta.url), 'utf8');
  const rows = [...text.matchAll(/^\| `([a-z-]+)` \| ([^|]+) \|/gm)].map((m) => [m[1], m[2]]);
  expect(rows).toEqual(Object.entries(INVARIANTS));
});

it('docs/invariants.md shows what the checker says about its examples', () => {
  const text = readFileSync(new URL('../../../docs/invariants.md', import.meta.url), 'utf8');
  const examples = [
    ...text.matchAll(/^```text\n((?:\{"at":\d{1,3},.*\n)+)((?:[a-z-]+: .*\n)*)```$/gm),
  ];
  expect(examples.length).toBeGreaterThan(15);
  for (const [, events = '', said = ''] of examples) {
    const lines = events.trimEnd().split('\n');
    const history = lines.map((line) => JSON.parse(line) as HistoryEvent);
    expect(check(history).map((v) => `${v.invariant}: ${v.message}\n`)).toEqual(
      said.split(/(?<=\n)/),
    );
  }
});
