/** A stop-first project never has two running versions at once on any nodes. */
import { describe, expect, it, test } from 'vitest';
import type { ObservedContainer } from '@berth/wire/node';
import {
  DEFAULT_LIMITS,
  type EndedWork,
  type Facts,
  type NodeFact,
} from '../../src/domain/deployments/facts.ts';
import type { Plan } from '../../src/domain/deployments/plan.ts';
import type { DeploymentRecord } from '../../src/domain/platform/records.ts';
import { advance } from '../../src/flow/deployment.ts';
import { judge } from '../../src/flow/observe.ts';
import {
  builder,
  changeOf,
  facts,
  instance,
  NOW,
  node,
  old,
  on,
  SETTINGS,
  stateOf,
  task,
  waitingSince,
} from './fixtures.ts';

const settings = { ...SETTINGS, replace: 'recreate' as const };
const next = on.built({ settings });
const serves = old({ settings });
const running: ObservedContainer = {
  name: 'svc-shop',
  labels: { 'berth.project': 'p1', 'berth.deployment': 'd1' },
  host_port: 32_001,
  state: 'running',
};
const home = (over: Partial<NodeFact> = {}) =>
  node({ id: 'n1', hostname: 'home', containers: [running], ...over });
const away = (over: Partial<NodeFact> = {}) =>
  node({ id: 'n2', hostname: 'away', host_ip: '10.0.0.2', ...over });
const cordoned = { schedulable: false };
const worked = (node_id: string, over: Partial<EndedWork> = {}): EndedWork => {
  const ended_at = over.ended_at ?? NOW - 60_000;
  return { node_id, ended_at, claimed_at: ended_at, unreported_at: null, ...over };
};

const tick = (nodes: NodeFact[], over: Partial<Facts> = {}, d: DeploymentRecord = next) =>
  advance(
    d,
    { type: 'tick' },
    facts({ live: [serves, d], nodes: [builder(), ...nodes], endedWork: [worked('n1')], ...over }),
  );
const why = (plan: Plan): string =>
  plan.storyLines.find((e) => e.kind === 'waiting')?.message ?? '';

describe('the old version on the same node, which the task of the new one stopped', () => {
  const deploying = on.deploying({ settings, node_id: 'n1' });
  const work = task('deploy', {
    node_id: 'n1',
    attempt: 1,
    payload: { replace: 'recreate' } as never,
  });
  const there = { live: [serves, deploying], nodes: [builder(), home()] };
  it('is recorded when the new one answers, so that it starts again if the route fails', () => {
    const answered = advance(
      deploying,
      {
        type: 'task_reported',
        task: work,
        report: {
          status: 'completed',
          result: null,
          host_port: 32_002,
          container_id: 'k',
        } as never,
      },
      facts(there),
    );
    expect(changeOf(answered, 'd1').stopped_first).toBe('stopped');
    const published = on.published({
      settings,
      node_id: 'n1',
      route_published_at: NOW - DEFAULT_LIMITS.routeMs - 1,
    });
    const stopped = { ...serves, stopped_first: 'stopped' as const };
    const failed = advance(published, { type: 'tick' }, facts({ live: [stopped, published] }));
    expect(stateOf(failed, 'd2')).toBe('failed');
    // The next list shows that the new container is gone: the old one starts.
    const exited = { ...running, state: 'exited', host_port: null };
    const later = advance(
      stopped,
      { type: 'observed', node_id: 'n1', container: exited },
      facts({
        live: [stopped],
        nodes: [home({ containers: [exited], observed_at: NOW })],
        endedWork: [worked('n1')],
      }),
    );
    expect(later.createTasks).toMatchObject([
      { kind: 'retire', node_id: 'n1', payload: { start: 'd1' } },
    ]);
  });
  it('is recorded when the task is lost: the agent starts nothing again', () => {
    const lost = (attempt: number): Plan =>
      advance(
        deploying,
        { type: 'task_lost', task: { ...work, attempt }, why: 'lease' },
        facts(there),
      );
    expect(changeOf(lost(1), 'd1').stopped_first).toBe('asked');
    // No agent had the task.
    expect(changeOf(lost(0), 'd1').stopped_first).toBeUndefined();
  });
  it('stays recorded when the lost task ends the new one: the list of the node is older', () => {
    const plan = advance(
      deploying,
      { type: 'task_lost', task: work, why: 'wall' },
      facts({ ...there, tasks: [work], endedWork: [worked('n1')] }),
    );
    expect(stateOf(plan, 'd2')).toBe('failed');
    expect(changeOf(plan, 'd1').stopped_first).toBe('asked');
    expect(plan.createTasks).toEqual([]);
  });
});

