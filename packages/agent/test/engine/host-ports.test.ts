/** Which host port a new container gets, and how long a port that was given up rests. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLogger } from '@berth/kit/log';
import { beforeEach, expect, it, onTestFinished } from 'vitest';
import { createHostPorts, isPortTaken } from '../../src/engine/host-ports.ts';
import { createLocks } from '../../src/locks.ts';
import { TaskFailure } from '../../src/failures.ts';

let path: string;
/** The ports of the containers on the engine. */
let present: Set<number>;
beforeEach(() => {
  const dir = mkdtempSync(join(tmpdir(), 'host-ports-'));
  onTestFinished(() => rmSync(dir, { recursive: true }));
  path = join(dir, 'host-ports.json');
  present = new Set();
});

const never = new AbortController().signal;
/** A new process of the agent. */
const agent = (last = 20_004, startAt = 0) =>
  createHostPorts({
    range: { first: 20_000, last },
    path,
    listAll: async () => [...present].map((port) => ({ hostPort: null, fixedPort: port })),
    locks: createLocks(),
    log: silentLogger(),
    startAt: () => startAt,
  });
async function start(ports: Awaited<ReturnType<typeof agent>>): Promise<number> {
  const { port, release } = await ports.take(never);
  present.add(port);
  release();
  return port;
}

it('a port that was given up rests longest, also across restarts of the agent', async () => {
  let ports = await agent();
  const [a, b, c] = [await start(ports), await start(ports), await start(ports)];
  expect([a, b, c]).toEqual([20_000, 20_001, 20_002]);
  // The second one is given up first, then the first one, which was handed out before it.
  present.delete(b);
  expect(await start(ports)).toBe(20_003);
  present.delete(a);
  ports = await agent();
  expect(await start(ports)).toBe(20_004);
  ports = await agent();
  expect([await start(ports), await start(ports)]).toEqual([b, a]);
});

it('a stopped container keeps its port, and a range without a free port is an error that names the setting', async () => {
  const ports = await agent();
  for (let i = 0; i < 5; i += 1) await start(ports);
  await expect(ports.take(never)).rejects.toMatchObject({
    code: 'ports_exhausted',
    message: expect.stringMatching(/all 5 ports from 20000 to 20004 \(PUBLISH_PORTS\)/),
  });
  present.delete(20_003);
  expect(await start(ports)).toBe(20_003);
});

it('deployments at the same time get different ports', async () => {
  const ports = await agent();
  const taken = await Promise.all([ports.take(never), ports.take(never), ports.take(never)]);
  expect(new Set(taken.map(({ port }) => port)).size).toBe(3);
});

it('a port that the engine refused is not the next one', async () => {
  const ports = await agent();
  const refused = await ports.take(never);
  refused.release();
  expect(await start(ports)).not.toBe(refused.port);
});

it('without the order on disk, the search starts elsewhere; ports of containers stay theirs', async () => {
  await start(await agent());
  writeFileSync(path, '');
  const ports = await agent(20_004, 4);
  expect([await start(ports), await start(ports), await start(ports)]).toEqual([
    20_004, 20_001, 20_002,
  ]);
});

it('another range starts anew, and knows nothing of ports outside of it', async () => {
  const ports = await agent();
  for (let i = 0; i < 5; i += 1) await start(ports);
  present.clear();
  const wider = await agent(20_005);
  expect(await start(wider)).toBe(20_005);
});

it.each([
  ['Bind for 0.0.0.0:20000 failed: port is already allocated', true],
  ['failed to bind host port 0.0.0.0:20000/tcp: address already in use', true],
  ['listen tcp6 [::]:20000: bind: address already in use', true],
  ['listen tcp4 10.9.9.9:20000: bind: cannot assign requested address', false],
  ['no such image', false],
])('knows from the error of the engine whether the port is taken: %s', (message, taken) => {
  expect(isPortTaken(new TaskFailure('container_start_failed', message))).toBe(taken);
});
