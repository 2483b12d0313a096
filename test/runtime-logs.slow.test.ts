/**
 * Runtime logs from a container to a viewer: the real control plane and the reader of the real
 * agent, with an engine in memory.
 */
import { silentLogger } from '@berth/kit/log';
import { createClient } from '@berth/wire/client';
import type { RuntimeLine, RuntimeLogs } from '@berth/wire/runtime';
import { LABELS } from '@berth/wire/vocabulary';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createExits } from '../packages/agent/src/logs/exits.ts';
import { createLogReaders, type LogReaders } from '../packages/agent/src/logs/readers.ts';
import { createRedact } from '../packages/agent/src/secrets/redaction.ts';
import type { Container, Docker } from '../packages/agent/src/engine/docker.ts';
import { createWorld } from '../packages/control-plane/test/api/deployed.ts';
import {
  AGENT_SECRET,
  type Api,
  createApi,
  createProject,
  register,
} from '../packages/control-plane/test/api/harness.ts';
import {
  unexplainedGaps,
  view,
  type Viewer,
} from '../packages/control-plane/test/api/log-viewer.ts';
import { createLogEngine } from './log-engine.ts';

let api: Api;
let base = '';
let project = '';
let deployment = '';
let node = '';
let readers: LogReaders;
/** Its clock is an hour behind. */
const engine = createLogEngine(-3_600_000);
const { logs, print, following } = engine;

const container = (): Container => ({
  id: 'c1',
  name: 'svc-shop',
  image: '',
  imageId: '',
  labels: { [LABELS.deployment]: deployment, [LABELS.node]: node },
  state: 'running',
  exitCode: 3,
  oomKilled: false,
  startedAt: '2026-11-23T19:00:00.000Z',
  finishedAt: null,
  memoryBytes: null,
  cpus: null,
  error: '',
  hostPort: 1,
  fixedPort: 1,
  restarts: 0,
  health: null,
  stopSignal: 'SIGTERM',
});
beforeAll(async () => {
  api = await createApi();
  base = await api.listen();
  const world = await createWorld(api);
  node = world.home;
  project = await createProject(api);
  deployment = await world.live(project);
  await register(api, {
    hostname: 'node-1',
    role: 'deploy',
    agent_version: '0.1.0',
    capabilities: ['logs'],
  });
  const client = createClient({
    baseUrl: base,
    headers: () => ({ 'x-agent-secret': AGENT_SECRET }),
  });
  readers = createLogReaders({
    client: {
      ...client,
      call: async (...args: Parameters<typeof client.call>) => {
        const answer = await client.call(...args);
        await new Promise((resolve) => setTimeout(resolve, lateMs));
        return answer;
      },
    } as typeof client,
    docker: { logs },
    listContainers: async () => [container()],
    redactOf: async () => createRedact(['swordfish-secret']),
    nodeId: () => node,
    onRestart: () => undefined,
    now: engine.now,
    log: silentLogger(),
  });
  // The agent's poll of tasks, which says what is wanted.
  void (async () => {
    let etag = '';
    while (!polling.signal.aborted) {
      const answer = await fetch(`${base}/api/agent/tasks?node_id=${node}&wait=5`, {
        headers: { 'x-agent-secret': AGENT_SECRET, 'if-none-match': etag },
        signal: polling.signal,
      });
      etag = answer.headers.get('etag') ?? '';
      readers.wanted(answer.headers.get('x-logs-wanted'));
    }
  })().catch(() => undefined);
}, 120_000);
const polling = new AbortController();
/** How late the answers of the control plane reach the agent. */
let lateMs = 0;
afterAll(async () => {
  polling.abort();
  await readers.stop();
  await api.close();
}, 120_000);

const headers = (who: 'viewer' | 'developer' = 'viewer'): Record<string, string> => ({
  authorization: `Bearer ${api.token(who)}`,
});
const page = async (query = ''): Promise<RuntimeLogs> =>
  (await (
    await fetch(`${base}/api/projects/${project}/logs${query}`, { headers: headers() })
  ).json()) as RuntimeLogs;