describe('the node of the new version', () => {
  it('is the node of the old version despite better scores, because its agent stops the old version first', () => {
    const plan = tick([home({ free_storage: 1 }), away()]);
    expect(plan.createTasks).toMatchObject([
      { kind: 'deploy', node_id: 'n1', payload: { replace: 'recreate' } },
    ]);
  });
  it('if it must be another node, the old version is stopped and kept, and the new one waits', () => {
    const plan = tick([home(cordoned), away()]);
    expect(stateOf(plan, next.id)).toBeNull();
    expect(plan.createTasks).toMatchObject([
      {
        kind: 'retire',
        node_id: 'n1',
        deployment_id: 'd2',
        payload: { remove: [], stop: [{ deployment_id: 'd1' }], stop_grace_seconds: 10 },
      },
    ]);
    expect(why(plan)).toContain('its containers on home are stopped first');
    expect(changeOf(plan, 'd1')).toMatchObject({
      stopped_first: 'asked',
      waiting: 'asked to stop for deployment 2',
    });
  });
  it('waits until the old version is stopped', () => {
    const plan = tick([home(cordoned), away()], {
      tasks: [task('retire', { node_id: 'n1', payload: { remove: [], stop: [] } as never })],
    });
    expect([stateOf(plan, next.id), plan.createTasks]).toEqual([null, []]);
    expect(why(plan)).toContain('home still works on a task of it');
  });
  it('starts when the node reports the old version as stopped', () => {
    const stopped = home({
      ...cordoned,
      containers: [{ ...running, state: 'exited', host_port: null }],
    });
    const told = old({ settings, stopped_first: 'stopped' });
    expect(tick([stopped, away()], { live: [told, next] }).createTasks).toMatchObject([
      { kind: 'deploy', node_id: 'n2' },
    ]);
    const gone = home({ ...cordoned, containers: [], observed_since: NOW - 59_000 });
    expect(tick([gone, away()]).createTasks).toMatchObject([{ kind: 'deploy', node_id: 'n2' }]);
  });
  it('waits if the list that lacks the old version can be from before its start', () => {
    for (const observed_since of [null, NOW - 61_000, NOW - 60_000]) {
      const late = home({ ...cordoned, containers: [], observed_since });
      const plan = tick([late, away()]);
      expect(plan.createTasks).toEqual([]);
      expect(why(plan)).toContain('home has not confirmed that it stopped');
    }
  });
  it('waits if such a list lacks a worker of the old version', () => {
    const worker = instance({ deployment_id: 'd1', process: 'mail', number: 1, node_id: 'n3' });
    const late = node({ id: 'n3', hostname: 'third', containers: [] });
    const stopped = home({ ...cordoned, containers: [], observed_since: NOW - 59_000 });
    const over = { instances: [worker], endedWork: [worked('n1'), worked('n3')] };
    expect(tick([stopped, away(), late], over).createTasks).toEqual([]);
    const proven = { ...late, observed_since: NOW - 59_000 };
    expect(tick([stopped, away(), proven], over).createTasks).toMatchObject([
      { kind: 'deploy', node_id: 'n2' },
    ]);
  });
  it('an exited container is stopped too, because its engine would restart it', () => {
    const ended = home({
      ...cordoned,
      containers: [{ ...running, state: 'exited', host_port: null }],
    });
    expect(tick([ended, away()]).createTasks).toMatchObject([
      { kind: 'retire', node_id: 'n1', payload: { stop: [{ deployment_id: 'd1' }] } },
    ]);
  });
  it('the confirmed stop is stored with the old version', () => {
    const asked = old({ settings, stopped_first: 'asked' });
    const stop = task('retire', {
      node_id: 'n1',
      deployment_id: 'd2',
      payload: { remove: [], keep: null, stop: [{ deployment_id: 'd1', reason: '' }] } as never,
    });
    const given = facts({
      live: [asked, next],
      nodes: [home(cordoned), away()],
      tasks: [stop],
      endedWork: [worked('n1')],
    });
    const done = advance(
      next,
      { type: 'task_reported', task: stop, report: { status: 'completed' } },
      given,
    );
    expect(changeOf(done, 'd1').stopped_first).toBe('stopped');
    const lost = advance(next, { type: 'task_lost', task: stop, why: 'lease' }, given);
    expect(changeOf(lost, 'd1').stopped_first).toBeUndefined();
  });
  it('an unknown container of the project on another node is stopped too', () => {
    const stranger = {
      ...running,
      labels: { 'berth.project': 'p1', 'berth.deployment': 'unknown' },
    };
    const plan = tick(
      [away(), node({ id: 'n3', hostname: 'third', containers: [stranger], ...cordoned })],
      {
        live: [next],
        endedWork: [],
      },
    );
    expect(plan.createTasks).toMatchObject([
      { kind: 'retire', node_id: 'n3', payload: { stop: [{ deployment_id: 'unknown' }] } },
    ]);
  });
});

