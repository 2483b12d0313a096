/** A project without the process `web`: start, switch, failure, stop, loss and scale. */
import { describe, expect, it } from 'vitest';
import type { Process } from '@berth/wire/project';
import type { Facts } from '../../src/domain/deployments/facts.ts';
import type { InstanceRecord } from '../../src/domain/deployments/instance.ts';
import type { Plan } from '../../src/domain/deployments/plan.ts';
import type { DeploymentRecord } from '../../src/domain/platform/records.ts';
import { scaledAfter } from '../../src/domain/projects/processes.ts';
import { advance, stop } from '../../src/flow/deployment.ts';
import {
  changeOf,
  facts,
  instance,
  node,
  old,
  on,
  project,
  routeTo,
  SETTINGS,
  stateOf,
  task,
} from './fixtures.ts';

const NODES = [1, 2].map((n) =>
  node({
    id: `n${n}`,
    hostname: `node-${n}`,
    host_ip: `10.0.0.${n}`,
    free_storage: 1e9 - n,
    capabilities: ['instances', 'processes'],
  }),
);
const BOT: Process = { name: 'bot', command: ['node', 'bot.js'], count: 1 };
const processes = [BOT];
const settings = { ...SETTINGS, processes };
const noNode = { node_id: null, host_port: null, container_id: null };
const running = (over: Partial<DeploymentRecord> = {}) =>
  on.running({ settings, ...noNode, ...over });
const page = (d: DeploymentRecord) => ({
  ...routeTo(d),
  node_id: 'n1',
  host_ip: '10.0.0.1',
  host_port: 0,
  stopped: true as const,
});
const world = (over: Partial<Facts>): Facts =>
  facts({
    nodes: [...NODES],
    freshIds: Array.from({ length: 20 }, (_, i) => `x${i}`),
    project: project({ processes }),
    ...over,
  });
const bot = (over: Partial<InstanceRecord> = {}): InstanceRecord =>
  instance({
    id: 'w1',
    process: 'bot',
    number: 1,
    node_id: 'n1',
    host_port: null,
    container_id: 'k1',
    memory_bytes: 0,
    ...over,
  });
const botTask = task('deploy', {
  id: 'tw',
  deployment_id: 'd2',
  node_id: 'n1',
  payload: { instance: { id: 'w1', process: 'bot', number: 1 } } as never,
});
const deploys = (plan: Plan) =>
  plan.createTasks.flatMap((t) => (t.kind === 'deploy' ? [{ node: t.node_id, ...t.payload }] : []));
const retires = (plan: Plan) =>
  plan.createTasks.flatMap((t) => (t.kind === 'retire' ? [{ node: t.node_id, ...t.payload }] : []));
const put = (plan: Plan): InstanceRecord[] =>
  (plan.instances ?? []).flatMap((c) => ('put' in c ? [c.put] : []));
const removed = (plan: Plan): string[] =>
  (plan.instances ?? []).flatMap((c) => ('remove' in c ? [c.remove] : []));

describe('a new version', () => {
  it('starts its processes and nothing else', () => {
    const d = on.built({ settings });
    const plan = advance(d, { type: 'tick' }, world({ live: [d] }));
    expect(deploys(plan).map((t) => [t.container_name, t.command, t.settle_seconds])).toEqual([
      ['svc-shop-bot-1-g2', ['node', 'bot.js'], 5],
    ]);
    expect(changeOf(plan, 'd2')).toMatchObject({ status: 'deploying', ...noNode });
    expect(plan.route).toBeNull();
  });

  it('publishes its page when they have started, and is live when the proxy serves it', () => {
    const d = on.deploying({ settings, ...noNode });
    const starting = bot({ state: 'starting', container_id: null });
    const started = advance(
      d,
      {
        type: 'task_reported',
        task: botTask,
        report: { status: 'completed', result: null, container_id: 'k1' },
      },
      world({ live: [d], instances: [starting], tasks: [botTask] }),
    );
    expect(started.route).toMatchObject({
      set: { deployment_id: 'd2', node_id: 'n1', domain_prefix: 'shop', stopped: true },
    });
    const published = on.published({ settings, ...noNode });
    const plan = advance(
      published,
      { type: 'route_confirmed', host_ip: '10.0.0.1', host_port: 0 },
      world({ live: [published], instances: [bot()], route: page(published) }),
    );
    expect(stateOf(plan, 'd2')).toBe('running');
    expect(changeOf(plan, 'd2').health).toMatchObject({ status: 'healthy' });
  });

  it('waits with the reason if no node can take them', () => {
    const d = on.built({ settings });
    const older = NODES.map((one) => ({ ...one, capabilities: ['instances'] }));
    const plan = advance(d, { type: 'tick' }, world({ live: [d], nodes: older }));
    expect(plan.createTasks).toEqual([]);
    expect(changeOf(plan, 'd2').waiting).toMatch(/process bot/);
  });

  it('fails if a process exits, and the version with web serves on', () => {
    const before = old();
    const d = on.deploying({ settings, ...noNode });
    const starting = bot({ state: 'starting', container_id: null });
    const plan = advance(
      d,
      {
        type: 'task_reported',
        task: botTask,
        report: {
          status: 'failed',
          result: { error: { code: 'process_exited', message: 'exit code 1' } },
        },
      },
      world({
        live: [before, d],
        instances: [starting],
        tasks: [botTask],
        route: routeTo(before),
      }),
    );
    expect(stateOf(plan, 'd2')).toBe('failed');
    expect(plan.route).toBeNull();
    expect(stateOf(plan, 'd1')).toBeNull();
  });

  it('of a stopped project starts its processes before it is live', () => {
    const rests = running({ id: 'd1', stopped_first: 'stopped', health: null });
    const d = on.built({ settings, trigger: 'start' });
    const stopped = project({ processes, stopped_at: 1, stopped_by_person: true });
    const plan = advance(
      d,
      { type: 'tick' },
      world({ live: [rests, d], route: page(rests), project: stopped }),
    );
    expect(deploys(plan).map((t) => t.container_name)).toEqual(['svc-shop-bot-1-g2']);
    expect(plan.route).toBeNull();
  });

  it('publishes its page at once if its counts are 0', () => {
    const none = [{ ...BOT, count: 0 }];
    const d = on.built({ settings: { ...SETTINGS, processes: none } });
    const plan = advance(
      d,
      { type: 'tick' },
      world({ live: [d], project: project({ processes: none }) }),
    );
    expect(stateOf(plan, 'd2')).toBe('deploying');
    expect(plan.route).toMatchObject({ set: { deployment_id: 'd2', stopped: true } });
    expect(plan.createTasks).toEqual([]);
  });
});

