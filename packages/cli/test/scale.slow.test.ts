/** `berth scale`, `berth ps`, and what other commands say about instances. */
import { beforeAll, describe, expect, test, vi } from 'vitest';
import { createWorld, type World } from '../../control-plane/test/api/deployed.ts';
import { createProject, register } from '../../control-plane/test/api/harness.ts';
import { countsOf, newestOf, usageOf } from '../src/commands/instances.ts';
import { type Person, serveOnce, signedIn } from './support.ts';

const served = serveOnce();
let who: Person;
let world: World;
const nodes = new Map<string, string>();

beforeAll(async () => {
  who = await signedIn(served.url);
  world = await createWorld(served.api);
  const can = { agent_version: '0.2.0', capabilities: ['instances'], role: 'deploy' };
  for (const n of [2, 3]) {
    const hostname = `node-${n}`;
    nodes.set(hostname, await register(served.api, { ...can, hostname, host_ip: `10.0.1.${n}` }));
  }
  await world.live(await createProject(served.api));
}, 60_000);

/** The agent of the node starts the instance that it was given. */
const answers = (hostname: string): Promise<unknown> =>
  vi.waitFor(
    () =>
      world.work(nodes.get(hostname) ?? '', { host_port: 33_000, container_id: `c-${hostname}` }),
    10_000,
  );

const newestId = async (project: string): Promise<string> => {
  const { json } = await served.api.call('projectDeployments', { params: { id: project } });
  return (json['items'] as { id: string }[])[0]?.id ?? '';
};

describe('wrong usage', () => {
  test.each([
    [['web'], /“web” must be a process and its count/],
    [['web=three'], /“web=three” must be/],
    [['web=-1'], /“web=-1” must be/],
    [['=3'], /“=3” must be/],
    [['web=1', 'web=2'], /web is given twice/],
  ])('%j', async (args, said) => {
    expect(() => countsOf(args)).toThrow(said);
    const { code, err } = await who.berth(['scale', ...args, '--project', 'shop']);
    expect({ code, err }).toEqual({ code: 2, err: expect.stringMatching(said) });
  });

  test('the control plane refuses a count, and the command names the process', async () => {
    const many = await who.berth(['scale', 'web=51', '--project', 'shop']);
    expect(many).toMatchObject({ code: 1, out: '' });
    expect(many.err).toContain('web: ');
    const unknown = await who.berth(['scale', 'worker=2', '--project', 'shop']);
    expect(unknown.err).toContain('worker: the project has no process of this name; it has web');
  });
});

test('scale waits in a terminal until as many serve, and prints each change', async () => {
  const waiting = who.berth(['scale', 'web=3', '--project', 'shop'], { terminal: { out: true } });
  await answers('node-2');
  await answers('node-3');
  const { code, out, err } = await waiting;
  expect({ code, out }, err).toEqual({ code: 0, out: 'shop serves with web=3\n' });
  expect(err).toContain('web: 3 (it was 1)');
  expect(err).toMatch(/web 2 serves on node-[23]/);
  expect(err).toMatch(/web 3 serves on node-[23]/);
  expect(err).not.toContain('web 1');

  const status = await who.berth(['status', 'shop']);
  expect(status.out).toMatch(/from 3 instances on node-1, node-[23], node-[23]/);
  const shown = await who.berth(['deployment', 'show', 'shop']);
  expect(shown.out).toMatch(/instances\n {2}web 1 serves on node-1\n {2}web 2 serves on node-/);
  expect((await who.berth(['project', 'show', 'shop'])).out).toMatch(/instances +web=3/);
  const why = await who.berth(['placement', 'shop', '--instances']);
  expect(why.out).toMatch(/web 1: node-1\n.*NODE.*SCORE/);
  expect(why.out).toMatch(/web 3: node-[23]\n/);
});

test('ps lists instances with their node, state and version', async () => {
  const { out } = await who.berth(['ps', 'shop']);
  const [head, ...rows] = out.trimEnd().split('\n');
  expect(head).toMatch(/^PROCESS +NUMBER +NODE +STATE +SINCE +VERSION +CPU +MEMORY +RESTARTS$/);
  expect(rows).toHaveLength(3);
  expect(rows[0]).toMatch(/^web +1 +node-1 +serving +\d+ s ago +1/);
  expect((await who.berth(['ps'])).out).toMatch(/^PROJECT +PROCESS.*\nshop +web +1/);
  const { items } = JSON.parse((await who.berth(['ps', '--all', '--json'])).out) as {
    items: object[];
  };
  expect(items[1]).toMatchObject({
    ...{ project: 'shop', process: 'web', number: 2, state: 'serving', generation: 1 },
    usage: null,
  });
});