it('one plan stops containers on at most eight nodes', () => {
  const everywhere = Array.from({ length: 40 }, (_, i) =>
    node({
      id: `m${i}`,
      hostname: `m${i}`,
      containers: [{ ...running, labels: { 'berth.project': 'p1', 'berth.deployment': `e${i}` } }],
    }),
  );
  const ids = Array.from({ length: 16 }, (_, i) => `x${i}`);
  const plan = tick([node({ id: 'n9', hostname: 'node-9', free_storage: 9e9 }), ...everywhere], {
    live: [next],
    endedWork: [],
    freshIds: ids,
  });
  expect(plan.createTasks).toHaveLength(8);
  expect(changeOf(plan, 'd2').waiting).toMatch(/m7 and 32 more are stopped first/);
});

describe('a node that may still be writing blocks the new version, and nothing is stopped meanwhile', () => {
  const silent = { last_seen_at: NOW - DEFAULT_LIMITS.offlineMs - 1 };
  it.each<[string, NodeFact[], Partial<Facts>]>([
    ['what serves is on a silent node', [home(silent), away()], {}],
    [
      'its list is older than the work there',
      [home({ ...cordoned, observed_at: NOW - 61_000 }), away()],
      {},
    ],
    [
      'another node went silent over a deployment of it',
      [
        home(cordoned),
        away(),
        node({ id: 'n3', hostname: 'lost', observed_at: NOW - 100_000, ...silent }),
      ],
      { endedWork: [worked('n1'), worked('n3', { unreported_at: NOW - 60_000 })] },
    ],
    [
      'one that is back has not cleared up yet',
      [home(cordoned), away(), node({ id: 'n3', hostname: 'lost', observed_at: NOW })],
      {
        endedWork: [
          worked('n1'),
          worked('n3', { ended_at: NOW - 1000, unreported_at: NOW - 1000 }),
        ],
      },
    ],
  ])('%s', (_, nodes, over) => {
    const plan = tick(nodes, over);
    expect([stateOf(plan, next.id), plan.createTasks]).toEqual([null, []]);
    expect(why(plan)).toContain('it may still be writing there');
  });
  it('a node that is back and had time to clean up does not block', () => {
    const back = node({ id: 'n3', hostname: 'lost', observed_at: NOW, last_polled_at: NOW });
    const plan = tick([away(), back], {
      live: [next],
      endedWork: [worked('n3', { unreported_at: NOW - 60_000 })],
    });
    expect(stateOf(plan, next.id)).toBe('deploying');
  });
  it('a contract-only node blocks until it is deleted', () => {
    const contract = home({ ...cordoned, agent_version: null, containers: [] });
    expect(why(tick([contract, away()]))).toContain('can neither report nor stop containers');
  });
  it('a node that was deleted with force does not block', () => {
    expect(stateOf(tick([away()], { live: [next] }), next.id)).toBe('deploying');
  });
  it('fails at the deadline, and says why', () => {
    const late = waitingSince(next, NOW - DEFAULT_LIMITS.queueMs - 1);
    const plan = tick([home(silent), away()], { live: [serves, late] }, late);
    expect(changeOf(plan, next.id)).toMatchObject({
      status: 'failed',
      error: { code: 'still_writing' },
    });
  });
});

it('a silent node whose agent never claimed its task does not block', () => {
  const silent = node({
    id: 'n3',
    hostname: 'lost',
    observed_at: null,
    last_seen_at: NOW - 300_000,
  });
  const plan = tick([away(), silent], {
    live: [next],
    endedWork: [worked('n3', { ended_at: NOW - 1000, claimed_at: null })],
  });
  expect(stateOf(plan, next.id)).toBe('deploying');
  const contract = { ...silent, agent_version: null };
  const unsure = tick([away(), contract], {
    live: [next],
    endedWork: [worked('n3', { ended_at: NOW - 1000, claimed_at: null })],
  });
  expect(stateOf(unsure, next.id)).toBeNull();
});