const texts = (lines: readonly RuntimeLine[]): string[] => lines.map((line) => line.text);

const follow = (
  lastId?: string,
  query = '',
  who: 'viewer' | 'developer' = 'viewer',
): Promise<Viewer> => view(base, project, api.token(who), query, lastId);
const linesOf = (viewer: Viewer) => viewer.of('line').map(({ text }) => text);

test('nothing printed is an empty answer', async () => {
  expect(await page()).toEqual({ lines: [], truncated: false });
});

test('lines as JSON: newest first cut, clean, without secrets, at the time of the control plane', async () => {
  for (let i = 1; i <= 5; i++) print(`line ${i}`);
  print(Buffer.from([0xff, 0xfe, 0x00, 0x41]));
  print('\u001b[2J\u001b]0;title\u0007\u001b[31mred\u001b[0m swordfish-secret', 'stderr');
  print('x'.repeat(1_000_000));
  const all = await page();
  expect(texts(all.lines).slice(0, 5)).toEqual(['line 1', 'line 2', 'line 3', 'line 4', 'line 5']);
  expect(texts(all.lines)[5]).toBe('\uFFFD\uFFFD\uFFFDA');
  expect(texts(all.lines)[6]).toBe('\u001b[31mred\u001b[0m ***');
  expect(all.lines[7]?.text.length).toBeLessThan(16_100);
  expect(all.lines[7]?.text).toMatch(/… \(line cut: \d+ more characters\)$/);
  for (const { at } of all.lines)
    expect(Math.abs(Date.now() - Date.parse(at))).toBeLessThan(60_000);
  expect(all.truncated).toBe(false);
  const two = await page('?tail=2');
  expect([two.lines.length, two.truncated]).toEqual([2, true]);
  expect(texts((await page('?stream=stderr')).lines)).toEqual(['\u001b[31mred\u001b[0m ***']);
  expect((await page('?since=2020-01-01T00:00:00Z&tail=1000')).lines).toHaveLength(8);
});

test('a stream shows the last lines once and then new ones; ten viewers share one reader; Last-Event-ID resumes', async () => {
  const viewers = await Promise.all(
    Array.from({ length: 10 }, (_, i) =>
      follow(undefined, '?tail=3', i % 2 === 0 ? 'viewer' : 'developer'),
    ),
  );
  await expect
    .poll(() => viewers.every((v) => linesOf(v).length === 3), { timeout: 20_000 })
    .toBe(true);
  for (let i = 1; i <= 300; i++) print(`new ${i}`);
  const expected = Array.from({ length: 300 }, (_, i) => `new ${i + 1}`);
  for (const viewer of viewers)
    await expect.poll(() => linesOf(viewer).slice(3), { timeout: 20_000 }).toEqual(expected);
  expect([engine.follows(), following.size]).toEqual([1, 1]);
  for (const viewer of viewers) expect(viewer.events.filter((e) => e.event !== 'line')).toEqual([]);
  const id = viewers[0]?.events.at(-1)?.id;
  viewers.forEach((viewer) => viewer.close());
  print('while away');
  const back = await follow(id);
  await expect.poll(() => linesOf(back), { timeout: 20_000 }).toEqual(['while away']);
  print('and back');
  await expect.poll(() => linesOf(back), { timeout: 20_000 }).toEqual(['while away', 'and back']);
  back.close();
});

test('a line that is printed right after the request is shown, however late the agent hears of it', async () => {
  print('before the request');
  lateMs = 1_500;
  const viewer = await follow(undefined, '?tail=0');
  print('right after it');
  await new Promise((resolve) => setTimeout(resolve, 2_000));
  lateMs = 0;
  print('later');
  await expect
    .poll(() => linesOf(viewer), { timeout: 20_000 })
    .toEqual(['right after it', 'later']);
  viewer.close();
});

