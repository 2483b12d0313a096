import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startProber } from '../src/prober.ts';
import { waitFor } from '../src/wait.ts';

/** Answers only when the test lets it. */
const held: ServerResponse[] = [];
const server = createServer((_, response) => void held.push(response));
beforeAll(() => new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve)));
afterAll(() => void server.close());

test('mostOpen: a slow server gets no further requests, and the ones that it missed are not sent later', async () => {
  const { port } = server.address() as AddressInfo;
  const entry = { host: '127.0.0.1', port, secure: false };
  const prober = startProber({
    entry,
    host: 'a.localhost',
    perSecond: 200,
    versionOf: Number,
    mostOpen: 3,
    timeoutMs: 60_000,
  });
  await waitFor('three requests wait', () => held.length === 3);
  const from = performance.now();
  await waitFor('twenty more would have been due', () => performance.now() - from > 100);
  expect(held).toHaveLength(3);
  for (const response of held.splice(0)) response.end('1');
  await waitFor('the next three wait', () => held.length === 3);
  const stopped = prober.stop();
  for (const response of held) response.end('1');
  expect(await stopped).toMatchObject({ sent: 6, failed: 0, stale: 0, versions: [1] });
});
