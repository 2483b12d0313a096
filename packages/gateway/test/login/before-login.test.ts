/**
 * Requests without a session: the cost of form bodies, and client addresses that a client invented.
 */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { readConfig } from '../../src/config.ts';
import { ENV } from '../core-support.ts';
import { type Site, startSite, titleOf } from './support.ts';

let site: Site;
beforeAll(async () => {
  site = await startSite(() => ({}));
});
afterAll(() => site.close());

const FORM = { 'content-type': 'application/x-www-form-urlencoded' };
const post = (url: string, payload: string, at = site) =>
  at.gateway.server.inject({
    method: 'POST',
    url,
    payload,
    headers: { ...FORM, host: new URL(at.url).host },
  });

/** As many parameters as fit into 16 KiB, each with a different name. */
const WIDE = Array.from({ length: 3_300 }, (_, i) => `${i.toString(36)}=`)
  .join('&')
  .slice(0, 16_000);

test('a form of 16 KiB is refused and costs at most a few ms of CPU time', async () => {
  await post('/_oauth/devices', WIDE);
  const before = process.threadCpuUsage();
  for (let i = 0; i < 20; i++) {
    const page = await post('/_oauth/devices', WIDE);
    expect([page.statusCode, titleOf(page.body)]).toEqual([400, 'This form could not be read']);
  }
  const { user, system } = process.threadCpuUsage(before);
  const ms = (user + system) / 20_000;
  // The complete request takes about 5 ms here. A parser that reads the form once per parameter
  // took 70 ms more.
  expect(ms).toBeLessThan(30);
  const device = await post('/_oauth/device/token', WIDE);
  expect([device.statusCode, device.json()]).toMatchObject([400, { error: 'invalid_request' }]);
});

test('a form with 20 parameters is parsed, a form with 21 is refused', async () => {
  const parameters = (count: number): string =>
    ['device_code=x', ...Array.from({ length: count - 1 }, (_, i) => `p${i}=1`)].join('&');
  expect((await post('/_oauth/device/token', parameters(20))).json()).toMatchObject({
    error: 'invalid_grant',
  });
  expect((await post('/_oauth/device/token', parameters(21))).json()).toMatchObject({
    error: 'invalid_request',
  });
});

test('a repeated parameter counts as missing, and names of prototype properties are ordinary names', async () => {
  for (const body of [
    'device_code=a&device_code=b',
    '__proto__=x&constructor=y',
    'device_code%5B%5D=a',
  ])
    expect((await post('/_oauth/device/token', body)).json()).toMatchObject({
      error: 'invalid_request',
    });
});

test('TRUSTED_PROXIES: X-Forwarded-For counts only behind a trusted proxy', async () => {
  const ask = async (at: Site): Promise<string | undefined> => {
    await at.gateway.server.inject({
      method: 'POST',
      url: '/_oauth/device/code',
      headers: { host: new URL(at.url).host, 'x-forwarded-for': '198.51.100.7, 203.0.113.9' },
    });
    return at.cp.codes.at(-1)?.address;
  };
  // The tests' proxy is on this machine, so the last entry is the address that it saw.
  expect(await ask(site)).toBe('203.0.113.9');
  for (const [given, seen] of [
    ['none', '127.0.0.1'],
    ['192.0.2.1', '127.0.0.1'],
    ['loopback, 203.0.113.0/24', '198.51.100.7'],
  ] as const) {
    const other = await startSite(() => ({ TRUSTED_PROXIES: given }));
    expect([given, await ask(other)]).toEqual([given, seen]);
    await other.close();
  }
});

test.each(['10.0.0.0/33', '10.0.0', '::/129', 'everybody', '10.0.0.0/8/8'])(
  'TRUSTED_PROXIES=%s is refused at the start',
  (given) => {
    expect(() => readConfig({ ...ENV, STATE_DIR: '/tmp', TRUSTED_PROXIES: given })).toThrow(
      /TRUSTED_PROXIES: neither an address nor a network/,
    );
  },
);
