/** Fingerprints of shared secrets that a gateway gets. */
import { expect, onTestFinished, test } from 'vitest';
import { useKey } from '../../src/domain/secrets/rotation.ts';
import { createApi } from './harness.ts';

test('a gateway gets fingerprints of GATEWAY_SECRET and SESSION_SECRET only', async () => {
  const api = await createApi();
  onTestFinished(() => api.close());
  const print = (digit: string): string[] => [digit.repeat(12)];
  const values = {
    ...{ AGENT_SECRET: print('1'), GATEWAY_SECRET: print('2'), SESSION_SECRET: print('3') },
    ...{ JWT_SECRET: print('4'), SECRETS_KEY: print('5') },
  };
  const { meta } = api.stores;
  await meta.set(
    useKey.controlPlane('a'),
    JSON.stringify({ name: 'cp', at: Date.now(), values, key_id: 'wrapping' }),
  );
  await meta.set(
    useKey.signed('JWT_SECRET', '444444444444'),
    JSON.stringify({ until: Date.now() + 60_000 }),
  );
  await meta.set(
    useKey.signed('SESSION_SECRET', '333333333333'),
    JSON.stringify({ until: Date.now() + 60_000 }),
  );
  const { json, text } = await api.call('gatewayRotation');
  const { GATEWAY_SECRET, SESSION_SECRET } = values;
  expect(json).toMatchObject({
    control_planes: [{ name: 'cp', values: { GATEWAY_SECRET, SESSION_SECRET } }],
  });
  expect(json['signed']).toMatchObject([{ setting: 'SESSION_SECRET' }]);
  for (const digit of '145') expect(text).not.toContain(digit.repeat(12));
  expect(text).not.toMatch(/AGENT_SECRET|JWT_SECRET|SECRETS_KEY|wrapping/);
});