describe('a silent node without a secret whose machine reports as another node', () => {
  const left: ObservedContainer = {
    ...running,
    id: 'c9',
    labels: { ...running.labels, 'berth.deployment': 'd9', 'berth.node': 'n3' },
  };
  const quiet = (ms: number) => ({
    observed_at: NOW - ms,
    last_seen_at: NOW - ms,
    last_polled_at: NOW - ms,
  });
  const before = (over: Partial<NodeFact> = {}) =>
    node({ id: 'n3', hostname: 'lost', containers: [left], ...quiet(200_000), ...over });
  const heir = (over: Partial<NodeFact> = {}) =>
    node({
      id: 'n4',
      hostname: 'renamed',
      ...cordoned,
      observed_at: NOW,
      last_seen_at: NOW,
      last_polled_at: NOW,
      earlier_nodes: [{ id: 'n3', boot_id: 'boot', container: 'c9' }],
      ...over,
    });
  const lost = [worked('n3', { ended_at: NOW - 180_000, unreported_at: NOW - 180_000 })];
  const plan = (nodes: NodeFact[], endedWork = lost) =>
    tick([away(), ...nodes], { live: [next], endedWork });

  it('does not block once that node reports that nothing runs', () => {
    expect(stateOf(plan([before(), heir()]), next.id)).toBe('deploying');
  });
  it('what that node reports is stopped first', () => {
    const told = plan([before(), heir({ containers: [left] })]);
    expect(told.createTasks).toMatchObject([
      { kind: 'retire', node_id: 'n4', payload: { stop: [{ deployment_id: 'd9' }] } },
    ]);
  });
  it('a second new name counts too', () => {
    const second = heir({
      id: 'n5',
      hostname: 'again',
      earlier_nodes: [{ id: 'n4', boot_id: 'boot', container: 'c8' }],
    });
    const between = heir({ ...quiet(170_000), containers: [{ ...left, id: 'c8' }] });
    const [first] = lost;
    const early = before(quiet(400_000));
    expect(stateOf(plan([early, between, second], [{ ...(first as EndedWork) }]), next.id)).toBe(
      'deploying',
    );
    expect(stateOf(plan([early, between]), next.id)).toBeNull();
  });
  it.each<[string, NodeFact[]]>([
    [
      'the node has its own secret: only that secret speaks for it',
      [before({ has_secret: true }), heir()],
    ],
    ['another process has registered as it since', [before({ boot_id: 'another' }), heir()]],
    [
      'another machine lists other containers under its name',
      [before({ containers: [{ ...left, id: 'c1' }] }), heir()],
    ],
    ['it is not silent', [before(quiet(0)), heir()]],
    ['it reports, but its engine does not answer', [before({ last_seen_at: NOW }), heir()]],
    [
      'the other node had no time to clean up',
      [before(), heir({ observed_at: NOW - 180_000 + DEFAULT_LIMITS.leaseMs })],
    ],
    [
      'the other node has not polled since the task was lost',
      [before(), heir({ last_polled_at: NOW - 190_000 })],
    ],
    ['the other node is a contract-only node', [before(), heir({ agent_version: null })]],
    ['it still polls', [before({ last_polled_at: NOW }), heir()]],
    ['no node has reported its containers', [before(), heir({ earlier_nodes: [] })]],
  ])('%s: it blocks', (_, nodes) => {
    const unsure = plan(nodes);
    expect([stateOf(unsure, next.id), unsure.createTasks.map((t) => t.node_id)]).toEqual([
      null,
      expect.not.arrayContaining(['n2']),
    ]);
  });
});

