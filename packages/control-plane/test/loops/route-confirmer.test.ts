/** A confirmation names the address in the probed configuration, not in a newer one. */
import { expect, test } from 'vitest';
import type { ReachTarget, ReachVerdict } from '../../src/domain/routes/configuration.ts';
import { type Deps, routeConfirmer } from '../../src/loops/route-confirmer.ts';

test('a port change during the probe confirms the old address first and then the new one', async () => {
  const configOf = (host_port: number) => ({
    hash: `h-${host_port}`,
    deployments: new Map([['d', { host_ip: '10.0.0.1', host_port }]]),
  });
  let config = configOf(32_001);
  const asked: string[] = [];
  const said: unknown[] = [];
  const run = routeConfirmer({
    // Like the flow: ignores a confirmation of an old address, so the deployment keeps waiting.
    deployments: {
      awaitingRoute: async () => (said.length < 2 ? [{ id: 'd', route_published_at: 1 }] : []),
    },
    driver: { advance: async (id: string, event: object) => void said.push({ id, ...event }) },
    source: { current: () => config },
    probe: async (hash: string) => {
      asked.push(hash);
      config = configOf(32_002);
      return true;
    },
    reach: null,
    settleMs: 0,
    monotonic: () => 0,
  } as unknown as Deps);
  await run(new AbortController().signal);
  expect(asked).toEqual(['h-32001', 'h-32002']);
  expect(said).toEqual(
    [32_001, 32_002].map((host_port) => ({
      id: 'd',
      type: 'route_confirmed',
      host_ip: '10.0.0.1',
      host_port,
    })),
  );
});

/** One waiting deployment, and a proxy whose marker answers, with its verdict about the node. */
function check(verdicts: readonly ReachVerdict[], markers: readonly boolean[] = [true]) {
  const said: Record<string, unknown>[] = [];
  const asked: ReachTarget[] = [];
  let marker = 0;
  const to = {
    project_id: 'p',
    host: 'shop.berth.test',
    host_ip: '10.0.0.1',
    host_port: 32_001,
    auth_required: false,
  };
  const run = routeConfirmer({
    deployments: {
      awaitingRoute: async () =>
        said.length === 0 && asked.length <= 3
          ? [{ id: 'd', route_published_at: 1, health_path: '/up?x=1' }]
          : [],
    },
    driver: { advance: async (id: string, event: object) => void said.push({ id, ...event }) },
    source: { current: () => ({ hash: 'h', deployments: new Map([['d', to]]) }) },
    probe: async () => markers[Math.min(marker++, markers.length - 1)],
    entryPoints: 2,
    reach: async (target: ReachTarget) => {
      asked.push(target);
      return verdicts[Math.min(asked.length, verdicts.length) - 1];
    },
    settleMs: 0,
    monotonic: () => 0,
  } as unknown as Deps);
  return { run: () => run(new AbortController().signal), said, asked, to };
}

test.each([
  [1_999, []],
  [2_000, ['d']],
])(
  'without an address of the proxy, a route is confirmed when it was served long enough: %d ms',
  async (servedFor, confirmed) => {
    const said: string[] = [];
    const end = new AbortController();
    let passes = 0;
    const run = routeConfirmer({
      deployments: {
        awaitingRoute: async () => {
          if (passes++ > 0) end.abort();
          return [{ id: 'd', route_published_at: 1, health_path: null }];
        },
      },
      driver: { advance: async (id: string) => void (passes === 1 && said.push(id)) },
      // Durations of this process: they have nothing to do with the time of day.
      source: {
        current: () => ({
          hash: 'h',
          deployments: new Map([['d', { host_ip: '10.0.0.1', host_port: 32_001 }]]),
        }),
        servedAt: () => 5_000,
      },
      probe: null,
      reach: null,
      settleMs: 2_000,
      monotonic: () => 5_000 + servedFor,
    } as unknown as Deps);
    await run(end.signal);
    expect(said).toEqual(confirmed);
  },
);

test('no route is confirmed before a request to the project’s own host through the proxy', async () => {
  const one = check([{ kind: 'reached' }]);
  await one.run();
  expect(one.asked).toEqual([{ ...one.to, path: '/up?x=1' }]);
  expect(one.said).toEqual([
    { id: 'd', type: 'route_confirmed', host_ip: '10.0.0.1', host_port: 32_001, entry_points: 2 },
  ]);
});

test('a proxy that cannot reach the node is reported with both addresses, and no route is confirmed', async () => {
  const one = check([{ kind: 'unreachable', proxy: 'https://10.0.0.9', saw: 'no answer' }]);
  await one.run();
  const { host_ip, host_port } = one.to;
  expect(one.said).toEqual([
    {
      id: 'd',
      type: 'route_unreachable',
      host_ip,
      host_port,
      proxy: 'https://10.0.0.9',
      saw: 'no answer',
    },
  ]);
});

test('a proxy that is down says nothing about the node and is asked again', async () => {
  // The marker answers, then does not answer when the verdict arrives, then answers again.
  const gone = check(
    [{ kind: 'unreachable', proxy: 'https://10.0.0.9', saw: 'no answer' }, { kind: 'reached' }],
    [true, false, true],
  );
  await gone.run();
  expect(gone.said.map((event) => event['type'])).toEqual(['route_confirmed']);
  const unasked = check([{ kind: 'no_proxy' }, { kind: 'reached' }]);
  await unasked.run();
  expect(unasked.said.map((event) => event['type'])).toEqual(['route_confirmed']);
});

test('the route of another project that is published meanwhile does not repeat the check of a node', async () => {
  const to = { project_id: 'p', host: 'a.test', host_ip: '10.0.0.1', host_port: 32_001 };
  let hash = 'h-1';
  let asked = 0;
  const said: string[] = [];
  const run = routeConfirmer({
    deployments: {
      awaitingRoute: async () =>
        said.length === 0 && asked < 3
          ? [{ id: 'd', route_published_at: 1, health_path: null }]
          : [],
    },
    driver: { advance: async (_id: string, { type }: { type: string }) => void said.push(type) },
    source: { current: () => ({ hash, deployments: new Map([['d', to]]) }) },
    // The proxy serves the newest configuration alone.
    probe: async (of: string) => of === hash,
    reach: async () => {
      asked += 1;
      hash = `h-${asked + 1}`;
      return { kind: 'unreachable', proxy: 'https://10.0.0.9', saw: '502 Bad Gateway' };
    },
    settleMs: 0,
    monotonic: () => 0,
  } as unknown as Deps);
  await run(new AbortController().signal);
  expect({ asked, said }).toEqual({ asked: 1, said: ['route_unreachable'] });
});

test('a check that is not possible confirms the route with the reason', async () => {
  const one = check([{ kind: 'unproven', why: 'http://10.0.0.9 only redirects to https' }]);
  await one.run();
  expect(one.said).toMatchObject([
    { type: 'route_confirmed', note: 'http://10.0.0.9 only redirects to https' },
  ]);
});
