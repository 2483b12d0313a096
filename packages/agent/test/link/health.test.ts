/** The pages of the agent. */
import { expect, it } from 'vitest';
import { startHealthServer } from '../../src/link/health.ts';

it('the health server answers /healthz, /readyz and /metrics', async () => {
  let reasons = ['not yet'];
  let broken = false;
  const server = await startHealthServer(
    { host: '127.0.0.1', port: 0 },
    {
      readiness: () =>
        Promise.resolve({
          ready: reasons.length === 0,
          reasons,
          refusal: null,
          notes: [],
          warnings: [],
        }),
      metrics: () =>
        broken
          ? Promise.reject(new Error('out of order'))
          : Promise.resolve({ type: 'text/plain; version=0.0.4', text: 'a 1\n' }),
    },
  );
  const get = async (path: string): Promise<number> =>
    (await fetch(`http://127.0.0.1:${server.port}${path}`)).status;
  expect([await get('/healthz'), await get('/readyz'), await get('/x')]).toEqual([200, 503, 404]);
  reasons = [];
  expect(await get('/readyz')).toBe(200);
  const metrics = await fetch(`http://127.0.0.1:${server.port}/metrics`);
  expect([metrics.status, metrics.headers.get('content-type'), await metrics.text()]).toEqual([
    200,
    'text/plain; version=0.0.4',
    'a 1\n',
  ]);
  expect((await fetch(`http://127.0.0.1:${server.port}/metrics`, { method: 'POST' })).status).toBe(
    405,
  );
  broken = true;
  expect([await get('/metrics'), await get('/healthz')]).toEqual([500, 200]);
  await server.close();
});
