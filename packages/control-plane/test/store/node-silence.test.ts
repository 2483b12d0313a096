/** Two machines with one name: silence is measured by the uptime clock, whatever the machine's clock does. */
import { expect, test } from 'vitest';
import { NOW, open } from './fixtures.ts';

const SECOND = 1_000;
const HOUR = 3_600_000;
const OFFLINE = 120_000;

type Row = { jump: number; servedMs: number; sinceMs?: number; first: 'alive' | 'silent' };
test.each<[string, Row]>([
  ['no jump, first heard of 10 s ago', { jump: 0, servedMs: 10 * SECOND, first: 'alive' }],
  ['no jump, first silent', { jump: 0, servedMs: OFFLINE, first: 'silent' }],
  ['forward 1 h, first heard of 10 s ago', { jump: HOUR, servedMs: 10 * SECOND, first: 'alive' }],
  ['back 1 h, first heard of 10 s ago', { jump: -HOUR, servedMs: 10 * SECOND, first: 'alive' }],
  ['forward 1 h, first silent', { jump: HOUR, servedMs: OFFLINE, first: 'silent' }],
  ['back 1 h, first silent', { jump: -HOUR, servedMs: OFFLINE, first: 'silent' }],
  ['back 1 day, first silent', { jump: -24 * HOUR, servedMs: OFFLINE, first: 'silent' }],
  // A jump of the machine's clock, which runs on while no control plane serves.
  ['the control plane was away for 1 h', { jump: HOUR, servedMs: 10 * SECOND, sinceMs: 5 * SECOND, first: 'alive' }],
  [
    'the control plane was away for 1 h, and serves again for the offline time',
    { jump: HOUR, servedMs: 2 * OFFLINE, sinceMs: OFFLINE, first: 'silent' },
  ],
])('%s', async (_, { jump, servedMs, sinceMs = 0, first }) => {
  const stores = await open();
  const register = (host_ip: string, boot_id: string, after: number, jumped: number) =>
    stores.nodes.register(
      { hostname: 'h', role: 'deploy', host_ip, boot_id, max_storage: 1, agent_version: '1', containers: [] },
      NOW + after + jumped,
      undefined,
      { at: NOW + after, since: NOW + sinceMs },
    );
  await register('10.0.0.1', 'a', 0, 0);
  const other = register('10.0.0.2', 'b', servedMs, jump);
  if (first === 'alive') await expect(other).rejects.toMatchObject({ code: 'node_doubled' });
  else expect((await other).node.host_ip).toBe('10.0.0.2');
  // The holder of the name is shown, and the other machine is refused.
  const [owner, refused] = first === 'alive' ? ['10.0.0.1', '10.0.0.2'] : ['10.0.0.2', '10.0.0.1'];
  await register(owner, first === 'alive' ? 'a' : 'b', servedMs + SECOND, jump);
  await expect(register(refused, first === 'alive' ? 'b' : 'a', servedMs + 2 * SECOND, jump)).rejects.toMatchObject({
    code: 'node_doubled',
  });
  const [node] = await stores.nodes.all();
  expect(node).toMatchObject({ host_ip: owner, doubled: { host_ip: refused } });
});