test('scale down, and --no-wait: the count is stored, and the command ends', async () => {
  const down = await who.berth(['scale', 'web=1', '--project', 'shop', '--wait']);
  expect(down).toMatchObject({ code: 0, out: 'shop serves with web=1\n' });
  expect(down.err).toMatch(/web 3 drains on node-[23]/);
  const stored = await who.berth(['scale', 'web=2', '--project', 'shop', '--no-wait', '--json']);
  expect(JSON.parse(stored.out)).toMatchObject({ processes: [{ name: 'web', count: 2 }] });
  expect((await who.berth(['scale', 'web=1', '--project', 'shop'])).out).toBe('shop wants web=1\n');
});

test('an instance that no node can take: exit code 1 with the reason', async () => {
  for (const node of nodes.values()) await served.api.call('cordonNode', { params: { id: node } });
  const { code, out, err } = await who.berth(['scale', 'web=2', '--project', 'shop', '--wait']);
  expect({ code, out }).toEqual({ code: 1, out: '' });
  expect(err).toMatch(/1 of 2 instances of web serve: web 2 waits: .*node-1/);
  expect(err).toContain('next: the count stays');
  const status = await who.berth(['status', 'shop']);
  expect(status.out).toContain('health: degraded (1 of 2 instances serve)');
  expect(status.out).toMatch(/instance web 2 waits: /);
  expect((await who.berth(['status', '--all'])).out).toContain(
    '! shop: degraded: 1 of 2 instances serve',
  );
  const json = await who.berth(['scale', 'web=2', '--project', 'shop', '--wait', '--json']);
  expect(JSON.parse(json.err)).toMatchObject({ code: 'instances_missing', exit_code: 1 });
});

test('without a running version the command says when the count takes effect', async () => {
  await createProject(served.api, { name: 'fresh', domain_prefix: 'fresh' });
  const early = await who.berth(['scale', 'web=2', '--project', 'fresh', '--wait']);
  expect(early).toMatchObject({ code: 0, out: 'fresh wants web=2\n' });
  expect(early.err).toContain('the counts take effect with its first deployment');
  await who.berth(['stop', 'shop']);
  const stopped = await who.berth(['scale', 'web=1', '--project', 'shop', '--wait']);
  expect(stopped.err).toContain('shop is stopped: the counts take effect when it starts');
  expect((await who.berth(['ps', 'shop'])).out).toBe('no instance of shop runs: it is stopped\n');
});

test('web=0 stops all of them, each command says so, and a later scale starts the release', async () => {
  // The node stops what the test before stopped.
  await world.work(world.home, {});
  await world.live(await createProject(served.api, { name: 'rest', domain_prefix: 'rest' }));
  const down = await who.berth(['scale', 'web=0', '--project', 'rest', '--wait']);
  expect(down).toMatchObject({ code: 0, out: 'rest wants web=0\n' });
  expect(down.err).toMatch(/rest is scaled to 0: http:\/\/rest\.\S+ answers 503/);
  expect((await who.berth(['ps', 'rest'])).out).toBe(
    'no instance of rest runs: it is scaled to 0\n',
  );
  const status = await who.berth(['status', 'rest']);
  expect(status.out).toMatch(/^rest is scaled to 0; http:\/\/rest\.\S+ answers 503/);
  expect(status.out).toContain('to start it again: berth scale web=1 --project rest');
  const start = await who.berth(['start', 'rest']);
  expect(start).toMatchObject({ code: 1, out: '' });
  expect(start.err).toContain('rest cannot start: it is scaled to 0');
  const up = await who.berth(['scale', 'web=1', '--project', 'rest', '--no-wait']);
  expect(up).toMatchObject({ code: 0, out: 'rest wants web=1\n' });
  expect(up.err).toContain('rest starts its release again: deployment 2');
});

