/** Prometheus metrics of the gateway. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { checkMetrics, noPromtool } from '@berth/testbed/promtool';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type Running, startGateway } from './core-support.ts';

let berth: Running;
beforeAll(async () => {
  berth = await startGateway();
});
afterAll(() => berth.stop());

const scrape = async (): Promise<string> => (await berth.get('/metrics')).body;
const value = (text: string, series: string): number =>
  Number(
    text
      .split('\n')
      .find((line) => line.startsWith(`${series} `))
      ?.slice(series.length + 1) ?? Number.NaN,
  );

it.skipIf(noPromtool !== '')(`promtool check metrics${noPromtool}`, async () => {
  expect(checkMetrics(await scrape())).toEqual([]);
});

it('docs/metrics.md names every metric of the gateway, and no other', async () => {
  const wanted = [...(await scrape()).matchAll(/^# TYPE (berth_\S+) /gm)].map((m) => m[1] ?? '');
  const docs = await readFile(join(import.meta.dirname, '../../../docs/metrics.md'), 'utf8');
  const table = /^\| metric of the gateway .*\n(?:\|.*\n)+/m.exec(docs)?.[0] ?? '';
  const named = [...table.matchAll(/berth_\w+/g)].map((m) => m[0]);
  expect(named.toSorted()).toEqual(wanted.toSorted());
});

it('says what runs', async () => {
  expect(await scrape()).toMatch(
    /^berth_gateway_build_info\{version="\d+\.\d+\.\d+",node="\d+\.\d+\.\d+"\} 1$/m,
  );
});

it('measures every answer of /verify', async () => {
  const before = value(await scrape(), 'berth_verify_duration_seconds_count');
  for (let i = 0; i < 3; i++) await berth.get('/verify?project=p1');
  const text = await scrape();
  expect(value(text, 'berth_verify_duration_seconds_count') - before).toBe(3);
  expect(value(text, 'berth_verify_duration_seconds_sum')).toBeGreaterThan(0);
});

it('measures every other request by its route, never by its path', async () => {
  await berth.get('/_oauth/login');
  await berth.get('/random/path');
  const text = await scrape();
  expect(text).toMatch(
    /^berth_gateway_http_request_duration_seconds_count\{route="\/_oauth\/login",status="\d+"\} 1$/m,
  );
  expect(
    value(text, 'berth_gateway_http_request_duration_seconds_count{route="none",status="404"}'),
  ).toBe(1);
  expect(text).not.toContain('random');
});

it('counts logins by outcome', async () => {
  const { metrics } = berth.gateway;
  metrics.login({ outcome: 'refused', provider: 'oidc', reason: 'not_allowed' });
  metrics.login({ outcome: 'signed_in', provider: 'oidc', reason: null });
  const text = await scrape();
  expect(
    value(text, 'berth_logins_total{outcome="refused",provider="oidc",reason="not_allowed"}'),
  ).toBe(1);
  expect(value(text, 'berth_logins_total{outcome="signed_in",provider="oidc",reason=""}')).toBe(1);
});
