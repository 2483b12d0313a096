/** Reporting sign-ins to the control plane: bounded, in order, and without delaying logins. */
import { createLogger } from '@berth/kit/log';
import { waitFor } from '@berth/testbed/wait';
import type { LoginSeen } from '@berth/wire/gateway';
import { expect, test } from 'vitest';
import { createReports } from '../../src/login/report.ts';
import { createControlPlane } from './control-plane.ts';

const seen = (n: number): LoginSeen => ({
  outcome: 'signed_in',
  email: `p${n}@example.test`,
  provider: 'github',
  address: '127.0.0.1',
  user_agent: 'x',
  reason: null,
});
const logged: string[] = [];
const log = createLogger({
  name: 'gateway',
  level: 'info',
  format: 'json',
  destination: { write: (line) => void logged.push(line) },
});

test('sign-ins during an outage of the control plane are reported afterwards, in order', async () => {
  const cp = createControlPlane();
  const reports = createReports(cp.client, log);
  cp.away = true;
  for (let i = 0; i < 3; i++) reports.send(seen(i));
  await waitFor('it was tried', () => cp.calls.includes('loginSeen'));
  expect(cp.logins).toEqual([]);
  cp.away = false;
  await waitFor('all are told', () => cp.logins.length === 3);
  expect(cp.logins).toEqual([seen(0), seen(1), seen(2)]);
  await reports.close();
});

test('a long outage does not fill the memory and does not prevent the gateway from stopping', async () => {
  const cp = createControlPlane();
  const reports = createReports(cp.client, log);
  cp.away = true;
  logged.length = 0;
  for (let i = 0; i < 1_000; i++) reports.send(seen(i));
  expect(logged.filter((line) => line.includes('the queue is full')).length).toBe(499);
  await reports.close();
  expect(logged.join('')).not.toContain('@example.test');
});

test('a flood of refusals, which anybody can make, keeps no sign-in and no sign-out out of the audit log', async () => {
  const cp = createControlPlane();
  const reports = createReports(cp.client, log);
  cp.away = true;
  for (let i = 0; i < 2_000; i++)
    reports.send({ ...seen(i), outcome: 'refused', email: null, reason: 'provider_denied' });
  const done = [seen(1), { ...seen(1), outcome: 'signed_out' as const }];
  for (const one of done) reports.send(one);
  cp.away = false;
  await waitFor('some arrived', () => cp.logins.length >= 100);
  expect(cp.logins.filter(({ outcome }) => outcome !== 'refused')).toEqual(done);
  // They go first: only the report that was under way is before them.
  expect(cp.logins.findIndex(({ outcome }) => outcome !== 'refused')).toBeLessThanOrEqual(1);
  await reports.close();
});
