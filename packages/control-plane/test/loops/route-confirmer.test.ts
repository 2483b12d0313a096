/** A confirmation says what the proxy was seen to serve: the address in the configuration that was asked for, not in a newer one. */
import { silentLogger } from '@berth/kit/log';
import { expect, test } from 'vitest';
import type { LoopDeps } from '../../src/loops/deps.ts';
import { routeConfirmer } from '../../src/loops/route-confirmer.ts';

test('its container gets another port while the proxy is asked: first the old address is confirmed, then the new one', async () => {
  const configOf = (host_port: number) => ({ hash: `h-${host_port}`, deployments: new Map([['d', { host_ip: '10.0.0.1', host_port }]]) });
  let config = configOf(32_001);
  const asked: string[] = [];
  const said: unknown[] = [];
  const run = routeConfirmer({
    // As the flow does: what leads elsewhere by now is not taken, and the deployment goes on waiting.
    stores: { deployments: { awaitingRoute: async () => (said.length < 2 ? [{ id: 'd', route_published_at: 1 }] : []) } },
    driver: { advance: async (id: string, event: object) => void said.push({ id, ...event }) },
    source: { current: () => config },
    probe: async (hash: string) => {
      asked.push(hash);
      config = configOf(32_002);
      return true;
    },
    settleMs: 0,
    monotonic: () => 0,
    log: silentLogger(),
  } as unknown as LoopDeps);
  await run(new AbortController().signal);
  expect(asked).toEqual(['h-32001', 'h-32002']);
  expect(said).toEqual([32_001, 32_002].map((host_port) => ({ id: 'd', type: 'route_confirmed', host_ip: '10.0.0.1', host_port })));
});
