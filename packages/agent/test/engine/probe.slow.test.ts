/** The probe of a container that answers slowly, in real time. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it } from 'vitest';
import { probe } from '../../src/engine/probe.ts';

const never = new AbortController().signal;
it('a request without an answer gets more time at the next try: first answers may be slow', {
  timeout: 30_000,
}, async () => {
  const waits: number[] = [];
  const server = createServer((request, response) => {
    const from = performance.now();
    response.once('close', () => waits.push(performance.now() - from));
    if (waits.length > 0) setTimeout(() => response.end(), 7_000);
    else request.resume();
  });
  await new Promise<void>((r) => server.listen(0, '127.0.0.1', r));
  const { port } = server.address() as AddressInfo;
  expect(
    await probe({ host: '127.0.0.1', port, healthPath: null, visitorUrl: null }, 25_000, never),
  ).toMatchObject({ ok: true, tries: 2 });
  server.close();
});
