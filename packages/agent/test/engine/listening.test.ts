/** Reads the listening ports of a container. */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { listenersOf, parseListeners } from '../../src/engine/listening.ts';
import type { Docker } from '../../src/engine/docker.ts';

const HEAD =
  '  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout ' +
  'inode\n';
const row = (local: string, state = '0A'): string =>
  `   0: ${local} 00000000:0000 ${state} 00000000:00000000 00:00000000 00000000     0        0 ` +
  `12345 1 0000000000000000 100 0 0 10 0\n`;

it.each([
  ['00000000:1F90', { address: '0.0.0.0', port: 8080, loopback: false }],
  ['0100007F:1F90', { address: '127.0.0.1', port: 8080, loopback: true }],
  ['020011AC:2382', { address: '172.17.0.2', port: 9090, loopback: false }],
  ['00000000000000000000000000000000:1F90', { address: '::', port: 8080, loopback: false }],
  ['00000000000000000000000001000000:0050', { address: '::1', port: 80, loopback: true }],
  [
    '0000000000000000FFFF00000100007F:0050',
    { address: '::ffff:127.0.0.1', port: 80, loopback: true },
  ],
  [
    'B80D0120000000000000000001000000:0050',
    { address: '2001:db8:0:0:0:0:0:1', port: 80, loopback: false },
  ],
])('parseListeners reads %s', (local, listener) => {
  expect(parseListeners(HEAD + row(local))).toEqual([listener]);
});

it('parseListeners leaves out other states, the engine’s DNS server, and unreadable lines', () => {
  expect(
    parseListeners(`${HEAD}${row('0100007F:1F90', '01')}${row('0B00007F:9999')}garbage\n`),
  ).toEqual([]);
});

it('listenersOf finds the container’s process by its control group', async () => {
  const proc = await mkdtemp(join(tmpdir(), 'proc-'));
  const id = 'ab'.repeat(32);
  await mkdir(join(proc, '41', 'net'), { recursive: true });
  await writeFile(join(proc, '41', 'cgroup'), '0::/system.slice\n');
  await mkdir(join(proc, '42', 'net'), { recursive: true });
  await writeFile(join(proc, '42', 'cgroup'), `0::/docker/${id}\n`);
  await writeFile(join(proc, '42', 'net', 'tcp'), HEAD + row('0100007F:1F90'));
  const docker = { readInside: async () => null } as unknown as Docker;
  expect(await listenersOf(id, docker, proc)).toEqual([
    { address: '127.0.0.1', port: 8080, loopback: true },
  ]);
  expect(await listenersOf('cd'.repeat(32), docker, proc)).toBeNull();
  await rm(proc, { recursive: true });
});