describe('a version that was stopped for one that failed', () => {
  const stopped = old({ settings, stopped_first: 'stopped' });
  const atHome = home({
    ...cordoned,
    containers: [{ ...running, state: 'exited', host_port: null }],
  });
  const trying = on.deploying({ settings, node_id: 'n2' });
  const failed = {
    status: 'failed' as const,
    result: { error: { code: 'container_exited', message: 'exit 1' } },
  };
  const deployTask = task('deploy', { node_id: 'n2' });
  const over = (f: Partial<Facts> = {}): Facts =>
    facts({
      live: [stopped, trying],
      nodes: [atHome, away()],
      tasks: [deployTask],
      endedWork: [worked('n1')],
      ...f,
    });

  it('restarts when the new one failed', () => {
    const plan = advance(
      trying,
      { type: 'task_reported', task: deployTask, report: failed },
      over(),
    );
    expect(stateOf(plan, trying.id)).toBe('failed');
    expect(plan.createTasks).toMatchObject([
      { kind: 'retire', node_id: 'n1', deployment_id: 'd1', payload: { remove: [], start: 'd1' } },
    ]);
  });
  it.each(['failed', 'cancelled'])(
    'stays stopped until the node has listed its containers if the agent of the %s one could not remove it',
    (end) => {
      const d = end === 'cancelled' ? { ...trying, cancel_requested_at: NOW - 1 } : trying;
      const left = { ...failed, container_id: 'c2' };
      const plan = advance(
        d,
        { type: 'task_reported', task: deployTask, report: left },
        over({ live: [stopped, d] }),
      );
      expect([stateOf(plan, d.id), plan.createTasks]).toEqual([end, []]);
      expect(plan.storyLines.map(({ message }) => message).join()).toContain(
        'away has not confirmed that it stopped',
      );
    },
  );
  it('restarts when the new one was cancelled before its assignment', () => {
    const waiting = { ...next };
    const plan = advance(
      waiting,
      { type: 'cancel' },
      over({ live: [stopped, waiting], tasks: [] }),
    );
    expect(plan.createTasks).toMatchObject([{ payload: { start: 'd1' } }]);
  });
  const isLost = { last_seen_at: NOW - DEFAULT_LIMITS.offlineMs - 1 };
  /** Longer than a node may be silent, with the grace after a gap in the service. */
  const LONG = DEFAULT_LIMITS.offlineMs + DEFAULT_LIMITS.leaseMs + 1;
  it('restarts when no node can take the new one any more, instead of a wait until QUEUE_TIMEOUT; the new one says why', () => {
    const waits = waitingSince(next, NOW - LONG);
    const plan = tick([atHome, away(isLost)], { live: [stopped, waits] }, waits);
    expect(stateOf(plan, next.id)).toBe('failed');
    expect(changeOf(plan, next.id).error).toMatchObject({
      code: 'no_deploy_node',
      message: expect.stringMatching(/away.*offline/),
    });
    expect(plan.createTasks).toMatchObject([
      { kind: 'retire', node_id: 'n1', payload: { start: 'd1' } },
    ]);
  });
  it.each([
    ['is silent', isLost],
    [
      'has an engine that does not answer',
      { engine: { ok: false, error: 'no answer' } as NodeFact['engine'] },
    ],
  ])(
    'stays stopped for a short time when the other node %s: it may come back, for example after an outage of Berth',
    (_, over) => {
      const waits = waitingSince(next, NOW - 1000);
      const plan = tick([atHome, away(over)], { live: [stopped, waits] }, waits);
      expect([stateOf(plan, next.id), plan.createTasks]).toEqual([null, []]);
    },
  );
  it('stays stopped while the lost node may run the new one', () => {
    const waits = waitingSince(next, NOW - LONG);
    const endedWork = [worked('n1'), worked('n2', { unreported_at: NOW - 1000 })];
    const plan = tick([atHome, away(isLost)], { live: [stopped, waits], endedWork }, waits);
    expect([stateOf(plan, next.id), plan.createTasks]).toEqual([null, []]);
  });
  it('does not restart before the container of the new one is removed', () => {
    const published = on.published({
      settings,
      node_id: 'n2',
      route_published_at: NOW - DEFAULT_LIMITS.routeMs - 1,
    });
    const plan = advance(
      published,
      { type: 'tick' },
      over({ live: [stopped, published], tasks: [] }),
    );
    expect(plan.createTasks.map((t) => [t.node_id, t.payload])).toEqual([
      [
        'n2',
        expect.objectContaining({ remove: [expect.objectContaining({ deployment_id: 'd2' })] }),
      ],
    ]);
    const gone = on.ended('failed', { settings });
    const retire = task('retire', {
      node_id: 'n2',
      payload: { remove: [{ deployment_id: 'd2', reason: '' }], keep: null } as never,
    });
    const after = advance(
      gone,
      { type: 'task_reported', task: retire, report: { status: 'completed' } },
      over({ live: [stopped], tasks: [retire] }),
    );
    expect(after.createTasks).toMatchObject([{ node_id: 'n1', payload: { start: 'd1' } }]);
  });
  it('does not restart while a node is silent; the story says so, and the next report retries', () => {
    const wall = advance(trying, { type: 'task_lost', task: deployTask, why: 'wall' }, over());
    expect(wall.createTasks).toEqual([]);
    const unsure = {
      live: [stopped],
      tasks: [],
      endedWork: [worked('n1'), worked('n2', { unreported_at: NOW - 1000 })],
    };
    const seen = {
      type: 'observed' as const,
      node_id: 'n1',
      container: atHome.containers[0] ?? null,
    };
    const plan = advance(stopped, seen, over(unsure));
    expect(plan.createTasks).toEqual([]);
    expect(plan.storyLines.map((e) => e.message).join()).toContain(
      'stays stopped on home for now: away has not confirmed that it stopped',
    );
    const later = advance(stopped, seen, over({ ...unsure, endedWork: [worked('n1')] }));
    expect(later.createTasks).toMatchObject([{ payload: { start: 'd1' } }]);
  });
  const seenAtHome = {
    type: 'observed' as const,
    node_id: 'n1',
    container: atHome.containers[0] ?? null,
  };
  it('restarts although its machine reports under a new name and the old node never reports again', () => {
    const at = NOW - 300_000;
    const once = node({
      id: 'n0',
      hostname: 'once',
      observed_at: at,
      last_seen_at: at,
      last_polled_at: at,
    });
    const listed = { ...once, containers: [{ ...running, id: 'c1' }] };
    const renamed = {
      ...atHome,
      last_polled_at: NOW,
      earlier_nodes: [{ id: 'n0', boot_id: 'boot', container: 'c1' }],
    };
    const endedWork = [worked('n0', { ended_at: NOW - 310_000 }), worked('n1')];
    const plan = advance(
      stopped,
      seenAtHome,
      over({ live: [stopped], tasks: [], nodes: [listed, renamed, away()], endedWork }),
    );
    expect(plan.createTasks).toMatchObject([{ node_id: 'n1', payload: { start: 'd1' } }]);
  });
  it.each<[string, Partial<NodeFact>, Partial<EndedWork>]>([
    [
      'runs',
      {
        containers: [
          ...atHome.containers,
          { ...running, id: 'c3', labels: { ...running.labels, 'berth.deployment': 'd3' } },
        ],
      },
      {},
    ],
    ['may still be starting', {}, { ended_at: NOW - 1000, unreported_at: NOW - 1000 }],
  ])('does not restart beside another version that %s on its own node', (_, own, work) => {
    const nodes = [{ ...atHome, ...own }, away()];
    const plan = advance(
      stopped,
      seenAtHome,
      over({ live: [stopped], tasks: [], nodes, endedWork: [worked('n1', work)] }),
    );
    expect(plan.createTasks).toEqual([]);
    expect(changeOf(plan, 'd1').waiting).toContain('home');
  });
  it('restarts although the machine’s clock was set back, so that polls of its node seem to lie in the future', () => {
    const nodes = [{ ...atHome, last_polled_at: NOW + 3_600_000 }, away()];
    const endedWork = [worked('n1', { unreported_at: NOW - 60_000 })];
    const plan = advance(
      stopped,
      seenAtHome,
      over({ live: [stopped], tasks: [], nodes, endedWork }),
    );
    expect(plan.createTasks).toMatchObject([{ node_id: 'n1', payload: { start: 'd1' } }]);
  });
  it('does not restart while another deployment may take over', () => {
    const plan = advance(
      stopped,
      { type: 'observed', node_id: 'n1', container: atHome.containers[0] ?? null },
      over({ live: [stopped, next], tasks: [] }),
    );
    expect(plan.createTasks).toEqual([]);
  });
  it('no other deployment starts on its node during its restart', () => {
    const start = task('retire', {
      node_id: 'n1',
      deployment_id: 'd1',
      payload: { remove: [], keep: null, start: 'd1' } as never,
    });
    const plan = tick([home()], { live: [stopped, next], tasks: [start] });
    expect([stateOf(plan, next.id), plan.createTasks]).toEqual([null, []]);
  });
  it('waits for nothing after its restart', () => {
    const start = task('retire', {
      node_id: 'n1',
      deployment_id: 'd1',
      payload: { remove: [], keep: null, start: 'd1' } as never,
    });
    const plan = advance(
      stopped,
      { type: 'task_reported', task: start, report: { status: 'completed' } },
      over({ live: [stopped], tasks: [start] }),
    );
    expect(changeOf(plan, 'd1')).toMatchObject({ stopped_first: null, waiting: null });
    expect(plan.storyLines).toMatchObject([{ kind: 'started_again' }]);
  });
  const failedStart = {
    status: 'failed' as const,
    result: { error: { code: 'container_start_failed', message: 'the engine is busy' } },
  };
  it.each([
    ['fails', { type: 'task_reported' as const, report: failedStart }],
    ['is lost', { type: 'task_lost' as const, why: 'lease' as const }],
  ])('a start that %s is retried at the next report of its node, and not before', (_, end) => {
    const start = task('retire', {
      node_id: 'n1',
      deployment_id: 'd1',
      payload: { remove: [], keep: null, start: 'd1' } as never,
    });
    const after = advance(
      stopped,
      { ...end, task: start },
      over({ live: [stopped], tasks: [start] }),
    );
    expect(after.createTasks).toEqual([]);
    const left = { ...stopped, ...changeOf(after, 'd1') };
    const given = over({
      live: [left],
      tasks: [],
      endedWork: [worked('n1', { ended_at: NOW - 1 })],
    });
    const seen = advance(
      left,
      { type: 'observed', node_id: 'n1', container: atHome.containers[0] ?? null },
      given,
    );
    expect(seen.createTasks).toMatchObject([{ node_id: 'n1', payload: { start: 'd1' } }]);
  });
  it('story and health name the reason of a failed start, once for each reason', () => {
    const start = task('retire', {
      node_id: 'n1',
      deployment_id: 'd1',
      payload: { remove: [], keep: null, start: 'd1' } as never,
    });
    const event = { type: 'task_reported' as const, task: start, report: failedStart };
    const plan = advance(stopped, event, over({ live: [stopped], tasks: [start] }));
    expect(plan.storyLines).toMatchObject([
      {
        kind: 'retire_failed',
        message: 'home could not restart the container: the engine is busy',
      },
    ]);
    const left = { ...stopped, ...changeOf(plan, 'd1') };
    expect(
      judge(left, atHome.containers[0] ?? null, {
        now: NOW,
        retiring: false,
        holder: null,
        squatter: null,
      }),
    ).toEqual({
      status: 'unhealthy',
      detail: 'home could not restart the container: the engine is busy',
    });
    expect(advance(left, event, over({ live: [left], tasks: [start] })).storyLines).toEqual([]);
  });
  it('another failed task does not clear that it was stopped', () => {
    const remove = task('retire', {
      node_id: 'n1',
      deployment_id: 'd1',
      payload: { remove: [], keep: null } as never,
    });
    const after = advance(
      stopped,
      { type: 'task_reported', task: remove, report: failedStart },
      over({ live: [stopped, trying], tasks: [remove] }),
    );
    const left = { ...stopped, ...changeOf(after, 'd1') };
    const seen = advance(
      left,
      { type: 'observed', node_id: 'n1', container: atHome.containers[0] ?? null },
      over({ live: [left], tasks: [] }),
    );
    expect(seen.createTasks).toMatchObject([{ payload: { start: 'd1' } }]);
  });
  it('a version that never stopped is not restarted', () => {
    const cancelled = (observed_since: number): Plan =>
      advance(
        next,
        { type: 'cancel' },
        over({ live: [stopped, next], nodes: [home({ observed_since }), away()], tasks: [] }),
      );
    const plan = cancelled(NOW - 59_000);
    expect([plan.createTasks, changeOf(plan, 'd1').stopped_first]).toEqual([[], null]);
    // This list arrived late, and can be from before the stop.
    const late = cancelled(NOW - 61_000);
    expect([late.createTasks, changeOf(late, 'd1').stopped_first]).toEqual([[], undefined]);
  });
  it('a stop for a version that has ended since: the list from before it does not prove that the old one runs', () => {
    const asked = old({ settings, stopped_first: 'asked' });
    const ended = on.ended('superseded', { id: 'd9', settings });
    const stop = task('retire', {
      deployment_id: 'd9',
      node_id: 'n1',
      attempt: 2,
      payload: { remove: [], stop: [{ deployment_id: 'd1' }] } as never,
    });
    const plan = advance(
      ended,
      { type: 'task_reported', task: stop, report: { status: 'completed', result: null } },
      over({ live: [asked], nodes: [home(), away()], tasks: [stop] }),
    );
    expect(changeOf(plan, 'd1').stopped_first).not.toBeNull();
  });
});

