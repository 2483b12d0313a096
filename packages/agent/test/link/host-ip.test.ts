/** Detection of HOST_IP. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it } from 'vitest';
import { createHostIp, localAddressTo } from '../../src/link/host-ip.ts';

it('HOST_IP is the setting, else the local address of a connection to the control plane', async () => {
  const server = createServer();
  await new Promise<void>((r) => server.listen(0, '127.0.0.1', r));
  expect(await localAddressTo(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)).toBe(
    '127.0.0.1',
  );
  const hostIp = createHostIp(
    undefined,
    `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
  );
  expect(await hostIp()).toBe('127.0.0.1');
  await new Promise((r) => server.close(r));
  expect(await hostIp()).toBe('127.0.0.1');
  expect(await createHostIp('10.1.1.1', 'http://127.0.0.1:9')()).toBe('10.1.1.1');
  await expect(createHostIp(undefined, 'http://127.0.0.1:9')()).rejects.toThrow(
    /detecting HOST_IP failed/,
  );
  await expect(localAddressTo('http://127.0.0.1:9')).rejects.toThrow(/ECONNREFUSED/);
});
