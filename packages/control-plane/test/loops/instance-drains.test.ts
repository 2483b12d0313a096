/** When the container of a draining instance is removed. */
import { silentLogger } from '@berth/kit/log';
import { expect, test } from 'vitest';
import type { FlowEvent } from '../../src/flow/events.ts';
import { type Deps, instanceDrains } from '../../src/loops/instance-drains.ts';
import { NOW } from '../flow/fixtures.ts';

const go = new AbortController().signal;

function loop(over: Partial<Deps> & { since?: number }) {
  const events: [string, FlowEvent][] = [];
  let refreshed = 0;
  const deps = {
    instances: {
      draining: async () => [{ id: 'i2', deployment_id: 'd1', since: over.since ?? NOW }],
    },
    driver: { advance: async (id: string, event: FlowEvent) => void events.push([id, event]) },
    source: {
      current: () => ({ hash: 'h' }),
      refresh: async () => void (refreshed += 1),
      servedAt: () => null,
    },
    probe: async () => false,
    settleMs: 2_000,
    limits: { routeMs: 20_000 },
    monotonic: () => 10_000,
    log: silentLogger(),
    ...over,
  };
  return { run: instanceDrains(deps as unknown as Deps), events, refreshed: () => refreshed };
}
const left = ['d1', { type: 'instance_left', instance_id: 'i2' }];

test('it is removed when every proxy serves a configuration without it', async () => {
  const hashes: string[] = [];
  const { run, events, refreshed } = loop({
    probe: async (hash) => {
      hashes.push(hash);
      return true;
    },
  });
  await run(go);
  expect([events, hashes, refreshed()]).toEqual([[left], ['h'], 1]);
});

test('it stays while a proxy has the earlier configuration, for at most ROUTE_TIMEOUT', async () => {
  let clock = 10_000;
  // The machine's clock was set back: the drain began in the future.
  const { run, events } = loop({ since: NOW + 86_400_000, monotonic: () => clock });
  await run(go);
  clock += 19_999;
  await run(go);
  expect(events).toEqual([]);
  clock += 1;
  await run(go);
  expect(events).toEqual([left]);
});

test('without PROXY_PROBE_URLS, it is removed a while after the proxy fetched the configuration', async () => {
  const source = { current: () => ({ hash: 'h' }), refresh: async () => undefined };
  for (const [servedAt, expected] of [
    [9_000, []],
    [8_000, [left]],
  ] as const) {
    const { run, events } = loop({
      probe: null,
      source: { ...source, servedAt: () => servedAt } as unknown as Deps['source'],
    });
    await run(go);
    expect(events).toEqual(expected);
  }
});