test('a container that prints without end: no line comes twice, all are in order, and each gap is marked', async () => {
  const viewer = await follow(undefined, '?tail=0');
  await expect.poll(() => following.size, { timeout: 20_000 }).toBe(1);
  print('begin');
  await expect.poll(() => linesOf(viewer).at(-1), { timeout: 20_000 }).toBe('begin');
  for (let i = 0; i < 60_000; i++) print(`line ${i} ${'.'.repeat(80)}`);
  await new Promise((resolve) => setTimeout(resolve, 3_000));
  print('the end');
  await expect.poll(() => linesOf(viewer).at(-1), { timeout: 30_000 }).toBe('the end');
  const shown = linesOf(viewer).slice(1, -1);
  expect(shown.length).toBeGreaterThan(1_000);
  expect(shown.length).toBeLessThan(60_000);
  expect(unexplainedGaps(viewer, -1)).toEqual([]);
  viewer.close();
});

test('a node that goes silent is gone, and an agent without the capability says so', async () => {
  await register(api, {
    hostname: 'node-1',
    role: 'deploy',
    agent_version: '0.1.0',
    capabilities: [],
  });
  expect(await page()).toEqual({
    lines: [],
    truncated: false,
    unavailable: 'the agent of node node-1 sends no logs',
  });
  const viewer = await follow();
  await expect.poll(() => viewer.events[0]?.event, { timeout: 20_000 }).toBe('gone');
  viewer.close();
});

test('the end of a container is stored before it is removed, and read as JSON afterwards', async () => {
  let removed = false;
  const exits = createExits({
    docker: {
      logs,
      inspect: async () => ({
        ...container(),
        state: 'exited',
        finishedAt: '2026-11-23T21:00:00.000Z',
      }),
      remove: async () => void (removed = true),
    } as unknown as Docker,
    redactOf: async () => createRedact(['swordfish-secret']),
    client: createClient({ baseUrl: base, headers: () => ({ 'x-agent-secret': AGENT_SECRET }) }),
    nodeId: () => node,
    isOwn: () => true,
    log: silentLogger(),
  });
  print('last words swordfish-secret');
  await exits.docker.remove('c1');
  await exits.docker.remove('c1');
  expect(removed).toBe(true);
  const { json } = await api.call('deploymentExits', { params: { id: deployment } });
  const items = json['items'] as {
    exit_code: number;
    lines: { text: string }[];
    truncated: boolean;
  }[];
  expect(items).toHaveLength(1);
  expect(items[0]).toMatchObject({ exit_code: 3, truncated: true });
  expect(items[0]?.lines).toHaveLength(200);
  expect(items[0]?.lines.at(-1)?.text).toBe('last words ***');
  await exits.stop();
});

test('an agent cannot report an end for a deployment that never ran on its node', async () => {
  const other = await register(api, { hostname: 'node-2', role: 'deploy' });
  const before = (await api.call('deploymentExits', { params: { id: deployment } })).json['items'];
  const exit = {
    deployment_id: deployment,
    container_id: 'c9',
    container: 'svc-forged',
    exit_code: 0,
    out_of_memory: false,
    error: null,
  };
  const body = {
    node_id: other,
    exits: [{ ...exit, started_at: null, finished_at: null, lines: [], truncated: false }],
  };
  expect((await api.call('agentExits', { body })).status).toBe(403);
  expect((await api.call('deploymentExits', { params: { id: deployment } })).json['items']).toEqual(
    before,
  );
});

test('one person opens a few streams; the next one is 429, and its end makes room', async () => {
  const open = (signal: AbortSignal): Promise<Response> =>
    fetch(`${base}/api/projects/${project}/logs?tail=0`, {
      headers: { ...headers('developer'), accept: 'text/event-stream' },
      signal,
    });
  const stop = new AbortController();
  const statuses: number[] = [];
  for (let i = 0; i < 9; i++) statuses.push((await open(stop.signal)).status);
  expect(statuses).toEqual([200, 200, 200, 200, 200, 200, 200, 200, 429]);
  stop.abort();
  const later = new AbortController();
  await expect
    .poll(async () => (await open(later.signal)).status, { timeout: 20_000, interval: 200 })
    .toBe(200);
  later.abort();
});
