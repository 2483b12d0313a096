/** Addresses of deploy nodes in the answers to registrations, for the firewall rules of agents. */
import { expect, onTestFinished, test } from 'vitest';
import { createNeighbours } from '../../src/api/neighbours.ts';
import { createApi } from './harness.ts';

type Answer = { neighbours?: { etag: string; addresses: string[] } };

test('an agent that asks gets the list once, and again when a node joined; an agent of the contract gets none', async () => {
  const api = await createApi();
  onTestFinished(() => api.close());
  const register = async (hostname: string, host_ip: string, more: object = {}): Promise<Answer> =>
    (
      await api.call('agentRegister', {
        body: { hostname, role: 'deploy', host_ip, max_storage: 1, ...more },
      })
    ).json;
  expect((await register('n1', '10.0.0.1')).neighbours).toBeUndefined();
  const first = (await register('n1', '10.0.0.1', { neighbours_etag: '' })).neighbours;
  expect(first?.addresses).toEqual(['10.0.0.1']);
  expect(
    (await register('n1', '10.0.0.1', { neighbours_etag: first?.etag })).neighbours,
  ).toBeUndefined();
  // The field is no news about the node: the answer to people has neither.
  const [node] = (await api.call('listNodes')).json['items'] as Record<string, unknown>[];
  expect(node).not.toHaveProperty('neighbours');
});

test('the list has IPv4 addresses of other machines, sorted, each once, not those of nodes that are being deleted; at most 500', async () => {
  const node = (host_ip: string, deleting_at: number | null = null) => ({ host_ip, deleting_at });
  const given = [
    node('10.0.0.9'),
    node('10.0.0.10'),
    node('10.0.0.9'),
    node('127.0.0.1'),
    node('fd00::1'),
    node('node.example'),
    node('10.9.9.9', 5),
  ];
  let clock = 0;
  const nodes = { all: async () => given as never };
  const neighbours = createNeighbours(nodes, () => clock);
  expect((await neighbours(''))?.addresses).toEqual(['10.0.0.10', '10.0.0.9']);
  for (let i = 0; i < 600; i++) given.push(node(`10.1.${Math.floor(i / 250)}.${i % 250}`));
  // The list is kept for a moment: a registration of each of 10,000 nodes must not read them all.
  expect((await neighbours(''))?.addresses).toHaveLength(2);
  clock += 15_001;
  expect((await neighbours(''))?.addresses).toHaveLength(500);
});

test('a database that fails once does not stay the answer', async () => {
  let fails = true;
  const neighbours = createNeighbours({
    all: () => (fails ? Promise.reject(new Error('locked')) : Promise.resolve([])),
  });
  await expect(neighbours('')).rejects.toThrow('locked');
  fails = false;
  expect(await neighbours('')).toMatchObject({ addresses: [] });
});