describe('the switch', () => {
  it('ends the container of web when the page is served', () => {
    const before = old();
    const d = on.published({ settings, ...noNode });
    const plan = advance(
      d,
      { type: 'route_confirmed', host_ip: '10.0.0.1', host_port: 0 },
      world({ live: [before, d], instances: [bot()], route: page(d) }),
    );
    expect(stateOf(plan, 'd1')).toBe('retired');
    expect(retires(plan).flatMap(({ remove }) => remove.map((one) => one.deployment_id))).toContain(
      'd1',
    );
  });

  it('back to the page, if the version with web that follows fails', () => {
    const before = old({ settings, ...noNode });
    const d = on.published();
    const plan = advance(
      d,
      {
        type: 'route_unreachable',
        host_ip: '10.0.0.1',
        host_port: 32_002,
        proxy: 'http://proxy',
        saw: '502',
      },
      world({
        live: [before, d],
        instances: [bot({ id: 'w0', deployment_id: 'd1' })],
        route: routeTo(d),
      }),
    );
    expect(stateOf(plan, 'd2')).toBe('failed');
    expect(plan.route).toMatchObject({ set: { deployment_id: 'd1', stopped: true } });
  });
});

describe('a running version', () => {
  it('ends its processes at a stop, and rests', () => {
    const d = running();
    const plan = stop('ada', world({ live: [d], instances: [bot()], route: page(d) }));
    expect(removed(plan)).toEqual(['w1']);
    expect(changeOf(plan, 'd2')).toMatchObject({ health: null, stopped_first: 'stopped' });
    expect(retires(plan).map((one) => one.node)).toEqual(['n1']);
  });

  it('starts its process on another node when its node is lost, and the page follows', () => {
    const d = running();
    const lost = advance(
      d,
      { type: 'node_lost', node_id: 'n1' },
      world({ live: [d], instances: [bot()], route: page(d) }),
    );
    expect(deploys(lost).map((one) => one.node)).toEqual(['n2']);
    const next = put(lost).find((one) => one.state === 'starting') as InstanceRecord;
    const plan = advance(
      d,
      {
        type: 'task_reported',
        task: task('deploy', {
          id: 'tn',
          deployment_id: 'd2',
          node_id: 'n2',
          payload: { instance: { id: next.id, process: 'bot', number: 1 } } as never,
        }),
        report: { status: 'completed', result: null, container_id: 'k2' },
      },
      world({ live: [d], instances: [next], route: page(d) }),
    );
    expect(plan.route).toMatchObject({ set: { node_id: 'n2', stopped: true } });
  });

  it('starts no web at a scale, whatever the project says meanwhile', () => {
    const d = running();
    for (const count of [0, 1, 3]) {
      const plan = advance(
        d,
        { type: 'scaled' },
        world({
          live: [d],
          instances: [bot()],
          route: page(d),
          project: project({ processes: [{ name: 'web', count }, BOT] }),
        }),
      );
      expect(plan.createTasks).toEqual([]);
      expect(plan.stopped).toBeUndefined();
    }
  });

  it('gets a second instance at a scale', () => {
    const d = running();
    const plan = advance(
      d,
      { type: 'scaled' },
      world({
        live: [d],
        instances: [bot()],
        route: page(d),
        project: project({ processes: [{ ...BOT, count: 2 }] }),
      }),
    );
    expect(deploys(plan).map((one) => one.node)).toEqual(['n2']);
  });
});

describe('a web that only berth.toml has', () => {
  const ofFile = { processes: [{ name: 'web' }, BOT] };
  const config = { file: 'berth.toml', commit: null, keys: ['processes'] };
  const d = on.running({ settings: { ...SETTINGS, ...ofFile }, config });

  it('rests at a scale to 0', () => {
    const plan = advance(
      d,
      { type: 'scaled' },
      world({
        live: [d],
        instances: [bot()],
        route: routeTo(d),
        project: project({ processes, scaled: { web: 0 } }),
      }),
    );
    expect(plan.stopped).toMatchObject({ at: expect.any(Number), byPerson: false });
    expect(plan.route).toMatchObject({ set: { deployment_id: 'd2', stopped: true } });
  });

  it('is not scaled to 0 any more when a new list has no web', () => {
    expect(scaledAfter({ scaled: { web: 0, bot: 2 } }, [BOT])).toEqual({ bot: 1 });
    expect(scaledAfter({ scaled: { web: 0 } }, [{ name: 'bot', command: ['bot'] }])).toEqual({});
  });
});