test('a project that a person stopped: each command says so and how to start it, at count 0 too', async () => {
  // The node stops what the test before stopped.
  await world.work(world.home, {});
  const id = await createProject(served.api, { name: 'halt', domain_prefix: 'halt' });
  await served.api.call('cancelDeployment', { params: { id: await newestId('rest') } });
  const first = await world.live(id);
  const stop = await who.berth(['stop', 'halt']);
  expect(stop.out).toBe('halt is stopped\n');
  expect(stop.err).toContain('to start it again: berth start halt\n');
  await world.work(world.home, {});
  const scale = (web: number) => who.berth(['scale', `web=${web}`, '--project', 'halt', '--wait']);
  const down = await scale(0);
  expect(down).toMatchObject({ code: 0, out: 'halt wants web=0\n' });
  expect(down.err).toContain(
    'halt is stopped: the counts take effect when it starts: ' +
      'berth scale web=1 --project halt && berth start halt\n',
  );
  expect((await who.berth(['status', 'halt'])).out).toMatch(/^halt is stopped; /);
  expect((await who.berth(['stop', 'halt'])).out).toBe('halt is stopped already\n');
  const up = await scale(2);
  expect(up).toMatchObject({ code: 0, out: 'halt wants web=2\n' });
  expect(up.err).toContain('the counts take effect when it starts: berth start halt\n');
  expect(await newestId('halt')).toBe(first);

  await scale(0);
  const starting = who.berth(['start', 'halt']);
  const next = await vi.waitFor(async () => {
    const newest = await newestId('halt');
    expect(newest).not.toBe(first);
    return newest;
  }, 10_000);
  await world.deployedAgain(next);
  await world.work(world.home, {});
  const started = await starting;
  expect(started.code, started.err).toBe(0);
  expect(started.err).toContain(
    'halt is scaled to 0, so this version rests now: berth scale web=1 --project halt\n',
  );
  expect((await who.berth(['status', 'halt'])).out).toMatch(/^halt is scaled to 0; /);
  const again = await who.berth(['stop', 'halt']);
  expect(again.out).toBe('halt is stopped\n');
});

test('the usage of an instance comes from its last two points of the last minutes', () => {
  const point = (minute: number, cpu_seconds: number) => ({
    at: `2026-11-27T10:${String(minute).padStart(2, '0')}:00Z`,
    deployment_id: 'd1',
    started_at: '2026-11-27T09:00:00Z',
    cpu_seconds,
    throttled_seconds: 0,
    memory_bytes: 1_000 * minute,
    memory_limit: null,
    restarts: 2,
    oom_kills: 0,
    net_rx: 0,
    net_tx: 0,
  });
  const row = { deployment_id: 'd1' };
  const points = [point(8, 0), point(9, 30)];
  expect(newestOf({ points, to: '2026-11-27T10:09:30Z' }, row)).toEqual({
    cpu: 0.5,
    memory_bytes: 9_000,
    restarts: 2,
  });
  expect(newestOf({ points, to: '2026-11-27T10:20:00Z' }, row)).toBeNull();
  expect(newestOf({ points, to: '2026-11-27T10:09:30Z' }, { deployment_id: 'another' })).toBeNull();
});

test('each instance of a version has the usage of its own container', async () => {
  const asked: object[] = [];
  const client = {
    call: (_name: string, { query }: { query: { instance: number } }) => {
      asked.push(query);
      const point = (minute: number) => ({
        at: `2026-11-27T10:0${minute}:00Z`,
        deployment_id: 'd1',
        started_at: '2026-11-27T09:00:00Z',
        cpu_seconds: minute * 6 * query.instance,
        memory_bytes: 1_000 * query.instance,
        restarts: query.instance - 1,
      });
      return Promise.resolve({ points: [point(8), point(9)], to: '2026-11-27T10:09:30Z' });
    },
  };
  const rows = [1, 2].map((number) => ({
    id: `i${number}`,
    project_id: 'p1',
    deployment_id: 'd1',
    process: 'web',
    number,
  }));
  const usage = await usageOf({ client: () => client } as never, rows as never);
  expect(asked).toEqual([
    { process: 'web', instance: 1 },
    { process: 'web', instance: 2 },
  ]);
  expect([usage.get('i1'), usage.get('i2')]).toEqual([
    { cpu: 0.1, memory_bytes: 1_000, restarts: 0 },
    { cpu: 0.2, memory_bytes: 2_000, restarts: 1 },
  ]);
});
