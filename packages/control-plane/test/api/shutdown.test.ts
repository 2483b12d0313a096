/** End of the control plane while clients are connected. */
import { connect } from 'node:net';
import { expect, test } from 'vitest';
import { createApi } from './harness.ts';

test('a connection that never sent a request does not delay the end', {
  timeout: 30_000,
}, async () => {
  const api = await createApi({ env: { LISTEN: '127.0.0.1:0' }, overrides: { loops: false } });
  const { port } = new URL(await api.listen());
  // Browsers and HTTP clients open connections in advance.
  const socket = connect(Number(port), '127.0.0.1');
  await new Promise((resolve) => socket.once('connect', resolve));
  socket.on('error', () => undefined).resume();
  const began = performance.now();
  await api.close();
  // Requests get 10 s.
  expect(performance.now() - began).toBeLessThan(8_000);
  socket.destroy();
});