describe('a version that was stopped for one that failed, and whose container is gone', () => {
  const GPU = 'nvidia.com/gpu';
  const stopped = old({ settings, stopped_first: 'stopped' });
  const empty = home({ containers: [], observed_at: NOW });
  const gone = { type: 'observed' as const, node_id: 'n1', container: null };
  const over = (f: Partial<Facts> = {}): Facts =>
    facts({ live: [stopped], nodes: [empty, away()], endedWork: [worked('n1')], ...f });
  const creation = task('deploy', {
    deployment_id: 'd1',
    payload: { replace: 'recreate' } as never,
  });

  it('is created again from its release, and says so', () => {
    const plan = advance(stopped, gone, over());
    expect(plan.createTasks).toMatchObject([
      {
        kind: 'deploy',
        node_id: 'n1',
        deployment_id: 'd1',
        payload: { generation: 1, replace: 'recreate', image_digest: stopped.image_digest },
      },
    ]);
    expect(changeOf(plan, 'd1')).toMatchObject({
      waiting: 'its container does not exist any more on home; it is created again',
    });
    expect(changeOf(plan, 'd1').stopped_first).toBeUndefined();
    expect(plan.storyLines.map(({ kind }) => kind)).toContain('started_again');
  });
  it('serves again when the new container answers', () => {
    const plan = advance(
      stopped,
      {
        type: 'task_reported',
        task: creation,
        report: { status: 'completed', host_port: 32_009, container_id: 'c9' },
      },
      over({ tasks: [creation] }),
    );
    expect(changeOf(plan, 'd1')).toMatchObject({
      stopped_first: null,
      waiting: null,
      host_port: 32_009,
      container_id: 'c9',
      health: { status: 'healthy' },
    });
    expect(plan.route).toMatchObject({ set: { deployment_id: 'd1', host_port: 32_009 } });
    // The container gets the name of the one that serves.
    expect(plan.createTasks).toMatchObject([
      { kind: 'retire', node_id: 'n1', payload: { remove: [], keep: { deployment_id: 'd1' } } },
    ]);
  });
  it.each([
    [
      'fails',
      {
        type: 'task_reported' as const,
        report: {
          status: 'failed' as const,
          result: { error: { code: 'image_pull_failed', message: 'no such image' } },
        },
      },
      'home could not create the container: ',
    ],
    ['is lost', { type: 'task_lost' as const, why: 'queue' as const }, 'home could not create'],
  ])('a creation that %s says why, and is tried again at the next list', (_, end, text) => {
    const after = advance(stopped, { ...end, task: creation }, over({ tasks: [creation] }));
    expect(after.createTasks).toEqual([]);
    expect(changeOf(after, 'd1').waiting).toContain(text);
    const left = { ...stopped, ...changeOf(after, 'd1') };
    expect(left.stopped_first).toBe('stopped');
    expect(advance(left, gone, over({ live: [left] })).createTasks).toMatchObject([
      { kind: 'deploy', deployment_id: 'd1' },
    ]);
  });
  it('has the device that it had before', () => {
    const gpu = { ...settings, requires: { devices: { [GPU]: 1 } } };
    const d = { ...stopped, settings: gpu };
    const holder = { deployment_id: 'd1', instance_id: null };
    const plan = advance(
      d,
      gone,
      over({
        live: [d],
        nodes: [home({ containers: [], observed_at: NOW, devices: { [GPU]: ['0', '1'] } })],
        room: {
          memory: new Map(),
          leases: [
            {
              ...holder,
              node_id: 'n1',
              kind: GPU,
              name: '1',
              returns_to: null,
              returns_to_instance: null,
              holders: [holder],
            },
          ],
        },
      }),
    );
    expect(plan.createTasks).toMatchObject([{ payload: { devices: [`${GPU}=1`] } }]);
    // The lease of the gone container ends, and the new one has it.
    expect(plan.freeDevices).toEqual([{ node_id: 'n1', ...holder }]);
    expect(plan.takeDevices).toMatchObject([{ name: '1', ...holder }]);
  });
  it('is not created without its device, and says why', () => {
    const gpu = { ...settings, requires: { devices: { [GPU]: 1 } } };
    const d = { ...stopped, settings: gpu };
    const holder = { deployment_id: 'd9', instance_id: null };
    const none = { returns_to: null, returns_to_instance: null, holders: [holder] };
    const plan = advance(
      d,
      gone,
      over({
        live: [d],
        nodes: [home({ containers: [], observed_at: NOW, devices: { [GPU]: ['0'] } })],
        room: {
          memory: new Map(),
          leases: [{ ...holder, ...none, node_id: 'n1', kind: GPU, name: '0' }],
        },
      }),
    );
    expect(plan.createTasks).toEqual([]);
    expect(changeOf(plan, 'd1').waiting).toBe(
      'its container does not exist any more, and cannot be created again: home has too few free ' +
        `devices ${GPU}: 1 needed, 0 free`,
    );
  });
  it('is not created before the container of the newer version is removed', () => {
    const other = { ...running, labels: { ...running.labels, 'berth.deployment': 'd2' } };
    const plan = advance(stopped, gone, over({ nodes: [home({ containers: [other] }), away()] }));
    expect(plan.createTasks).toEqual([]);
  });
  it('no other deployment starts on its node meanwhile', () => {
    const plan = tick([empty], { live: [stopped, next], tasks: [creation] });
    expect([stateOf(plan, next.id), plan.createTasks]).toEqual([null, []]);
    expect(why(plan)).toBe('the previous version is being restarted on home');
  });
  it('a stop of the project ends the creation', () => {
    const plan = advance(stopped, { type: 'project_stopped' }, over({ tasks: [creation] }));
    expect(plan.changeTasks).toMatchObject([{ id: creation.id, end: 'cancelled' }]);
  });
  it('says why it cannot be created', () => {
    const d = {
      ...stopped,
      settings: { ...settings, datasets: [{ dataset_id: 's9', mode: 'dependency' as const }] },
    };
    const plan = advance(d, gone, over({ live: [d] }));
    expect(plan.createTasks).toEqual([]);
    expect(changeOf(plan, 'd1').waiting).toBe(
      'its container does not exist any more, and cannot be created again: dataset s9 was deleted',
    );
  });
  it('another instance takes over if one serves', () => {
    const d = old({ stopped_first: 'stopped' });
    const other = instance({ deployment_id: 'd1', node_id: 'n2' });
    const plan = advance(d, gone, over({ live: [d], instances: [other] }));
    expect(plan.createTasks).toEqual([]);
    expect(changeOf(plan, 'd1').stopped_first).toBeNull();
  });
});

test('none of this applies to a rolling replacement', () => {
  const plan = tick([home(cordoned), away()], { live: [old(), on.built()] }, on.built());
  expect(plan.createTasks).toMatchObject([{ kind: 'deploy', node_id: 'n2' }]);
});
